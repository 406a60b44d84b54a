#!/usr/bin/env python3
"""bench/demo_parts.py BUILD DEMO [ROUNDS] [PART...]: processor time of a training step of the demo in f32 and bf16.

DEMO is the folder of `make demo`, whose shards, autoencoder and latents are used. Each part is trained for few and for more
steps, in f32 and bf16 by turns, on one thread. A step's time is the difference of the processor times (user and
system) over the difference of the steps, so that start, latents and checkpoints cancel. The least time of ROUNDS
(default 3) counts. Processor time excludes the time in which other programs have the core. It includes their effect
on caches and memory, which the turns spread over both types.

Prints seconds of a step, their ratio, and the seconds of all steps of the demo's config."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD, DEMO = (os.path.abspath(path) for path in sys.argv[1:3])
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
# part: config, stage, steps of the two runs
PARTS = {"autoencoder, frames": ("vae", "frames", 4, 44), "autoencoder, clips": ("vae", "clips", 2, 14),
         "transformer": ("dit", "motion", 2, 14)}
ENV = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")


def config_of(name, stage):
    """The demo's config with this stage alone, and the steps of the demo that have its size."""
    with open(f"{ROOT}/examples/demo/{name}.yaml", encoding="utf-8") as file:
        lines = file.read().splitlines()
    stages = [line for line in lines if line.startswith("  - {name: ")]
    own = next(line for line in stages if f"name: {stage}," in line)
    size = re.search(r"batch: .*?width: \d+", own)[0]
    steps = sum(int(re.search(r"steps: (\d+)", line)[1]) for line in stages if size in line)
    return [line for line in lines if line not in stages or line == own], steps


def processor_seconds(lines, precision, steps, folder):
    shutil.rmtree(f"{folder}/out", ignore_errors=True)
    text = "\n".join(lines)
    for pattern, by in ((r"(?m)^out: .*", "out: out"), (r"precision: \w+", f"precision: {precision}"),
                        (r"path: shards", "path: shards\n  latents: latents"), (r"(?<= )steps: \d+", f"steps: {steps}"), (r"warmup_steps: \d+", "warmup_steps: 0")):
        text = re.sub(pattern, by, text)
    with open(f"{folder}/config.yaml", "w", encoding="utf-8") as file:
        file.write(text)
    with open(f"{folder}/log", "w", encoding="utf-8") as log:
        run = subprocess.Popen([f"{BUILD}/weft", "train", "config.yaml"], cwd=folder, env=ENV, stdout=log, stderr=log)
        _, status, used = os.wait4(run.pid, 0)
    if status:
        with open(f"{folder}/log", encoding="utf-8") as log:
            sys.exit(log.read())
    return used.ru_utime + used.ru_stime


def measure(part, folder):
    name, stage, few, more = PARTS[part]
    lines, steps = config_of(name, stage)
    runs = [(precision, count) for count in (few, more) for precision in ("f32", "bf16")]
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for precision, count in runs:
            least[precision, count] = min(least[precision, count], processor_seconds(lines, precision, count, folder))
    step = {p: (least[p, more] - least[p, few]) / (more - few) for p in ("f32", "bf16")}
    print(f"| {part}, {steps} steps | {step['f32']:.4f} | {step['bf16']:.4f} | {step['bf16'] / step['f32']:.2f} | "
          f"{steps * step['f32']:.0f} | {steps * step['bf16']:.0f} |", flush=True)
    return [steps * step["f32"], steps * step["bf16"]]


print("| part | f32 step s | bf16 step s | bf16 over f32 | f32 in all s | bf16 in all s |")
print("|---|---|---|---|---|---|")
with tempfile.TemporaryDirectory() as scratch:
    for entry in ("shards", "vae", "dit/latents"):
        os.symlink(f"{DEMO}/{entry}", f"{scratch}/{os.path.basename(entry)}")
    total = [sum(column) for column in zip(*[measure(part, scratch) for part in sys.argv[4:] or PARTS])]
print(f"| training | | | {total[1] / total[0]:.2f} | {total[0]:.0f} | {total[1]:.0f} |")
