#!/bin/bash
# Identity conditioning from image files: CLIP's features of patches or its projected vector, and
# latents, of one to three images. Features, losses of steps, and generated latents equal the
# results of transformers and diffusers in f64 (tools/golden_identity_images.py); they are close,
# not bitwise: weft computes in f32. A stopped run resumes bitwise, and layouts have the losses of
# one rank. A clip may lack the image of a set. Invalid settings are refused with the remedy.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
golden=$SRC/tests/golden/identity models=$SRC/tests/golden/pipelines/wan_animate
cp -r "$golden"/{clips,front,side,stills} .
write() { # NAME IDENTITY
    cat >"$1.yaml" <<Y
out: runs/$1
seed: 5
autoencoder: {weights: $models/vae}
data: {path: clips, latents: latents}
transformer: {weights: $golden/transformer}
text_encoders: [{weights: $models/text_encoder, tokenizer: $models/tokenizer}]
identity: {$2, dropout: 0.4}
caption_dropout: 0
flow: {shift: 3}
stages:
  - {steps: 4, batch: 2, frames: 9, height: 32, width: 32, lr: 1e-12, warmup_steps: 0, lr_schedule: constant}
Y
}
clip="image_encoder: $golden/image_encoder"
write patches "weights: $golden/patches, $clip, images: [front, side]"
write embedding "weights: $golden/embedding, $clip, images: [front, side]"
write latents "weights: $golden/latents, images: [stills, side]"
write first "weights: $golden/patches, $clip"
cat >losses.py <<'P'
import json, sys
run, expected = sys.argv[1], json.load(open(sys.argv[2]))["losses"][sys.argv[1]]
made = [json.loads(line)["loss"] for line in open(f"runs/{run}/metrics.jsonl")]
if len(made) != len(expected) or any(abs(a - b) > 1e-5 * b for a, b in zip(made, expected)):
    sys.exit(f"{run}: the losses are {made}, not {expected}")
P
cat >features.py <<'P'
import glob, json, struct, sys, tarfile
def floats(data): return struct.unpack(f"<{len(data) // 4}f", data)
def npy(data): return floats(data[10 + struct.unpack("<H", data[8:10])[0]:])
def off(a, b): return max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, a)) if len(a) == len(b) else 9
raw = open(sys.argv[1], "rb").read()
head = struct.unpack("<Q", raw[:8])[0]
made = [(m.name, npy(tar.extractfile(m).read())) for path in glob.glob("latents/*/*.tar") for tar in [tarfile.open(path)] for m in tar if m.name.endswith("image.npy")]
for name, t in json.loads(raw[8:8 + head]).items():
    if name == "__metadata__": continue
    values, key = floats(raw[8 + head + t["data_offsets"][0]:8 + head + t["data_offsets"][1]]), name.split(".")[1]
    least = min(off(values, other) for file, other in made if file == key + ".image.npy")
    if least > 1e-5:
        sys.exit(f"the features {name} are not in the cache; the nearest are off by {least}")
    print(name, "off by", least)
P
trains() { # RUN
    train "$1" "$1"
    python3 -S losses.py "$1" "$golden/expected.json" || fail "losses"
}
for run in patches embedding latents first; do check "$run" trains "$run"; done
features_are_equal() {
    needs patches embedding first
    python3 -S features.py "$golden/features.safetensors" || fail "features"
}
check features features_are_equal
# trained from random weights, so that gradients of all inputs count
cat >new.py <<'P'
import re, sys
text = open("patches.yaml").read()
text = re.sub(r"weights: \S+/patches,", "class: WeftIdentityEncoder, config: {num_tokens: 2, dim: 8, num_heads: 2, num_layers: 1},", text).replace("lr: 1e-12", "lr: 2e-3")
open("new.yaml", "w").write(text.replace("runs/patches", "runs/new"))
open("lora.yaml", "w").write(text.replace("runs/patches", "runs/lora").replace("/transformer}", "/transformer, lora: {rank: 2}}"))
P
python3 -S new.py
check new resumes_bitwise new
for degrees in dp tp fsdp cp; do check "new_$degrees" layout new 2 --set "parallel.$degrees=2"; done
check new_pp layout new 2 --set parallel.pp=2 --set stages.0.accumulate=1
check lora train lora lora
its_files_are_written() {
    local folder
    needs new lora
    for folder in runs/new/model runs/lora; do
        cmp "$golden/image_encoder/model.safetensors" "$folder/identity/image_encoder/model.safetensors" || fail "$folder: the image encoder"
        cmp "$golden/image_encoder/preprocessor_config.json" "$folder/identity/image_encoder/preprocessor_config.json" || fail "$folder: its preprocessing"
    done
    grep -q '"num_images": *2' runs/new/model/identity/config.json || fail "num_images is not the number of sets"
    grep -q '"features": *"patches"' runs/new/model/identity/config.json || fail "patches are not the default"
    cmp -s runs/new/model/identity/model.safetensors runs/lora/identity/model.safetensors && fail "the encoder was not trained"
    return 0
}
check its_files_are_written its_files_are_written
# generation
mkdir model
for part in vae text_encoder tokenizer scheduler; do ln -s "$models/$part" "model/$part"; done
ln -s "$golden/transformer" model/transformer
cat >model/model_index.json <<'J'
{"_class_name": "WanPipeline", "scheduler": ["diffusers", "UniPCMultistepScheduler"], "text_encoder": ["transformers", "UMT5EncoderModel"],
 "tokenizer": ["transformers", "T5TokenizerFast"], "transformer": ["diffusers", "WanTransformer3DModel"], "vae": ["diffusers", "AutoencoderKLWan"]}
