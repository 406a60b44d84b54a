#!/usr/bin/env python3
"""bench/earlier.py EARLIER BUILD [PART...]: times of an earlier commit and of this one, on simulated processors.

EARLIER is the build of the earlier commit, with the sources of bench/kernels and bench/models of this commit. PARTS are
kernels, models and generation (the latter needs WEFT_PEER_PYTHON, which makes a model of random weights), or
kernels:PATTERN for kernels whose names contain PATTERN. Each part runs
with WEFT_CPU_ISA=avx2 and avx512, in f32 and bf16, on one thread. The builds run by turns, and the least times count. Rows
that seem slower are measured again, also by turns. A ratio below 1 means that this commit is slower."""
import os
import sys
import tempfile

from half_runs import number, output, rows, step_of

EARLIER, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
ROUNDS, MORE, SLOWER = 1, 4, 0.97  # turns, further turns of rows whose ratio is below the last
SETS = "avx2", "avx512"
least = {}  # (part, work, type, set) -> [earlier ms, ms]
again = {}  # the same -> how to measure the row alone: a function of the build


def note(key, build, ms, alone):
    times = least.setdefault(key, [0, 0])
    side = int(build == BUILD)
    if ms > 0:
        times[side] = min(times[side] or ms, ms)
        again[key] = alone


def kernels_of(build, isa, pattern=""):
    """The rows of bench/kernels that contain `pattern`, in f32 and, of kernels that compute in bf16, in both types."""
    for kernel, row in rows(f"{build}/bench/kernels", pattern, isa=isa).items():
        if not kernel.startswith("all of"):
            note(("kernels", kernel, "f32", isa), build, number(row["ms"]), lambda b, k=kernel: kernels_of(b, isa, k))
    for kernel, row in rows(f"{build}/bench/kernels", "--bf16", pattern, isa=isa).items():
        for column in "f32", "bf16":
            note(("kernels", kernel, column, isa), build, number(row[f"{column} ms"]), lambda b, k=kernel: kernels_of(b, isa, k))


def models_of(build, isa, parts=("dit", "dit_bf16", "vae", "vae_bf16")):
    for part in parts:
        for work, row in rows(f"{build}/bench/models", part, isa=isa).items():
            if not work.startswith("VAE encode and"):
                note(("models", work.removesuffix(", bf16"), "bf16" if "bf16" in part else "f32", isa), build,
                     1e3 * number(row["weft s"]), lambda b, p=part: models_of(b, isa, (p,)))


def generation_of(build, isa, folder):
    for kind, options in (("f32", ()), ("f32, weights in bf16", ("--weights", "bf16"))):
        note(("models", "Wan denoising step 17x320x192", kind, isa), build, 1e3 * step_of(build, folder, *options, isa=isa),
             lambda b: generation_of(b, isa, folder))


def by_turns(measure, rounds):
    for _ in range(rounds):
        for build in EARLIER, BUILD:
            measure(build)


def is_slower(key):
    earlier, now = least[key]
    return earlier > 0 and now > 0 and earlier / now < SLOWER


def run(measure, isa):
    before = set(least)
    by_turns(lambda build: measure(build, isa), ROUNDS)
    for key in [key for key in least if key not in before]:
        for _ in range(MORE):
            if is_slower(key):
                by_turns(again[key], 1)
        earlier, now = least[key]
        if earlier and now:
            print("| " + " | ".join(key) + f" | {earlier:.4g} | {now:.4g} | {earlier / now:.2f} |", flush=True)


parts = sys.argv[3:] or ["kernels", "models", "generation"]
with tempfile.TemporaryDirectory() as scratch:
    if "generation" in parts:
        output([os.environ["WEFT_PEER_PYTHON"], "bench/peer_generate.py", "make", "wan", f"{scratch}/wan"])
    measures = {"models": models_of, "generation": lambda b, isa: generation_of(b, isa, f"{scratch}/wan")}
    print("| part | work | type | instructions | earlier ms | ms | earlier over now |\n|---|---|---|---|---|---|---|")
    for part in parts:
        name, _, pattern = part.partition(":")
        for isa in SETS:
            run((lambda b, i, p=pattern: kernels_of(b, i, p)) if name == "kernels" else measures[name], isa)
