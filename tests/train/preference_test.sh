#!/bin/bash
# Preference tuning with pairs of clips: a stopped run resumes bitwise, and ranks have the losses of
# one, also with controls and first frames. A pair without its rejected clip is an error.
# tests/train/sound_test.sh has pairs with sound, and tests/train/graph/distillation_test.c compares
# the steps with PyTorch.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
# the rejected clip of a key is the clip of the next key
python3 -S - <<'PY'
import glob, os, shutil
keys = sorted(os.path.basename(f)[:-4] for f in glob.glob("cur/clips/*.mp4"))
shutil.copytree("cur/metas", "other/metas")
os.makedirs("other/clips")
for key, following in zip(keys, keys[1:] + keys[:1]):
    shutil.copy(f"cur/clips/{following}.mp4", f"other/clips/{key}.mp4")
shutil.copytree("other", "fewer")
os.remove(f"fewer/clips/{keys[3]}.mp4")
os.remove(f"fewer/metas/{keys[3]}.json")
PY
for set in other fewer; do
    "$WEFT" shard --in $set --out $set-shards --set heldout=0 >shard.log 2>&1 || { cat shard.log; fail "weft shard $set"; }
done
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
"$WEFT" train dit.yaml --set stages.0.steps=4 --set stages.1.steps=1 >dit.log 2>&1 || { cat dit.log; fail "weft train dit"; }
cat >pairs.yaml <<'Y'
out: runs/pairs
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
preference: {rejected: other-shards, beta: 100}
transformer: {weights: runs/dit/model/transformer}
text_encoders: [{weights: runs/dit/model/text_encoder}]
checkpoint: {interval: 2, keep_latest: 2}
stages:
  - {steps: 4, batch: 4, frames: 9, height: 32, width: 32, lr: 2e-3, warmup_steps: 0, lr_schedule: constant}
Y
train() { # NAME OPTIONS...
    local name=$1
    shift
    "$WEFT" train pairs.yaml --set out=runs/$name "$@" >$name.log 2>&1 || { cat $name.log; fail "weft train pairs.yaml $*"; }
}
resumes_bitwise() { # NAME FILE OPTIONS...
    local name=$1 file=$2
    shift 2
    train $name "$@"
    train $name-half "$@" --set stages.0.steps=2
    train $name-half "$@"
    has_message $name-half.log run-resumed value=2 || fail "$name did not resume from step 2"
    cmp runs/$name/$file runs/$name-half/$file || fail "$name: $file differs after resuming"
    # before the first update both models are the same, so the loss is log 2
    losses runs/$name | awk 'NR == 1 {exit !($2 > 0.69314 && $2 < 0.69316)}' || { losses runs/$name; fail "the first loss is not log 2"; }
}
check pairs resumes_bitwise pairs model/transformer/diffusion_pytorch_model.safetensors
check pairs_with_lora resumes_bitwise lora adapter/pytorch_lora_weights.safetensors --set transformer.lora.rank=4
over_dp() {
    needs pairs
    ranks 2 "$WEFT" train pairs.yaml --set out=runs/ranks --set parallel.dp=2 >ranks.log 2>&1 || { cat ranks.log; fail "dp=2"; }
    paste <(losses runs/pairs) <(losses runs/ranks) | awk '
        function off(a, b, by) {return (a > b ? a - b : b - a) > by * (a > 0 ? a : -a)}
        off($2, $5, 1e-5) || off($3, $6, 1e-4) {print; bad = 1} END {exit bad || NR != 4}' || fail "losses differ from one rank"
}
check over_dp
# A control of both clips of a pair, on the new channels of a widened model.
with_control() {
    "$WEFT" convert runs/dit/model/transformer wide --in-channels 8 >wide.log 2>&1 || { cat wide.log; fail "weft convert --in-channels"; }
    resumes_bitwise control model/transformer/diffusion_pytorch_model.safetensors --set transformer.weights=wide --set condition=control --set control=other-shards
    train control-other --set transformer.weights=wide --set condition=control --set control=shards --set stages.0.steps=2
    ! cmp -s <(losses runs/control | head -2) <(losses runs/control-other) || fail "the control has no effect"
}
check with_control
# A published model of image to video: first frames and grey ones of both clips.
with_first_frames() {
    "$WEFT" convert runs/dit/model/transformer i2v/transformer --in-channels 12 >wide.log 2>&1 || { cat wide.log; fail "weft convert --in-channels"; }
    resumes_bitwise first model/transformer/diffusion_pytorch_model.safetensors --set transformer.weights=i2v/transformer --set condition=first_frame
    grep -q '"rest": "grey"' runs/first/model/weft.json || { cat runs/first/model/weft.json; fail "weft.json does not name the rest"; }
}
check with_first_frames
refuse() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" train pairs.yaml --set out=runs/refused "$@" >out.log 2>&1 && fail "$*: not refused"
    has_message out.log "${wanted[@]}" || { cat out.log; fail "$*: another message than expected"; }
}
refusals() {
    refuse config-value key=preference.rejected -- --set preference.rejected=fewer-shards
    refuse config-conflict file=pairs.yaml key=distill.method -- --set distill.method=lcm
    refuse config-conflict file=pairs.yaml key=parallel.pp -- --set parallel.pp=2
    refuse config-missing-key file=pairs.yaml key=transformer.weights -- --set transformer.weights= --set transformer.class=WanTransformer3DModel
}
check refusals
finish
