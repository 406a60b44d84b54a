#!/bin/bash
# A curriculum in one config: images, then images mixed with clips by image_share, then clips. Each
# training stage has its learning rate and shift; the exported scheduler has the last shift. The
# samples of each bucket are counted. Batch sizes follow from max_tokens and max_load where `batch`
# is omitted. Two sources are blended while the share of images changes. Invalid settings are
# refused.
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
    python3 -S - runs/dit <<'P' || fail "the stages"
import json, sys
rows = [json.loads(l) for l in open(sys.argv[1] + "/metrics.jsonl")]
assert len(rows) == 26
assert [r["lr"] for r in rows[:3] + rows[-3:]] == [2e-3] * 3 + [5e-4] * 3, rows[0]
batch = [3, 3, 2]
taken = [sum(batch[b] for r in rows[3:23] if r["bucket"] == b) for b in range(3)]
share = taken[2] / sum(taken)
assert abs(share - 0.25) < 0.04, (taken, share)
assert abs(taken[0] / (taken[0] + taken[1]) - 12 / 18) < 0.1, taken # clips keep their shares of the data set
model = json.load(open(sys.argv[1] + "/model/scheduler/scheduler_config.json"))
assert model["shift"] == 5, model
P
}
check stages_have_their_shares_and_rates
# An image_share in a data set without images is refused before the first training stage.
a_share_without_images_is_refused() {
    "$WEFT" train run.yaml --set out=runs/none --set data.path=shards --set stages.0.frames=9 >none.log 2>&1 && fail "image_share is accepted without images"
    has_message none.log config-value key=*stages.1 'text~=0.25 images' 'text~=no images' && [ ! -e runs/none/metrics.jsonl ] || { cat none.log; fail "not refused before the first step"; }
}
check a_share_without_images_is_refused
# A stage without a shift uses flow.shift and has the same losses.
losses_of() { losses "runs/$1" | head -3; }
a_stage_without_a_shift_has_that_of_the_run() {
    "$WEFT" train run.yaml --set out=runs/one --set flow.shift=1 --set stages.0.shift=0 --set stages.2.shift=0 >one.log 2>&1 || { cat one.log; fail "flow.shift"; }
    diff <(losses_of dit) <(losses_of one) || fail "a stage without a shift does not use flow.shift"
}
check a_stage_without_a_shift_has_that_of_the_run

