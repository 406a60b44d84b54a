#!/bin/bash
# Weights in every naming of the golden files are bitwise identical, and a changed byte is detected.
# Truncated files, files with wrong headers, and files that could execute code are refused by name.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
golden=${WEFT_SHARED:-/nonexistent}/golden
[ -f "$golden/dialect_wan_a.json" ] || skip "no golden files"
for json in "$golden"/dialect_*.json "$golden"/quant_blocks_*.json; do check "$(basename "$json" .json)" "$WEFT" parity "$json"; done

# the names of the authors of each family, made by other means than the rules
python3 "$(dirname "$0")/original_names.py" "$WEFT"
for json in dialect_original_*.json; do check "${json%.json}" "$WEFT" parity "$json"; done
# a file without one of its tensors is seen
a_misnamed_tensor_is_found() {
    python3 -S - dialects/dialect_original_wan_vae/original.safetensors <<'PY'
import sys
data = open(sys.argv[1], "rb").read()
open(sys.argv[1], "wb").write(data.replace(b"decoder.upsamples.7.time_conv", b"decoder.upsamples.9.time_conv"))
PY
    if "$WEFT" parity dialect_original_wan_vae.json >out 2>err; then
        fail "a misnamed tensor passed"
    fi
    has_message err '*' level=error text~=decoder.up_blocks.1.upsamplers.0.time_conv
}
check a_misnamed_tensor_is_found

a_changed_gguf_fails() {
    mkdir -p dialects
    cp -r "$golden/dialects/dialect_gguf_a" dialects/
    cp "$golden/dialect_gguf_a.json" .
    chmod -R u+w dialects
    gguf=dialects/dialect_gguf_a/model.gguf
    python3 -S - $gguf <<'PY'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[-100:] = bytes(b ^ 0x55 for b in data[-100:])
open(sys.argv[1], "wb").write(data)
PY
    if "$WEFT" parity dialect_gguf_a.json >/dev/null 2>&1; then
        fail "a changed GGUF passed"
    fi
}
check a_changed_gguf_fails

