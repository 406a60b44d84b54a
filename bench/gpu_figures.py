#!/usr/bin/env python3
"""gpu_figures.py: figures of backend `cuda` that need no GPU, as tables.

usage: bench/gpu_figures.py [--weft PROGRAM] [--json NAME=FILE]...

  steps   a training step of each model on H100: launches, redundant bytes, share of the peak
  parts   where the time of Wan 1.3B goes, at the measured fractions
  rates   the share of the peak of Wan 1.3B at other rates of the gradient of attention
  lines   lines of source per part

The steps are those of `weft inspect model ... --roofline h100 --json`. --json NAME=FILE reads the
output of that command for a model of STEPS instead.
"""
import argparse
import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WAN = "wan-1.3b"
STEPS = [(WAN, "1", []),
         ("hunyuan-video", "8", ["--mesh", "fsdp=8"]),
         ("wan-14b", "1", ["--mesh", "tp=2,cp=4"])]
SIZE = ["--training-step", "--bf16", "--roofline", "h100", "--latent-size", "--frames", "21",
        "--height", "60", "--width", "104", "--json"]
# FLOP/s of the gradient of attention in bf16, heads of 128 columns, and where they were measured
RATES = [(435e12, "cuDNN 9.28, reproducible: the fraction of the roofline (bench/gpu.md)"),
         (474e12, "FlashAttention-3, reproducible, causal, 8,192 tokens (flash-attention, pull request 1893)"),
         (528e12, "cuDNN in PyTorch 2.11, any order of additions (bench/gpu.md)"),
         (575e12, "FlashAttention-3, any order, causal, 8,192 tokens (flash-attention, pull request 1893)")]
LINES = [("kernels", ["src/kernel/cuda/kernels/"]),
         ("driver, libraries and host code of the ops", ["src/kernel/cuda/"]),
         ("test backend far", ["src/kernel/far/"]),
         ("comparison, rates and report (doctor)", ["src/doctor/gpu_"]),
         ("choice of the backend and of GPUs by ranks", ["src/doctor/backend_choice", "src/comm/rank_gpus"]),
         ("elementwise chains and TF32 (passes)", ["src/transform/numeric/pointwise", "src/transform/numeric/tf32",
                                                  "src/kernel/pointwise_steps"]),
         ("roofline", ["src/inspect/roofline", "src/plan/cluster/gpu_peaks"]),
         ("emulated driver and libraries", ["tests/emu/"]),
         ("tests", ["tests/kernel/cuda", "tests/kernel/far", "tests/doctor/", "tests/train/gpu_", "tests/parity/gpu_",
                    "tests/comm/gpu_", "tests/train/latents/tf32_"])]


def table(title, head, rows):
    print(f"\n## {title}\n")
    for line in [head, ["---"] * len(head)] + rows:
        print("| " + " | ".join(line) + " |")


def load(program, name, batch, options, files):
    if name in files:
        with open(files[name], encoding="utf-8") as file:
            return json.load(file)
    run = subprocess.run([program, "inspect", "model", name, "--batch-size", batch] + SIZE + options, check=True,
                         stdout=subprocess.PIPE, text=True)
    return json.loads(run.stdout)


def percent(value):
    return f"{100 * value:.1f}"


def steps(results):
    rows = []
    for (name, batch, options), r in results:
        p = r["programs"][0]
        row = [" ".join([name] + options[1:] + [f"batch {batch}"]), str(p["launches"]), str(p["exchanges"]),
               percent(p["redundant_share"])]
        for kind in ("least", "stated", "measured"):
            row += [f"{p[kind]['seconds']:.3g}", percent(p[kind]["share_of_peak"])]
        rows.append(row + [f"{1e3 * p['measured']['exposed_seconds']:.0f}"])
    table("steps", ["model", "launches", "exchanges", "redundant %", "least s", "least %", "stated s", "stated %",
                    "measured s", "measured %", "exposed ms"], rows)


def kind_of(row):
    op = row["key"].split()[0].split(".")[0]
    if row["limit"] == "launch":
        return "launches below the launch time"
    return {"attention_grad": "gradient of attention", "attention": "attention", "linear": "products",
            "matmul": "products"}.get(op, "elementwise ops, norms, sums and moves" if row["part"] != "update" else
                                      "optimizer")


def seconds(r, row):
    """At the measured fractions: products, attention and its gradient, 0.8 of the bandwidth for all else."""
    rate = {"products": 0.79, "attention": 0.60, "gradient of attention": 0.44}.get(kind_of(row))
    if rate is None:
        return row["stated_seconds"]
    return max(row["flops"] / (rate * r["flops"]),
               row["bytes"] / (r["memory_bandwidth"] * r["memory_fraction"]))


def parts(r):
    total = r["programs"][0]["measured"]["seconds"]
    sums = {}
    for row in r["programs"][0]["rows"]:
        sums[kind_of(row)] = sums.get(kind_of(row), 0) + seconds(r, row)
    found = sum(sums.values())
    if abs(found / total - 1) > 5e-3:
        raise SystemExit(f"the parts have {found:.4g} s, the step {total:.4g} s")
    table("parts", ["part", "ms", "% of the step"],
          [[name, f"{1e3 * s:.0f}", percent(s / found)] for name, s in sorted(sums.items(), key=lambda x: -x[1])])
    return sums


def rates(r, sums):
    p = r["programs"][0]
    flops = sum(row["flops"] for row in p["rows"] if kind_of(row) == "gradient of attention")
    other = sum(s for name, s in sums.items() if name != "gradient of attention")
    limited = sum(sums[name] for name in ("attention", "products"))

    def share(rest, rate):
        return p["flops"] / (rest + flops / rate) / r["flops"]

    goal = flops / (p["flops"] / 0.55 / r["flops"] - other)
    lines = [[f"{rate / 1e12:.0f}", source, percent(share(other, rate)), percent(share(limited, rate))]
             for rate, source in RATES + [(goal, "the rate that 55 % need")]]
    table("rates", ["TFLOP/s", "measured with", "% of peak", "% if only attention and products took time"], lines)


def lines():
    files = subprocess.run(["git", "ls-files", "src", "tests"], cwd=ROOT, check=True, stdout=subprocess.PIPE,
                           text=True).stdout.split("\n")
    rows, seen = [], set()
    for name, starts in LINES:
        own = [f for f in files if f not in seen and any(f.startswith(s) for s in starts)]
        seen.update(own)
        count = 0
        for f in own:
            with open(os.path.join(ROOT, f), encoding="utf-8") as file:
                count += sum(1 for line in file if line.strip())
        rows.append([name, str(len(own)), f"{count:,}"])
    table("lines", ["part", "files", "lines that are not empty"], rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weft", default=os.path.join(ROOT, "build", "weft"))
    parser.add_argument("--json", action="append", default=[])
    given = parser.parse_args()
    files = dict(one.split("=", 1) for one in given.json)
    results = [(step, load(given.weft, *step, files)) for step in STEPS]
    steps(results)
    rates(results[0][1], parts(results[0][1]))
    lines()


if __name__ == "__main__":
    main()
