#!/bin/bash
# Step distillation of every model family whose only inputs are latents, a timestep and text, from a trained model to a generated
# video. tests/train/graph/distill_families_test.c has the losses of all methods, in full and with LoRA. Another process than flow
# matching has preferences alone: the first loss is log 2, because the model is its reference.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards 6
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
sed '/^stages:/,$d' dit.yaml >short.yaml
echo "stages:
  - {steps: 2, batch: 2, frames: 9, height: 32, width: 32, lr: 1e-3, warmup_steps: 0, lr_schedule: constant}" >>short.yaml
sed -i 's/^optimizer:.*/optimizer: {eps: 1e-8}/; s/^checkpoint:.*/checkpoint: {interval: 0}/; s/^data:.*/data: {path: shards, latents: latents}/' short.yaml
# run CLASS NAME [OPTIONS...]: two steps from the weights of CLASS
run() {
    local class=$1 name=$2
    shift 2
    "$WEFT" train "$class-from.yaml" --set "out=runs/$class-$name" "$@" >"$class-$name.log" 2>&1 || { cat "$class-$name.log"; fail "$class: $*"; }
}
first() { losses "runs/$1" | awk 'NR == 1 {print $2}'; }
# A pair of other clips for every clip: the rejected clip of a key is the clip of the next key.
make_rejected() {
    python3 -S - <<'PY'
import glob, os, shutil
keys = sorted(os.path.basename(f)[:-4] for f in glob.glob("cur/clips/*.mp4"))
shutil.copytree("cur/metas", "other/metas")
os.makedirs("other/clips")
for key, following in zip(keys, keys[1:] + keys[:1]):
    shutil.copy(f"cur/clips/{following}.mp4", f"other/clips/{key}.mp4")
PY
    "$WEFT" shard --in other --out other-shards --set heldout=0 >shard.log 2>&1 || { cat shard.log; fail "weft shard other"; }
}
preferences() { # CLASS OPTIONS...
    local class=$1 loss
    shift
    make_rejected
    for lora in "" "--set transformer.lora.rank=4"; do
        run "$class" "dpo${lora:+-lora}" --set preference.rejected=other-shards --set preference.beta=100 $lora "$@"
        loss=$(first "$class-dpo${lora:+-lora}")
        awk -v loss="$loss" 'BEGIN {d = loss - log(2); exit !(d * d < 1e-10)}' || fail "$class preferences $lora: the first loss is $loss"
    done
    refuse_run "$class-from" config-conflict key=process -- --set distill.method=lcm "$@"
}
methods() { # CLASS [OPTIONS...]
    local class=$1
    shift
    "$WEFT" train "$class.yaml" --set out="runs/$class" "$@" >"$class.log" 2>&1 || { cat "$class.log"; fail "$class"; }
    write_from "$class"
    if [ $# -gt 0 ]; then # another process than flow matching
        preferences "$class" "$@"
        return
    fi
    run "$class" dmd2 --set distill.method=dmd2 --set distill.guidance=3 --set distill.student_steps=3
    [ "$(first "$class-dmd2")" != 0.0 ] || fail "$class: guidance has no effect"
    "$WEFT" generate --model "runs/$class-dmd2/model" --prompt "a red circle" --out "$class.mp4" >generate.log 2>&1 ||
        { cat generate.log; fail "weft generate with $class"; }
    has_message generate.log own-settings "text~=--steps 3, --guidance-scale 1." && has_message generate.log job-report "text~=of consistency, guidance 1;" || { cat generate.log; fail "$class does not generate as it was distilled"; }
}
each_family short.yaml methods
finish
