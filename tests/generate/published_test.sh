#!/bin/bash
# Parts of published model folders: a second expert with its boundary, a negative prompt, initial
# latents, and LoRA files, which are merged when the weights are loaded.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
for run in one two; do
    sed 's/steps: 12/steps: 6/; /steps: 8, batch: 5/d' dit.yaml >dit_short.yaml
    "$WEFT" train dit_short.yaml --set out=runs/$run --set seed=$([ $run = one ] && echo 1 || echo 2) >$run.log 2>&1 || { cat $run.log; fail "weft train $run"; }
done
generate() { # generate OUT MODEL [options]: OUT.latents.npy
    local out=$1 model=$2
    shift 2
    "$WEFT" generate --model "$model" --prompt "a red circle" --steps 4 --frames 5 --latents-npy --out "$out.mp4" "$@" >generate.log 2>&1
}
must() { generate "$@" || { cat generate.log; fail "generate $*"; }; }
refused() { # ID [FIELD=VALUE...] -- MODEL [options]
    take_message "$@"
    set -- "${rest[@]}"
    generate refused "$@" && fail "not refused: $*"
    has_message generate.log "${wanted[@]}" || fail "$*: another message than expected"
}
same() { cmp -s "$1.latents.npy" "$2.latents.npy" || fail "$1 and $2 differ"; }
differ() { ! cmp -s "$1.latents.npy" "$2.latents.npy" || fail "$1 and $2 are the same"; }
must one runs/one/model
# Two equal experts give the latents of one. With --boundary-ratio 1 only the second expert is used.
for pair in "alike one" "other two"; do
    set -- $pair
    cp -r runs/one/model "$1"
    cp -r "runs/$2/model/transformer" "$1/transformer_2"
done
a_boundary_is_required() { refused option-required file=alike key=--boundary-ratio -- alike; }
check a_boundary_is_required
for model in alike other; do
    python3 -S - $model <<'PY'
import json, sys
path = sys.argv[1] + "/model_index.json"
index = json.load(open(path))
index["boundary_ratio"] = 0.875
index["transformer_2"] = index["transformer"]
json.dump(index, open(path, "w"))
PY
done
two_experts_are_used() {
    must alike alike
    same alike one
    must other other
    differ other one
    must low other --boundary-ratio 1
    must two runs/two/model
    # The text encoder is of the other run, so the latents differ from `two`, too.
    differ low one
    must scales alike --guidance-scale-2 2
    differ scales alike
    # 0 is a scale and a boundary of its own
    must zero alike --guidance-scale-2 0
    must small alike --guidance-scale-2 1e-300
    same zero small
    differ zero alike
    # a second scale without guidance
    refused option-no-effect key=--guidance-scale-2 text~=3 -- alike --guidance-scale 1 --guidance-scale-2 3
    must plain alike --guidance-scale 1
    must plains alike --guidance-scale 1 --guidance-scale-2 1
    same plain plains
    must high other --boundary-ratio 0
    same high one
}
check two_experts_are_used
# A part that model_index.json names and the folder lacks is refused, not skipped.
a_missing_part_is_refused() {
    for part in transformer_2 scheduler; do
        mv other/$part away
        refused model-config file=other "key=$part" -- other
        mv away other/$part
    done
}
check a_missing_part_is_refused
experts_of_two_sizes_are_refused() {
    sed -i 's/"num_layers": 2/"num_layers": 1/' other/transformer_2/config.json
    refused model-config file=other key=transformer_2 -- other
}
check experts_of_two_sizes_are_refused
# The negative prompt replaces the empty one.
a_negative_prompt_is_used() {
    must negative runs/one/model --negative-prompt "a blue square"
    differ negative one
    must nothing runs/one/model --negative-prompt ""
    same nothing one
}
check a_negative_prompt_is_used
# Initial latents replace the noise of the seed.
python3 -S - <<'PY'
import random, struct
def npy(path, shape):
    count = 1
    for n in shape:
        count *= n
    head = ("{'descr': '<f4', 'fortran_order': False, 'shape': %s, }" % (shape,)).encode()
    head += b" " * (63 - (10 + len(head)) % 64) + b"\n"
    values = [random.Random(3).gauss(0, 1) for _ in range(1)] + [random.gauss(0, 1) for _ in range(count - 1)]
    open(path, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + struct.pack("<%df" % count, *values))
