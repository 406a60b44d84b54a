#!/usr/bin/env python3
"""Upper bounds of packed rows compared with buckets, by counting.

usage: packing_bound.py

Packed rows give every rank N tokens. Two ways to fill a step of R ranks from a bucket whose samples
have t tokens:

    max_tokens       n = floor(R N / t) samples of all ranks; the busiest rank has ceil(n / R) of them,
                     which can be more than N tokens
    whole samples    floor(N / t) samples of each rank (`batch` of the bucket); never more than N tokens

"To max_tokens, at most" is the gain of rows over an epoch if the time of a step is in proportion to
the tokens of its busiest rank and rows have no padding. The padding is that of rows filled from an epoch
in order of size, each sample into the fullest row with place for it. "Busiest" is the largest number of tokens of a rank with max_tokens, in rows.
Compared with whole samples the gain is 1.00 in this sense. Costs of a step that do
not depend on its tokens (the update, the exchange of weights and gradients) favour rows, because a step
of whole samples has fewer tokens: "to whole samples, at most" is the gain if a step had no other costs.
Attention, which grows with the sample, and costs of rows are not counted.
"""
from math import ceil, erf, log, sqrt

SHARES = (1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4)  # tokens of a row, in largest samples


def lengths(median, images=0):
    """Clips of 832 x 480 at 16 frames/s, of 1 to 21 latent frames with 1,560 tokens each, for 1,000
    samples. Seconds are lognormal with a deviation of 0.8 (of the logarithm); longer clips are cut to
    81 frames, shorter ones to a latent frame. `images`: share of samples that are images of this size."""
    def below(frames):
        return 0.5 * (1 + erf(log(frames / 16 / median) / 0.8 / sqrt(2)))

    edges = [0] + [below(1 + 4 * k) for k in range(1, 21)] + [1.0]
    counts = {1560 * (k + 1): round(1000 * (1 - images) * (edges[k + 1] - edges[k])) for k in range(21)}
    counts[1560] += round(1000 * images)
    return {t: count for t, count in counts.items() if count}


# samples by tokens
SETS = {
    # clips of bench/mixed_set.sh and of bench/packing.sh, 100 epochs: the last row counts little
    "mixed": {32: 3200, 96: 1600, 72: 1600, 216: 800, 128: 800, 384: 800},
    "clips": {128: 1400, 192: 1000, 256: 800, 320: 600, 384: 2200},
    "lengths": lengths(4),
    "long": lengths(6.2),  # mean of 8.5 s
    "images": lengths(6.2, 0.3),
    "one length": {1600: 300, 25600: 700},  # 1 and 61 frames of 640 x 640, 16 x 16 pixels a token
}


def samples_of(ranks, tokens, t):
    return max(1, ranks * tokens // t)


def busiest(clips, ranks, tokens):
    """The largest number of tokens of a rank with max_tokens."""
    return max(ceil(samples_of(ranks, tokens, t) / ranks) * t for t in clips)


def padding(clips, tokens):
    """Share of empty tokens, if each sample goes into the fullest row, in order of size."""
    rows = {}  # free tokens to number of rows
    for t in sorted(clips, reverse=True):
        for _ in range(clips[t]):
            free = min((f for f in rows if f >= t), default=None)
            if free is None:
                free = tokens
            else:
                rows[free] -= 1
                if not rows[free]:
                    del rows[free]
            rows[free - t] = rows.get(free - t, 0) + 1
    return sum(free * count for free, count in rows.items()) / (tokens * sum(rows.values()))


def gain(clips, ranks, tokens):
    """Gain of rows to max_tokens, at most."""
    time = work = 0
    for t, count in clips.items():
        n = samples_of(ranks, tokens, t)
        time += count / n * ceil(n / ranks) * t
        work += count * t / ranks
    return time / work


def fill(clips, tokens):
    """Tokens of a mean step of whole samples, as a share of a row: at most 1."""
    rows = sum(count * t for t, count in clips.items()) / tokens
    return rows / sum(count / max(1, tokens // t) for t, count in clips.items())


def main():
    print("machine: counted\n| set | tokens per rank | largest samples per row | 1 rank | 2 ranks | 4 ranks "
          "| 8 ranks | 64 ranks | busiest of 2 | busiest of 8 | padding % | to whole samples, at most |\n"
          "|---|---|---|---|---|---|---|---|---|---|---|---|")
    for name, clips in SETS.items():
        sizes = {int(share * max(clips)) for share in SHARES}
        if name == "mixed":
            sizes |= {512, 640, 896, 1024, 1280}
        for tokens in sorted(sizes):
            gains = " | ".join(f"{gain(clips, r, tokens):.2f}" for r in (1, 2, 4, 8, 64))
            peaks = " | ".join(f"{busiest(clips, r, tokens) / tokens:.2f}" for r in (2, 8))
            print(f"| {name} | {tokens} | {tokens / max(clips):.2f} | {gains} | {peaks} | {100 * padding(clips, tokens):.1f} "
                  f"| {1 / fill(clips, tokens):.2f} |")


if __name__ == "__main__":
    main()
