#!/usr/bin/env python3
"""Damaged shards, checkpoints, latents, models and videos: each is named or harmless.

    damage.py --weft build/weft --work DIR [--rounds N] [--seed S]
              [--kinds shard,checkpoint,latents,model,film] [--films FOLDER]

Each round damages one file of a small run that tools/kills.py would make: truncated, emptied,
lengthened, with ranges of zeros, 60 bytes to 20 kB of noise or flipped bits, removed, or exchanged
with another file of its kind. Then weft must name the file (or its checkpoint or clip), or give
bitwise the result of the undamaged file. Wrong is a crash, another result that is not reported, and
a file that is still damaged although it was reported as rebuilt. Counted separately: bytes in a
coded picture that FFmpeg decodes without a message and that weft does not find either."""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import kills

SHORT = ["--set", "stages.0.steps=12", "--set", "stages.1.steps=8", "--set", "checkpoint.interval=5", "--set", "checkpoint.keep_latest=9"]


# ---- what is done to a file -------------------------------------------------------------------------------------------

def cut(rng, d):
    return d[:rng.randrange(len(d))]


def emptied(rng, d):
    return b""


def longer(rng, d):
    return d + rng.randbytes(rng.randint(1, 2000))


def replaced(rng, d, new):
    at = rng.randrange(max(1, len(d) - len(new)))
    return (d[:at] + new + d[at + len(new):])[:len(d)]


def hole(rng, d):
    return replaced(rng, d, bytes(rng.choice([64, 512, 4096, 20000])))


def noise(rng, d):
    return replaced(rng, d, rng.randbytes(rng.choice([60, 500, 4000, 20000])))


def flip(rng, d):
    d = bytearray(d)
    for _ in range(rng.choice([1, 1, 8])):
        d[rng.randrange(len(d))] ^= 1 << rng.randrange(8)
    return bytes(d)


HOWS = {"cut": cut, "emptied": emptied, "longer": longer, "hole": hole, "noise": noise, "flip": flip, "gone": None, "swapped": None}


def damage(rng, path, siblings, how=None):
    """Does something to the file, and says what; None where nothing changed."""
    how = how or rng.choice(list(HOWS))
    before = path.read_bytes()
    if how == "gone":
        path.unlink()
        return how
    if how == "swapped":
        other = [p for p in siblings if p != path and p.suffix == path.suffix]
        after = rng.choice(other).read_bytes() if other else before
    else:
        after = HOWS[how](rng, before)
    if after == before:
        return None
    path.write_bytes(after)
    return how


# ---- checks of weft's results --------------------------------------------------------------------------------------------

def weft(args, folder, *command):
    env = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    run = subprocess.run([args.weft, *command], cwd=folder, env=env, capture_output=True, text=True, errors="replace", timeout=300)
    return run.returncode, run.stdout + run.stderr


