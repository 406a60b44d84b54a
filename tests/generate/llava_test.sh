#!/bin/bash
# LLaVA as text encoder with the first frame as vision input (HunyuanVideo image-to-video): all
# tensor namings are read, the image has an effect, frames before the video are cropped, saved
# latents are decoded, and invalid inputs are refused. pipelines_test.sh and tests/golden/llava
# compare its results with the reference implementation.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
golden=$SRC/tests/golden/pipelines
make() { # make NAME FOLDER OPTIONS...
    local name=$1 folder=$2
    shift 2
    "$WEFT" generate --model "$folder" --prompt "a cat" --frames 5 --height 32 --width 32 --steps 2 --guidance-scale 1 --latents-npy --out "$name.mp4" "$@" \
        >"$name.log" 2>&1 || { cat "$name.log"; fail "generate $name"; }
}
# change FROM TO CODE: copies a folder and runs Python code on it. load, keep and edit are for JSON
# files of the folder; rename(FILE, FUNCTION) renames the tensors of a file.
change() {
    cp -r "$golden/$1" "$2" && chmod -R u+w "$2" && python3 -S - "$2" "$3" <<'PY' || fail "change $2"
import json, struct, sys
folder, code = sys.argv[1:]
def load(name): return json.load(open(f"{folder}/{name}"))
def keep(name, value): json.dump(value, open(f"{folder}/{name}", "w"))
def edit(name, **values):
    value = load(name)
    for key, new in values.items():
        (value.update({key: new}) if not isinstance(new, dict) else value[key].update(new))
    keep(name, value)
def rename(name, to):
    data = open(f"{folder}/{name}", "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    head = {to(k): v for k, v in json.loads(data[8:8 + size]).items()}
    text = json.dumps(head).encode()
    open(f"{folder}/{name}", "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
exec(code)
PY
}
image=$golden/hunyuan_i2v/image.png
make own "$golden/hunyuan_i2v" --image "$image"
every_naming_of_its_tensors_is_read() {
    change hunyuan_i2v new 'rename("text_encoder/model.safetensors", lambda k: "lm_head.weight" if "lm_head" in k else k if k[0] == "_"
    else "model." + k.replace("language_model.model.", "language_model.").replace("vision_tower.", "vision_tower.vision_model."))'
    make new new --image "$image"
    cmp own.latents.npy new.latents.npy || fail "the newer tensor names give other latents"
    change hunyuan_i2v old 'rename("text_encoder/model.safetensors", lambda k: k.replace("vision_tower.", "vision_tower.vision_model."))'
    make old old --image "$image"
    cmp own.latents.npy old.latents.npy || fail "the older tensor names give other latents"
    "$WEFT" inspect model old/text_encoder >inspect.txt 2>&1 || { cat inspect.txt; fail "inspect"; }
    grep -q LlavaForConditionalGeneration inspect.txt || { cat inspect.txt; fail "inspect does not print the class"; }
}
check every_naming_of_its_tensors_is_read
# Only the text encoder gets another image; the image of the VAE is the same.
the_encoder_uses_the_image() {
    change hunyuan_i2v white 'edit("image_processor/preprocessor_config.json", image_mean=[0.9, 0.1, 0.5])'
    make white white --image "$image"
    ! cmp -s own.latents.npy white.latents.npy || fail "the image has no effect on the text encoder"
}
check the_encoder_uses_the_image
the_first_frames_are_cropped() {
    python3 -S - <<'PY' || fail "the number of frames of the video or of the latents"
import subprocess
def shape(name):
    data = open(name, "rb").read()
    return eval(data[10:10 + int.from_bytes(data[8:10], "little")])["shape"]
assert shape("own.latents.npy") == (3, 4, 4, 4), shape("own.latents.npy")
frames = subprocess.run(["ffprobe", "-v", "error", "-count_frames", "-show_entries", "stream=nb_read_frames", "-of", "csv=p=0", "own.mp4"],
                        capture_output=True, text=True, check=True).stdout.strip()
assert frames == "5", frames
PY
}
check the_first_frames_are_cropped
saved_latents_are_decoded() {
    needs every_naming_of_its_tensors_is_read
    make kept old --image "$image" --save-latents
    "$WEFT" generate --decode-latents kept.latents.safetensors --model old --out back.mp4 >back.log 2>&1 || { cat back.log; fail "decoding saved latents"; }
    for name in own kept back; do
        ffmpeg -v error -i "$name.mp4" -f framemd5 - | grep -v '^#' >"$name.md5" || fail "frames of $name"
    done
    cmp own.md5 kept.md5 && cmp own.md5 back.md5 || fail "saved latents decode to other frames, or to the cropped frames as well"
}
check saved_latents_are_decoded
refuse() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" generate --frames 5 --height 32 --width 32 --steps 2 --out no.mp4 "$@" >no.log 2>&1 && fail "$*: not refused"
    has_message no.log "${wanted[@]}" || fail "$*: another message than expected"
}
refusals() {
    needs every_naming_of_its_tensors_is_read
    refuse video-input file=old key=--image -- --model old --prompt x
    refuse prompt-invalid 'text~="<image>"' -- --model old --image "$image" --prompt "an <image> of x"
    refuse model-input-unsupported key=--window-mode -- --model old --image "$image" --prompt x --window-mode continue --window 5
    change hunyuan_i2v coarse 'edit("text_encoder/config.json", vision_config={"patch_size": 4})'
    refuse text-encoder-unsupported 'text~=144 tokens' text~=HunyuanVideoTransformer3DModel text~=576 -- --model coarse --image "$image" --prompt x
    change hunyuan_i2v other 'edit("text_encoder/config.json", image_token_index=9)'
    refuse tokenizer-invalid 'text~="<image>" is token 5,' 'text~=LlavaForConditionalGeneration has token 9' -- --model other --image "$image" --prompt x
    change hunyuan_i2v mistral 'edit("text_encoder/config.json", text_config={"model_type": "mistral"})'
    refuse model-config-unsupported key=*text_config text~=mistral text~=LlamaModel -- --model mistral --image "$image" --prompt x
    change hunyuan_i2v layer 'edit("text_encoder/config.json", vision_feature_layer=-1)'
    refuse model-config-unsupported key=*vision_feature_layer text~=-1 text~=-2 -- --model layer --image "$image" --prompt x
    change hunyuan text 'import shutil; [shutil.rmtree(f"{folder}/{p}") for p in ("text_encoder", "tokenizer")]'
    cp -r old/text_encoder old/tokenizer text/
    refuse text-encoder-unsupported 'text~=first frame' text~=HunyuanVideoTransformer3DModel -- --model text --prompt x
    cp -r "$golden/hunyuan/tokenizer" words && rm -rf old/tokenizer && mv words old/tokenizer
    refuse tokenizer-invalid 'text~="<image>"' -- --model old --image "$image" --prompt x
}
check refusals
finish
