#!/usr/bin/env python3
"""Upper bounds of packed rows compared with buckets, by counting.

usage: packing_bound.py

Packed rows give every rank N tokens. Two ways to fill a step of R ranks from a bucket whose samples
have t tokens:

    max_tokens       n = floor(R N / t) samples of all ranks; the busiest rank has ceil(n / R) of them,
                     which can be more than N tokens
    whole samples    floor(N / t) samples of each rank (`batch` of the bucket); never more than N tokens

"To max_tokens, at most" is the gain of rows over an epoch if the time of a step is in proportion to
the tokens of its busiest rank. Compared with whole samples this gain is 1.00. Costs of a step that do
not depend on its tokens (the update, the exchange of weights and gradients) favour rows, because a step
of whole samples has fewer tokens: "to whole samples, at most" is the gain if a step had no other costs.
Attention, which grows with the sample, and costs of rows are not counted.
"""
from math import ceil, erf, log, sqrt

# clips of bench/mixed_set.sh: samples by tokens
MIXED = {32: 32, 96: 16, 72: 16, 216: 8, 128: 8, 384: 8}


def lengths():
    """Clips of 832 x 480 at 16 frames/s, of 1 to 21 latent frames with 1,560 tokens each. Seconds are
    lognormal with a median of 4 and a deviation of 0.8 (of the logarithm); longer clips are cut to 81
    frames, shorter ones to the next latent frame. An assumption, not a measured set."""
    def below(frames):
        return 0.5 * (1 + erf(log(frames / 16 / 4) / 0.8 / sqrt(2)))

    edges = [below(1 + 4 * k) for k in range(21)] + [1.0]
    return {1560 * (k + 1): edges[k + 1] - edges[k] for k in range(21)}


def by_max_tokens(clips, ranks, tokens):
    busiest = ideal = 0
    for t, count in clips.items():
        n = max(1, ranks * tokens // t)
        busiest += count / n * ceil(n / ranks) * t
        ideal += count * t / ranks
    return busiest / ideal


def fill(clips, tokens):
    """Tokens of a mean step of whole samples, as a share of a row: at most 1."""
    rows = sum(count * t for t, count in clips.items()) / tokens
    return rows / sum(count / max(1, tokens // t) for t, count in clips.items())


def main():
    print("machine: counted\n| set | tokens per rank | ranks | to max_tokens, at most | tokens of whole samples % "
          "| to whole samples, at most |\n|---|---|---|---|---|---|")
    for name, clips, sizes in (("mixed", MIXED, (512, 1024, 2048)), ("lengths", lengths(), (32760, 65520))):
        for tokens in sizes:
            filled = fill(clips, tokens)
            for ranks in (1, 2, 4, 8, 64):
                print(f"| {name} | {tokens} | {ranks} | {by_max_tokens(clips, ranks, tokens):.2f} "
                      f"| {100 * filled:.0f} | {1 / filled:.2f} |")


if __name__ == "__main__":
    main()
