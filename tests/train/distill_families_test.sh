#!/bin/bash
# Step distillation and preference tuning of every model family whose only inputs are latents, a timestep and text, in full and with
# LoRA. The steps themselves are compared with PyTorch in tests/train/graph/distillation_test.c. Here, the first step of every method
# has a known loss:
# - preferences: log 2, because the model is its reference;
# - distribution matching without guidance: 0, because both scores are the teacher. With guidance it is not 0;
# - LoRA: the loss of the full training, because its matrices begin with 0.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
# the rejected clip of a key is the clip of the next key
python3 -S - <<'PY'
import glob, os, shutil
keys = sorted(os.path.basename(f)[:-4] for f in glob.glob("cur/clips/*.mp4"))
shutil.copytree("cur/metas", "other/metas")
os.makedirs("other/clips")
for key, following in zip(keys, keys[1:] + keys[:1]):
    shutil.copy(f"cur/clips/{following}.mp4", f"other/clips/{key}.mp4")
PY
"$WEFT" shard --in other --out other-shards --set heldout=0 >shard.log 2>&1 || { cat shard.log; fail "weft shard other"; }
# run CLASS NAME [OPTIONS...]: two steps from the weights of CLASS
run() {
    local class=$1 name=$2
    shift 2
    "$WEFT" train "$class-from.yaml" --set "out=runs/$class-$name" "$@" >"$class-$name.log" 2>&1 || { cat "$class-$name.log"; fail "$class: $*"; }
}
first() { losses "runs/$1" | awk 'NR == 1 {print $2}'; }
is() { # WHAT A B [TOLERANCE]
    python3 -S -c 'import sys
a, b, by = map(float, sys.argv[1:])
sys.exit(not abs(a - b) <= by * abs(b))' "$2" "$3" "${4:-1e-5}" || fail "$1: the first loss is $2, not $3"
}
methods() { # CLASS [OPTIONS...]
    local class=$1 method folder frames encoders lora="--set transformer.lora.rank=4 --set stages.0.steps=1"
    shift
    "$WEFT" train "$class.yaml" --set out="runs/$class" --set stages.0.steps=2 --set stages.1.steps=1 "$@" >"$class.log" 2>&1 || { cat "$class.log"; fail "$class"; }
    # LongCat has its own name of the folder, and three families have other names of layers.
    folder=$(dirname "$(grep -l "\"_class_name\": \"$class\"" "runs/$class/model"/*/config.json)")
    case $class in
    STDiT3 | LongCat*) lora="$lora --set transformer.lora.targets=[qkv,proj]" ;;
    Kandinsky5*) lora="$lora --set transformer.lora.targets=[to_query,to_key,to_value]" ;;
    esac
    frames=$(sed -n '/^stages:/{n;s/.*frames: \([0-9]*\).*/\1/p;}' "$class.yaml")
    encoders=$(ls -d runs/$class/model/text_encoder*)
    [ $class != FluxTransformer2DModel ] || encoders=$(ls -dr runs/$class/model/text_encoder*) # the first one gives the pooled vector
    {
        echo "autoencoder: {weights: runs/vae/model/vae}"
        echo "data: {path: shards, latents: latents}"
        echo "transformer: {weights: $folder}"
        echo "text_encoders:"
        printf '  - {weights: %s}\n' $encoders
        echo "checkpoint: {interval: 0}"
        echo "stages: [{steps: 2, batch: 2, frames: $frames, height: 32, width: 32, lr: 1e-3, warmup_steps: 0, lr_schedule: constant}]"
    } >"$class-from.yaml"
    run "$class" dpo --set preference.rejected=other-shards --set preference.beta=100 "$@"
    run "$class" dpo-lora --set preference.rejected=other-shards --set preference.beta=100 $lora "$@"
    is "$class preferences" "$(first "$class-dpo")" 0.693147181
    is "$class preferences with LoRA" "$(first "$class-dpo-lora")" 0.693147181
    if [ $# -gt 0 ]; then # another process than flow matching
        refuse_run "$class-from" config-conflict key=process -- --set distill.method=lcm "$@"
        return
    fi
    for method in lcm dmd2; do
        run "$class" $method --set distill.method=$method --set distill.guidance=3
        run "$class" $method-lora --set distill.method=$method --set distill.guidance=3 $lora
        is "$class $method with LoRA" "$(first "$class-$method-lora")" "$(first "$class-$method")"
    done
    run "$class" matched --set distill.method=dmd2 --set stages.0.steps=1
    is "$class matching of equal scores" "$(first "$class-matched")" 0
    [ "$(first "$class-dmd2")" != "$(first "$class-matched")" ] || fail "$class: guidance has no effect"
    "$WEFT" generate --model "runs/$class-dmd2/model" --prompt "a red circle" --frames $frames --height 32 --width 32 --steps 4 --guidance 1 --out "$class.mp4" >generate.log 2>&1 ||
        { cat generate.log; fail "weft generate with $class"; }
}
each_family dit.yaml methods
finish
