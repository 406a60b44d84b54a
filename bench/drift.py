"""Drift of videos, for drift.sh, in the folder of its results.

usage: drift.py FRAMES SIDE SEEDS [NAME=FOLDER...]

Brightness is the mean of a frame, background the median of each channel. The drift to the last frame is
the distance from the first, in levels of 255, and the largest drift that of any frame; of the background the
largest channel. A row of generated videos has the mean of the seeds, and the smallest and the largest seed.
NAME=FOLDER is a row of the first videos of a folder that have enough frames, scaled to SIDE, at 12 frames
per second.
"""
import glob
import itertools
import statistics
import subprocess
import sys

FIGURES = "brightness last", "brightness largest", "background last", "background largest"
MOST = 100  # videos of a folder


def frames_of(path, count, side, rate):
    command = ["ffmpeg", "-v", "error", "-nostdin", "-i", path, "-frames:v", str(count), "-vf", rate + f"scale={side}:{side}", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    data = subprocess.run(command, capture_output=True).stdout
    size = side * side * 3
    return [data[i:i + size] for i in range(0, len(data) // size * size, size)]


def drift(frames):
    """The four figures of a video."""
    mean = [sum(f) / len(f) for f in frames]
    median = [[statistics.median(f[c::3]) for c in range(3)] for f in frames]
    bright = [abs(m - mean[0]) for m in mean]
    ground = [max(abs(a - b) for a, b in zip(m, median[0])) for m in median]
    return bright[-1], max(bright), ground[-1], max(ground)


def mean_of(paths, count, side, rate=""):
    """Means over the first videos that have enough frames, and their number."""
    enough = (v for v in (frames_of(p, count, side, rate) for p in paths) if len(v) == count)
    videos = list(itertools.islice(enough, MOST))
    return [statistics.mean(c) for c in zip(*map(drift, videos))], len(videos)


def main():
    count, side, seeds = map(int, sys.argv[1:4])
    print("| videos | number |", " | ".join(FIGURES), "|\n|---|---|" + "---|" * len(FIGURES))
    means = {}
    for way, title in ("piece", "one piece"), ("windows", "blended windows"):
        each = [mean_of(sorted(glob.glob(f"{way}-{seed}/*.mp4")), count, side) for seed in range(1, seeds + 1)]
        columns = list(zip(*(figures for figures, _ in each)))
        means[way] = [statistics.mean(c) for c in columns]
        cells = [f"{m:.1f} ({min(c):.1f} to {max(c):.1f})" for m, c in zip(means[way], columns)]
        print(f"| {title} | {sum(n for _, n in each)} |", " | ".join(cells), "|")
    print("| windows / one piece | - |", " | ".join(f"{w / p:.2f}" for w, p in zip(means["windows"], means["piece"])), "|")
    for name, folder in (argument.split("=", 1) for argument in sys.argv[4:]):
        clips = sorted(p for p in glob.glob(folder + "/**/*.*", recursive=True) if p.endswith((".mp4", ".mkv", ".webm")))
        figures, n = mean_of(clips, count, side, "fps=12,")
        print(f"| {name} | {n} |", " | ".join(f"{x:.1f}" for x in figures), "|")


main()
