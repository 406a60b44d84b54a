#!/bin/bash
# Visual conditioning of `weft generate`: video-to-video, inpainting masks, outpainting, temporal
# windows, first and last frames, and the frame rate; with several samplers and on two ranks. Inputs
# that a model does not support are refused with the option, the remedy and models that support
# them.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMPI_MCA_btl=self,vader
golden=$SRC/tests/golden/pipelines
wan=$golden/wan_over # text to video: 32 x 32 pixels, 4 x 4 latent cells
picture=$golden/wan_over/video.png
square=(--height 32 --width 32)
size=("${square[@]}" --frames 9)
export PYTHONPATH=$SRC/tests/generate PYTHONDONTWRITEBYTECODE=1
python3 -S - <<'PY'
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
    "$WEFT" generate --prompt "a red cat" --latents-npy --out "$out.mp4" "$@" $(default_steps "$@") >"$out.log" 2>&1 || { cat "$out.log"; fail "weft generate $*"; }
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

# Latents that a mask keeps are bitwise those of the video, with any sampler, seed and strength. The
# other latents differ.
a_mask_keeps_the_video() {
    samplers=(euler heun unipc dpmpp ddpm res_2mid)
    for sampler in "${samplers[@]}"; do
        make "mask-$sampler" --model "$wan" "${size[@]}" --video "$picture" --mask left.png --sampler "$sampler" --steps 4
    done
    make mask-seed --model "$wan" "${size[@]}" --video "$picture" --mask left.png --seed 5
    make mask-short --model "$wan" "${size[@]}" --video "$picture" --mask left.png --strength 0.5 --steps 4
    # CogVideoX: a DDPM model with v-prediction, with an image as well
    make cog-mask --model "$golden/cog_i2v" "${size[@]}" --image "$golden/cog_i2v/image.png" --video "$picture" --mask left.png
    make cog-seed --model "$golden/cog_i2v" "${size[@]}" --image "$golden/cog_i2v/image.png" --video "$picture" --mask left.png --seed 5
    # outpainting: one latent cell to the left and to the right, one below
    make around --model "$wan" "${size[@]}" --video small.png --outpaint 8,0,8,8
    make around-seed --model "$wan" "${size[@]}" --video small.png --outpaint 8,0,8,8 --seed 5
    python3 -S - "${samplers[@]}" <<'PY' || fail "kept latents differ, or other latents are equal"
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
}
check a_mask_keeps_the_video

