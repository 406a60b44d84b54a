#!/bin/bash
# `--vae-precision bf16` decodes in bf16. The latents stay bitwise equal, and the frames are close.
# tf32 rounds on GPUs only: the frames of cpu equal the frames of f32 bitwise.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
generate() { # OUT OPTIONS...
    local out=$1
    shift
    "$WEFT" generate --model "$SRC/tests/golden/pipelines/wan22" --prompt "a red cat walks" --steps 2 --seed 3 --frames 5 \
        --height 32 --width 32 --latents-npy --frames-npy --out "$out.mp4" "$@" >"$out.log" 2>&1 </dev/null || { cat "$out.log"; fail "weft generate $*"; }
}
close_to_f32() {
    generate f32
    generate bf16 --vae-precision bf16
    cmp f32.latents.npy bf16.latents.npy || fail "--vae-precision changes latents"
    python3 -S - <<'PY' || fail "frames of --vae-precision bf16"
import array, struct
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
a, b = load("f32.npy"), load("bf16.npy")
error = (sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a)) ** .5
print(f"frames differ by {error:.2g} of the norm")
assert 1e-5 < error < 6e-2, error
PY
}
check close_to_f32
cpu_does_not_round_to_tf32() {
    needs close_to_f32
    generate tf32 --vae-precision tf32
    cmp f32.npy tf32.npy || fail "--vae-precision tf32 changes frames"
}
check cpu_does_not_round_to_tf32
wrong_type_is_refused() {
    "$WEFT" generate --model "$SRC/tests/golden/pipelines/wan22" --prompt x --vae-precision f16 --out x.mp4 >x.log 2>&1 && fail "f16 is accepted"
    has_message x.log option-invalid key=--vae-precision value=f16 || fail "$(cat x.log)"
}
check wrong_type_is_refused
finish
