#!/bin/bash
# Training stages with several buckets: clips of two shapes and single images alternate in one
# model. 1, 2 and 3 ranks have the same losses (1e-5), a killed run resumes bitwise, and the
# reserved memory is the predicted one. A frozen text encoder: its embeddings are encoded once and
# cached, the exported encoder is unchanged, and the finished model generates.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
make_mixed_shards
buckets='[{batch: 4, frames: 9, height: 32, width: 32}, {batch: 3, frames: 9, height: 16, width: 32}, {batch: 5, frames: 1, height: 32, width: 32}]'
sed -i 's/keep_latest: 2/keep_latest: 9/' dit.yaml
for what in vae dit; do
    sed -i "/^stages:/,\$d; s/path: shards/path: mixed/" $what.yaml
    printf 'stages:\n  - {steps: 16, buckets: %s, lr: 1e-3, warmup_steps: 2}\n' "$buckets" >>$what.yaml
done
# program RUN.log: the size of the program that the run reports as reserved
program() { message_size "$1" stage-report key= 'value=?*'; }

# VAE: every sample has a bucket, and the program has the predicted size
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
every_sample_has_a_bucket() {
    has_message vae.log data-report key=data "text~=6 of 24" text~=9x16x32 || fail "the report does not count the samples of a bucket"
    has_message vae.log data-report key=data "text~=24 of 24" || fail "the report does not count all samples"
}
check every_sample_has_a_bucket
inspect_predicts_the_program() {
    "$WEFT" inspect graph vae.yaml >inspect.txt || fail "weft inspect"
    [ "$(grep -c '^stage ' inspect.txt)" = 3 ] || { cat inspect.txt; fail "inspect does not show three buckets"; }
    predicted=$(awk '$1 == "program" {print $2, $3}' inspect.txt)
    [ "$predicted" = "$(program vae.log)" ] || fail "reserved '$(program vae.log)' for the program, predicted '$predicted'"
}
check inspect_predicts_the_program

# a transformer on 1, 2 and 3 ranks
reports() { # RANKS
    local n=$1
    ranks $n "$WEFT" train dit.yaml --set out=runs/dit$n >dit$n.log 2>&1 || { cat dit$n.log; fail "weft train dit on $n ranks"; }
    has_message dit$n.log data-report key=latents "text~=24 of 24" || fail "the report of the latent cache does not count all samples"
    [ "$(count_messages dit$n.log '*' level=warning "text~=1 of 24" text~=caption)" = 1 ] || { cat dit$n.log; fail "the missing caption is not reported exactly once"; }
    has_message dit$n.log data-report "key=data at the end of the stage" "text~=24 of 24" || fail "the report at the end of the stage does not count all samples"
}
for n in 1 2 3; do check "every_sample_is_reported_on_${n}_ranks" reports $n; done
ranks_have_the_losses_of_one() {
    python3 -S - runs/dit1 runs/dit2 runs/dit3 <<'PY' || fail "losses of 1, 2 and 3 ranks differ"
import json, sys
runs = [[json.loads(l) for l in open(r + "/metrics.jsonl")] for r in sys.argv[1:]]
assert all(len(r) == 16 for r in runs)
# The 24 samples are 12 : 6 : 6. Buckets alternate by their shares: the first has the most steps.
count = [sum(l["bucket"] == b for l in runs[0]) for b in range(3)]
assert count[0] > count[1] > 0 and count[2] > 0, count
for other in runs[1:]:
    for a, b in zip(runs[0], other):
        assert a["bucket"] == b["bucket"]
        assert abs(a["loss"] - b["loss"]) <= 1e-5 * a["loss"], (a["step"], a["loss"], b["loss"])
PY
}
check ranks_have_the_losses_of_one
# As if killed after a checkpoint in the middle of an epoch: losses are bitwise the same.
resumes() { # STEP
    local last=$1 later
    rm -rf again
    cp -r runs/dit2 again
    rm -r again/model again/checkpoints/step-00000016
    for later in 10 15; do [ $later -le "$last" ] || rm -r again/checkpoints/step-000000$later; done
    ranks 2 "$WEFT" train dit.yaml --set out=again >again.log 2>&1 || { cat again.log; fail "resuming from step $last failed"; }
    has_message again.log run-resumed "value=$((10#$last))" || fail "did not resume from step $last"
    diff <(losses runs/dit2) <(losses again) || fail "losses differ after resuming from step $last"
}
for last in 05 10 15; do check "resumes_at_step_$last" resumes $last; done

