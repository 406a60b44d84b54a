"""Drift of videos, for drift.sh, in the folder of its results.

usage: drift.py FRAMES SIDE SEEDS [NAME=FOLDER...]

Brightness is the mean of a frame, background the median of each channel. The drift to the last frame is
the distance from the first, in levels of 255, and the largest drift that of any frame; of the background the
largest channel. Rows from frame 8 skip the first frames, which the autoencoder encodes with few others. A row of generated videos has the mean of the seeds, and the smallest and the largest seed.
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
STARTS = 0, 8  # frames that count as the first


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


def read(paths, count, side, rate=""):
    """The first videos that have enough frames."""
    enough = (v for v in (frames_of(p, count, side, rate) for p in paths) if len(v) == count)
    return list(itertools.islice(enough, MOST))


def means_of(videos, start):
    return [statistics.mean(c) for c in zip(*(drift(v[start:]) for v in videos))]


def print_row(name, number, start, cells):
    print(f"| {name} | {number} | {start} |", " | ".join(cells), "|")


def main():
    count, side, seeds = map(int, sys.argv[1:4])
    print("| videos | number | from frame |", " | ".join(FIGURES), "|\n|---|---|---|" + "---|" * len(FIGURES))
    videos = {way: [read(sorted(glob.glob(f"{way}-{seed}/*.mp4")), count, side) for seed in range(1, seeds + 1)] for way in ("piece", "windows")}
    for start in STARTS:
        means = {}
        for way, title in ("piece", "one piece"), ("windows", "blended windows"):
            columns = list(zip(*(means_of(one, start) for one in videos[way])))
            means[way] = [statistics.mean(c) for c in columns]
            print_row(title, sum(map(len, videos[way])), start, [f"{m:.1f} ({min(c):.1f} to {max(c):.1f})" for m, c in zip(means[way], columns)])
        print_row("windows / one piece", "-", start, [f"{w / p:.2f}" for w, p in zip(means["windows"], means["piece"])])
    for name, folder in (argument.split("=", 1) for argument in sys.argv[4:]):
        clips = sorted(p for p in glob.glob(folder + "/**/*.*", recursive=True) if p.endswith((".mp4", ".mkv", ".webm")))
        clips = read(clips, count, side, "fps=12,")
        print_row(name, len(clips), 0, [f"{x:.1f}" for x in means_of(clips, 0)])


main()
