#!/bin/bash
# bench/mixed.sh: iterations of cascades on a mixed workload (three sizes x two lengths of clips of the shapes; pixels in, the
# autoencoder and a text encoder inside of each step), under weft's planner and the rules of others, through the same executor:
# seconds of an iteration, idle ranks, and that all train alike. Policies take turns, ROUNDS times STEPS iterations, of which the first
# third is not counted. Then sums by each rank's own terms and by representatives, and encoding inside beside cached latents.
# FOOTAGE=DIR: real footage in the place of shapes. Alone on the machine, or the seconds mean nothing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
WEFT=${WEFT-$here/../build/weft}
steps=${STEPS-60} rounds=${ROUNDS-2}
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
MPIRUN="$(command -v mpirun.openmpi || command -v mpirun)"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
say() { "$@" >log 2>&1 || { cat log >&2; exit 1; }; }
buckets='[{batch: 2, frames: 5, height: 64, width: 64}, {batch: 2, frames: 21, height: 64, width: 64}, {batch: 2, frames: 5, height: 96, width: 96}, {batch: 2, frames: 21, height: 96, width: 96}, {batch: 2, frames: 5, height: 128, width: 128}, {batch: 2, frames: 21, height: 128, width: 128}]'
keep=(--set duplicates.on=false --set video.min_seconds=0 --set clips.min_frames=5 --set clips.min_seconds=0)
if [ -n "${FOOTAGE-}" ]; then
    say "$WEFT" curate --in "$FOOTAGE" --out cur --set clips.max_side=256 --set clips.max_seconds=4
    buckets='[{batch: 2, frames: 1, height: 96, width: 128}, {batch: 2, frames: 9, height: 96, width: 128}, {batch: 2, frames: 1, height: 144, width: 256}, {batch: 2, frames: 9, height: 144, width: 256}, {batch: 2, frames: 33, height: 96, width: 128}, {batch: 2, frames: 33, height: 144, width: 256}]'