npy("noise.npy", (2, 4, 4, 4))
npy("short.npy", (2, 4, 4, 3))
PY
initial_latents_are_used() {
    must given runs/one/model --init-latents noise.npy
    must seeded runs/one/model --init-latents noise.npy --seed 9
    same given seeded
    differ given one
    refused latents-invalid file=short.npy 'text~=2 frames x 4 x 4 x 4 channels' -- runs/one/model --init-latents short.npy
}
check initial_latents_are_used
# An adapter is merged when the weights are loaded: bitwise as from a merged file, and without
# effect at weight 0.
python3 -S - runs/one/model <<'PY'
import glob, json, os, shutil, struct, sys
def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    head.pop("__metadata__", None)
    return {k: (v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in head.items()}
def write(path, tensors):
    head, body = {}, b""
    for k, (shape, data) in tensors.items():
        head[k] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)
def f32(values):
    return struct.pack("<%df" % len(values), *values)
shutil.copytree(sys.argv[1], "merged")
file = glob.glob("merged/transformer/*.safetensors")[0]
weights, lora = read(file), {}
for ours, theirs in ("attn1.to_q", "self_attn_q"), ("attn2.to_out.0", "cross_attn_o"), ("ffn.net.2", "ffn_2"):
    name = f"blocks.1.{ours}.weight"
    (rows, columns), data = weights[name]
    base = struct.unpack("<%df" % (rows * columns), data)
    up = [(i % 7 - 3) / 2 for i in range(rows * 2)]
    down = [(i % 5 - 2) / 4 for i in range(columns * 2)]
    weights[name] = ((rows, columns), f32([base[r * columns + c] + 0.5 * sum(up[r * 2 + k] * down[k * columns + c] for k in range(2))
                                           for r in range(rows) for c in range(columns)]))
    module = f"lora_unet_blocks_1_{theirs}"
    lora |= {module + ".lora_down.weight": ([2, columns], f32(down)), module + ".lora_up.weight": ([rows, 2], f32(up)),
             module + ".alpha": ([], f32([1]))}
