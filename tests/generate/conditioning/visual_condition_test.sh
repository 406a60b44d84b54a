#!/bin/bash
# What a video is made from beside its noise: a video made over, masks, what lies around it, windows over time, images; by every
# sampler; on several ranks; and what a model cannot do is refused with the place, the remedy and models that can.
set -u
export OMPI_MCA_btl=self,vader
fail() { echo "FAILED: $*"; exit 1; }
golden=$SRC/tests/golden/pipelines
wan=$golden/wan_over # text to video: 32 x 32, 4 x 4 cells
picture=$golden/wan_over/video.png
square=(--height 32 --width 32)
size=("${square[@]}" --frames 9)
export PYTHONPATH=$SRC/tests/generate PYTHONDONTWRITEBYTECODE=1
python3 - <<'PY'
from pictures import draw, draw_mask
draw_mask("left.png")
draw("none.png", 32, 32, lambda x, y: (0, 0, 0))
draw("small.png", 16, 32, lambda x, y: (8 * x, 4 * y, 99))
draw("thin.png", 2, 99, lambda x, y: (99, 99, 99))
draw("wide.png", 48, 32, lambda x, y: (200, 0, 0) if 8 <= x < 40 else (0, 0, 200))
PY
default_steps() { case " $* " in *" --steps "*) ;; *) echo --steps 3 ;; esac; }
make() { # OUT OPTIONS...
    local out=$1
    shift
    "$WEFT" generate --prompt "a red cat" --latents --out "$out.mp4" "$@" $(default_steps "$@") >"$out.log" 2>&1 || { cat "$out.log"; fail "weft generate $*"; }
}
cat >latents.py <<'PY'
import array, struct, sys
def load(path):
    """{(frame, row, column): [channels]}, (frames, rows, columns, channels)"""
    data = open(path + ".latents.npy", "rb").read()
    head = 10 + struct.unpack("<H", data[8:10])[0]
    shape, x = eval(data[10:head])["shape"], array.array("f", data[head:])
    t, h, w, c = shape
    return {(i // (h * w), i // w % h, i % w): list(x[i * c:i * c + c]) for i in range(t * h * w)}, shape
def write(path, shape, x):
    head = ("{'descr': '<f4', 'fortran_order': False, 'shape': %r, }" % (shape,)).encode()
    head += b" " * (-(10 + len(head) + 1) % 64) + b"\n"
    open(path, "wb").write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + array.array("f", x).tobytes())
PY

# what a mask keeps is the video's to the last bit, whatever the sampler, the seed and the strength; what it does not is not
samplers=(euler heun unipc dpmpp ddpm res_2mid)
for sampler in "${samplers[@]}"; do
    make "mask-$sampler" --model "$wan" "${size[@]}" --video "$picture" --mask left.png --sampler "$sampler" --steps 4
done
make mask-seed --model "$wan" "${size[@]}" --video "$picture" --mask left.png --seed 5
make mask-short --model "$wan" "${size[@]}" --video "$picture" --mask left.png --strength 0.5 --steps 4
# another path, other parameters, and an answer that is v: a model of CogVideoX, from an image too
make cog-mask --model "$golden/cog_i2v" "${size[@]}" --image "$golden/cog_i2v/image.png" --video "$picture" --mask left.png
make cog-seed --model "$golden/cog_i2v" "${size[@]}" --image "$golden/cog_i2v/image.png" --video "$picture" --mask left.png --seed 5
# around a video: one cell to the left, one below
make around --model "$wan" "${size[@]}" --video small.png --outpaint 8,0,8,8
make around-seed --model "$wan" "${size[@]}" --video small.png --outpaint 8,0,8,8 --seed 5
python3 - "${samplers[@]}" <<'PY' || fail "masks"
import math, sys
from latents import load
def same(a, b, kept):
    (x, shape), (y, _) = load(a), load(b)
    for cell in x:
        assert all(map(math.isfinite, x[cell])), (a, cell)
        assert (x[cell] == y[cell]) == kept(*cell), (a, b, cell, x[cell], y[cell])
right = lambda t, y, x: x > 1
for name in sys.argv[2:]:
    same("mask-euler", "mask-" + name, right)
same("mask-euler", "mask-seed", right)
same("mask-euler", "mask-short", right)
same("cog-mask", "cog-seed", right)
same("around", "around-seed", lambda t, y, x: 1 <= x < 3 and y < 3)
PY

# windows: all frames in one are none; in one step of Euler they are the windows' own answers, blended by their shares
make plain --model "$wan" "${square[@]}" --frames 25 --guidance 3
make one-window --model "$wan" "${square[@]}" --frames 25 --guidance 3 --window 25
cmp plain.latents.npy one-window.latents.npy || fail "one window is not none"
make windows --model "$wan" "${square[@]}" --frames 25 --guidance 3 --window 13 --window-overlap 8
python3 - <<'PY' || fail "noise"
import random
from latents import write
random.seed(3)
x = [random.gauss(0, 1) for _ in range(7 * 4 * 4 * 4)]
write("long.npy", (7, 4, 4, 4), x)
for i, first in enumerate((0, 2, 3)):
    write(f"part{i}.npy", (4, 4, 4, 4), x[first * 64:(first + 4) * 64])
PY
once=(--model "$wan" "${square[@]}" --steps 1 --sampler euler --guidance 3)
make long "${once[@]}" --frames 25 --noise long.npy --window 13 --window-overlap 8
for i in 0 1 2; do
    make part$i "${once[@]}" --frames 13 --noise part$i.npy
done
python3 - <<'PY' || fail "windows"
from latents import load
long, _ = load("long")
parts, first = [load(f"part{i}")[0] for i in range(3)], (0, 2, 3)
def weight(i, t):
    at = t - first[i]
    if not 0 <= at < 4: return 0
    return min([3] + ([at + 1] if i else []) + ([4 - at] if i < 2 else []))
for (t, y, x), own in long.items():
    total = sum(weight(i, t) for i in range(3))
    for c, v in enumerate(own):
        blended = sum(weight(i, t) * parts[i][t - first[i], y, x][c] for i in range(3) if weight(i, t)) / total
        assert abs(blended - v) < 1e-5, (t, y, x, c, blended, v)
plain, windows = load("plain")[0], load("windows")[0]
assert any(plain[cell] != windows[cell] for cell in plain)
PY
peak() { sed -n 's/.*predicted peak \([0-9.]*\) \([KMG]\)iB.*/\1 \2/p' "$1.log" | awk '{print int($1 * ($2 == "K" ? 1 : $2 == "M" ? 1024 : 1048576))}'; }
large=(--model "$wan" --height 96 --width 96 --frames 81 --steps 1)
"$WEFT" generate --prompt x --out large.mp4 "${large[@]}" --noise no-such.npy >large.log 2>&1 # told, and ends
"$WEFT" generate --prompt x --out pieces.mp4 "${large[@]}" --noise no-such.npy --window 9 >pieces.log 2>&1
[ "$(peak large)" -gt 0 ] && [ "$(peak pieces)" -lt "$(peak large)" ] || fail "windows do not save memory: $(peak pieces) and $(peak large) KiB"

# a video that is made over is read frame by frame: 241 of them as floats would be 25 MiB
over=(--model "$wan" --height 96 --width 96 --frames 241 --steps 1 --noise no-such.npy --window 9)
"$WEFT" generate --prompt x --out plain.mp4 "${over[@]}" >plain.log 2>&1
"$WEFT" generate --prompt x --out over.mp4 "${over[@]}" --video "$picture" --strength 1 >over.log 2>&1
[ "$(peak over)" -gt 0 ] && [ "$(peak over)" -le $(($(peak plain) + 1024)) ] || fail "--video takes $(peak over) KiB, without $(peak plain)"

# an image: another one makes another video, and the first frame of a model that is given it clean is it
make image --model "$golden/wan_ti2v" "${size[@]}" --image "$golden/wan_ti2v/image.png"
make image-seed --model "$golden/wan_ti2v" "${size[@]}" --image "$golden/wan_ti2v/image.png" --seed 8
make image-other --model "$golden/wan_ti2v" "${size[@]}" --image "$picture"
make text --model "$golden/wan_ti2v" "${size[@]}"
python3 - <<'PY' || fail "a first frame"
from latents import load
(a, _), (b, _), (c, _) = (load(n) for n in ("image", "image-seed", "image-other"))
for cell in a:
    assert (a[cell] == b[cell]) == (cell[0] == 0), cell
    assert a[cell] != c[cell], cell
PY
grep -q 'image.png is 32 x 40, and 32 x 32 is made: it is stretched' image.log || { cat image.log; fail "stretching is not said"; }
make crop --model "$golden/wan_ti2v" "${size[@]}" --image wide.png --fit crop
grep -q 'wide.png is 48 x 32, and 32 x 32 is made: 33 % of its width is cut off' crop.log || { cat crop.log; fail "cutting is not said"; }
python3 -c 'import pictures; pictures.draw("wide-mask.png", 48, 32, lambda x, y: (255,) * 3 if x < 9 else (0,) * 3)'
make mask-wide --model "$wan" "${size[@]}" --video "$picture" --mask wide-mask.png --steps 2
grep -q 'wide-mask.png is 48 x 32, and 32 x 32 is made: it is stretched' mask-wide.log || { cat mask-wide.log; fail "a stretched mask is not reported"; }
make crop-over --model "$wan" "${size[@]}" --video wide.png --fit crop --mask left.png --steps 2

# a rate is told to a model that takes one
make rate --model "$golden/ltx_i2v" --height 64 --width 96 --frames 17 --steps 2 --image "$golden/ltx_i2v/image.png"
make rate-25 --model "$golden/ltx_i2v" --height 64 --width 96 --frames 17 --steps 2 --image "$golden/ltx_i2v/image.png" --fps 25
make rate-10 --model "$golden/ltx_i2v" --height 64 --width 96 --frames 17 --steps 2 --image "$golden/ltx_i2v/image.png" --fps 10
cmp rate.latents.npy rate-25.latents.npy || fail "LTX's own rate is not 25"
cmp -s rate.latents.npy rate-10.latents.npy && fail "a rate without effect"

# ranks split what is given as the rest
for split in cfg=2 tp=2 cp=2; do
    mpirun -n 2 "$WEFT" generate --prompt "a red cat" --latents --out ranks.mp4 --model "$golden/wan_flf" "${size[@]}" --guidance 3 \
        --image "$picture" --last-image small.png --steps 3 --window 5 --parallel $split >ranks.log 2>&1 || { cat ranks.log; fail "2 ranks, $split"; }
    [ "$(grep -c 'small.png is 16 x 32' ranks.log)" = 1 ] || { cat ranks.log; fail "2 ranks: stretching is not said once"; }
    [ -e alone.latents.npy ] || make alone --model "$golden/wan_flf" "${size[@]}" --guidance 3 --image "$picture" --last-image small.png --window 5
    python3 - <<'PY' || fail "2 ranks, $split: another video"
from latents import load
(a, _), (b, _) = load("alone"), load("ranks")
worst = max(abs(u - v) for cell in a for u, v in zip(a[cell], b[cell]))
assert worst < 1e-4, worst
PY
done

refuse() { # PATTERN OPTIONS...
    local pattern=$1
    shift
    "$WEFT" generate --prompt x --out refused.mp4 "$@" $(default_steps "$@") >out.log 2>&1 && fail "weft generate $*: not refused"
    grep -qE -- "$pattern" out.log || { cat out.log; fail "weft generate $*: not told: $pattern"; }
    grep -q 'denoising step' out.log && fail "weft generate $*: refused after the work"
    [ ! -e refused.mp4 ] || fail "weft generate $*: refused, but there is a video"
}
refuse '--image: this HunyuanVideo.* models that are: .*WanTransformer3DModel \(I2V.*LTXVideoTransformer3DModel' --model "$golden/hunyuan" "${size[@]}" --image "$picture"
refuse 'wan_over was not trained to begin with an image .*expand_timesteps.*--video FILE' --model "$wan" "${size[@]}" --image "$picture"
refuse 'begin with an image: give --image FILE' --model "$golden/wan_i2v" "${size[@]}"
refuse 'a first frame to a last one: give --last-image' --model "$golden/wan_flf" "${size[@]}" --image "$picture"
refuse 'is told of a first frame alone' --model "$golden/wan_ti2v" "${size[@]}" --image "$picture" --last-image "$picture"
refuse '--last-image: give the first frame too' --model "$golden/wan_i2v" "${size[@]}" --last-image "$picture"
refuse 'thin.png: 2x99: of so narrow a picture' --model "$golden/wan_i2v" "${size[@]}" --image thin.png
refuse 'nowhere.png' --model "$golden/wan_i2v" "${size[@]}" --image nowhere.png
echo "no picture" >text.png
refuse 'text.png' --model "$golden/wan_i2v" "${size[@]}" --image text.png
refuse '--mask: of what\? Give .*--video' --model "$wan" "${size[@]}" --mask left.png
refuse '--strength 0.5: of which video' --model "$wan" "${size[@]}" --strength 0.5
refuse '--strength 0.1 of --steps 3 is no step at all; at least 0.33' --model "$wan" "${size[@]}" --video "$picture" --strength 0.1
refuse 'none.png: no pixel of the mask is white' --model "$wan" "${size[@]}" --video "$picture" --mask none.png
refuse '--outpaint 1,2,3: LEFT,TOP,RIGHT,BOTTOM' --model "$wan" "${size[@]}" --video "$picture" --outpaint 1,2,3
refuse '16 and 16 of 32 pixels leave 0 columns' --model "$wan" "${size[@]}" --video "$picture" --outpaint 16,0,16,0
refuse '--fit squeeze: known are stretch and crop' --model "$wan" "${size[@]}" --fit squeeze
refuse '--window 6: this model makes 1 \+ 4 n frames; the nearest is 5' --model "$wan" "${size[@]}" --window 6
refuse '--window-overlap 3: .*a multiple of 4 frames, at most 4' --model "$wan" "${size[@]}" --window 5 --window-overlap 3
refuse '--window 1: windows of one latent frame share none; at least 5' --model "$wan" "${size[@]}" --window 1
refuse '--eta 0.5: sampler unipc adds no noise by it; --sampler ddim' --model "$wan" "${size[@]}" --sampler unipc --eta 0.5
refuse '--guidance-low 3: below which part of the times\? Give --boundary' --model "$wan" "${size[@]}" --guidance-low 3
refuse '--cluster: its prices choose a layout with --parallel auto' --model "$wan" "${size[@]}" --cluster h100
refuse '--window-overlap 8: of which windows' --model "$wan" "${size[@]}" --window-overlap 8
# a video that is too short says what there is
"$WEFT" generate --model "$wan" --prompt x "${square[@]}" --steps 1 --frames 5 --out short.mp4 >short.log 2>&1 || { cat short.log; fail "a short video"; }
refuse 'short.mp4 has 5 frames, and 9 are made: give --frames' --model "$wan" "${size[@]}" --video short.mp4
rm -rf part && cp -r "$golden/wan_i2v" part && rm -r part/image_encoder
refuse 'image_encoder' --model part "${size[@]}" --image "$picture"
"$WEFT" generate --help >help.txt
grep -q 'WanTransformer3DModel *I2V: a first frame, a last one too' help.txt || fail "--help does not list the families"
exit 0
