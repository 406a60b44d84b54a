#!/bin/bash
# Decoders that are the last denoising step (LTX-Video from 0.9.1 on), against diffusers' pipeline with weft's noise: at the
# pipeline's default, at a timestep, and from saved latents (tools/golden_pipeline.py, ltx_timed).
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
golden=$SRC/tests/golden/pipelines/ltx_timed
options=(--model "$golden" --init-latents "$golden/noise.npy" --prompt "a red cat walks &amp; sleeps" --height 64 --width 96 --frames 1
    --steps 3 --guidance-scale 1 --fps 12)
timed=(--decode-timestep 0.3 --decode-noise-scale 0.1)
same_picture() { # FILE GOLDEN: at most one level apart, after rounding to 8 bits on both sides
    python3 -S - "$1" "$golden/$2.png" <<'PY' || fail "$1 is not $2"
import sys, zlib
def load(path):
    data, at, packed = open(path, "rb").read(), 8, b""
    while at < len(data):
        size, kind = int.from_bytes(data[at:at + 4], "big"), data[at + 4:at + 8]
        if kind == b"IHDR":
            width, channels = int.from_bytes(data[at + 8:at + 12], "big"), {2: 3, 6: 4}[data[at + 17]]
        packed += data[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    raw, rows, step = zlib.decompress(packed), [], width * channels
    for y in range(0, len(raw), step + 1):
        how, row, above = raw[y], bytearray(raw[y + 1:y + 1 + step]), rows[-1] if rows else bytes(step)
        for i in range(step):
            a, c = (row[i - channels], above[i - channels]) if i >= channels else (0, 0)
            b = above[i]
            paeth = min((a, b, c), key=lambda v: (abs(a + b - c - v), (a, b, c).index(v)))
            row[i] = (row[i] + (0, a, b, (a + b) // 2, paeth)[how]) & 255
        rows.append(row)
    return [row[i] for row in rows for i in range(step) if i % channels < 3]
ours, theirs = load(sys.argv[1]), load(sys.argv[2])
assert len(ours) == len(theirs) and max(theirs) > min(theirs) + 100
worst = max(abs(a - b) for a, b in zip(ours, theirs))
print(f"{sys.argv[1]}: {worst} levels")
assert worst <= 1, worst
PY
}
the_default_is_the_pipelines() {
    "$WEFT" generate "${options[@]}" --out plain.png >log 2>&1 || { cat log; fail "weft generate"; }
    same_picture plain.png plain
}
a_timestep_and_noise() {
    "$WEFT" generate "${options[@]}" "${timed[@]}" --save-latents --out timed.png >log 2>&1 || { cat log; fail "weft generate"; }
    same_picture timed.png timed
}
saved_latents_remember_them() {
    needs a_timestep_and_noise
    [ -f timed.latents.safetensors ] || fail "no saved latents"
    mv timed.png first.png
    "$WEFT" generate "${options[@]}" "${timed[@]}" --save-latents --resume --out timed.png >log 2>&1 || { cat log; fail "--resume"; }
    cmp first.png timed.png || fail "decoded otherwise from saved latents"
}
other_decoders_refuse_them() {
    if "$WEFT" generate --model "$SRC/tests/golden/pipelines/ltx_i2v" --prompt cat --frames 9 --height 64 --width 64 --steps 1 \
        --decode-timestep 0.1 --out x.mp4 >log 2>&1; then
        fail "a timestep without effect passed"
    fi
    has_message log option-no-effect key=--decode-timestep value=0.1 || fail_with log "another error"
}
check the_default_is_the_pipelines the_default_is_the_pipelines
check a_timestep_and_noise a_timestep_and_noise
check saved_latents_remember_them saved_latents_remember_them
check other_decoders_refuse_them other_decoders_refuse_them
finish