write(file, weights)
write("style.safetensors", lora)
lora.pop("lora_unet_blocks_1_ffn_2.lora_up.weight")
write("half.safetensors", lora)
PY
an_adapter_is_merged() {
    must merged merged
    differ merged one
    must adapted runs/one/model --lora style.safetensors
    same adapted merged
    must twice runs/one/model --lora style.safetensors:0.25 --lora transformer=style.safetensors:0.75
    same twice merged
    must without runs/one/model --lora style.safetensors:0
    same without one
    must undone merged --lora style.safetensors:-1
    differ undone merged
}
check an_adapter_is_merged
damaged_adapters_are_refused() {
    refused option-invalid key=--lora value=style.safetensors:x -- runs/one/model --lora style.safetensors:x
    refused option-conflict file=style.safetensors key=--lora text~=transformer_2 text~=runs/one/model -- runs/one/model --lora transformer_2=style.safetensors
    refused adapter-invalid file=half.safetensors text~=lora_unet_blocks_1_ffn_2 -- runs/one/model --lora half.safetensors
    [ "$(count_messages generate.log job-report text~=peak)" != 0 ] && fail "a damaged adapter is refused only after the memory report"
    refused '*' text~=nowhere.safetensors -- runs/one/model --lora nowhere.safetensors
}
check damaged_adapters_are_refused
# Each rank merges the adapter into its tensor shards.
ranks_merge_their_shards() { # SPLIT
    local split=$1
    ranks 2 "$WEFT" generate --model runs/one/model --prompt "a red circle" --steps 4 --frames 5 --latents-npy --out $split.mp4 \
        --lora style.safetensors --parallel $split >generate.log 2>&1 || { cat generate.log; fail "--lora on two ranks"; }
    python3 -S - $split <<'PY' || fail "--lora with $split"
import array, struct, sys
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
one, two = load("adapted.latents.npy"), load(sys.argv[1] + ".latents.npy")
error = (sum((x - y) ** 2 for x, y in zip(one, two)) / sum(x * x for x in one)) ** 0.5
print(error)
assert error <= 1e-5, error
PY
}
for split in tp=2 fsdp=2; do check "ranks_merge_their_shards_$split" ranks_merge_their_shards "$split"; done
# write_adapter FILE STEPS: an adapter of Motif-Video, whose settings are STEPS and the scale 1
write_adapter() {
    python3 -S - "$@" <<'PY'
import json, struct, sys
data = [0.25 * (1 + i % 3) for i in range(24)]
header = {"__metadata__": {"weft.steps": sys.argv[2], "weft.guidance_scale": "1"}}
for i, (side, shape) in enumerate((("A", [1, 24]), ("B", [24, 1]))):
    header[f"transformer.transformer_blocks.0.attn.to_q.lora_{side}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [96 * i, 96 * i + 96]}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + struct.pack("<48f", *data, *data))
PY
}
motif() { # OUT OPTIONS...
    "$WEFT" generate --model "$SRC/tests/golden/pipelines/motif" --prompt "a red cat" --seed 5 --height 32 --width 32 --frames 5 --latents-npy \
        --out "$1.mp4" "${@:2}" >"$1.log" 2>&1 || { cat "$1.log"; fail "weft generate ${*:2}"; }
}
# The guider of Motif-Video is off at the scale 0, and a distilled adapter is at 1.
an_adapter_turns_the_guider_off() {
    write_adapter few.safetensors 2
    write_adapter more.safetensors 3
    motif few --lora few.safetensors
    has_message few.log own-settings file=few.safetensors "text~=--steps 2, --guidance-scale 1." || fail_with few.log "the settings of the adapter"
    motif none --lora few.safetensors --guidance-method none
    same few none
    motif zero --lora few.safetensors --guidance-scale 0
    same zero none
    motif guided --lora few.safetensors --guidance-scale 1
    differ guided none
    motif both --lora few.safetensors --lora more.safetensors
    has_message both.log own-settings file=more.safetensors || fail_with both.log "adapters of other settings"
    motif unused --lora few.safetensors:0
    motif plain
    same unused plain
    # merged weights have no place for the settings
    for weight in 0 1; do
        "$WEFT" convert "$SRC/tests/golden/pipelines/motif/transformer" merged.$weight --lora few.safetensors:$weight >merged.$weight.log 2>&1 ||
            fail_with merged.$weight.log "weft convert --lora"
    done
    has_message merged.1.log own-settings file=few.safetensors "text~=--steps 2, --guidance-scale 1." || fail_with merged.1.log "settings that merged weights lack"
    ! has_message merged.0.log own-settings || fail "the settings of an adapter without weight"
}
check an_adapter_turns_the_guider_off
# Models of STDiT3 by earlier versions predict the opposite, as their weft.json says. A file by hand, which adds a size, does not.
an_earlier_sign_is_of_models_by_weft() {
    local size='{"frames": 5, "height": 16, "width": 24, "fps": 24'
    for name in by_hand trained earlier; do cp -r "$SRC/tests/golden/pipelines/opensora" $name; done
    echo "$size}" >by_hand/weft.json
    echo "$size, \"text_lengths\": [0], \"negative\": true}" >trained/weft.json
    echo "$size, \"text_lengths\": [0]}" >earlier/weft.json
    for name in by_hand trained earlier; do must ${name}_out $name --seed 5; done
    same by_hand_out trained_out
    differ earlier_out trained_out
    sed "/^transformer:/,\$d" dit.yaml >stdit.yaml
    echo "transformer: {weights: earlier/transformer}" >>stdit.yaml
    echo "text_encoders: [{weights: earlier/text_encoder}]" >>stdit.yaml
    echo "stages: [{steps: 1, batch: 2, frames: 5, height: 32, width: 32}]" >>stdit.yaml
    expect_error config-value key=transformer.weights value=earlier/transformer -- "$WEFT" train stdit.yaml --set out=runs/earlier ||
        fail "the prediction of an earlier version is trained"
}
check an_earlier_sign_is_of_models_by_weft
# table.py FILE [FROM]: prints the embeddings of an empty text in a transformer's file. With FROM they become the text in the
# cached conditioning of a sample, or are removed for "none".
cat >table.py <<'PY'
import glob, json, struct, subprocess, sys
path = glob.glob(sys.argv[1] + "/*.safetensors")[0]
data = open(path, "rb").read()
n = struct.unpack("<Q", data[:8])[0]
head, name = json.loads(data[8:8 + n]), "y_embedder.y_embedding"
first, last = (8 + n + x for x in head[name]["data_offsets"])
if len(sys.argv) < 3:
    sys.stdout.buffer.write(data[first:last])
elif sys.argv[2] == "none":
    head["unused.bias"] = head.pop(name)
    from itertools import accumulate
    parts = {k: data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in head.items() if k not in ("__metadata__", "unused.bias")}
    ends = list(accumulate(map(len, parts.values())))
    head = {k: head[k] | {"data_offsets": [end - len(parts[k]), end]} for k, end in zip(parts, ends)}
    text = json.dumps(head).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + b"".join(parts.values()))
