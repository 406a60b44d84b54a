#!/bin/bash
# bench/packing.sh: tokens/s of packed rows next to buckets. A step has about TOKENS tokens for each of
# RANKS ranks. Sets:
#   SET=mixed      clips of three sizes and two lengths, many small and few large
#   SET=clips      clips of one size and five lengths
# Layouts:
#   max_tokens     as many samples of a bucket as the bound of all ranks allows
#   whole samples  as many samples on each rank as fit into TOKENS
#   rows           data.packing, with SAMPLES places
# The layouts alternate, ROUNDS times STEPS steps; the first third of the steps does not count, and the
# figures are medians of the rounds. The figures need a machine without other load.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
steps=${STEPS-36} rounds=${ROUNDS-3} tokens=${TOKENS-1024} set=${SET-mixed} n=${RANKS-2}
source "$here/mixed_set.sh"
sizes=()
if [ "$set" = clips ]; then
    kinds='14 128 6 8
10 128 10 12
8 128 14 16
6 128 18 20
22 128 22 26'
    for frames in 5 9 13 17 21; do sizes+=("$frames 128"); done
else
    for frames in 5 21; do
        for side in 64 96 128; do sizes+=("$frames $side"); done
    done
fi
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
buckets=
whole=()
for i in "${!sizes[@]}"; do
    read -r frames side <<<"${sizes[i]}"
    buckets+="${buckets:+, }{frames: $frames, height: $side, width: $side}"
    whole+=("stages.0.buckets.$i.batch=$((n * (tokens / (((frames + 3) / 4) * side * side / 256))))")
done
cat >run.yaml <<Y
out: run
autoencoder: {weights: tiny/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 4, num_attention_heads: 6, attention_head_dim: 32, ffn_dim: 768, freq_dim: 64}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 64, num_heads: 2, num_layers: 1, ffn_dim: 128, max_length: 40}}]
checkpoint: {interval: 0}
stages: [{steps: $steps, lr: 1e-3, warmup_steps: 0, buckets: [$buckets]}]
Y
one() { # NAME SETTING...: adds "tokens/s padding" to NAME
    local name=$1 options=()
    for o in "${@:2}"; do options+=(--set "$o"); done
    rm -rf run
    say ranks "$n" "$WEFT" train run.yaml "${options[@]}"
    python3 -IS - run/metrics.jsonl >>"$name" <<'P'
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
lines = lines[len(lines) // 3:]
tokens = sum(l["tokens_per_second"] * l["step_seconds"] for l in lines)
print(tokens / sum(l["step_seconds"] for l in lines), sum(l.get("padding", 0) for l in lines) / len(lines))
P
}
for _ in $(seq "$rounds"); do
    one max_tokens stages.0.max_tokens=$((n * tokens))
    one "whole samples" "${whole[@]}"
    one rows "data.packing={tokens: $tokens, max_samples: ${SAMPLES-10}, rows: $n}"
done
echo "| set | tokens per rank | ranks | layout | tokens/s | to max_tokens | counted, at most | to whole samples | padding % | most tokens of a rank |"
echo "|---|---|---|---|---|---|---|---|---|---|"
python3 - "$here" "$set" "$tokens" "$n" <<'P'
import statistics, sys
here, name, tokens, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sys.dont_write_bytecode = True
sys.path.insert(0, here)
import packing_bound
clips = packing_bound.SETS[name]
most = {"max_tokens": packing_bound.busiest(clips, ranks, tokens),
        "whole samples": max(tokens // t * t for t in clips), "rows": tokens}
rows = {}
for layout in most:
    rounds = [tuple(map(float, l.split())) for l in open(layout)]
    rows[layout] = [statistics.median(c) for c in zip(*rounds)]
for layout, (rate, padding) in rows.items():
    by_rows = layout == "rows"
    bound = f"{packing_bound.gain(clips, ranks, tokens):.2f}" if by_rows else "-"
    print(f"| {name} | {tokens} | {ranks} | {layout} | {rate:.0f} | {rate / rows['max_tokens'][0]:.2f} | {bound} "
          f"| {rate / rows['whole samples'][0]:.2f} | {f'{100 * padding:.1f}' if by_rows else '-'} | {most[layout]} |")
P
