#!/bin/bash
# bench/mixed.sh: iterations of cascades on mixed samples, under weft's planner and the rules of other
# systems, by the same executor. Clips of the shapes have three sizes and two lengths, many small and
# few large; an iteration has eight clips, from pixels, with autoencoder and text encoder.
# Prints seconds of an iteration, idle shares, and loss differences to the fastest static rule. Rules of
# equal groups have every degree. Policies alternate, ROUNDS times STEPS iterations; the first third
# does not count. Then both gradient reductions, and pixels compared with cached latents.
# FOOTAGE=DIR: real footage instead of shapes. The figures need a machine without other load.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
steps=${STEPS-60} rounds=${ROUNDS-2}
source "$here/mixed_set.sh"
samples=8
clips=shapes
[ -z "${FOOTAGE-}" ] || clips=footage
list() { # SIZE...: frames x height x width, one clip each
    local size frames height width all=
    for size in "$@"; do
        IFS=x read -r frames height width <<<"$size"
        all+="${all:+, }{batch: 1, frames: $frames, height: $height, width: $width}"
    done
    echo "[$all]"
}
buckets=$(list 5x64x64 21x64x64 5x96x96 21x96x96 5x128x128 21x128x128)
if [ -n "${FOOTAGE-}" ]; then
    say "$WEFT" curate --in "$FOOTAGE" --out cur --set clips.max_side=256 --set clips.max_seconds=4
    buckets=$(list 1x96x128 9x96x128 33x96x128 1x144x256 9x144x256 33x144x256)
else
    make_clips
    say "$WEFT" curate --in raw --out cur "${keep[@]}"
fi
say "$WEFT" shard --in cur --out shards --set heldout=0
cat >tiny.yaml <<'Y'
out: tiny
data: {path: shards}
autoencoder: {class: AutoencoderKLWan, config: {base_dim: 16, dim_mult: [1, 2, 2, 2], num_res_blocks: 1, z_dim: 8}}
stages: [{steps: 2, batch: 2, frames: 5, height: 64, width: 64, warmup_steps: 0}]
Y
say "$WEFT" train tiny.yaml
cat >text.yaml <<'Y' # for a text encoder that stays
out: text
autoencoder: {weights: tiny/model/vae}
data: {path: shards}
transformer: {class: WanTransformer3DModel, config: {num_layers: 1, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 24, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 64, num_heads: 2, num_layers: 1, ffn_dim: 128, max_length: 40}}]
stages: [{steps: 1, batch: 1, frames: 5, height: 64, width: 64, warmup_steps: 0}]
Y
say "$WEFT" train text.yaml
cat >run.yaml <<Y
out: run
autoencoder: {weights: tiny/model/vae}
data: {path: shards, latents: latents, input: pixels, decode_threads: 1}
transformer: {class: WanTransformer3DModel, config: {num_layers: 4, num_attention_heads: 6, attention_head_dim: 32, ffn_dim: 768, freq_dim: 64}}
text_encoders: [{weights: text/model/text_encoder}]
checkpoint: {interval: 0}
stages: [{steps: $steps, gradient_accumulation_steps: $samples, lr: 1e-3, warmup_steps: 0, buckets: $buckets}]
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
def seconds(run):  # of the iterations after the first third, which compile
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
table() { # RANKS POLICY[/DEGREE]...: a row each, against the fastest static one
    local n=$1 round policy degree
    shift
    for round in $(seq "$rounds"); do
        for policy in "$@"; do
            degree=${policy#*/}
            [ "$degree" != "$policy" ] || degree=0
            train "${policy/\//-by-}-$n-$round" "$n" "parallel.cascades.policy=${policy%/*}" "parallel.cascades.degree=$degree"
        done
    done
    python3 - "$n" "$rounds" "$clips" "$@" <<'P'
import sys
sys.path.insert(0, ".")
from row import *
n, rounds, clips, names = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
runs = {p: [f"{p.replace('/', '-by-')}-{n}-{r + 1}" for r in range(rounds)] for p in names}
best = {p: min((seconds(run), run) for run in runs[p]) for p in names}
first = min(best[p] for p in names if p.startswith("static"))
for p in names:
    s, run = best[p]
    print(f"| {clips} | {n} | {p} | {s:.3f} | {first[0] / s:.2f} | {100 * mean(run, 'planned', 'idle'):.1f} | {100 * mean(run, 'executed', 'idle'):.1f} | "
          f"{mean(run, 'planned', 'makespan'):.3f} | {mean(run, 'executed', 'makespan'):.3f} | {mean(run, 'planned', 'lower_bound'):.3f} | {apart(first[1], run):.1e} |")
P
}
echo "| clips | ranks | policy | iteration s | speedup | idle planned % | idle % | makespan planned s | makespan s | lower bound s | loss difference |"
echo "|---|---|---|---|---|---|---|---|---|---|---|"
table 2 static-dp-cp/1 static-dp-cp/2 flexsp knapformer/1 knapformer/2 arachne
echo
echo "| clips | ranks | gradient reduction | iteration s | reduction and update s | sent MiB | loss difference |"
echo "|---|---|---|---|---|---|---|"
for n in 2 4; do
    train own-$n $n
    train representative-$n $n "parallel.cascades.plan=runs/own-$n/cascades/plans.jsonl" parallel.cascades.gradient_reduction=representative
    python3 - $n "$clips" <<'P'
import sys
sys.path.insert(0, ".")
from row import *
n = sys.argv[1]
for kind in ("own", "representative"):
    run = f"{kind}-{n}"
    print(f"| {sys.argv[2]} | {n} | {kind} | {seconds(run):.3f} | {mean(run, 'executed', 'reduce'):.3f} | {mean(run, 'bytes', 'reduced') / 2**20:.1f} | {apart(f'own-{n}', run):.1e} |")
P
done
echo
echo "| clips | input | samples/s | disk MiB |"
echo "|---|---|---|---|"
rm -rf latents
train latents 2 data.input=latents
for kind in pixels latents; do
    [ $kind = latents ] || train pixels 2
    disk=0
    [ $kind = pixels ] || disk=$(du -sk latents | cut -f1)
    python3 -c "
import sys
sys.path.insert(0, '.')
from row import *
print(f'| $clips | $kind | {$samples / seconds(\"$kind\"):.1f} | {$disk / 1024:.1f} |')"
done
