#!/bin/bash
# A curriculum in one config: images, then a given share of them beside clips, then clips alone, each stage with its own learning
# rate and shift; what samples a step takes is counted, the finished model is sampled with the last shift. Batches whose size is
# left away follow from tokens and load, as a config that gives them; what cannot be is refused.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
make_mixed_shards
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >run.yaml <<'Y'
out: runs/dit
autoencoder: {weights: runs/vae/model/vae}
data: {path: mixed, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 48, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
flow: {shift: 2}
stages:
  - {name: images, steps: 3, batch: 4, frames: 1, height: 32, width: 32, lr: 2e-3, warmup_steps: 0, lr_schedule: constant, shift: 1}
  - name: both
    steps: 20
    lr: 1e-3
    warmup_steps: 0
    lr_schedule: constant
    image_share: 0.25
    buckets: [{batch: 3, frames: 9, height: 32, width: 32}, {batch: 3, frames: 9, height: 16, width: 32}, {batch: 2, frames: 1, height: 32, width: 32}]
  - {name: clips, steps: 3, batch: 3, frames: 9, height: 32, width: 32, lr: 5e-4, warmup_steps: 0, lr_schedule: constant, shift: 5}
Y
"$WEFT" train run.yaml >run.log 2>&1 || { cat run.log; fail "weft train"; }
stages_have_their_shares_and_rates() {
    python3 - runs/dit <<'P' || fail "the stages"
import json, sys
rows = [json.loads(l) for l in open(sys.argv[1] + "/metrics.jsonl")]
assert len(rows) == 26
assert [r["lr"] for r in rows[:3] + rows[-3:]] == [2e-3] * 3 + [5e-4] * 3, rows[0]
batch = [3, 3, 2]
taken = [sum(batch[b] for r in rows[3:23] if r["bucket"] == b) for b in range(3)]
share = taken[2] / sum(taken)
assert abs(share - 0.25) < 0.04, (taken, share)
assert abs(taken[0] / (taken[0] + taken[1]) - 12 / 18) < 0.1, taken # clips as they are
model = json.load(open(sys.argv[1] + "/model/scheduler/scheduler_config.json"))
assert model["shift"] == 5, model
P
}
check stages_have_their_shares_and_rates
# a share of images without images is refused before the first stage, not behind it
a_share_without_images_is_refused() {
    "$WEFT" train run.yaml --set out=runs/none --set data.path=shards --set stages.0.frames=9 >none.log 2>&1 && fail "images of a set without images"
    has_message none.log config-value key=*stages.1 'text~=0.25 images' 'text~=no images' && [ ! -e runs/none/metrics.jsonl ] || { cat none.log; fail "not told before the first step"; }
}
check a_share_without_images_is_refused
# the shift is the run's where a stage has none: the same numbers
losses_of() { losses "runs/$1" | head -3; }
a_stage_without_a_shift_has_that_of_the_run() {
    "$WEFT" train run.yaml --set out=runs/one --set flow.shift=1 --set stages.0.shift=0 --set stages.2.shift=0 >one.log 2>&1 || { cat one.log; fail "flow.shift"; }
    diff <(losses_of dit) <(losses_of one) || fail "a stage's shift is not flow.shift"
}
check a_stage_without_a_shift_has_that_of_the_run

# sizes of batches: 12, 4 and 6 tokens (latents of 3x4x4, 3x2x4, 1x4x4 in patches of 1x2x2)
sed 's/batch: [0-9]*, //g; s/image_share: 0.25/max_load: 150\n    max_tokens: 30/' run.yaml | sed 's/{name: \(images\|clips\), /&max_tokens: 24, /' >bound.yaml
"$WEFT" train bound.yaml --set out=runs/bound >bound.log 2>&1 || { cat bound.log; fail "bounds"; }
batches_follow_from_tokens_and_load() {
    has_message bound.log stage-report stage=0 name=images 'buckets=6 x 1x32x32' && has_message bound.log stage-report stage=2 name=clips 'buckets=*2 x 9x32x32*' ||
        { cat bound.log; fail "batches by tokens"; }
    for bucket in '1 x 9x32x32' '4 x 9x16x32' '7 x 1x32x32'; do
        has_message bound.log stage-report stage=1 "buckets=*$bucket*" || fail "batches by load"
    done
}
check batches_follow_from_tokens_and_load
# a bucket of one sample leaves nothing to the second rank: its gradients, which are whole, and terms of others' add up in one state
twice="--set stages.1.gradient_accumulation_steps=2"
"$WEFT" train bound.yaml --set out=runs/twice $twice >twice.log 2>&1 || { cat twice.log; fail "two contributions"; }
beside() { # NAME OF SETTINGS...
    local name=$1 of=$2
    shift 2
    ranks 2 "$WEFT" train bound.yaml --set "out=runs/$name" "$@" >$name.log 2>&1 || { cat $name.log; fail "$name: a batch of one on two ranks"; }
    paste <(losses "runs/$name") <(losses "runs/$of") | awk '{d = $2 / $5 - 1; e = $3 / $6 - 1; if (d * d > 1e-12 || e * e > 1e-10) bad = 1} END {exit bad || NR != 26}' ||
        fail "$name: a batch of one on two ranks has other losses or gradients"
}
check a_batch_of_one_with_dp beside dp bound
check a_batch_of_one_with_zero beside zero bound --set parallel.zero=1
check a_batch_of_one_and_two_contributions beside sums twice $twice
check a_batch_of_one_and_zero_2 beside parts twice $twice --set parallel.zero=2
inspect_has_the_same_batches() {
    "$WEFT" inspect graph bound.yaml >inspect.txt || fail "inspect"
    grep -q "^stage both: 20 steps of 7 x 1x32x32" inspect.txt || { cat inspect.txt; fail "inspect has other batches"; }
}
check inspect_has_the_same_batches
refused() { # ID [FIELD=VALUE...] -- SETTINGS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" train run.yaml --set out=runs/no "$@" >no.log 2>&1 && fail "not refused: $*"
    has_message no.log "${wanted[@]}" || fail "$*: not as expected"
}
refusals() {
    refused config-missing-key file=run.yaml key=stages.0 -- --set stages.0.batch=0
    refused config-missing-key file=run.yaml key=stages.1.buckets.0 -- --set stages.1.buckets.0.batch=0
    refused config-value file=run.yaml key=stages.1.image_share text~=-0.5 -- --set stages.1.image_share=-0.5
    refused config-conflict file=run.yaml key=stages.0.shift text~=1 -- --set process=edm
    refused config-value 'text~=0.5 images' 'text~=no clips' -- --set stages.0.image_share=0.5
}
check refusals
finish