# Temporal windows: one window of all frames has no effect. With one Euler step, the latents are the
# predictions of the windows, blended by their weights.
one_window_has_no_effect() {
    make plain --model "$wan" "${square[@]}" --frames 25 --guidance-scale 3
    make one-window --model "$wan" "${square[@]}" --frames 25 --guidance-scale 3 --window 25
    cmp plain.latents.npy one-window.latents.npy || fail "one window of all frames changes the latents"
}
check one_window_has_no_effect
windows_are_blended() {
    needs one_window_has_no_effect
    make windows --model "$wan" "${square[@]}" --frames 25 --guidance-scale 3 --window 13 --window-overlap 8
    python3 -S - <<'PY' || fail "noise"
import random
from latents import write
random.seed(3)
x = [random.gauss(0, 1) for _ in range(7 * 4 * 4 * 4)]
write("long.npy", (7, 4, 4, 4), x)
for i, first in enumerate((0, 2, 3)):
    write(f"part{i}.npy", (4, 4, 4, 4), x[first * 64:(first + 4) * 64])
PY
    once=(--model "$wan" "${square[@]}" --steps 1 --sampler euler --guidance-scale 3)
    make long "${once[@]}" --frames 25 --init-latents long.npy --window 13 --window-overlap 8
    for i in 0 1 2; do
        make part$i "${once[@]}" --frames 13 --init-latents part$i.npy
    done
    python3 -S - <<'PY' || fail "the latents are not the blended windows"
from latents import load
long, _ = load("long")
parts, first = [load(f"part{i}")[0] for i in range(3)], (0, 2, 3)
def mean(part, c): # the first latent frame is an image
    own = [v[c] for (t, _, _), v in part.items() if t > 0]
    return sum(own) / len(own)
shift = [[mean(parts[0], c) - mean(part, c) for c in range(4)] for part in parts]
def weight(i, t):
    at = t - first[i]
    if not 0 <= at < 4: return 0
    return min([3] + ([at + 1] if i else []) + ([4 - at] if i < 2 else []))
for (t, y, x), own in long.items():
    total = sum(weight(i, t) for i in range(3))
    for c, v in enumerate(own):
        blended = sum(weight(i, t) * (parts[i][t - first[i], y, x][c] + shift[i][c]) for i in range(3) if weight(i, t)) / total
        assert abs(blended - v) < 1e-5, (t, y, x, c, blended, v)
plain, windows = load("plain")[0], load("windows")[0]
assert any(plain[cell] != windows[cell] for cell in plain)
PY
}
check windows_are_blended
peak() { echo $(($(message_field value "$1.log" job-report rank= text~=peak) / 1024)); } # KiB
windows_save_memory() {
    large=(--model "$wan" --height 96 --width 96 --frames 81 --steps 1)
    "$WEFT" generate --prompt x --out large.mp4 "${large[@]}" --init-latents no-such.npy >large.log 2>&1 # fails after the report of the peak
    "$WEFT" generate --prompt x --out pieces.mp4 "${large[@]}" --init-latents no-such.npy --window 9 >pieces.log 2>&1
    [ "$(peak large)" -gt 0 ] && [ "$(peak pieces)" -lt "$(peak large)" ] || fail "windows do not save memory: $(peak pieces) and $(peak large) KiB"
}
check windows_save_memory

# A video of --video is read frame by frame: all 241 frames as floats would be 25 MiB.
a_video_is_read_frame_by_frame() {
    over=(--model "$wan" --height 96 --width 96 --frames 241 --steps 1 --init-latents no-such.npy --window 9)
    "$WEFT" generate --prompt x --out plain.mp4 "${over[@]}" >plain.log 2>&1
    "$WEFT" generate --prompt x --out over.mp4 "${over[@]}" --video "$picture" --strength 1 >over.log 2>&1
    [ "$(peak over)" -gt 0 ] && [ "$(peak over)" -le $(($(peak plain) + 1024)) ] || fail "predicted peak $(peak over) KiB with --video, $(peak plain) KiB without"
}
check a_video_is_read_frame_by_frame

# A reference image is a latent frame of the denoiser's inputs. Its control alone has 12 x 12 cells of 72 floats.
the_peak_has_reference_images() {
    local vace=$SRC/tests/golden/pipelines/wan_vace
    local shown=(--model "$vace" --height 96 --width 96 --frames 9 --steps 1 --init-latents no-such.npy) image=$vace/reference_image_reference.png
    "$WEFT" generate --prompt x --out none.mp4 "${shown[@]}" >none.log 2>&1
    "$WEFT" generate --prompt x --out three.mp4 "${shown[@]}" --reference-image "$image" --reference-image "$image" --reference-image "$image" >three.log 2>&1
    [ "$(peak none)" -gt 0 ] && [ "$(peak three)" -ge $(($(peak none) + 3 * 12 * 12 * 72 * 4 / 1024)) ] || fail "predicted peak $(peak three) KiB with images, $(peak none) KiB without"
}
check the_peak_has_reference_images