else:
    cached = subprocess.run(["tar", "-xOf", sys.argv[2], "s0003.text.npy"], capture_output=True, check=True).stdout
    cached = cached[10 + struct.unpack("<H", cached[8:10])[0]:]
    assert len(cached) // 17 * 16 == last - first and data[first:last] != cached[:last - first]
    open(path, "wb").write(data[:first] + cached[:last - first] + data[last:])
PY
# A dropped caption has the embeddings in the transformer's file and keeps its mask, as in generation. If these are the
# embeddings of all captions, a training that drops each caption is bitwise one that drops none.
dropped_captions_have_the_embeddings_of_the_file() {
    cp -r cur one_caption && sed -i 's/"caption": "[^"]*"/"caption": "a red square"/' one_caption/metas/*
    "$WEFT" shard --in one_caption --out same_shards --set heldout=0 >shard.log 2>&1 || fail_with shard.log "weft shard"
    cp -r "$SRC/tests/golden/pipelines/opensora" opensora
    cat >drop.yaml <<'Y'
data: {path: same_shards, latents: latents}
autoencoder: {weights: opensora/vae}
transformer: {weights: opensora/transformer}
text_encoders: [{weights: opensora/text_encoder}]
checkpoint: {interval: 0}
stages: [{steps: 3, batch: 2, frames: 5, height: 32, width: 32, lr: 1e-3, warmup_steps: 0}]
Y
    drop() { # NAME SHARE [OPTIONS...]
        "$WEFT" train drop.yaml --set out=runs/$1 --set caption_dropout=$2 "${@:3}" >drop.log 2>&1 || fail_with drop.log "weft train $1"
        losses runs/$1 >$1.losses
    }
    drop without 0
    drop published 1
    cmp -s without.losses published.losses && fail "captions were not dropped"
    python3 table.py opensora/transformer latents/*/train-0000-000000.tar || fail "the table of a caption"
    drop table 1
    cmp without.losses table.losses || fail "a dropped caption has other embeddings or another mask"
    drop adapter 1 --set transformer.lora.rank=2
    drop whole 0 --set transformer.lora.rank=2
    cmp adapter.losses whole.losses || fail "LoRA: a dropped caption has other embeddings or another mask"
    # the finished model has the embeddings, and generation uses the table
    cmp <(python3 table.py opensora/transformer) <(python3 table.py runs/table/model/transformer) || fail "the finished model has another table"
    must with runs/table/model
    python3 table.py runs/table/model/transformer none
    must encoded runs/table/model
    has_message generate.log tensor-names key=y_embedder.y_embedding && fail "a warning about a model of weft"
    differ with encoded
    drop empty 1 --set transformer.weights=runs/table/model/transformer
    python3 table.py runs/empty/model/transformer >/dev/null 2>&1 && fail "a table appeared"
    return 0
}
check dropped_captions_have_the_embeddings_of_the_file
finish
