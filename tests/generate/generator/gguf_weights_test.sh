#!/bin/bash
# --weights gguf: matrices stay quantized in memory and are dequantized at use. The frames are
# bitwise those of matrices dequantized when the file is loaded, with a fraction of the memory; the
# reserved memory is the predicted one. Also with streaming, an adapter, and dp, tp, fsdp and cp on
# two ranks.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
sed -i 's/attention_head_dim: 12, ffn_dim: 48/attention_head_dim: 96, ffn_dim: 768/' dit.yaml
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
"$WEFT" train dit.yaml --set stages.0.steps=4 --set stages.1.steps=1 >dit.log 2>&1 || { cat dit.log; fail "weft train dit"; }
cp -r runs/dit/model packed
python3 -S - <<'PY' || fail "writing the GGUF file"
import array, json, os, struct
path = "packed/transformer/diffusion_pytorch_model.safetensors"
data = open(path, "rb").read()
size = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + size])
head.pop("__metadata__", None)
def q8(x):
    d = max(map(abs, x)) / 127
    return struct.pack("<e", d) + struct.pack("<32b", *(round(v / d) if d else 0 for v in x))
def q4(x):
    d = max(x, key=abs) / -8
    q = [max(0, min(15, int((v / d if d else 0) + 8.5))) for v in x]
    return struct.pack("<e", d) + bytes(q[i] | q[i + 16] << 4 for i in range(16))
infos, blob = b"", b""
for n, (name, t) in enumerate(sorted(head.items())):
    at = t["data_offsets"]
    x = array.array("f", data[8 + size + at[0]:8 + size + at[1]])
    shape, kind = t["shape"], 0
    if len(shape) == 2 and shape[1] % 32 == 0:
        kind = 8 if n % 2 else 2
        raw = b"".join((q8 if kind == 8 else q4)(x[i:i + 32]) for i in range(0, len(x), 32))
    else:
        raw = x.tobytes()
    blob += b"\0" * (-len(blob) % 32)
    infos += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(shape))
    infos += b"".join(struct.pack("<Q", d) for d in reversed(shape)) + struct.pack("<IQ", kind, len(blob))
    blob += raw
out = b"GGUF" + struct.pack("<IQQ", 3, len(head), 0) + infos
out += b"\0" * (-len(out) % 32) + blob
os.remove(path)
open("packed/transformer/small-Q8_0.gguf", "wb").write(out)
PY
generate() { # MODEL OUT OPTIONS...
    local model=$1 out=$2
    shift 2
    ${LAUNCH:-} "$WEFT" generate --model "$model" --prompt "a red circle" --seed 3 --steps 3 --frames-npy --out "$out.mp4" "$@" >"$out.log" 2>&1 ||
        { cat "$out.log"; fail "weft generate $*"; }
}
quantized_weights_are_bitwise_identical() {
    generate packed wide --weights f32
    generate packed gguf --weights gguf
    cmp wide.npy gguf.npy || fail "quantized matrices in memory give other frames than matrices dequantized at load"
    generate packed stream --weights gguf,stream
    cmp gguf.npy stream.npy || fail "streamed quantized matrices give other frames"
    generate runs/dit/model plain
    ! cmp -s plain.npy gguf.npy || fail "quantized weights give the frames of the unrounded weights"
}
check quantized_weights_are_bitwise_identical
quantized_weights_need_less_memory() {
    needs quantized_weights_are_bitwise_identical
    python3 -S - gguf wide <<'PY' || fail "predicted peaks"
import json, os, sys
def peak(name):
    messages = [json.loads(line) for line in open(name + ".log") if line.startswith("{")]
    return next(m["value"] for m in messages if m.get("id") == "job-report" and "value" in m) / 1024
narrow, wide = map(peak, sys.argv[1:])
weights = os.path.getsize("runs/dit/model/transformer/diffusion_pytorch_model.safetensors") / 1024
print(narrow, wide, weights)
assert wide - narrow > 0.6 * weights, (wide, narrow, weights) # a quarter or an eighth of f32, and one dequantized matrix
PY
}
check quantized_weights_need_less_memory
# --weights int8 computes with Q8_0 blocks as they are, and with other matrices after rounding them.
int8_computes_with_blocks() {
    needs quantized_weights_are_bitwise_identical
    generate packed eight --weights int8
    generate packed eight-lora --weights int8 --lora small.safetensors
    cmp -s eight.npy eight-lora.npy && fail "the adapter has no effect with --weights int8"
    python3 -S - <<'PY' || fail "frames of --weights int8"
import array, struct
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
a, b = load("wide.npy"), load("eight.npy")
error = (sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a)) ** 0.5
print(error)
assert 1e-7 < error < 2e-2, error # values have 7 bits, and frames of a model of few steps hardly depend on its layers
PY
}
# an adapter: matrices that it changes are dequantized, the others stay quantized
python3 -S - <<'PY'
import json, random, struct
random.seed(3)
head, blob = {}, b""
for name, shape in ("lora_A", [2, 96 * 2]), ("lora_B", [96 * 2, 2]):
    data = struct.pack(f"<{384}f", *(random.gauss(0, 0.1) for _ in range(384)))
    head[f"transformer.blocks.0.attn1.to_q.{name}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(blob), len(blob) + len(data)]}
    blob += data
text = json.dumps(head).encode()
open("small.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + blob)
PY
an_adapter_is_bitwise_identical() {
    needs quantized_weights_are_bitwise_identical
    generate packed wide-lora --weights f32 --lora small.safetensors
    generate packed gguf-lora --weights gguf --lora small.safetensors
    cmp wide-lora.npy gguf-lora.npy || fail "an adapter on quantized matrices gives other frames"
    ! cmp -s gguf.npy gguf-lora.npy || fail "the adapter has no effect"
}
check an_adapter_is_bitwise_identical
check int8_computes_with_blocks
two_ranks_are_within_rounding() { # LAYOUT
    local lay=$1
    needs quantized_weights_are_bitwise_identical
        LAUNCH="mpirun -n 2" generate packed "many-$lay" --weights gguf --parallel $lay
        python3 -S - "many-$lay" <<'PY' || fail "two ranks, $lay"
import array, struct, sys
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
a, b = load("gguf.npy"), load(sys.argv[1] + ".npy")
norm = sum(x * x for x in a) ** 0.5
error = sum((x - y) ** 2 for x, y in zip(a, b)) ** 0.5 / norm
print(error)
assert len(a) == len(b) and error < 1e-5, error
PY
}
for lay in dp=2 tp=2 fsdp=2 cp=2; do check "two_ranks_with_$lay" two_ranks_are_within_rounding $lay; done
refused() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" generate --prompt x "$@" >refused.log 2>&1 && fail "weft generate $* is accepted"
    has_message refused.log "${wanted[@]}" || fail "$*: another message than expected"
}
refusals() {
    refused option-no-effect file=runs/dit/model key=--weights -- --model runs/dit/model --weights gguf
    cp packed/transformer/small-Q8_0.gguf packed/transformer/other.gguf
    refused format-damaged file=packed/transformer 'text~=other.gguf and small-Q8_0.gguf' -- --model packed
}
check refusals
finish
