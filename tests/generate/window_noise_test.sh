#!/bin/bash
# Blended windows of two latent frames, whose second has the noise of frame 1. Latents of a run from
# its seed equal latents of a run from this noise, up to the rounding of the noise.
. "$SRC/tests/check.sh"
model=$SRC/tests/golden/pipelines/wan_over seed=3
generate() { # OUT OPTIONS...
    local out=$1
    shift
    "$WEFT" generate --model "$model" --prompt "a red cat" --seed $seed --frames 17 --height 32 --width 32 --steps 2 --window 5 \
        --window-overlap 4 --latents-npy --out "$out.mp4" "$@" >"$out.log" 2>&1 || { cat "$out.log"; fail "weft generate to $out"; }
}
later_windows_begin_with_the_first_noise() {
    generate seeded
    python3 -S - "$SRC/tools" $seed seeded.latents.npy <<'PY' || fail "noise"
import array, struct, sys
sys.path.insert(0, sys.argv[1])
import weft_noise
NOISE = 2  # WEFT_RNG_NOISE
data = open(sys.argv[3], "rb").read()
head = 10 + struct.unpack("<H", data[8:10])[0]
frames, rows, columns, channels = eval(data[10:head])["shape"]
frame = rows * columns * channels
first = [weft_noise.normal(int(sys.argv[2]), i, NOISE) for i in range(2 * frame)]
noise = array.array("f", first + first[frame:] * (frames - 2))
open("noise.npy", "wb").write(data[:head] + noise.tobytes())
PY
    generate given --init-latents noise.npy
    python3 -S - seeded.latents.npy given.latents.npy <<'PY' || fail "latents"
import array, struct, sys
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
a, b = map(load, sys.argv[1:])
error = sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a)
print(f"error {error ** 0.5:.2g}")
assert error < 1e-10, error  # a frame with other noise gives 0.1 and more
PY
}
# Latent frame 4 is in the last window alone and has the channel means of frame 1 in the first window. Frame 1 is blended with the
# window after, so the means are close only: 0.002 apart, and 0.037 without the alignment of windows.
later_windows_have_the_first_means() {
    generate apart
    python3 -S - apart.latents.npy <<'PY' || fail "means"
import array, struct, sys
data = open(sys.argv[1], "rb").read()
head = 10 + struct.unpack("<H", data[8:10])[0]
frames, rows, columns, channels = eval(data[10:head])["shape"]
x = array.array("f", data[head:])
cells = rows * columns
means = [[sum(x[(f * cells + i) * channels + c] for i in range(cells)) / cells for c in range(channels)] for f in range(frames)]
apart = [max(abs(a - b) for a, b in zip(means[1], means[f])) for f in range(frames)]
print("largest difference of a channel from frame 1:", apart)
assert frames == 5 and apart[4] < 0.01 < apart[0], apart
PY
}
check later_windows_have_the_first_means

check later_windows_begin_with_the_first_noise later_windows_begin_with_the_first_noise
finish
