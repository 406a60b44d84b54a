#!/bin/bash
# bench/memory.sh WEFT: a 12-layer DiT under limits from its full memory down to the lowest possible one.
# Prints expected and measured peak and step. A step is the mean over the fastest quarter, without the
# first, which is cold. STEPS (17) and ROWS (10): steps of a run and limits, fewer to try the script.
export WEFT_LOG_FORMAT=json
PYTHONPATH=$(cd "$(dirname "$0")" && pwd) exec python3 - "$(realpath "$1")" <<'PY'
import glob, json, os, shutil, subprocess, sys, tempfile

from log_messages import last

WEFT, STEPS, ROWS = sys.argv[1], int(os.environ.get("STEPS", 17)), int(os.environ.get("ROWS", 10))
os.chdir(tempfile.mkdtemp(prefix="weft-memory-"))
MODEL = "{num_layers: 12, num_attention_heads: 4, attention_head_dim: 32, ffn_dim: 512, freq_dim: 32}"
CONFIG = f"""
out: runs/all
autoencoder: {{weights: runs/vae/model/vae}}
data: {{path: shards, latents: latents}}
transformer: {{class: WanTransformer3DModel, config: {MODEL}}}
text_encoders: [{{class: WeftBytesEncoder, config: {{dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}}}]
stages:
  - {{steps: {STEPS}, batch: 16, frames: 9, height: 64, width: 64, lr: 1e-3, warmup_steps: 0}}
"""
VAE = """
out: runs/vae
data: {path: shards}
autoencoder: {class: AutoencoderKLWan, config: {base_dim: 4, dim_mult: [1, 1, 2, 2], num_res_blocks: 1, z_dim: 4}}
stages:
  - {steps: 2, batch: 3, frames: 5, height: 16, width: 16, lr: 1e-3, warmup_steps: 0}
"""


def run(*command, fails=False):
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if bool(status) != fails:
        sys.exit(f"{' '.join(command)}\n{log}")
    return log, usage.ru_maxrss / 1024


run(WEFT, "synth", "--out", "raw", "--shots", "24", "--single-share", "1", "--held-out-clips", "0", "--min-frames", "12",
    "--max-frames", "14")
os.makedirs("cur/clips")
os.makedirs("cur/metas")
for f in sorted(glob.glob("raw/train/s*.mp4")):
    key = os.path.basename(f)[:-4]
    shutil.copy(f, f"cur/clips/{key}.mp4")
    json.dump({"id": key, "caption": open(f[:-4] + ".txt").read().strip(), "frames": 12, "width": 64, "height": 64, "fps": 24.0},
              open(f"cur/metas/{key}.json", "w"))
run(WEFT, "shard", "--in", "cur", "--out", "shards", "--set", "heldout=0")
open("vae.yaml", "w").write(VAE)
open("run.yaml", "w").write(CONFIG)
run(WEFT, "train", "vae.yaml")
run(WEFT, "profile", "run.yaml", "--seconds", "4", "--out", "profile.json")
own = ["--set", "memory.profile=profile.json", "--set", "memory.offload=auto"]
log, _ = run(WEFT, "train", "run.yaml", "--set", "out=runs/least", *own, "--set", "memory.limit=1MiB", fails=True)
MIB = 1 << 20
least = last(log, "memory-needed", "value")["value"] / MIB
log, _ = run(WEFT, "train", "run.yaml")
most = last(log, "memory-report", "weight_bytes")["value"] / MIB
rows, expected = [], None
print("| limit % | limit MiB | kept MiB | recomputed MiB | offloaded MiB | hidden % | expected peak MiB | peak MiB | expected step ms | step ms | "
      "longer % | deviation % |")
print("|---|---|---|---|---|---|---|---|---|---|---|---|")
plain = None
for row in range(ROWS + 1):
    limit = most * 1.02 + (least + 0.01 - most * 1.02) * row / ROWS  # as told, but for its rounding
    out = f"runs/{row}"
    log, peak = run(WEFT, "train", "run.yaml", "--set", f"out={out}", *own, "--set", f"memory.limit={int(limit * 1048576)}")
    seconds = sorted([json.loads(line)["step_seconds"] for line in open(f"{out}/metrics.jsonl")][1:])
    quick = seconds[:(len(seconds) + 3) // 4]
    step = sum(quick) / len(quick)
    plain = plain or step
    plan = last(log, "memory-report", "kept_bytes") or {}
    copies = last(log, "stage-report", "offloaded_bytes", "hidden_share")
    expected = 1e3 * plan["step_seconds"] if plan else expected
    longer = 100 * plan["added_seconds"] / plan["step_seconds"] if plan else 0
    kept, recomputed, offloaded = (f"{plan[key] / MIB:.1f}" if plan.get(key) else "-" for key in ("kept_bytes", "recomputed_bytes", "offloaded_bytes"))
    hidden = f"{100 * copies['hidden_share']:.0f}" if copies else "-"
    predicted = last(log, "memory-report", "weight_bytes")["value"] / MIB
    rows.append((longer, f"| {100 - 100 * row // ROWS} | {limit:.1f} | {kept} | {recomputed} | {offloaded} | {hidden} | {predicted:.1f} | {peak:.1f} | ", step))
for more, text, step in rows:
    told = expected * (1 + more / 100)
    print(f"{text}{told:.0f} | {step * 1e3:.0f} | {100 * (step / plain - 1):+.1f} | {100 * (told / step / 1e3 - 1):+.1f} |")
shutil.rmtree(os.getcwd())
PY
