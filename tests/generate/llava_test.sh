#!/bin/bash
# A text encoder that sees the first frame (LLaVA, HunyuanVideo's image to video): either spelling of its tensors, what its picture does, the
# frames before the video, kept latents of such a walk, and what is refused. Its numbers: pipelines_test.sh, tests/golden/llava.
set -u
fail() { echo "FAILED: $*"; exit 1; }
golden=$SRC/tests/golden/pipelines
make() { # make NAME FOLDER OPTIONS...
    local name=$1 folder=$2
    shift 2
    "$WEFT" generate --model "$folder" --prompt "a cat" --frames 5 --height 32 --width 32 --steps 2 --guidance 1 --latents --out "$name.mp4" "$@" \
        >"$name.log" 2>&1 || { cat "$name.log"; fail "generate $name"; }
}
change() { # change FROM TO CODE: a copy of a folder, changed by Python; `load` and `keep` are of JSON in it, `rename` of a file's tensors
    cp -r "$golden/$1" "$2" && chmod -R u+w "$2" && python3 - "$2" "$3" <<'PY' || fail "change $2"
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
change hunyuan_i2v new 'rename("text_encoder/model.safetensors", lambda k: "lm_head.weight" if "lm_head" in k else k if k[0] == "_"
    else "model." + k.replace("language_model.model.", "language_model.").replace("vision_tower.", "vision_tower.vision_model."))'
make new new --image "$image"
cmp own.latents.npy new.latents.npy || fail "the newer names: other numbers"
change hunyuan_i2v old 'rename("text_encoder/model.safetensors", lambda k: k.replace("vision_tower.", "vision_tower.vision_model."))'
make old old --image "$image"
cmp own.latents.npy old.latents.npy || fail "the older names: other numbers"
"$WEFT" inspect model old/text_encoder >inspect.txt 2>&1 || { cat inspect.txt; fail "inspect"; }
grep -q LlavaForConditionalGeneration inspect.txt || { cat inspect.txt; fail "inspect: which"; }
# only the encoder sees another picture: the VAE's is the same
change hunyuan_i2v white 'edit("image_processor/preprocessor_config.json", image_mean=[0.9, 0.1, 0.5])'
make white white --image "$image"
cmp -s own.latents.npy white.latents.npy && fail "the encoder does not see the picture"
python3 - <<'PY' || fail "frames of the video, or of the latents"
import subprocess
def shape(name):
    data = open(name, "rb").read()
    return eval(data[10:10 + int.from_bytes(data[8:10], "little")])["shape"]
assert shape("own.latents.npy") == (3, 4, 4, 4), shape("own.latents.npy")
frames = subprocess.run(["ffprobe", "-v", "error", "-count_frames", "-show_entries", "stream=nb_read_frames", "-of", "csv=p=0", "own.mp4"],
                        capture_output=True, text=True, check=True).stdout.strip()
assert frames == "5", frames
PY
make kept old --image "$image" --keep-latents
"$WEFT" generate --decode kept.latents.safetensors --model old --out back.mp4 >back.log 2>&1 || { cat back.log; fail "kept latents"; }
for name in own kept back; do
    ffmpeg -v error -i "$name.mp4" -f framemd5 - | grep -v '^#' >"$name.md5" || fail "frames of $name"
done
cmp own.md5 kept.md5 && cmp own.md5 back.md5 || fail "kept latents: other frames, or those before the video too"
refuse() { # refuse PATTERN OPTIONS...
    local pattern=$1
    shift
    "$WEFT" generate --frames 5 --height 32 --width 32 --steps 2 --out no.mp4 "$@" >no.log 2>&1 && fail "$*: not refused"
    grep -qE -- "$pattern" no.log || { cat no.log; fail "$*: not told: $pattern"; }
}
refuse 'begin with an image: give --image FILE' --model old --prompt x
refuse 'a prompt has "<image>" in it' --model old --image "$image" --prompt "an <image> of x"
refuse 'windows do not go on from one another' --model old --image "$image" --prompt x --windows continue --window 5
change hunyuan_i2v coarse 'edit("text_encoder/config.json", vision_config={"patch_size": 4})'
refuse 'a picture is 144 tokens, that of HunyuanVideoTransformer3DModel has 576' --model coarse --image "$image" --prompt x
change hunyuan_i2v other 'edit("text_encoder/config.json", image_token_index=9)'
refuse '"<image>" is token 5, by its config LlavaForConditionalGeneration puts the picture in the places of 9' --model other --image "$image" --prompt x
change hunyuan_i2v mistral 'edit("text_encoder/config.json", text_config={"model_type": "mistral"})'
refuse '"text_config" is of a mistral; a LlamaModel is supported' --model mistral --image "$image" --prompt x
change hunyuan_i2v layer 'edit("text_encoder/config.json", vision_feature_layer=-1)'
refuse '"vision_feature_layer": -1 is not supported; only -2 is' --model layer --image "$image" --prompt x
change hunyuan text 'import shutil; [shutil.rmtree(f"{folder}/{p}") for p in ("text_encoder", "tokenizer")]'
cp -r old/text_encoder old/tokenizer text/
refuse 'reads the first frame beside the prompt, and this HunyuanVideoTransformer3DModel is told of none' --model text --prompt x
cp -r "$golden/hunyuan/tokenizer" words && rm -rf old/tokenizer && mv words old/tokenizer
refuse 'it has no token "<image>"' --model old --image "$image" --prompt x
exit 0
