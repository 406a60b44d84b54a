#!/bin/bash
# Helios makes a video of sections, which are videos of their own for the autoencoder, after given
# frames.
. "$SRC/tests/check.sh"
helios=$SRC/tests/golden/pipelines/helios
make_video() { # NAME OPTION...
    local name=$1
    shift
    "$WEFT" generate --model "$helios" --prompt "a red cat" --height 32 --width 48 --window 9 --steps 2 --frames-npy --latents-npy --out "$name.mp4" \
        "$@" >"$name.log" 2>&1 || { cat "$name.log"; fail "$name"; }
}
# Bytes of the latents or frames of a video: FILE.npy FIRST COUNT, in items of the first dimension.
items() {
    python3 -S - "$@" <<'PY'
import struct, sys
data = open(sys.argv[1], "rb").read()
head = 10 + struct.unpack("<H", data[8:10])[0]
first, count = map(int, sys.argv[2:])
each = (len(data) - head) // eval(data[10:head])["shape"][0]
sys.stdout.buffer.write(data[head + first * each:head + (first + count) * each])
PY
}
# The first section does not depend on later ones, and is decoded without them.
a_section_is_a_video_of_its_own() {
    python3 -S - "$helios/noise.npy" <<'PY'
import struct, sys
data = open(sys.argv[1], "rb").read()
head = 10 + struct.unpack("<H", data[8:10])[0]
shape = eval(data[10:head])["shape"]
assert shape[0] == 9, shape
text = repr({"descr": "<f4", "fortran_order": False, "shape": (3, *shape[1:])}).encode()
text += b" " * (-(len(text) + 11) % 64) + b"\n"
open("noise_of_one.npy", "wb").write(data[:8] + struct.pack("<H", len(text)) + text + data[head:head + (len(data) - head) // 3])
PY
    make_video all --frames 27 --init-latents "$helios/noise.npy" --save-latents
    make_video one --frames 9 --init-latents noise_of_one.npy
    cmp <(items all.latents.npy 0 3) <(items one.latents.npy 0 3) || fail "other latents of the first section"
    cmp <(items all.npy 0 9) <(items one.npy 0 9) || fail "other frames of the first section"
}
check a_section_is_a_video_of_its_own a_section_is_a_video_of_its_own
saved_latents_are_decoded_by_sections() {
    needs a_section_is_a_video_of_its_own
    "$WEFT" generate --model "$helios" --decode-latents all.latents.safetensors --frames-npy --out again.mp4 >again.log 2>&1 || { cat again.log; fail "decoding"; }
    cmp all.npy again.npy || fail "other frames than generation decodes"
}
check saved_latents_are_decoded_by_sections saved_latents_are_decoded_by_sections
# The first frame of a video and its last frames precede the generated video; others are not read.
the_first_and_the_last_frames_precede() {
    command -v ffmpeg >/dev/null || skip "no ffmpeg"
    for middle in green blue; do
        ffmpeg -v error -y -f lavfi -i color=red:s=48x32:r=24:d=0.0416 -f lavfi -i color=$middle:s=48x32:r=24:d=0.5 -f lavfi -i testsrc=s=48x32:r=24:d=0.375 \
            -filter_complex 'concat=n=3:v=1,format=bgr0' -c:v ffv1 $middle.mkv || fail "ffmpeg"
    done
    ffmpeg -v error -y -f lavfi -i color=yellow:s=48x32:r=24:d=0.0416 -f lavfi -i color=blue:s=48x32:r=24:d=0.5 -f lavfi -i testsrc=s=48x32:r=24:d=0.375 \
        -filter_complex 'concat=n=3:v=1,format=bgr0' -c:v ffv1 first.mkv || fail "ffmpeg"
    ffmpeg -v error -y -f lavfi -i color=red:s=48x32:r=24:d=0.0416 -f lavfi -i color=blue:s=48x32:r=24:d=0.5 -f lavfi -i testsrc=s=48x32:r=24:d=0.375 \
        -filter_complex 'concat=n=3:v=1,hflip,format=bgr0' -c:v ffv1 last.mkv || fail "ffmpeg"
    for name in green blue first last; do
        make_video $name --frames 9 --video $name.mkv --given-frames 9
    done
    cmp green.latents.npy blue.latents.npy || fail "frames between the first and the last ones have an effect"
    ! cmp -s blue.latents.npy first.latents.npy || fail "the first frame has no effect"
    ! cmp -s blue.latents.npy last.latents.npy || fail "the last frames have no effect"
}
check the_first_and_the_last_frames_precede the_first_and_the_last_frames_precede
# Noise of the given frames is of the seed.
the_seed_changes_the_noise_of_the_image() {
    for seed in 1 2 1; do
        make_video seed$seed --frames 9 --init-latents noise_of_one.npy --image "$helios/image_image.png" --seed $seed
        [ ! -e kept.npy ] || [ $seed = 1 ] || { ! cmp -s kept.npy seed$seed.latents.npy || fail "the seed has no effect"; }
        [ $seed = 2 ] || { [ ! -e kept.npy ] || cmp kept.npy seed1.latents.npy || fail "the same seed gave other latents"; cp seed1.latents.npy kept.npy; }
    done
}
check the_seed_changes_the_noise_of_the_image the_seed_changes_the_noise_of_the_image
finish
