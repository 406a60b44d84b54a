#!/bin/bash
# Weights in bf16 in memory need half the bytes and give bitwise the frames of the same weights as
# f32, because products are computed in f32 in both cases. fp8 weights without scale factors are
# exact in bf16; with scale factors the rounding is reported.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
sed -i 's/attention_head_dim: 12, ffn_dim: 48/attention_head_dim: 96, ffn_dim: 768/' dit.yaml
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
short="--set stages.0.steps=4 --set stages.1.steps=1"
"$WEFT" train dit.yaml $short >dit.log 2>&1 || { cat dit.log; fail "weft train dit"; }
"$WEFT" train dit.yaml $short --set out=runs/half --set export_dtype=bf16 >half.log 2>&1 || { cat half.log; fail "export_dtype: bf16"; }
generate() { # MODEL OUT OPTIONS...
    local model=$1 out=$2
    shift 2
    "$WEFT" generate --model "$model" --prompt "a red circle" --seed 3 --steps 3 --frames-npy --out "$out.mp4" "$@" >"$out.log" 2>&1 ||
        { cat "$out.log"; fail "weft generate $*"; }
}
peak() { message_field value "$1.log" job-report rank= text~=peak; } # prints bytes
whole=runs/dit/model/transformer/diffusion_pytorch_model.safetensors half=runs/half/model/transformer/diffusion_pytorch_model.safetensors
bf16_halves_the_file() {
    [ "$(stat -c %s $half)" -lt $(($(stat -c %s $whole) * 51 / 100)) ] || fail "export_dtype: bf16 does not halve the file"
}
check bf16_halves_the_file
weights_as_stored_and_rounded() {
    generate runs/dit/model f32
    generate runs/half/model stored
    generate runs/half/model widened --weights f32
    generate runs/dit/model rounded --weights bf16
    cmp stored.npy widened.npy || fail "bf16 weights give other frames than the same weights as f32"
    cmp -s stored.npy f32.npy && fail "bf16 weights give the frames of the unrounded f32 weights"
    cmp -s rounded.npy f32.npy && fail "--weights bf16 has no effect"
    # Frames are close, because bf16 has 8 significant bits. Vectors (biases, norms) that the file
    # has in
# f32 stay f32.
    python3 -S - <<'PY' || fail "frames of rounded weights are equal to, or too far from, those of f32"
import array, struct
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
f32, rounded, stored = (load(f + ".npy") for f in ("f32", "rounded", "stored"))
norm = sum(x * x for x in f32) ** 0.5
for other in (rounded, stored):
    error = sum((x - y) ** 2 for x, y in zip(f32, other)) ** 0.5 / norm
    print(error)
    assert 0 < error < 2e-2, error
PY
}
check weights_as_stored_and_rounded
# Tokens that a model has as weights join tokens in f32.
token_weights_in_bf16() {
    local model=$SRC/tests/golden/pipelines/wan_animate
    "$WEFT" generate --model "$model" --prompt "a cat" --frames 9 --height 32 --width 32 --steps 1 --guidance-scale 1 --image "$model/image.png" \
        --control "$model/control.png" --face "$model/face.png" --weights bf16 --out animate.mp4 >animate.log 2>&1 || fail_with animate.log "Wan Animate in bf16"
}
check token_weights_in_bf16
rounded_weights_need_less_memory() {
    needs weights_as_stored_and_rounded
    python3 -S - "$(peak f32)" "$(peak rounded)" <<'PY' || fail "predicted peaks: $(peak f32), $(peak rounded)"
import sys
wide, narrow = (int(t) / 1024 for t in sys.argv[1:])
import os
weights = os.path.getsize("runs/dit/model/transformer/diffusion_pytorch_model.safetensors") / 1024
assert wide - narrow > 0.4 * weights, (wide, narrow, weights) # half, minus the f32 copy of the matrix in use
PY
}
check rounded_weights_need_less_memory
# fp8 is exact in bf16. With a scale factor it is rounded, which a message reports.
fp8_weights_are_exact_or_reported() {
    cp -r runs/dit/model eight && rm eight/transformer/*.safetensors
    "$WEFT" convert runs/dit/model/transformer converted --dtype f8 >convert.log 2>&1 || { cat convert.log; fail "weft convert"; }
    cp converted/*.safetensors eight/transformer/
    cp -r eight scaled
    python3 -S - scaled/transformer/*.safetensors <<'PY'
import json, struct, sys
path = sys.argv[1]
data = open(path, "rb").read()
size = struct.unpack("<Q", data[:8])[0]
head, body = json.loads(data[8:8 + size]), data[8 + size:]
head.pop("__metadata__", None)
for name in [n for n, t in head.items() if t["dtype"] == "F8_E4M3" and n.endswith(".weight")]:
    head[name[:-len("weight")] + "scale_weight"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(body), len(body) + 4]}
    body += struct.pack("<f", 0.7)
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)
PY
    generate eight eight
    generate eight eight_f32 --weights f32
    cmp eight.npy eight_f32.npy || fail "fp8 without scale factors is rounded"
    ! has_message eight.log weights-rounded || fail "rounding is reported although nothing is rounded"
    generate scaled scaled
    generate scaled scaled_f32 --weights f32
    has_message scaled.log weights-rounded level=warning file=transformer || fail "rounding is not reported"
    ! has_message scaled_f32.log weights-rounded || fail "rounding is reported with --weights f32"
    python3 -S - <<'PY' || fail "rounding changes the frames by nothing or by 5e-3 and more"
import array, struct
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
exact, rounded = load("scaled_f32.npy"), load("scaled.npy")
error = sum((x - y) ** 2 for x, y in zip(exact, rounded)) ** 0.5 / sum(x * x for x in exact) ** 0.5
print(error)
assert 0 < error < 5e-3, error
PY
}
check fp8_weights_are_exact_or_reported
an_unknown_kind_of_weights_is_refused() {
    "$WEFT" generate --model runs/dit/model --prompt x --weights fp4 >refused.log 2>&1 && fail "--weights fp4 is accepted"
    has_message refused.log option-invalid key=--weights "text~='fp4'" 'text~=stored, f32, bf16, gguf' || fail "the error of --weights fp4"
}
check an_unknown_kind_of_weights_is_refused
finish
