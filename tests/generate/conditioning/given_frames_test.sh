#!/bin/bash
# weft generate --given-frames: the last frame of a video gives the video that the frame gives as
# --image, bitwise, for every way in which a family takes frames. Five frames keep the first two
# latent frames of Wan TI2V. Invalid combinations are refused.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
golden=$SRC/tests/golden/pipelines
video=$golden/cosmos25/video_video.png # 7 images of 48x32
size=(--height 32 --width 48 --steps 2 --prompt x)
make() { # OUT OPTIONS...
    local out=$1
    shift
    "$WEFT" generate "${size[@]}" --frames 9 --latents-npy --out "$out.mp4" "$@" >"$out.log" 2>&1 || fail_with "$out.log" "weft generate $*"
}
# Writes image number 7 of the animated file as a file of its own.
python3 -S - "$video" last.png <<'PY' || fail "the last image"
import struct, sys, zlib
data, at, head, parts, last = open(sys.argv[1], "rb").read(), 8, None, b"", False
while at < len(data):
    size, kind = struct.unpack(">I4s", data[at:at + 8])
    body = data[at + 8:at + 8 + size]
    head = body if kind == b"IHDR" else head
    if kind == b"fcTL":
        parts = b""  # of the next image
    if kind == b"fdAT":
        parts += body[4:]
    at += 12 + size
chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
open(sys.argv[2], "wb").write(data[:8] + chunk(b"IHDR", head) + chunk(b"IDAT", parts) + chunk(b"IEND", b""))
PY
one_frame_is_an_image() { # MODEL
    make "$1-video" --model "$golden/$1" --video "$video" --given-frames 1
    make "$1-image" --model "$golden/$1" --image last.png
    make "$1-other" --model "$golden/$1" --image "$golden/cosmos25/image_image.png"
    cmp "$1-video.latents.npy" "$1-image.latents.npy" || fail "$1: another video than with --image"
    ! cmp -s "$1-video.latents.npy" "$1-other.latents.npy" || fail "$1: the image has no effect"
}
# on channels and by CLIP; in the frame with a time per token; in the frame with a mask
for m in wan_i2v wan_ti2v cosmos25; do check "one_frame_is_an_image_$m" one_frame_is_an_image "$m"; done
five_frames_are_kept() {
    make five --model "$golden/wan_ti2v" --video "$video" --given-frames 5 --seed 1
    make five-again --model "$golden/wan_ti2v" --video "$video" --given-frames 5 --seed 2
    python3 -S - <<'PY' || fail "the given frames"
import array, struct
def load(path):
    data = open(path, "rb").read()
    head = 10 + struct.unpack("<H", data[8:10])[0]
    shape, x = eval(data[10:head])["shape"], array.array("f", data[head:])
    each = len(x) // shape[0]
    return [x[i * each:(i + 1) * each] for i in range(shape[0])]
a, b = load("five.latents.npy"), load("five-again.latents.npy")
assert [u == v for u, v in zip(a, b)] == [True, True, False], "given, given, generated"
PY
}
check five_frames_are_kept
refuse() { check "refuses $*" refused "$@"; }
refused() { # ID KEY OPTIONS...
    local id=$1 key=$2
    shift 2
    ! "$WEFT" generate "${size[@]}" --out refused.mp4 "$@" >refused.log 2>&1 || fail "was accepted"
    has_message refused.log "$id" key="$key" || fail_with refused.log "another message"
}
given=(--video "$video" --given-frames)
refuse option-no-effect --given-frames --model "$golden/cosmos25" --given-frames 5 --frames 9
refuse video-size --given-frames --model "$golden/cosmos25" "${given[@]}" 4 --frames 9
refuse video-size --given-frames --model "$golden/cosmos25" "${given[@]}" 9 --frames 9
refuse option-conflict --given-frames --model "$golden/cosmos25" "${given[@]}" 5 --image last.png --frames 9
refuse option-conflict --given-frames --model "$golden/cosmos25" "${given[@]}" 5 --window 9 --window-mode continue --frames 9
refuse option-invalid --given-frames --model "$golden/wan_i2v" "${given[@]}" 5 --frames 9
refuse model-input-unsupported --given-frames --model "$golden/wan22" "${given[@]}" 5 --frames 9
refuse option-conflict --given-frames --model "$golden/skyreels" "${given[@]}" 5 --frames 13
# The pipeline of Cosmos Transfer 2.5 divides videos of more than 93 frames. Sizes are read before the control.
length_of_a_control_is_warned() { # FRAMES
    "$WEFT" generate "${size[@]}" --model "$golden/cosmos25_transfer" --control nowhere.mp4 --frames "$1" --out long.mp4 >long.log 2>&1 &&
        fail "a missing control is accepted"
    has_message long.log config-unusual key=--frames value="$1"
}
more_frames_than_the_pipeline_generates_are_warned() {
    length_of_a_control_is_warned 97 || fail_with long.log "97 frames"
    length_of_a_control_is_warned 93 && fail_with long.log "93 frames"
    :
}
check more_frames_than_the_pipeline_generates_are_warned
finish
