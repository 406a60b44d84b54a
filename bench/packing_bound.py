#!/usr/bin/env python3
"""Upper bound of packed rows compared with buckets by max_tokens, by counting.

usage: packing_bound.py

The rank with the most tokens determines the time of a step. Packed rows give every rank the same number.
A bucket of samples of t tokens has n = floor(R N / t) samples for R ranks with N tokens each, and
the busiest rank has ceil(n / R) of them. The ratio over an epoch is the most that rows without
padding can gain. Fixed costs of a step and attention, which grows with the sample, are not counted.
"""
from math import ceil

# clips of bench/mixed_set.sh: samples by tokens
MIXED = {32: 32, 96: 16, 72: 16, 216: 8, 128: 8, 384: 8}

def ratio(clips, ranks, tokens):
    busiest = ideal = 0
    for t, count in clips.items():
        n = max(1, ranks * tokens // t)
        busiest += count / n * ceil(n / ranks) * t
        ideal += count * t / ranks
    return busiest / ideal


def main():
    print("machine: counted\n| tokens per rank | ranks | packed to buckets, at most |\n|---|---|---|")
    for tokens in (512, 1024, 2048):
        for ranks in (1, 2, 4, 8, 64):
            print(f"| {tokens} | {ranks} | {ratio(MIXED, ranks, tokens):.2f} |")


main()
