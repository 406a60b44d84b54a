#!/bin/bash
# Model folders with damaged or missing parts are rejected before the work, with the file, the tensor and the remedy:
# NaN and infinite weights and LoRAs, Git LFS pointers, missing folders, weights, shards and indices.
set -u
export OMP_NUM_THREADS=1
fail() { echo "FAILED: $*"; exit 1; }
golden=$SRC/tests/golden/pipelines/wan_over
fresh() { rm -rf model; cp -r "$golden" model; chmod -R u+w model; }
# reject PATTERN... -- OPTIONS...: every pattern is in the message, and no video is written
reject() {
    local patterns=()
    while [ "$1" != -- ]; do patterns+=("$1"); shift; done
    shift
    rm -f out.mp4
    "$WEFT" generate --model model --prompt x --height 32 --width 32 --frames 5 --steps 2 --out out.mp4 "$@" >log 2>&1 &&
        { cat log; fail "accepted: ${patterns[*]}"; }
    for pattern in "${patterns[@]}"; do
        grep -qE -e "$pattern" log || { cat log; fail "no '$pattern'"; }
    done
    grep -q 'denoising step' log && { cat log; fail "rejected after the work"; }
    [ ! -e out.mp4 ] || fail "a video was written"
}
# poison FILE TENSOR VALUE ELEMENT
poison() {
    python3 - "$@" <<'PY'
import json, struct, sys
path, name, value, element = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
data = bytearray(open(path, "rb").read())
start = 8 + struct.unpack("<Q", data[:8])[0]
tensor = json.loads(data[8:start])[name]
at = start + tensor["data_offsets"][0] + 4 * element
assert tensor["dtype"] == "F32" and at < start + tensor["data_offsets"][1]
data[at:at + 4] = struct.pack("<f", value)
open(path, "wb").write(data)
PY
}
check_weights() { # FOLDER TENSOR [OPTIONS...]
    local folder=$1 tensor=$2 file
    shift 2
    for value in nan -inf; do
        fresh
        file=$(echo model/$folder/*.safetensors)
        poison "$file" "$tensor" $value 5
        reject "$file" "element 5 of tensor \"$tensor\" is ($([ $value = nan ] && echo NaN || echo infinite))" -- "$@"
    done
}
check_weights transformer blocks.0.ffn.net.0.proj.weight
check_weights transformer blocks.0.ffn.net.0.proj.weight --pass stream=on # mapped from the file
check_weights vae decoder.up_blocks.3.resnets.0.conv1.weight
check_weights text_encoder encoder.block.1.layer.0.SelfAttention.o.weight

fresh
python3 - <<'PY'
import json, struct
head = {"transformer.blocks.0.attn1.to_q.lora_A.weight": {"dtype": "F32", "shape": [1, 24], "data_offsets": [0, 96]},
        "transformer.blocks.0.attn1.to_q.lora_B.weight": {"dtype": "F32", "shape": [24, 1], "data_offsets": [96, 192]}}
text = json.dumps(head).encode()
data = [0.5] * 48
data[30] = float("inf")
open("lora.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + struct.pack("<48f", *data))
PY
reject lora.safetensors 'element 6 of tensor "transformer.blocks.0.attn1.to_q.lora_B.weight" is infinite' -- --lora lora.safetensors

for file in transformer/diffusion_pytorch_model.safetensors vae/diffusion_pytorch_model.safetensors tokenizer/tokenizer.json; do
    fresh
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 12345\n' 7 >model/$file
    reject "model/$file" 'Git LFS pointer' 'git lfs pull' --
done
for folder in transformer vae text_encoder; do
    fresh
    rm -r model/$folder
    reject "model/$folder: this folder is missing" Download --
    fresh
    rm model/$folder/config.json
    reject "model/$folder: this folder has no config.json" Download --
    fresh
    rm model/$folder/*.safetensors
    reject "model/$folder: no .*safetensors" Download --
done
fresh
rm -r model/*
reject "model/transformer: this folder is missing" Download --

# shards: one of them, both, and the index are missing
shards() {
    fresh
    python3 - <<'PY'
import json, os, struct
folder = "model/transformer/"
data = open(folder + "diffusion_pytorch_model.safetensors", "rb").read()
os.remove(folder + "diffusion_pytorch_model.safetensors")
start = 8 + struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:start])
names = sorted(name for name in head if name != "__metadata__")
index = {}
for part in range(2):
    file, own, body = "diffusion_pytorch_model-%05d-of-00002.safetensors" % (part + 1), {}, b""
    for name in names[part::2]:
        begin, end = head[name]["data_offsets"]
        own[name] = dict(head[name], data_offsets=[len(body), len(body) + end - begin])
        body += data[start + begin:start + end]
        index[name] = file
    text = json.dumps(own).encode()
    open(folder + file, "wb").write(struct.pack("<Q", len(text)) + text + body)
json.dump({"metadata": {}, "weight_map": index}, open(folder + "diffusion_pytorch_model.safetensors.index.json", "w"))
PY
}
stem=diffusion_pytorch_model
shards
"$WEFT" generate --model model --prompt x --height 32 --width 32 --frames 5 --steps 2 --out whole.mp4 >log 2>&1 || { cat log; fail "whole shards"; }
rm model/transformer/$stem-00002*
reject "$stem.safetensors.index.json: 1 of the 2 files that this index names are missing: $stem-00002-of-00002" Download --
rm model/transformer/$stem-00001*
reject "2 of the 2 files that this index names are missing: $stem-00001.*$stem-00002" Download --
shards
rm model/transformer/*.index.json
reject "model/transformer: .*without their index" "Download $stem.safetensors.index.json" --
exit 0