# Another image gives another video. A model with a clean first frame keeps it for every seed.
an_image_is_the_first_frame() {
    make image --model "$golden/wan_ti2v" "${size[@]}" --image "$golden/wan_ti2v/image.png"
    make image-seed --model "$golden/wan_ti2v" "${size[@]}" --image "$golden/wan_ti2v/image.png" --seed 8
    make image-other --model "$golden/wan_ti2v" "${size[@]}" --image "$picture"
    make text --model "$golden/wan_ti2v" "${size[@]}"
    python3 -S - <<'PY' || fail "the first latent frame, or the effect of the image"
from latents import load
(a, _), (b, _), (c, _) = (load(n) for n in ("image", "image-seed", "image-other"))
for cell in a:
    assert (a[cell] == b[cell]) == (cell[0] == 0), cell
    assert a[cell] != c[cell], cell
PY
    has_message image.log video-input-resized file=*image.png text~=32x40 text~=32x32, 'text~=--fit crop' || fail "the stretched image is not reported"
    make crop --model "$golden/wan_ti2v" "${size[@]}" --image wide.png --fit crop
    has_message crop.log video-input-resized file=wide.png text~=48x32 text~=32x32, 'text~=33 %' text~=width || fail "the cropped image is not reported"
    python3 -S -c 'import pictures; pictures.draw("wide-mask.png", 48, 32, lambda x, y: (255,) * 3 if x < 9 else (0,) * 3)'
    make mask-wide --model "$wan" "${size[@]}" --video "$picture" --mask wide-mask.png --steps 2
    has_message mask-wide.log video-input-resized file=wide-mask.png text~=48x32 text~=32x32, || fail "a stretched mask is not reported"
    make crop-over --model "$wan" "${size[@]}" --video wide.png --fit crop --mask left.png --steps 2
}
check an_image_is_the_first_frame

# The frame rate is an input of models that take one.
a_rate_is_used() {
    make rate --model "$golden/ltx_i2v" --height 64 --width 96 --frames 17 --steps 2 --image "$golden/ltx_i2v/image.png"
    make rate-25 --model "$golden/ltx_i2v" --height 64 --width 96 --frames 17 --steps 2 --image "$golden/ltx_i2v/image.png" --fps 25
    make rate-10 --model "$golden/ltx_i2v" --height 64 --width 96 --frames 17 --steps 2 --image "$golden/ltx_i2v/image.png" --fps 10
    cmp rate.latents.npy rate-25.latents.npy || fail "the default frame rate of LTX is not 25"
    ! cmp -s rate.latents.npy rate-10.latents.npy || fail "--fps has no effect"
}
check a_rate_is_used

# Ranks split visual inputs like the latents.
ranks_make_the_same_video() { # SPLIT
    local split=$1
    mpirun -n 2 "$WEFT" generate --prompt "a red cat" --latents-npy --out ranks.mp4 --model "$golden/wan_flf" "${size[@]}" --guidance-scale 3 \
        --image "$picture" --last-image small.png --steps 3 --window 5 --parallel $split >ranks.log 2>&1 || { cat ranks.log; fail "2 ranks, $split"; }
    [ "$(count_messages ranks.log video-input-resized file=small.png text~=16x32)" = 1 ] || { cat ranks.log; fail "2 ranks: the stretched image is not reported exactly once"; }
    [ -e alone.latents.npy ] || make alone --model "$golden/wan_flf" "${size[@]}" --guidance-scale 3 --image "$picture" --last-image small.png --window 5
    python3 -S - <<'PY' || fail "2 ranks, $split: the latents differ from one rank"
from latents import load
(a, _), (b, _) = load("alone"), load("ranks")
worst = max(abs(u - v) for cell in a for u, v in zip(a[cell], b[cell]))
assert worst < 1e-4, worst
PY
}
for split in cfg=2 tp=2 cp=2; do check "ranks_make_the_same_video_$split" ranks_make_the_same_video "$split"; done

