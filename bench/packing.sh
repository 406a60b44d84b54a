#!/bin/bash
# bench/packing.sh: tokens/s of packed rows next to buckets, on a mixed set: clips of three sizes and two
# lengths, many small and few large. The layouts alternate, ROUNDS times STEPS steps; the first third of
# the steps does not count, and the figures are medians of the rounds. A step has the same bound of
# tokens everywhere. The figures need a machine without other load.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
steps=${STEPS-36} rounds=${ROUNDS-3} tokens=${TOKENS-1024}
source "$here/mixed_set.sh"
make_clips
say "$WEFT" curate --in raw --out cur "${keep[@]}"
say "$WEFT" shard --in cur --out shards --set heldout=0
cat >tiny.yaml <<'Y'
out: tiny
data: {path: shards}
autoencoder: {class: AutoencoderKLWan, config: {base_dim: 8, dim_mult: [1, 2, 2, 2], num_res_blocks: 1, z_dim: 8}}
stages: [{steps: 2, batch: 2, frames: 5, height: 64, width: 64, warmup_steps: 0}]
Y
say "$WEFT" train tiny.yaml
sizes=
for frames in 5 21; do
    for side in 64 96 128; do sizes+="${sizes:+, }{frames: $frames, height: $side, width: $side}"; done
done
cat >run.yaml <<Y
out: run
autoencoder: {weights: tiny/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 4, num_attention_heads: 6, attention_head_dim: 32, ffn_dim: 768, freq_dim: 64}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 64, num_heads: 2, num_layers: 1, ffn_dim: 128, max_length: 40}}]
checkpoint: {interval: 0}
stages: [{steps: $steps, lr: 1e-3, warmup_steps: 0, buckets: [$sizes]}]
Y
one() { # NAME RANKS SETTING...: adds "tokens/s padding" to NAME-RANKS
    local name=$1 n=$2 options=()
    for o in "${@:3}"; do options+=(--set "$o"); done
    rm -rf run
    say ranks "$n" "$WEFT" train run.yaml "${options[@]}"
    python3 -IS - run/metrics.jsonl >>"$name-$n" <<'P'
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
lines = lines[len(lines) // 3:]
tokens = sum(l["tokens_per_second"] * l["step_seconds"] for l in lines)
print(tokens / sum(l["step_seconds"] for l in lines), sum(l.get("padding", 0) for l in lines) / len(lines))
P
}
packed="data.packing={tokens: $tokens, max_samples: ${SAMPLES-10}, rows: "
for _ in $(seq "$rounds"); do
    for n in 1 2; do
        one "buckets by max_tokens" $n stages.0.max_tokens=$((n * tokens))
        one "buckets of $n samples" $n $(for b in 0 1 2 3 4 5; do echo stages.0.buckets.$b.batch=$n; done)
        one "packed rows" $n "$packed$n}"
    done
done
echo "| layout | ranks | tokens/s | to the best buckets | padding % |"
echo "|---|---|---|---|---|"
python3 -IS - <<'P'
import glob, statistics
for n in ("1", "2"):
    rows = {}
    for name in ("buckets by max_tokens", f"buckets of {n} samples", "packed rows"):
        lines = [tuple(map(float, l.split())) for l in open(f"{name}-{n}")]
        rows[name] = [statistics.median(c) for c in zip(*lines)]
    best = max(r[0] for name, r in rows.items() if name != "packed rows")
    for name, (rate, padding) in rows.items():
        shown = f"{100 * padding:.1f}" if name == "packed rows" else "-"
        print(f"| {name} | {n} | {rate:.0f} | {rate / best:.2f} | {shown} |")
P
echo
python3 -IS "$here/packing_bound.py"
