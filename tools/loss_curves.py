#!/usr/bin/env python3
"""tools/loss_curves.py TITLE NAME=DIR... > FILE.svg: losses of training runs, such as docs/notes/curves.

DIR is the output folder of `weft train`. The loss has a logarithmic scale. A point is the mean of 20
steps, of 10 with at most 500 steps. If two runs are given, prints the mean loss of their last 50
steps, and the mean and largest difference of a step, to standard error."""
import json
import math
import os
import sys

LEFT, RIGHT, TOP, BOTTOM = 46, 626, 25, 265
COLOURS = ("#0072b2", 3), ("#d55e00", 1.4), ("#009e73", 1.4), ("#cc79a7", 1.4)
TICKS = 1, 1.5, 2, 3, 5, 7


def losses(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [row["loss"] for row in rows if "loss" in row]


def means(values, of):
    return [sum(values[i : i + of]) / of for i in range(0, len(values) - of + 1, of)]


def ticks(low, high):
    """Losses with a line, at least 18 units apart."""
    shown = []
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for value in (t * 10**power for t in TICKS):
            if low <= value <= high and (not shown or place(shown[-1], low, high) - place(value, low, high) >= 18):
                shown.append(value)
    return shown


def place(loss, low, high):
    return BOTTOM - (BOTTOM - TOP) * math.log(loss / low) / math.log(high / low)


def intervals(steps):
    """4, 3 or 5 parts: those whose length has the fewest digits without the last zeros."""
    return min((n for n in (4, 3, 5, 1) if steps % n == 0), key=lambda n: len(str(steps // n).rstrip("0")))


def drawing(title, runs):
    steps = min(len(values) for values in runs.values())
    of = 10 if steps <= 500 else 20
    points = {name: means(values[:steps], of) for name, values in runs.items()}
    low, high = (pick(v for line in points.values() for v in line) for pick in (min, max))
    yield ('<svg xmlns="http://www.w3.org/2000/svg" width="640" height="300" viewBox="0 0 640 300" font-family="sans-serif" '
           'font-size="12">')
    yield '<rect width="640" height="300" fill="white"/>'
    for value in ticks(low, high):
        y = place(value, low, high)
        yield f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="#ddd"/><text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    parts = intervals(steps)
    for i in range(parts + 1):
        x = LEFT + (RIGHT - LEFT) * i / parts
        yield f'<text x="{x:.0f}" y="282" text-anchor="middle">{steps * i // parts}</text>'
    for (colour, width), line in zip(COLOURS, points.values()):
        dots = " ".join(f"{LEFT + (RIGHT - LEFT) * i / max(1, len(line) - 1):.1f},{place(v, low, high):.1f}" for i, v in enumerate(line))
        yield f'<polyline fill="none" stroke="{colour}" stroke-width="{width}" points="{dots}"/>'
    yield f'<text x="336" y="18" text-anchor="middle">{title}, means of {of} steps</text>'
    for i, ((colour, width), name) in enumerate(zip(COLOURS, points)):
        x = RIGHT - 51 - 55 * (len(points) - 1 - i)
        yield f'<path d="M{x} 34h18" stroke="{colour}" stroke-width="{width}"/><text x="{x + 21}" y="38">{name}</text>'
    yield "</svg>"


def compare(runs):
    (first, a), (second, b) = runs.items()
    last = [sum(values[-50:]) / len(values[-50:]) for values in (a, b)]
    apart = [abs(x - y) / abs(x) for x, y in zip(a, b)]
    print(f"last 50 steps: {first} {last[0]:.4f}, {second} {last[1]:.4f}; a step differs by {100 * sum(apart) / len(apart):.2g} % "
          f"on average and {100 * max(apart):.2g} % at most", file=sys.stderr)


def main(words):
    if len(words) < 2 or len(words) > 1 + len(COLOURS) or not all("=" in word for word in words[1:]):
        sys.exit(__doc__)
    runs = {name: losses(folder) for name, _, folder in (word.partition("=") for word in words[1:])}
    print("\n".join(drawing(words[0], runs)))
    if len(runs) == 2:
        compare(runs)


if __name__ == "__main__":
    main(sys.argv[1:])