refuse() { check "refuses $*" refused "$@"; }
refused() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" generate --prompt x --out refused.mp4 "$@" $(default_steps "$@") >out.log 2>&1 && fail "weft generate $*: not refused"
    has_message out.log "${wanted[@]}" || fail "$*: another message than expected"
    ! is_progress out.log || fail "weft generate $*: refused after the work"
    [ ! -e refused.mp4 ] || fail "weft generate $*: refused, but a video was written"
}
refuse model-input-unsupported key=--image text~=HunyuanVideo 'text~=WanTransformer3DModel (I2V' text~=LTXVideoTransformer3DModel -- --model "$golden/hunyuan" "${size[@]}" --image "$picture"
refuse model-input-unsupported file=*wan_over key=--image text~=expand_timesteps 'text~=--video FILE' -- --model "$wan" "${size[@]}" --image "$picture"
refuse video-input file=*wan_i2v key=--image -- --model "$golden/wan_i2v" "${size[@]}"
refuse video-input file=*wan_flf key=--last-image -- --model "$golden/wan_flf" "${size[@]}" --image "$picture"
refuse model-input-unsupported key=--last-image -- --model "$golden/wan_ti2v" "${size[@]}" --image "$picture" --last-image "$picture"
refuse video-input key=--last-image 'text~=--image FILE' -- --model "$golden/wan_i2v" "${size[@]}" --last-image "$picture"
refuse video-input file=thin.png text~=2x99 -- --model "$golden/wan_i2v" "${size[@]}" --image thin.png
refuse '*' text~=nowhere.png -- --model "$golden/wan_i2v" "${size[@]}" --image nowhere.png
echo "no picture" >text.png
refuse '*' text~=text.png -- --model "$golden/wan_i2v" "${size[@]}" --image text.png
refuse video-input key=--mask text~=--video -- --model "$wan" "${size[@]}" --mask left.png
refuse option-no-effect key=--strength text~=0.5 text~=--video -- --model "$wan" "${size[@]}" --strength 0.5
refuse option-invalid key=--strength 'text~=0.1 of 3' text~=0.33 -- --model "$wan" "${size[@]}" --video "$picture" --strength 0.1
refuse video-input file=none.png -- --model "$wan" "${size[@]}" --video "$picture" --mask none.png
refuse option-invalid key=--outpaint "text~='1,2,3'" text~=LEFT,TOP,RIGHT,BOTTOM -- --model "$wan" "${size[@]}" --video "$picture" --outpaint 1,2,3
refuse option-invalid key=--outpaint 'text~=16 and 16' 'text~=0 columns of 32' -- --model "$wan" "${size[@]}" --video "$picture" --outpaint 16,0,16,0
refuse option-invalid key=--fit "text~='squeeze'" 'text~=stretch or crop' -- --model "$wan" "${size[@]}" --fit squeeze
refuse video-size key=--window 'text~=1 + 4 n frames, not 6;' text~=5 -- --model "$wan" "${size[@]}" --window 6
refuse video-size key=--window-overlap 'text~=4 frames, at most 4, not 3' -- --model "$wan" "${size[@]}" --window 5 --window-overlap 3
refuse video-size key=--window-overlap 'text~=34 frames have 10 latent frames' 'text~=of 4 up to 36, not 17' -- --model "$golden/opensora" --frames 51 --height 32 --width 32 --window 34 --window-overlap 17
refuse video-size key=--window text~=1 'text~=at least 5' -- --model "$wan" "${size[@]}" --window 1
refuse option-no-effect key=--eta text~=0.5 text~=unipc 'text~=--sampler ddim' -- --model "$wan" "${size[@]}" --sampler unipc --eta 0.5
refuse option-no-effect key=--guidance-scale-2 text~=3 text~=--boundary-ratio -- --model "$wan" "${size[@]}" --guidance-scale-2 3
refuse option-no-effect key=--on 'text~=--parallel auto' -- --model "$wan" "${size[@]}" --on h100
refuse option-no-effect key=--window-overlap text~=8 'text~=--window N' -- --model "$wan" "${size[@]}" --window-overlap 8
# The error of a video with too few frames names its number of frames.
"$WEFT" generate --model "$wan" --prompt x "${square[@]}" --steps 1 --frames 5 --out short.mp4 >short.log 2>&1 || { cat short.log; fail "making a short video"; }
refuse video-input file=short.mp4 'text~=5 frames,' text~=9 text~=--frames -- --model "$wan" "${size[@]}" --video short.mp4
rm -rf part && cp -r "$golden/wan_i2v" part && rm -r part/image_encoder
refuse '*' text~=image_encoder -- --model part "${size[@]}" --image "$picture"
help_lists_families() {
    "$WEFT" generate --help image-models >help.txt
    grep -q '^  WanTransformer3DModel ' help.txt || fail "--help does not list the families"
}
check help_lists_families
finish