class Kind:
    """`files(folder)`: what may be damaged; `use(folder)`: the command; `result(folder)`: what it gives; `named(path, text)`: whether it was said."""

    def __init__(self, args, rng):
        self.args, self.rng = args, rng

    def fresh(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        kills.prepare_folder(self.args, None, folder)

    def named(self, path, text):
        return path.name in text


class Shard(Kind):
    """Shards and their indexes, of which a VAE is trained."""

    def fresh(self, folder):
        super().fresh(folder)
        os.unlink(folder / "shards")
        shutil.copytree(self.args.work / "shards", folder / "shards")

    def files(self, folder):
        return sorted(p for p in (folder / "shards").rglob("*") if p.is_file() and p.stat().st_size)

    def use(self, folder):
        return weft(self.args, folder, "train", "vae.yaml", "--set", "out=out", "--set", "stages.0.steps=8")

    def result(self, folder):
        return kills.losses(folder / "out/metrics.jsonl")

    def named(self, path, text):
        used = re.search(r"data: (\d+) of (\d+) samples", text)
        return path.name in text or "corrupt" in text or "do not decode" in text or bool(used) and used.group(1) != used.group(2)


class Checkpoint(Kind):
    """The newest checkpoint of a run that resumes."""
    step = "step-00000015"

    def fresh(self, folder):
        super().fresh(folder)
        shutil.copytree(self.args.work / "run", folder / "out")
        shutil.rmtree(folder / "out/model")
        shutil.rmtree(folder / "out/checkpoints/step-00000020")

    def files(self, folder):
        return sorted(p for p in (folder / "out/checkpoints" / self.step).rglob("*") if p.is_file() and p.stat().st_size)

    def use(self, folder):
        return weft(self.args, folder, "train", "dit.yaml", "--set", "out=out", *SHORT)

    def result(self, folder):
        return kills.losses(folder / "out/metrics.jsonl"), kills.content(folder / "out/model")

    def named(self, path, text):
        return path.name in text or self.step in text


class Latents(Checkpoint):
    def files(self, folder):
        return sorted(p for p in (folder / "out/latents").rglob("*") if p.is_file() and p.stat().st_size)

    def named(self, path, text):
        return path.name in text or path.parent.name + ": none of" in text or "are encoded already" in text


class Model(Kind):
    """The weights of a finished model that makes a video."""

    def named(self, path, text):
        return str(path.parent.relative_to(path.parents[2])) in text

    def fresh(self, folder):
        super().fresh(folder)
        os.unlink(folder / "model")
        shutil.copytree(self.args.work / "run/model", folder / "model")

    def files(self, folder):
        return sorted((folder / "model").rglob("*.safetensors"))

    def use(self, folder):
        return weft(self.args, folder, "generate", "--model", "model", "--prompt", "a red circle", "--steps", "2", "--frames-npy", "--out", "out/x.mp4")

    def result(self, folder):
        return kills.content(folder / "out")


class Film(Kind):
    """Curated videos: every damaged one has a line that reports it, or its clips are
    the undamaged ones."""

    def fresh(self, folder):
        super().fresh(folder)
        os.unlink(folder / "raw")
        films = sorted(p for p in pathlib.Path(self.args.films).iterdir() if p.is_file() and p.stat().st_size)
        (folder / "raw").mkdir()
        film = self.args.film or self.rng.choice(films)
        self.args.film = film
        shutil.copy(film, folder / "raw")

    def files(self, folder):
        return sorted((folder / "raw").iterdir())

    def use(self, folder):
        return weft(self.args, folder, "curate", "--in", "raw", "--out", "out", "--set", "duplicates.on=false", "--set", "clips.max_side=128",
                    "--set", "clips.preset=ultrafast")

    def result(self, folder):
        out = folder / "out"
        return {p.name: kills.digest(p.read_bytes()) for p in sorted((out / "clips").glob("*"))}

    def told(self, folder):
        out = folder / "out"
        lines = [json.loads(x) for name in ("rejects", "manifest") for x in (out / f"{name}.jsonl").read_text().splitlines()]
        return any(x.get("operator") in ("decode", "damaged", "truncated", "type") or x.get("damaged_source") or x.get("damaged_packets_source")
                   for x in lines)


KINDS = {"shard": Shard, "checkpoint": Checkpoint, "latents": Latents, "model": Model, "film": Film}


def play(args, name, rng, whole):
    """(what was done, "named", "harmless", "unseen" or what is wrong)"""
    args.film = None
    kind, folder = KINDS[name](args, rng), args.work / "now"
    kind.fresh(folder)
    key = name + str(args.film or "")
    if key not in whole:
        code, text = kind.use(folder)
        if code:
            sys.exit(f"{key} does not even work undamaged:\n{text}")
        whole[key] = kind.result(folder)
        kind.fresh(folder)
    files = kind.files(folder)
    path = rng.choice(files)
    how = damage(rng, path, files, rng.choice([h for h in HOWS if h not in ("gone", "swapped")]) if name == "film" else None)
    if not how:
        return None, None
    done = f"{name} {path.relative_to(folder)} {how}"
    try:
        code, text = kind.use(folder)
    except subprocess.TimeoutExpired:
        return done, "it does not end"
    if code not in (0, 1) or re.search("Segmentation|Assertion|Sanitizer", text):
        return done, f"exit code {code}: {text[-300:]}"
    named = kind.named(path, text)
    if code == 1:
        return done, "named" if named else f"it ends without naming it: {text[-300:]}"
    same = kind.result(folder) == whole[key]
    if name == "film":
        if same or kind.told(folder):
            return done, "named" if kind.told(folder) else "harmless"
        return done, "unseen" if is_unseen(path) else "other clips, not reported"
    if same:
        return done, "named" if named else "harmless"
    return done, "named" if named and name == "shard" else f"another result: {text[-300:]}"


def is_unseen(path):
    """Whether FFmpeg decodes the file without a message."""
    run = subprocess.run(["ffmpeg", "-v", "warning", "-nostdin", "-i", str(path), "-f", "null", "-"], capture_output=True, text=True)
    return not run.stderr.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", required=True, type=os.path.realpath)
    parser.add_argument("--work", required=True, type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--kept", action="store_true", help="the data that are in DIR")
    parser.add_argument("--films", help="folder of footage; without it, films of weft synth")
    args = parser.parse_args()
    names = args.kinds.split(",")
    unknown = [n for n in names if n not in KINDS]
    if unknown:
        sys.exit(f"damage.py: no kind {unknown[0]}; there are {', '.join(KINDS)}")
    args.work.mkdir(parents=True, exist_ok=True)
    kills.make_data(args)
    args.films = args.films or args.work / "data/synth/train"
    folder = args.work / "now"
    shutil.rmtree(args.work / "shards", ignore_errors=True)
    weft(args, args.work, "shard", "--in", "data/cur", "--out", "shards", "--set", "heldout=0", "--set", "max_samples=8")
    kills.prepare_folder(args, None, folder)
    code, text = weft(args, folder, "train", "dit.yaml", "--set", "out=out", *SHORT)
    if code:
        sys.exit(text)
    shutil.rmtree(args.work / "run", ignore_errors=True)
    os.rename(folder / "out", args.work / "run")
    counts, whole, bad, n, drawn = collections.Counter(), {}, 0, 0, 0
    while n < args.rounds:
        rng = random.Random(f"{args.seed}/{drawn}")
        drawn += 1
        done, verdict = play(args, names[n % len(names)], rng, whole)
        if not done:
            continue
        known = verdict in ("named", "harmless", "unseen")
        counts[names[n % len(names)] + " " + (verdict if known else "wrong")] += 1
        if not known:
            bad += 1
            print(f"round {n}: {done}: {verdict}", flush=True)
            shutil.rmtree(args.work / f"bad-{args.seed}-{n}", ignore_errors=True)
            os.rename(folder, args.work / f"bad-{args.seed}-{n}")
        n += 1
    print(f"{args.rounds} damages, {bad} wrong: " + ", ".join(f"{k} {v}" for k, v in sorted(counts.items())))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
