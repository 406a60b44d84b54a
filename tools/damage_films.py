#!/usr/bin/env python3
"""Damage of videos that ends in clips: copies of footage in several codecs, each with noise at one
position of its data.

    damage_films.py --weft build/weft --work DIR [--codecs hevc,vp9,...]
                    [--sizes 60,500,4000,20000] [--seed S] [--seconds N] FILM...

For each codec and size of noise it prints the number of frames in accepted clips that are below 30
dB of the undamaged copy, with `video.check_corruption` off and on, the number of frames in clips,
and the frames that undamaged copies lose with the check (which must be 0)."""
import argparse
import json
import math
import pathlib
import random
import shutil
import subprocess

CODECS = {
    "hevc": ("mkv", "-c:v libx265 -preset veryfast -crf 25 -x265-params log-level=none:keyint=96"),
    "vp9": ("webm", "-c:v libvpx-vp9 -crf 34 -b:v 0 -cpu-used 6 -deadline realtime -g 96"),
    "cabac": ("mp4", "-c:v libx264 -preset fast -g 96"),
    "cavlc": ("mp4", "-c:v libx264 -preset fast -g 60 -coder 0"),
    "mpeg4": ("mp4", "-c:v mpeg4 -q:v 4 -g 48 -bf 2"),
    "av1": ("mkv", "-c:v libsvtav1 -preset 10 -crf 35 -g 96"),
}
WIDTH, HEIGHT = 320, 180
SETTINGS = ["workers=1", "duplicates.on=false", "clips.preset=ultrafast", "clips.crf=10", "clips.crop_borders=false", "clips.min_frames=1",
            "clips.min_seconds=0", "quality.max_motion=1000", "quality.min_motion=0", "quality.min_sharpness=0", "quality.min_brightness=0",
            "quality.max_brightness=255", "video.max_concealed=1", "video.max_damaged=1"]


def gray(path):
    """Frames, each with its time."""
    run = subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-i", path, "-vsync", "passthrough", "-vf", f"scale={WIDTH}:{HEIGHT}:flags=area",
                          "-f", "rawvideo", "-pix_fmt", "gray", "-"], capture_output=True)
    size = WIDTH * HEIGHT
    return [run.stdout[i:i + size:7] for i in range(0, len(run.stdout), size)]


def decibels(a, b):
    error = sum((x - y) ** 2 for x, y in zip(a, b)) / len(a)
    return 10 * math.log10(255 ** 2 / error) if error else 99


def damaged(film, count, rng):
    text = subprocess.run(["ffprobe", "-v", "error", "-select_streams", "v:0", "-show_entries", "packet=pos,size", "-of", "csv=p=0", film],
                          capture_output=True, text=True).stdout
    packets = [tuple(int(x) for x in line.split(",")[:2]) for line in text.split()]
    first, end = min(at for _, at in packets), max(at + size for size, at in packets)
    data = bytearray(film.read_bytes())
    at = rng.randrange(first, max(first + 1, end - count))
    data[at:at + count] = rng.randbytes(count)
    return bytes(data[:film.stat().st_size])


def curated(args, folder, prove, whole):
    """(frames in clips, those under 30 dB)"""
    out = args.work / "out"
    shutil.rmtree(out, ignore_errors=True)
    settings = [x for s in SETTINGS + [f"video.check_corruption={prove}"] for x in ("--set", s)]
    subprocess.run([args.weft, "curate", "--in", folder, "--out", out, *settings], check=True, capture_output=True)
    kept = bad = 0
    for line in map(json.loads, open(out / "manifest.jsonl")):
        then, first = whole[line["source_video"].split(".")[0]], line["duration_span"][0]
        clip = gray(out / line["clip"])
        kept += len(clip)
        for k, frame in enumerate(clip):  # frames that were lost do not count: by time
            at = min(round(first * line["framerate_source"]) + k, len(then) - 1)
            bad += decibels(frame, then[at]) < 30
    return kept, bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", required=True, type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--codecs", default=",".join(CODECS))
    parser.add_argument("--sizes", default="60,500,4000,20000")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("films", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    for codec in args.codecs.split(","):
        ending, options = CODECS[codec]
        copies = args.work / codec
        shutil.rmtree(copies, ignore_errors=True)
        copies.mkdir(parents=True)
        whole = {}
        for film in args.films:
            copy = copies / f"{film.stem}.{ending}"
            subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-i", film, "-t", str(args.seconds), "-an", "-vf", "scale=640:-2", "-pix_fmt",
                            "yuv420p", *options.split(), copy], check=True, capture_output=True)
            whole[film.stem] = gray(copy)
        kept = [curated(args, copies, prove, whole) for prove in ("false", "true")]
        print(f"{codec} whole: {kept[0][0]} frames kept without the proof, {kept[1][0]} with it", flush=True)
        for count in map(int, args.sizes.split(",")):
            bad = args.work / "bad"
            shutil.rmtree(bad, ignore_errors=True)
            bad.mkdir()
            for copy in sorted(copies.iterdir()):
                (bad / copy.name).write_bytes(damaged(copy, count, random.Random(f"{copy.name}/{count}/{args.seed}")))
            kept = [curated(args, bad, prove, whole) for prove in ("false", "true")]
            print(f"{codec} {count} B: under 30 dB {kept[0][1]} of {kept[0][0]} frames in clips without the proof, {kept[1][1]} of {kept[1][0]} "
                  "with it", flush=True)


if __name__ == "__main__":
    main()
