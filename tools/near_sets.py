#!/usr/bin/env python3
"""Copies of footage with each kind of edit that curation must find, and a count of the found ones.

    near_sets.py make FOOTAGE OUT [--films N] [--seconds S] [--kinds a,b]   originals and copies, by ffmpeg
    near_sets.py score CURATED                                             of a `weft curate --in OUT --out CURATED`

A copy of NAME.mp4 is called NAME--KIND.mp4. A copy counts as found if all its shots are rejected as
duplicates of the original or of its copies. A video whose shots are rejected for another video's is
a false pair."""
import argparse
import collections
import json
import pathlib
import subprocess
import sys

COLOURS = ["red", "yellow", "white", "blue", "green", "orange", "cyan", "magenta", "black", "gray"]
PLACES = ["x=W*.05:y=H*.05", "x=W*.78:y=H*.05", "x=W*.05:y=H*.75", "x=W*.78:y=H*.75"]


def crop(share, x=None, y=None):
    place = "" if x is None else f":iw*{x}:ih*{y}"
    return ["-vf", f"crop=trunc(iw*{share}/2)*2:trunc(ih*{share}/2)*2{place}"]


def kinds(n, other):
    logo = (f"color={COLOURS[n % 10]}:size=128x96,drawgrid=w=24:h={16 + 3 * (n % 10)}:t=6:c=white,format=yuv420p,"
            f"scale={12 + n % 5}0:-2")
    caption = (f"drawtext=text='A caption, number {n}, that says what is to be seen':fontsize=h/12:fontcolor=white:box=1:"
               "boxcolor=black@0.6:x=(w-text_w)/2:y=h-text_h*1.8")
    return {
        "crop05": crop(0.95),
        "crop10": crop(0.9),
        "crop15": crop(0.85, 0.02, 0.1),
        "crop20": crop(0.8, 0.15, 0.05),
        "logo": ["-f", "lavfi", "-i", logo, "-filter_complex", f"[0:v][1:v]overlay={PLACES[n % 4]}:shortest=1"],
        "caption": ["-vf", caption],
        "gray": ["-vf", "hue=s=0"],
        "warm": ["-vf", "colorbalance=rs=.2:rm=.15:rh=.1:bs=-.2:bm=-.15:bh=-.1"],
        "temperature": ["-vf", "colortemperature=temperature=4200"],
        "cool": ["-vf", "colorbalance=rs=-.15:rm=-.12:bs=.15:bm=.15:bh=.1,eq=contrast=1.1:saturation=.8"],
        "inset": ["-stream_loop", "9", "-i", str(other), "-filter_complex",
                  "[1:v][0:v]scale2ref=w=trunc(main_w*.3/2)*2:h=trunc(main_h*.3/2)*2[p][m];"
                  "[m][p]overlay=x=W*.66:y=H*.05:shortest=1"],
        "crf34": ["-crf", "34"],
    }


def encode(source, to, options, seconds):
    crf = options[-1] if "-crf" in options else "20"
    command = ["ffmpeg", "-v", "error", "-nostdin", "-y", "-i", str(source)]
    command += [] if "-crf" in options else options
    command += ["-t", str(seconds), "-an", "-c:v", "libx264", "-preset", "veryfast", "-crf", crf, "-pix_fmt", "yuv420p", str(to)]
    subprocess.run(command, check=True)


def make(args):
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    footage = sorted(p for p in pathlib.Path(args.footage).iterdir() if p.is_file())[args.first:]
    films = footage[:args.films] if args.films else footage
    for n, film in enumerate(films):
        source = out / f"{film.stem}.mp4"
        scale = "scale='trunc(if(gt(iw,ih),min(iw,960),iw*min(1,960/ih))/2)*2':-2"
        encode(film, source, ["-vf", scale], args.seconds)
        for kind, options in kinds(n, films[(n + 1) % len(films)]).items():
            if not args.kinds or kind in args.kinds.split(","):
                encode(source, out / f"{film.stem}--{kind}.mp4", options, args.seconds)


def score(args):
    folder = pathlib.Path(args.curated)
    kept, found, false = collections.Counter(), collections.Counter(), []
    film_of = lambda name: name.rsplit(".", 1)[0].split("--")[0]
    for line in open(folder / "manifest.jsonl"):
        kept[json.loads(line)["source_video"]] += 1
    for line in open(folder / "rejects.jsonl"):
        reject = json.loads(line)
        if reject["operator"] != "duplicate":
            continue
        name, of = reject["source"], reject["reason"].split(" as ", 1)[1].split(", frames")[0]
        found[name] += 1
        if film_of(name) != film_of(of):
            false.append((name, of))
    made, whole = collections.Counter(), collections.Counter()
    for name in set(kept) | set(found):
        kind = (name.rsplit(".", 1)[0].split("--") + ["original"])[1]
        made[kind] += 1
        whole[kind] += kept[name] == 0
    for kind in sorted(made):
        print(f"{kind:12} {whole[kind]} of {made[kind]}")
    for name, of in false:
        print(f"false pair: {name} of {of}")
    films = {film_of(name) for name in set(kept) | set(found)}  # one of each is to be kept
    print(f"copies found {sum(whole.values())} of {sum(made.values()) - len(films)}, false pairs {len(false)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("make")
    one.add_argument("footage")
    one.add_argument("out")
    one.add_argument("--films", type=int, default=0)
    one.add_argument("--first", type=int, default=0)
    one.add_argument("--seconds", type=float, default=6)
    one.add_argument("--kinds", default="")
    two = verbs.add_parser("score")
    two.add_argument("curated")
    args = parser.parse_args()
    (make if args.verb == "make" else score)(args)


if __name__ == "__main__":
    sys.exit(main())