# embeddings of a text encoder that is not trained
a_fixed_encoder_is_cached() {
    ranks 2 "$WEFT" train dit.yaml --set out=runs/frozen --set 'text_encoders=[{weights: runs/dit1/model/text_encoder}]' >frozen.log 2>&1 ||
        { cat frozen.log; fail "training with a frozen text encoder"; }
    ranks 1 "$WEFT" train dit.yaml --set out=runs/frozen1 --set 'text_encoders=[{weights: runs/dit1/model/text_encoder}]' >frozen1.log 2>&1 ||
        { cat frozen1.log; fail "training with a frozen text encoder on one rank"; }
    python3 -S - <<'PY' || fail "cached embeddings, or the losses with them"
import glob, json, tarfile
folder, = glob.glob("runs/frozen/latents/*")
names = []
for path in glob.glob(folder + "/*.tar"):  # each rank wrote its own
    with tarfile.open(path) as tar:
        names += tar.getnames()
assert sum(n.endswith(".text.npy") for n in names) == sum(n.endswith(".latent.npy") for n in names) == 24
a, b = ([json.loads(l) for l in open(r + "/metrics.jsonl")] for r in ("runs/frozen", "runs/frozen1"))
assert len(a) == len(b) == 16
for x, y in zip(a, b):
    assert abs(x["loss"] - y["loss"]) <= 1e-5 * x["loss"], (x["step"], x["loss"], y["loss"])
PY
    cmp runs/dit1/model/text_encoder/model.safetensors runs/frozen/model/text_encoder/model.safetensors || fail "the frozen encoder changed"
    "$WEFT" generate --model runs/frozen/model --prompt "a red circle" --steps 2 --out x.mp4 >generate.log 2>&1 || { cat generate.log; fail "weft generate"; }
}
check a_fixed_encoder_is_cached
# With the same weights and captions, a step with cached embeddings has the loss of a step that
# encodes the tokens.
cached_embeddings_are_those_of_the_step() {
    "$WEFT" train dit.yaml --set out=runs/begin --set 'transformer={weights: runs/dit1/model/transformer}' \
        --set 'text_encoders=[{weights: runs/dit1/model/text_encoder, train: true}]' --set stages.0.steps=2 >begin.log 2>&1 || { cat begin.log; fail "training from weights with a trainable text encoder"; }
    "$WEFT" train dit.yaml --set out=runs/begin2 --set 'transformer={weights: runs/dit1/model/transformer}' --set stages.0.steps=2 \
        --set 'text_encoders=[{weights: runs/dit1/model/text_encoder}]' >begin2.log 2>&1 || { cat begin2.log; fail "training from weights with a frozen text encoder"; }
    python3 -S - <<'PY' || fail "the loss with cached embeddings differs from the loss with tokens"
import json
a, b = (json.loads(open(r + "/metrics.jsonl").readline()) for r in ("runs/begin", "runs/begin2"))
assert abs(a["loss"] - b["loss"]) <= 1e-6 * a["loss"], (a, b)
PY
}
check cached_embeddings_are_those_of_the_step

# invalid configs
refuse() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" train dit.yaml --set out=runs/refused "$@" >refused.log 2>&1 && fail "accepted: $*"
    has_message refused.log "${wanted[@]}" || fail "$*: another message than expected"
}
refusals() {
    refuse config-conflict file=dit.yaml key=stages.0 -- --set stages.0.frames=9
    refuse config-conflict file=dit.yaml key=stages.0.buckets.3 'text~=bucket 0' -- --set 'stages.0.buckets.3={batch: 2, frames: 9, height: 32, width: 32}'
    refuse '*' 'text~=stages.0.buckets.1.frames: 6 is not 1 + 4 n' -- --set stages.0.buckets.1.frames=6
    refuse model-unknown file=*runs/vae/model/vae text~=AutoencoderKLWan, 'text~=a text encoder is needed' -- --set 'text_encoders=[{weights: runs/vae/model/vae}]'
}
check refusals
finish
