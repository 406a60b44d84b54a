#!/bin/bash
# LTX-2: the guidance scale of the sound also guides the sound of a video without guidance, and
# its rescaling needs none of the video. Methods without guidance refuse the option. Saved latents with impossible sizes of video or sound are
# refused.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
model=$SRC/tests/golden/pipelines/ltx2
generate() { # OUT [OPTIONS...]
    local out=$1
    shift
    "$WEFT" generate --model "$model" --prompt "a red cat" --frames 9 --height 64 --width 64 --max-sequence-length 32 --steps 3 \
        --out "$out.mp4" "$@" >"$out.log" 2>&1
}
sound_differs() { # ONE OTHER: more than the video
    python3 -S - "$@" <<'PY' || fail "the latents"
import array, struct, sys


def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])


def difference(kind):
    one, other = (load(f"{name}.{kind}.npy") for name in sys.argv[1:])
    assert len(one) == len(other) > 0
    return max(abs(a - b) for a, b in zip(one, other))


# the streams attend to each other, so the video follows the changed sound
video, sound = difference("latents"), difference("audio-latents")
print(f"video {video:.2g}, sound {sound:.2g}")
assert sound > 0.05 and video < sound
PY
}
the_sound_is_guided_alone() {
    generate plain --guidance-scale 1 --latents-npy || { cat plain.log; fail "without guidance"; }
    generate sound --guidance-scale 1 --audio-guidance-scale 4 --latents-npy || { cat sound.log; fail "with guidance of the sound"; }
    sound_differs plain sound
}
check the_sound_is_guided_alone
the_sound_is_rescaled_alone() {
    generate scaled --latents-npy || { cat scaled.log; fail "without rescaling"; }
    generate rescaled --audio-guidance-rescale 0.7 --latents-npy || { cat rescaled.log; fail "with rescaling of the sound"; }
    sound_differs scaled rescaled
}
check the_sound_is_rescaled_alone
# 0 is a scale of its own and not the default, the scale of the video.
zero_counts_as_given() {
    local video=(--guidance-scale 3 --guidance-rescale 0.7 --stg-scale 2 --stg-blocks 0 --modality-scale 2 --latents-npy) option
    local sound=(--audio-guidance-scale 3 --audio-guidance-rescale 0.7 --audio-stg-scale 2 --audio-modality-scale 2)
    generate same "${video[@]}" || { cat same.log; fail "as the video"; }
    generate given "${video[@]}" "${sound[@]}" || { cat given.log; fail "the scales of the video"; }
    cmp same.audio-latents.npy given.audio-latents.npy || fail "the defaults are not the scales of the video"
    for option in guidance-scale guidance-rescale stg-scale modality-scale; do
        generate zero "${video[@]}" --audio-$option 0 || { cat zero.log; fail "--audio-$option 0"; }
        generate small "${video[@]}" --audio-$option 1e-300 || { cat small.log; fail "--audio-$option 1e-300"; }
        sound_differs same zero
        cmp zero.audio-latents.npy small.audio-latents.npy || fail "--audio-$option 0 is not as 1e-300"
    done
    generate zero --latents-npy --modality-scale 0 --audio-modality-scale 2 || { cat zero.log; fail "--modality-scale 0"; }
    generate small --latents-npy --modality-scale 1e-300 --audio-modality-scale 2 || { cat small.log; fail "--modality-scale 1e-300"; }
    cmp zero.latents.npy small.latents.npy || fail "--modality-scale 0 is not as 1e-300"
}
check zero_counts_as_given
a_method_without_guidance_is_refused() {
    generate none --guidance-method none --audio-guidance-scale 4 && fail "accepted"
    has_message none.log option-no-effect key=--audio-guidance-scale value=4 text~=none || { cat none.log; fail "the error"; }
    [ ! -e none.mp4 ] || fail "a refused command wrote a video"
}
check a_method_without_guidance_is_refused

# The changed sizes have the product of the file's sizes, or one that exceeds 64 bits.
sizes_that_do_not_fit_are_refused() {
    generate kept --save-latents || { cat kept.log; fail "--save-latents"; }
    python3 -S - <<'PY' || fail "the file has other sizes than expected"
import re, struct
data = open("kept.latents.safetensors", "rb").read()
end = 8 + struct.unpack("<Q", data[:8])[0]
head, tail = re.sub(rb'"weft.xxh3":"\w+",', b"", data[8:end].rstrip(b" ")), data[end:]  # without the checksum
for name, old, new in (("negative", b"[2,2,2,4]", b"[-2,-2,2,4]"), ("sound", b"[4,8]", b"[-4,-8]"),
                       ("large", b"[2,2,2,4]", b"[4294967296,4294967296,1,1]")):
    assert head.count(old) == 1, head
    changed = head.replace(old, new)
    changed += b" " * (-len(changed) % 8)
    open(name + ".safetensors", "wb").write(struct.pack("<Q", len(changed)) + changed + tail)
PY
    local name
    for name in negative:latents:-2 sound:sound:-4 large:latents:4294967296; do
        IFS=: read -r name key value <<<"$name"
        "$WEFT" generate --decode-latents "$name.safetensors" --model "$model" --out refused.mp4 >refused.log 2>&1 &&
            fail "$name: accepted"
        has_message refused.log latents-invalid file="$name.safetensors" key="$key" value="$value" || { cat refused.log; fail "$name: the error"; }
    done
    [ ! -e refused.mp4 ] || fail "a refused command wrote a video"
}
check sizes_that_do_not_fit_are_refused
finish