else
    mkdir raw
    seed=1
    for size in 64 96 128; do
        for length in "8 12" "22 26"; do
            seed=$((seed + 1)) name=$size-${length%% *}
            say "$WEFT" synth --out "from-$name" --shots 16 --single-share 1 --held-out-clips 0 --min-frames "${length% *}" --max-frames "${length#* }" --size $size --seed $seed
            for f in "from-$name/train"/*; do ln -s "$PWD/$f" "raw/$name-$(basename "$f")"; done
        done
    done
    say "$WEFT" curate --in raw --out cur "${keep[@]}"
fi
say "$WEFT" shard --in cur --out shards --set heldout=0
cat >tiny.yaml <<'Y'
out: tiny
data: {path: shards}
autoencoder: {class: AutoencoderKLWan, config: {base_dim: 16, dim_mult: [1, 2, 2, 2], num_res_blocks: 1, z_dim: 8}}
stages: [{steps: 2, batch: 2, frames: 5, height: 64, width: 64, warmup: 0}]
Y
say "$WEFT" train tiny.yaml
cat >text.yaml <<'Y' # for a text encoder that stays
out: text
autoencoder: {weights: tiny/model/vae}
data: {path: shards}
transformer: {class: WanTransformer3DModel, config: {num_layers: 1, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 24, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 64, num_heads: 2, num_layers: 1, ffn_dim: 128, max_length: 40}}]
stages: [{steps: 1, batch: 1, frames: 5, height: 64, width: 64, warmup: 0}]
Y
say "$WEFT" train text.yaml
cat >run.yaml <<Y
out: run
autoencoder: {weights: tiny/model/vae}
data: {path: shards, latents: latents, samples_from: pixels, threads: 1}
transformer: {class: WanTransformer3DModel, config: {num_layers: 4, num_attention_heads: 6, attention_head_dim: 32, ffn_dim: 768, freq_dim: 64}}
text_encoders: [{weights: text/model/text_encoder}]
checkpoint: {every: 0}
stages: [{steps: $steps, accumulate: 6, lr: 1e-3, warmup: 0, buckets: $buckets}]
Y
train() { # NAME RANKS SETTINGS...
    local name=$1 n=$2 options=()
    shift 2
    for o in "$@"; do options+=(--set "$o"); done
    rm -rf "runs/$name"
    say "$MPIRUN" --oversubscribe --bind-to none -n "$n" "$WEFT" train run.yaml --set "out=runs/$name" --set parallel.cascades.plan=every-iteration "${options[@]}" </dev/null
}
cat >row.py <<'P'
import json, statistics, sys
def read(run, file):
    return [json.loads(l) for l in open(f"runs/{run}/{file}")]
def seconds(run):  # of the iterations behind the first third, which compile
    x = [m["step_seconds"] for m in read(run, "metrics.jsonl")]
    return statistics.mean(x[len(x) // 3:])
def late(run):
    x = read(run, "cascades/iterations.jsonl")
    return x[len(x) // 3:]
def mean(run, *keys):
    return statistics.mean(l[keys[0]][keys[1]] for l in late(run))
def apart(a, b):
    return max(abs(p["loss"] - q["loss"]) / abs(p["loss"]) for p, q in zip(read(a, "metrics.jsonl"), read(b, "metrics.jsonl")))
P
table() { # RANKS POLICY...: a row each, against the first
    local n=$1 round policy
    shift
    for round in $(seq "$rounds"); do
        for policy in "$@"; do train "$policy-$n-$round" "$n" "parallel.cascades.policy=$policy"; done
    done
    python3 - "$n" "$rounds" "$@" <<'P'
import sys
sys.path.insert(0, ".")
from row import *
n, rounds, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
best = {p: min((seconds(f"{p}-{n}-{r + 1}"), f"{p}-{n}-{r + 1}") for r in range(rounds)) for p in names}
first = best[names[0]]
for p in names:
    s, run = best[p]
    print(f"| {n} | {p} | {s:.3f} | {first[0] / s:.2f} | {100 * mean(run, 'planned', 'idle'):.1f} | {100 * mean(run, 'executed', 'idle'):.1f} | "
          f"{mean(run, 'planned', 'makespan'):.3f} | {mean(run, 'executed', 'makespan'):.3f} | {mean(run, 'planned', 'lower_bound'):.3f} | {apart(first[1], run):.1e} |")
P
}
echo "| ranks | policy | iteration, s | as fast | idle, planned % | idle, executed % | makespan planned, s | executed, s | lower bound, s | losses apart |"
echo "|---|---|---|---|---|---|---|---|---|---|"
table 2 static-dp-cp flexsp knapformer arachne
table 4 static-dp-cp arachne
echo
echo "| ranks | sums of gradients | iteration, s | sums and update, s | sent for them by all, MiB | losses apart |"
echo "|---|---|---|---|---|---|"
for n in 2 4; do
    train own-$n $n
    train representative-$n $n "parallel.cascades.plan=runs/own-$n/cascades/plans.jsonl" parallel.cascades.accumulation=representative
    python3 - $n <<'P'
import sys
sys.path.insert(0, ".")
from row import *
n = sys.argv[1]
for kind in ("own", "representative"):
    run = f"{kind}-{n}"
    print(f"| {n} | {kind} | {seconds(run):.3f} | {mean(run, 'executed', 'reduce'):.3f} | {mean(run, 'bytes', 'reduced') / 2**20:.1f} | {apart(f'own-{n}', run):.1e} |")
P
done
echo
echo "| samples from | samples/s | disk, MiB |"
echo "|---|---|---|"
rm -rf latents
train latents 2 data.samples_from=latents
for kind in pixels latents; do
    [ $kind = latents ] || train pixels 2
    disk=0
    [ $kind = pixels ] || disk=$(du -sk latents | cut -f1)
    python3 -c "
import sys
sys.path.insert(0, '.')
from row import *
print(f'| $kind | {12 / seconds(\"$kind\"):.1f} | {$disk / 1024:.1f} |')"
done