# batch sizes from tokens: samples have 12, 6 and 4 tokens (latents of 3x4x4, 3x2x4 and 1x4x4 in
# patches of 1x2x2)
sed 's/batch: [0-9]*, //g; s/image_share: 0.25/max_load: 150\n    max_tokens: 30/' run.yaml | sed 's/{name: \(images\|clips\), /&max_tokens: 24, /' >bound.yaml
"$WEFT" train bound.yaml --set out=runs/bound >bound.log 2>&1 || { cat bound.log; fail "training with max_tokens and max_load"; }
batches_follow_from_tokens_and_load() {
    has_message bound.log stage-report stage=0 name=images 'buckets=6 x 1x32x32' && has_message bound.log stage-report stage=2 name=clips 'buckets=*2 x 9x32x32*' ||
        { cat bound.log; fail "batch sizes that follow from max_tokens"; }
    for bucket in '1 x 9x32x32' '4 x 9x16x32' '7 x 1x32x32'; do
        has_message bound.log stage-report stage=1 "buckets=*$bucket*" || fail "batch sizes that follow from max_load"
    done
}
check batches_follow_from_tokens_and_load
# A batch of one sample leaves the second rank without samples. Complete gradients of the first rank
# and partial gradients of both ranks are added in the same state.
twice="--set stages.1.gradient_accumulation_steps=2"
"$WEFT" train bound.yaml --set out=runs/twice $twice >twice.log 2>&1 || { cat twice.log; fail "two batches per step"; }
two_ranks_match() { # NAME OF SETTINGS...: two ranks have the losses and gradient norms of the run OF
    local name=$1 of=$2
    shift 2
    ranks 2 "$WEFT" train bound.yaml --set "out=runs/$name" "$@" >$name.log 2>&1 || { cat $name.log; fail "$name: training a batch of one on two ranks"; }
    paste <(losses "runs/$name") <(losses "runs/$of") | awk '{d = $2 / $5 - 1; e = $3 / $6 - 1; if (d * d > 1e-12 || e * e > 1e-10) bad = 1} END {exit bad || NR != 26}' ||
        fail "$name: a batch of one on two ranks has other losses or gradient norms"
}
check a_batch_of_one_with_dp two_ranks_match dp bound
check a_batch_of_one_with_zero two_ranks_match zero bound --set parallel.zero=1
check a_batch_of_one_and_two_contributions two_ranks_match sums twice $twice
check a_batch_of_one_and_zero_2 two_ranks_match parts twice $twice --set parallel.zero=2
inspect_has_the_same_batches() {
    "$WEFT" inspect graph bound.yaml >inspect.txt || fail "inspect"
    grep -q "^stage both: 20 steps of 7 x 1x32x32" inspect.txt || { cat inspect.txt; fail "weft inspect has other batch sizes"; }
}
check inspect_has_the_same_batches
# Two sources with the same keys, one of them limited, with a prompt prefix. The second half on two
# ranks, from the checkpoint of one rank, has the losses of one rank.
sources='data.path=[{name: own, path: shards, weight: 0.5}, {path: mixed, limit: 12, weight: 2, prompt_prefix: "small, "}]'
stage='stages=[{steps: 6, lr: 1e-3, image_share: 0.5, image_share_end: 0, buckets: [{batch: 4, frames: 9, height: 32, width: 32}, {batch: 2, frames: 1, height: 32, width: 32}]}]'
"$WEFT" train run.yaml --set out=runs/blend --set "$sources" --set "$stage" --set checkpoint.interval=3 >blend.log 2>&1 || { cat blend.log; fail "two sources"; }
sources_are_reported() {
    has_message blend.log data-report key=data 'text~=source own: 24 of 24 samples' 'text~=weight 0.5, exact: 12 items in an epoch' || fail "the samples of a source are not reported"
    has_message blend.log data-report key=latents 'text~=source mixed: 12 of 24' 'text~=12 samples are beyond the limit of 12' || fail "the limit of a source is not reported"
    python3 -S - runs/blend/data-stage-0.json <<'P' || fail "the account of the sources"
import glob, json, sys, tarfile
own, mixed = json.load(open(sys.argv[1]))["sources"]
assert (own["name"], own["samples"], own["used"], own["items"], own["repeated"]) == ("own", 24, 24, 12, 0), own
# in the cache only what the limit leaves
assert mixed["name"] == "mixed" and mixed["items"] == 2 * mixed["used"] and mixed["repeated"] == mixed["used"] > 0, mixed
names = [n for f in glob.glob("latents/*/*.tar") for n in tarfile.open(f).getnames() if "/" in n]
assert sum(n.startswith("own/") and n.endswith(".latent.npy") for n in names) == 24, names
assert sum(n.startswith("mixed/") and n.endswith(".latent.npy") for n in names) == mixed["used"], names
P
}
check sources_are_reported
sources_resume_on_two_ranks() {
    cp -r runs/blend runs/blend2
    rm -r runs/blend2/model runs/blend2/checkpoints/step-00000006
    "$WEFT" train run.yaml --set out=runs/blend2 --set "$sources" --set "$stage" --set data.sources.0.weight=1 >other.log 2>&1 && fail "resumed with another weight"
    has_message other.log checkpoint-mismatch 'text~=weights' || fail "the changed weight is not named"
    ranks 2 "$WEFT" train run.yaml --set out=runs/blend2 --set "$sources" --set "$stage" >blend2.log 2>&1 || { cat blend2.log; fail "two sources on two ranks"; }
    has_message blend2.log run-resumed value=3 || fail "the run did not resume"
    python3 -S - runs/blend runs/blend2 <<'P' || fail "the metrics of the sources"
import json, sys
one, two = ([json.loads(l) for l in open(r + "/metrics.jsonl")] for r in sys.argv[1:])
by_source = [(r["samples/own"], r["samples/mixed"]) for r in one]
assert by_source == [(r["samples/own"], r["samples/mixed"]) for r in two], two
assert [sum(b) for b in by_source] == [[4, 2][r["bucket"]] for r in one], one
P
    paste <(losses runs/blend) <(losses runs/blend2) | awk '{d = $2 / $5 - 1; if (d * d > 1e-10 || $1 != $4) bad = 1} END {exit bad || NR != 6}' || fail "other losses on two ranks"
}
check sources_resume_on_two_ranks
refused() { # ID [FIELD=VALUE...] -- SETTINGS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" train run.yaml --set out=runs/no "$@" >no.log 2>&1 && fail "not refused: $*"
    has_message no.log "${wanted[@]}" || fail "$*: another message than expected"
}
refusals() {
    refused config-missing-key file=run.yaml key=stages.0 -- --set stages.0.batch=0
    refused config-missing-key file=run.yaml key=stages.1.buckets.0 -- --set stages.1.buckets.0.batch=0
    refused config-value file=run.yaml key=stages.1.image_share text~=-0.5 -- --set stages.1.image_share=-0.5
    refused config-conflict file=run.yaml key=stages.0.shift text~=1 -- --set process=edm
    refused config-value 'text~=0.5 images' 'text~=no clips' -- --set stages.0.image_share=0.5
    refused config-missing-key file=run.yaml key=stages.1.image_share -- --set stages.1.image_share=-1 --set stages.1.image_share_end=0.1
    refused config-conflict file=run.yaml key=stages.1 -- --set stages.1.buckets.0.share=0.5
    refused config-value file=run.yaml key=stages.1 text~=1.3 -- --set stages.1.image_share=-1 --set stages.1.buckets.0.share=0.5 --set stages.1.buckets.1.share=0.8
    refused config-conflict file=run.yaml key=data.sources.1.name value=mixed -- --set 'data.path=[mixed, ./mixed]'
    refused shards-not-found 'text~=source nowhere' -- --set 'data.path=[mixed, nowhere]'
}
check refusals
finish
