#!/bin/bash
# A rank killed in the middle of an iteration of cascades (links are slow, so that hand-offs, exchanges of groups and sums are
# hit): each of the others ends by itself and names it, the same command goes on with the same samples, and by the same plans
# losses and weights are those of an undisturbed run, bit by bit.
source "$SRC/tests/train/common.sh"
make_shards
make_mixed_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >c.yaml <<'Y'
autoencoder: {weights: runs/vae/model/vae}
data: {path: mixed, shuffle: 0, latents: latents}
transformer:
  class: WanTransformer3DModel
  config: {num_layers: 4, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 48, freq_dim: 32}
text_encoders:
  - class: WeftBytesEncoder
    config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}
optimizer: {ema_decay: 0.9}
checkpoint: {every: 2, keep: 2}
stages:
  - steps: 7
    accumulate: 5
    lr: 2e-3
    warmup: 2
    buckets: [{batch: 2, frames: 1, height: 32, width: 32}, {batch: 1, frames: 9, height: 32, width: 64}, {batch: 2, frames: 9, height: 64, width: 64}]
Y
play() { # RANKS VICTIM NAME SECONDS OPTIONS...: killed so long after its first checkpoint
    local n=$1 victim=$2 name=$3 behind=$4 more=() pid other
    shift 4
    for o in "$@"; do more+=(--set "$o"); done
    ranks "$n" "$WEFT" train c.yaml --set "out=runs/$name" --set parallel.cascades.plan=every-iteration "${more[@]}" >whole.log 2>&1 ||
        { cat whole.log; fail "$name undisturbed"; }
    more+=(--set "out=runs/broken-$name" --set "parallel.cascades.plan=runs/$name/cascades/plans.jsonl")
    rm -f pid.*
    WEFT_LINK="0.05 Gbit/s, 1000 us" "$MPIRUN" --oversubscribe --enable-recovery --tag-output -n "$n" bash -c 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec "$@"' sh \
        "$WEFT" train c.yaml "${more[@]}" >broken.log 2>&1 &
    pid=$!
    for _ in $(seq 6000); do
        [ -z "$(find "runs/broken-$name/checkpoints" -name "step-*" 2>/dev/null)" ] || break
        sleep 0.01
    done
    sleep "$behind"
    kill -KILL "$(cat "pid.$victim")"
    wait $pid
    for other in $(seq 0 $((n - 1))); do
        [ "$other" = "$victim" ] || grep -aE "^\[1,$other\].*weft train: .*rank $victim (is gone|gave up)" broken.log >/dev/null ||
            { tr '\r' '\n' <broken.log; fail "$name: rank $other does not name rank $victim"; }
    done
    ranks "$n" "$WEFT" train c.yaml "${more[@]}" >on.log 2>&1 || { cat on.log; fail "$name: going on"; }
    grep -q "going on from runs/broken-$name/checkpoints/step-" on.log || { cat on.log; fail "$name: not gone on"; }
    diff <(losses "runs/$name") <(losses "runs/broken-$name") || fail "$name: other losses"
    diff -r "runs/$name/model" "runs/broken-$name/model" || fail "$name: another model"
}
play 3 1 pixels 0.05 data.samples_from=pixels
play 3 2 shared 0.15 parallel.zero=1
play 2 0 covered 0.1 parallel.cascades.accumulation=representative
exit 0
