#!/bin/bash
# Model folders with damaged or missing files are rejected before the work, with the file, the
# tensor and the remedy: NaN and infinite weights and LoRAs, Git LFS pointers, missing folders,
# weights, shards and indices.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=1
golden=$SRC/tests/golden/pipelines/wan_over
fresh() { rm -rf model; cp -r "$golden" model; chmod -R u+w model; }
# reject ID [FIELD=VALUE...] -- OPTIONS...: the error has this class and these fields, and no video is written
reject() {
    take_message "$@"
    set -- "${rest[@]}"
    rm -f out.mp4
    "$WEFT" generate --model model --prompt x --height 32 --width 32 --frames 5 --steps 2 --out out.mp4 "$@" >log 2>&1 &&
        fail "not rejected: ${wanted[*]}"
    has_message log "${wanted[@]}" level=error || fail "$*: another message than expected"
    ! is_progress log || fail "rejected after the work"
    [ ! -e out.mp4 ] || fail "a video was written"
}
# poison FILE TENSOR VALUE ELEMENT: writes VALUE into this element
poison() {
    python3 -S - "$@" <<'PY'
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
weights_are_rejected() { # FOLDER TENSOR [OPTIONS...]
    local folder=$1 tensor=$2 file
    shift 2
    for value in nan -inf; do
        fresh
        file=$(echo model/$folder/*.safetensors)
        poison "$file" "$tensor" $value 5
        reject tensor-not-finite "file=$file" "key=$tensor" "text~=element 5 is $([ $value = nan ] && echo NaN || echo infinite)" -- "$@"
    done
}
check weights_of_a_transformer weights_are_rejected transformer blocks.0.ffn.net.0.proj.weight
check weights_that_are_mapped weights_are_rejected transformer blocks.0.ffn.net.0.proj.weight --pass weight_streaming=on # from the file
check weights_of_a_vae weights_are_rejected vae decoder.up_blocks.3.resnets.0.conv1.weight
check weights_of_a_text_encoder weights_are_rejected text_encoder encoder.block.1.layer.0.SelfAttention.o.weight

an_adapter_is_rejected() {
    fresh
    python3 -S - <<'PY'
import json, struct
head = {"transformer.blocks.0.attn1.to_q.lora_A.weight": {"dtype": "F32", "shape": [1, 24], "data_offsets": [0, 96]},
        "transformer.blocks.0.attn1.to_q.lora_B.weight": {"dtype": "F32", "shape": [24, 1], "data_offsets": [96, 192]}}
text = json.dumps(head).encode()
data = [0.5] * 48
data[30] = float("inf")
open("lora.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + struct.pack("<48f", *data))
PY
    reject tensor-not-finite file=*lora.safetensors key=transformer.blocks.0.attn1.to_q.lora_B.weight 'text~=element 6 is infinite' -- --lora lora.safetensors
}
check an_adapter_is_rejected

pointers_of_git_lfs_are_named() {
    for file in transformer/diffusion_pytorch_model.safetensors vae/diffusion_pytorch_model.safetensors tokenizer/tokenizer.json; do
        fresh
        printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 12345\n' 7 >model/$file
        reject git-lfs-pointer "file=model/$file" --
    done
}
check pointers_of_git_lfs_are_named
pointers_as_inputs_are_named() {
    fresh
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 12345\n' 7 >pointer.mp4
    reject git-lfs-pointer file=pointer.mp4 'text~=git lfs pull' -- --video pointer.mp4
    rm -r model
    cp -r "$SRC/tests/golden/pipelines/wan_i2v" model
    chmod -R u+w model
    reject git-lfs-pointer file=pointer.mp4 'text~=git lfs pull' -- --image pointer.mp4
}
check pointers_as_inputs_are_named
missing_parts_are_named() { # FOLDER
    local folder=$1
    fresh
    rm -r model/$folder
    reject model-not-found "file=model/$folder" text~=Download 'text~=weft train' --
    fresh
    rm model/$folder/config.json
    reject model-not-found "file=model/$folder" text~=config.json text~=Download --
    fresh
    rm model/$folder/*.safetensors
    reject model-not-found "file=*model/$folder" text~=safetensors text~=Download --
}
for folder in transformer vae text_encoder; do check "missing_parts_are_named_$folder" missing_parts_are_named "$folder"; done
numbered_encoders_are_named() { # PIPELINE
    rm -rf model && cp -r "$SRC/tests/golden/pipelines/$1" model && chmod -R u+w model
    local last
    last=$(find model -maxdepth 1 -name 'text_encoder_*' | sort | tail -n 1)
    rm -r "$last"
    reject model-not-found "file=$last" 'text~=the text encoder' text~=Download --
}
for pipeline in hunyuan hidream; do check "numbered_encoders_are_named_$pipeline" numbered_encoders_are_named $pipeline; done
an_empty_folder_is_rejected() {
    fresh
    rm -r model/*
    reject model-not-found file=model/transformer text~=Download --
}
check an_empty_folder_is_rejected

# one shard, both shards, or the index of the shards is missing
shards() {
    fresh
    python3 -S - <<'PY'
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
missing_shards_are_named() {
    shards
    "$WEFT" generate --model model --prompt x --height 32 --width 32 --frames 5 --steps 2 --out whole.mp4 >log 2>&1 || { cat log; fail "generating from complete shards"; }
    rm model/transformer/$stem-00002*
    reject model-not-found "file=*$stem.safetensors.index.json" 'text~=1 of the 2' "text~=$stem-00002-of-00002" text~=Download --
    rm model/transformer/$stem-00001*
    reject model-not-found 'text~=2 of the 2' "text~=$stem-00001" "text~=$stem-00002" text~=Download --
    shards
    rm model/transformer/*.index.json
    reject model-not-found file=*model/transformer "text~=Download" "text~=$stem.safetensors.index.json" --
}
check missing_shards_are_named
finish
