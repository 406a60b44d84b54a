#!/bin/bash
# A rank is killed in the middle of an iteration of cascades, while it sends a message of a latent
# transfer, of a group's collectives or of a gradient reduction. Every other rank exits and names
# the killed rank. The same command resumes with the same samples; with the plans of an undisturbed
# run its losses and weights are bitwise those of that run.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
make_mixed_shards
write_configs
source "$SRC/tests/signal_at.sh"
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >c.yaml <<'Y'
autoencoder: {weights: runs/vae/model/vae}
data: {path: mixed, shuffle_buffer: 0, latents: latents}
transformer:
  class: WanTransformer3DModel
  config: {num_layers: 4, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 48, freq_dim: 32}
text_encoders:
  - class: WeftBytesEncoder
    config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}
optimizer: {ema_decay: 0.9}
checkpoint: {interval: 2, keep_latest: 2}
stages:
  - steps: 7
    gradient_accumulation_steps: 5
    lr: 2e-3
    warmup_steps: 2
    buckets: [{batch: 2, frames: 1, height: 32, width: 32}, {batch: 1, frames: 9, height: 32, width: 64}, {batch: 2, frames: 9, height: 64, width: 64}]
Y
# kill_and_resume RANKS VICTIM NAME MESSAGE OPTIONS...: kills rank VICTIM when it sends its
# MESSAGE-th message after the first checkpoint
kill_and_resume() {
    local n=$1 victim=$2 name=$3 message=$4 more=() other
    shift 4
    for o in "$@"; do more+=(--set "$o"); done
    ranks "$n" "$WEFT" train c.yaml --set "out=runs/$name" --set parallel.cascades.plan=every-iteration "${more[@]}" >whole.log 2>&1 ||
        { cat whole.log; fail "$name: the undisturbed run failed"; }
    more+=(--set "out=runs/broken-$name" --set "parallel.cascades.plan=runs/$name/cascades/plans.jsonl")
    WEFT_LINK="0.05 Gbit/s, 1000 us" SIGNAL_ON=send SIGNAL_RANK=$victim SIGNAL_COUNT=$message signal_at KILL "runs/broken-$name/checkpoints/step-*" \
        "$MPIRUN" --oversubscribe --enable-recovery --tag-output -n "$n" "$WEFT" train c.yaml "${more[@]}" >broken.log 2>&1
    for other in $(seq 0 $((n - 1))); do
        [ "$other" = "$victim" ] || has_message broken.log rank-failed level=error process="$other" "text~=rank $victim" ||
            { tr '\r' '\n' <broken.log; fail "$name: rank $other does not name rank $victim"; }
    done
    ranks "$n" "$WEFT" train c.yaml "${more[@]}" >on.log 2>&1 || { cat on.log; fail "$name: the resumed run failed"; }
    has_message on.log run-resumed || fail "$name: did not resume"
    diff <(losses "runs/$name") <(losses "runs/broken-$name") || fail "$name: losses differ after resuming"
    diff -r "runs/$name/model" "runs/broken-$name/model" || fail "$name: the model differs after resuming"
}
check pixels kill_and_resume 3 1 pixels 3 data.input=pixels
check ahead kill_and_resume 3 1 ahead 3 data.input=pixels parallel.cascades.encoders=ahead
check shared kill_and_resume 3 2 shared 25 parallel.zero=1
check covered kill_and_resume 2 0 covered 12 parallel.cascades.gradient_reduction=representative
finish