# adapters: what their settings say, what is damaged, and what is another model's
cp "$golden/dialect_wan_a.json" "$golden/dialect_hunyuan_a.json" .
lora() { # NAME: dialects of NAME with only its truth and its adapters
    rm -rf "dialects/$1"
    mkdir -p "dialects/$1"
    cp -r "$golden/dialects/$1/lora" "$golden/dialects/$1/truth.safetensors" "dialects/$1/"
    chmod -R u+w dialects
}
peft=dialects/dialect_wan_a/lora/peft/adapter_config.json
only_peft() { # the settings as PYTHON changes them
    lora dialect_wan_a
    rm dialects/dialect_wan_a/lora/*.safetensors
    python3 -S -c "import json
c = json.load(open('$peft'))
$1
json.dump(c, open('$peft', 'w'))"
}
passes() {
    "$WEFT" parity "$1" >report.txt 2>&1 || fail_with report.txt "$1 failed"
    grep -q 'lora/.*, bitwise' report.txt || fail_with report.txt "no adapter was compared"
}
fails() { # FILE ID [FIELD=VALUE...]
    if "$WEFT" parity "$1" >out 2>&1; then
        fail_with out "$1 passed"
    fi
    has_message out "${@:2}" level=error || fail_with out "not as expected"
}
alpha_and_its_pattern_are_read() {
    only_peft "c['lora_alpha'], c['use_rslora'] = 4, True" # 4 / sqrt(4) = 8 / 4
    passes dialect_wan_a.json
    only_peft "c['lora_alpha'], c['alpha_pattern'] = 3, {m: 8 for m in c['target_modules']}"
    passes dialect_wan_a.json
}
check alpha_and_its_pattern_are_read
settings_of_an_adapter_are_checked() {
    only_peft "c['lora_alpha'] = 4"
    fails dialect_wan_a.json parity-failed first='merged_alpha*'
    only_peft "c['use_dora'] = True"
    fails dialect_wan_a.json '*' file=adapter_config.json key=use_dora
    only_peft "c['layer_replication'] = [[0, 1], [0, 2]]"
    fails dialect_wan_a.json '*' file=adapter_config.json key=layer_replication
    only_peft "c['new_switch'] = 1"
    fails dialect_wan_a.json format-unsupported file=adapter_config.json key=new_switch value=1
    only_peft "c['init_lora_weights'] = 'pissa'"
    fails dialect_wan_a.json format-unsupported file=adapter_config.json key=init_lora_weights text~=gaussian
    only_peft "c['modules_to_save'], c['layer_replication'], c['new_switch'], c['init_lora_weights'] = None, [], False, True"
    passes dialect_wan_a.json
    only_peft "c['peft_type'] = 'LOHA'"
    fails dialect_wan_a.json '*' file=adapter_config.json key=peft_type value=LOHA
    only_peft "c['alpha_pattern'] = {'^blocks': 8}"
    fails dialect_wan_a.json '*' file=adapter_config.json key=alpha_pattern value='*blocks*'
}
check settings_of_an_adapter_are_checked
an_adapter_of_another_model_is_named() {
    lora dialect_wan_a
    cp "$golden/dialects/dialect_hunyuan_a/lora/kohya.safetensors" dialects/dialect_wan_a/lora/
    fails dialect_wan_a.json '*' file=kohya.safetensors value=60
}
check an_adapter_of_another_model_is_named

# halves that change places, in the names of the file whose layer has them the other way round
halves_that_change_places_are_merged() {
    lora dialect_hunyuan_a
    python3 -S - dialects/dialect_hunyuan_a <<'PY'
import json, os, struct, sys
folder = sys.argv[1]
def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    head.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in head.items()}
def write(path, tensors):
    head, body = {}, b""
    for k, (dtype, shape, data) in tensors.items():
        head[k] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)
def f32(values):
    return struct.pack("<%df" % len(values), *values)
truth = {k: v for k, v in read(folder + "/truth.safetensors").items() if not k.startswith("merged_")}
name = "norm_out.linear.weight"
_, (rows, columns), data = truth["param." + name]
base = struct.unpack("<%df" % (rows * columns), data)
up = [(i % 7 - 3) / 8 for i in range(rows * 2)]
down = [(i % 5 - 2) / 16 for i in range(columns * 2)]
merged = []
for r in range(rows):
    theirs = (r + rows // 2) % rows
    merged += [base[r * columns + c] + sum(up[theirs * 2 + k] * down[k * columns + c] for k in range(2)) for c in range(columns)]
truth["merged_plain." + name] = ("F32", [rows, columns], f32(merged))
write(folder + "/truth.safetensors", truth)
for old in os.listdir(folder + "/lora"):
    os.remove(folder + "/lora/" + old)
for file, module in ("comfy_plain", "diffusion_model.final_layer.adaLN_modulation.1"), ("diffusers_plain", "transformer.final_layer.adaLN_modulation.1"):
    write(f"{folder}/lora/{file}.safetensors", {module + ".lora_A.weight": ("F32", [2, columns], f32(down)),
                                              module + ".lora_B.weight": ("F32", [rows, 2], f32(up))})
PY
    passes dialect_hunyuan_a.json
    grep -q '1 parameters changed, 156 comparisons, 0 differ' report.txt
}
check halves_that_change_places_are_merged

refuses() { # FILE ID [TEXT]: weft inspect model FILE fails with this class, for this file
    if "$WEFT" inspect model "$1" >out 2>err; then
        echo "$1 passed"; exit 1
    fi
    has_message err "$2" "file=$1" "text~=${3-}" || fail "no $2 ${3-}"
}
damaged_files_are_refused() {
    head -c 3000 "$golden/dialects/dialect_gguf_a/model.gguf" >cut.gguf
    refuses cut.gguf format-damaged
    head -c 100000 "$golden/dialects/dialect_gguf_a/model.gguf" >short.gguf
    refuses short.gguf format-damaged
    : >empty.safetensors
    refuses empty.safetensors format-damaged ' 0 bytes'
    echo "no weights at all" >text.gguf
    refuses text.gguf format-unknown
}
check damaged_files_are_refused

# what torch.save writes, made by hand: a zip of data.pkl and the storages
python3 -S - "$golden/dialects/dialect_wan_a/original.safetensors" <<'PY'
import json, pickle, struct, sys, zipfile
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + n])

def text(s):
    return b"X" + struct.pack("<I", len(s.encode())) + s.encode()

def number(i):
    return b"J" + struct.pack("<i", i)

def tensor(key, shape):
    strides, count = [], 1
    for s in reversed(shape):
        strides.insert(0, count)
        count *= s
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + number(count) + b"tQ"
    sizes = lambda list: b"(" + b"".join(map(number, list)) + b"t"
    return (b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(0) + sizes(shape) + sizes(strides) +
            b"\x89ccollections\nOrderedDict\n)RtR")

def save(path, call=b"", nest=(), transpose=False, beside=None):
    """nest: keys of dicts, the outermost first; the first dict also has "epoch", and under `beside` a
    dict with one tensor of another model."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        body = b"\x80\x02"
        for depth, key in enumerate(nest):
            body += b"}"
            if depth == 0:
                body += text("epoch") + number(3) + b"s"
                for empty in {"ema_state_dict", "model_state_dict"} - {*nest, beside}:
                    body += text(empty) + b"}" + text("shadow_params") + b"]ss"
            if depth == 0 and beside:
                body += text(beside) + b"}" + text("other") + tensor("other", [2]) + b"ss"
                z.writestr("archive/data/other", bytes(8))
            body += text(key)
        body += b"}("
        for i, (name, t) in enumerate(head.items()):
            if name == "__metadata__":
                continue
            body += text(name) + tensor(str(i), t["shape"])
            begin, end = t["data_offsets"]
            z.writestr(f"archive/data/{i}", data[8 + n + begin:8 + n + end])
        body += b"u" + b"s" * len(nest) + call + b"."
        z.writestr("archive/data.pkl", body)

def older(path, protocol):
    """magic number | 1001 | sizes | object | keys of storages | elements, as up to torch 1.5"""
    begin = b"\x80" + bytes([protocol]) + (b"\x95" + struct.pack("<Q", 13) if protocol > 3 else b"")
    out = begin + b"\x8a\n\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19." + begin + b"M\xe9\x03." + begin + b"}."
    body, keys, storages = b"}(" + text("epoch") + number(3) + text("weights") + b"}(", b"](", b""
    for i, (name, t) in enumerate(head.items()):
        if name == "__metadata__":
            continue
        body += text(name) + tensor(str(i), t["shape"])
        keys += text(str(i))
        begins, ends = t["data_offsets"]
        storages += struct.pack("<Q", (ends - begins) // 4) + data[8 + n + begins:8 + n + ends]
    open(path, "wb").write(out + begin + body + b"uu." + begin + keys + b"e." + storages)

save("plain.pt")
save("nested.pth", nest=["state_dict"])
save("wfvae.ckpt", nest=["state_dict", "gen_model"])
save("ema.ckpt", nest=["ema_state_dict"], beside="state_dict")
save("latte.pt", nest=["ema"], beside="model")
save("evil.pt", call=b"cos\nsystem\n(" + text("touch owned") + b"tR")
older("older.pt", 2)
older("older4.pt", 4)
zipfile.ZIP64_LIMIT = 100  # sizes and places in the fields of 64 bits
save("wide.pt")
with zipfile.ZipFile("wide.pt", "a") as z:
    z.writestr("archive/byteorder", "little")
with zipfile.ZipFile("big.pt", "w", zipfile.ZIP_STORED) as z:
    z.writestr("archive/data.pkl", b"\x80\x02}.")
    z.writestr("archive/byteorder", "big")
PY
"$WEFT" inspect model "$golden/dialects/dialect_wan_a/original.safetensors" --tensors | sort >expected
every_form_of_torch_save_is_read() {
    for file in plain.pt nested.pth wfvae.ckpt ema.ckpt latte.pt older.pt older4.pt wide.pt; do
        "$WEFT" inspect model $file --tensors | sort | cmp - expected
    done
}
check every_form_of_torch_save_is_read
averaged_weights_are_reported() {
    for file in ema.ckpt latte.pt nested.pth; do
        "$WEFT" inspect model $file 2>$file.log >$file.out
    done
    has_message ema.ckpt.log weights-averaged key=ema_state_dict
    has_message latte.pt.log weights-averaged key=ema
    ! has_message nested.pth.log weights-averaged
}
check averaged_weights_are_reported
code_and_damage_in_pickles_are_refused() {
    refuses evil.pt format-unsupported 'os.system'
    [ ! -e owned ]
    refuses big.pt format-unsupported 'big-endian'
    head -c 20000 plain.pt >cut.pt
    refuses cut.pt format-damaged
}
check code_and_damage_in_pickles_are_refused
finish
