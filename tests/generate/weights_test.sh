#!/bin/bash
# Weights kept as bf16: half the memory, and the very numbers of the same weights as f32, since products are f32 either way.
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
peak() { message_field value "$1.log" job-report rank= text~=peak; } # bytes
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
    cmp stored.npy widened.npy || fail "bf16 weights in memory give other numbers than the same ones widened"
    cmp -s stored.npy f32.npy && fail "bf16 weights give the numbers of f32 weights"
    cmp -s rounded.npy f32.npy && fail "--weights bf16 rounds nothing"
    # close: bf16 has 8 bits; vectors (biases, norms) stay f32 where the file has them so
    python3 - <<'PY' || fail "rounded weights"
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
rounded_weights_take_less_memory() {
    needs weights_as_stored_and_rounded
    python3 - "$(peak f32)" "$(peak rounded)" <<'PY' || fail "predicted peaks: $(peak f32), $(peak rounded)"
import sys
wide, narrow = (int(t) / 1024 for t in sys.argv[1:])
import os
weights = os.path.getsize("runs/dit/model/transformer/diffusion_pytorch_model.safetensors") / 1024
assert wide - narrow > 0.4 * weights, (wide, narrow, weights) # half, but for the widened copy of the matrix at work
PY
}
check rounded_weights_take_less_memory
an_unknown_kind_of_weights_is_refused() {
    "$WEFT" generate --model runs/dit/model --prompt x --weights fp4 >refused.log 2>&1 && fail "--weights fp4 was taken"
    has_message refused.log option-choice key=--weights "text~='fp4'" 'text~=stored, f32, bf16, gguf' || fail "the refusal"
}
check an_unknown_kind_of_weights_is_refused
finish
