#!/bin/bash
# The choices of `context: auto` and `slices: auto` are stored with the run. A resumed run uses the
# stored choices, another config chooses again, and an edited file is refused.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >run.yaml <<'Y'
out: runs/auto
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 2, num_attention_heads: 4, attention_head_dim: 12, ffn_dim: 46, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
checkpoint: {interval: 1}
stages: [{steps: 2, batch: 4, frames: 9, height: 32, width: 32, lr: 2e-3, warmup_steps: 0, lr_schedule: constant}]
parallel: {cp: 2, context: auto, comm_overlap: {heads: auto}}
Y
train() { # LOG OPTIONS...
    local log=$1
    shift
    ranks 2 "$WEFT" train run.yaml "$@" >"$log" 2>&1 || { cat "$log"; fail "$log"; }
}
axis() {
    local a
    for a in cp ring; do [ "$(count_messages "$1" stage-report $a=2)" = 0 ] || echo $a; done
}
a_run_stores_its_choice() {
    train first.log
    [ -s runs/auto/layout-choice.json ] || fail "no layout-choice.json"
    [ -n "$(axis first.log)" ] || { cat first.log; fail "no axis"; }
}
check a_run_stores_its_choice
# the other choice, with a valid checksum, as with another profile
cat >other.py <<'P'
import json
path = "runs/auto/layout-choice.json"
c = json.load(open(path))
del c["id"]
ring = c["context"]["ring"] == 2
c["context"].update(ulysses=2 if ring else 1, ring=1 if ring else 2)
c["slices"]["heads"] = 2
hash = 0xcbf29ce484222325
for byte in json.dumps(c, sort_keys=True, separators=(",", ":")).encode():
    hash = (hash ^ byte) * 0x100000001b3 % (1 << 64)
c["id"] = "%016x" % hash
json.dump(c, open(path, "w"))
print("cp" if ring else "ring")
P
a_resumed_run_uses_the_stored_choice() {
    needs a_run_stores_its_choice
    other=$(python3 other.py)
    cp runs/auto/layout-choice.json stored.json
    "$WEFT" inspect graph run.yaml >inspect.txt || fail "weft inspect graph"
    grep -q "^  $other  *2 " inspect.txt || { cat inspect.txt; fail "inspect graph does not show the stored choice"; }
    train again.log --set stages.0.steps=4 --set stages.0.lr=1e-3
    [ "$(axis again.log)" = "$other" ] || { cat again.log; fail "a resumed run chose again"; }
    [ "$(count_messages again.log layout-chosen source=estimate)" = 0 ] || { cat again.log; fail "a resumed run priced layouts"; }
    cmp stored.json runs/auto/layout-choice.json || fail "the stored choice was written again"
}
check a_resumed_run_uses_the_stored_choice
# Other batches choose again and replace the file.
other_batches_choose_again() {
    needs a_resumed_run_uses_the_stored_choice
    train batches.log --set stages.0.steps=6 --set stages.0.batch=8 --set checkpoint.allow_changes=true
    has_message batches.log layout-chosen source=estimate || fail "another batch used the stored choice"
    ! cmp -s stored.json runs/auto/layout-choice.json || fail "the stored choice was not replaced"
}
check other_batches_choose_again
# edited
an_edited_choice_is_refused() {
    needs other_batches_choose_again
    sed -i 's/"heads": *[0-9]*/"heads": 3/' runs/auto/layout-choice.json
    ranks 2 "$WEFT" train run.yaml --set stages.0.steps=6 >edited.log 2>&1 && fail "an edited choice was accepted"
    has_message edited.log '*' level=error file=runs/auto/layout-choice.json key=id || fail "an edited choice is not named"
}
check an_edited_choice_is_refused
finish