J
for kind in patches embedding; do
    cp -r "$golden/$kind" .
    cp -r "$golden/image_encoder" "$kind"
done
cat >nearest.py <<'P'
import struct, sys
def npy(path):
    data = open(path, "rb").read()
    data = data[10 + struct.unpack("<H", data[8:10])[0]:]
    return struct.unpack(f"<{len(data) // 4}f", data)
made, wanted = (npy(path) for path in sys.argv[1:])
off = max(abs(a - b) for a, b in zip(made, wanted, strict=True)) / max(map(abs, wanted))
print(sys.argv[2], "off by", off)
sys.exit(off > 1e-4)
P
generate() { # NAME ENCODER FILES... [-- OPTIONS...]
    local name=$1 encoder=$2 options=()
    shift 2
    while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=(--identity-image "$1") && shift; done
    "$WEFT" generate --model model --identity-encoder "$encoder" "${options[@]}" --init-latents "$golden/noise.npy" --prompt "a red cat walks &amp; sleeps" \
        --negative-prompt blurry --frames 9 --height 32 --width 32 --steps 4 --guidance-scale 3 --latents-npy --out "$name.mp4" "${@:2}" >"$name.log" 2>&1 ||
        { cat "$name.log"; fail "weft generate $name"; }
}
generation_equals_the_pipeline() {
    generate one patches front/walk.png
    generate two patches front/walk.png side/walk.png
    generate swapped patches side/walk.png front/walk.png
    generate embedding embedding front/walk.png side/walk.png
    generate latents "$golden/latents" stills/walk.png
    for name in one two swapped embedding latents; do
        python3 -S nearest.py "$name.latents.npy" "$golden/latents_$name.npy" || fail "$name"
    done
}
check generation generation_equals_the_pipeline
refuse() { # ID [FIELD=VALUE...] -- COMMAND...
    take_message "$@"
    set -- "${rest[@]}"
    "$@" >out.log 2>&1 && fail "$*: not refused"
    has_message out.log "${wanted[@]}" || { cat out.log; fail "$*: another message than expected"; }
}
refusals() {
    local generate=("$WEFT" generate --model model --prompt x --frames 9 --height 32 --width 32 --out no.mp4 --identity-encoder)
    refuse option-invalid file=patches key=--identity-image value=4 -- "${generate[@]}" patches --identity-image front/walk.png --identity-image front/walk.png \
        --identity-image front/walk.png --identity-image front/walk.png
    refuse file-not-found file=none.png key=--identity-image -- "${generate[@]}" patches --identity-image front/walk.png --identity-image none.png
    refuse model-not-found text~=image_encoder -- "${generate[@]}" "$golden/patches" --identity-image front/walk.png
    refuse_run patches file-not-found file=none text~=identity.image_encoder -- --set identity.image_encoder=none
    refuse_run patches model-unknown text~=identity.image_encoder -- --set "identity.image_encoder=$models/text_encoder"
    refuse_run patches config-missing-key file=patches.yaml key=identity.image_encoder -- --set identity.image_encoder=
    refuse_run latents config-conflict file=latents.yaml key=identity.image_encoder -- --set "identity.image_encoder=$golden/image_encoder"
    refuse_run patches config-value file=patches.yaml key=identity.images value=4 -- --set "identity.images=[front, side, front, side]"
    refuse_run patches config-value key=identity.images value=17 -- --set "identity.images=[a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q]"
    refuse_run patches config-value key=identity.images.1 -- --set 'identity.images=[front, ""]'
    refuse_run patches config-missing-key file=patches.yaml key=identity.class -- --set identity.weights=
    # no image of a clip in any set
    refuse_run patches config-value file=side key=identity.images value=jump -- --set "identity.images=[side]"
}
check refusals refusals
finish
