#!/bin/bash
# Causal Wan generates block by block. The cache of keys and values and the layout of the ranks do not change the latents. Frames of
# a block are decoded before the next block is denoised. The predicted memory of a window does not grow with the video.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=1
model=$SRC/tests/golden/pipelines/causal_wan
asked=(--prompt "a red cat" --height 32 --width 32 --frames 37 --steps 3 --seed 4)
generate() { # OUT OPTIONS...
    "${launch[@]}" "$WEFT" generate --model "${folder:-$model}" "${asked[@]}" --latents-npy --frames-npy --out "$1.mp4" "${@:2}" >"$1.log" 2>&1 ||
        { cat "$1.log"; fail "weft generate ${*:2}"; }
}
on_ranks() { # N OUT OPTIONS...
    local mpirun launch
    mpirun=$(command -v mpirun.openmpi || command -v mpirun) || skip "no mpirun"
    launch=("$mpirun" --oversubscribe -n "$1")
    generate "${@:2}"
}
launch=()
same() { # NAME NAME LIMIT: relative error of the latents; 0: the same bits
    python3 -S - "$@" <<'PY' || fail "latents of $1 and $2"
import array, struct, sys
def load(name):
    data = open(name + ".latents.npy", "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
one, other, limit = load(sys.argv[1]), load(sys.argv[2]), float(sys.argv[3])
error = (sum((a - b) ** 2 for a, b in zip(one, other)) / sum(a * a for a in one)) ** 0.5
print(f"{sys.argv[2]}: {error:.2g}")
assert len(one) == len(other) and error <= limit, error
PY
}
generate one --guidance-scale 2
# Products of other shapes sum in another order.
the_cache_does_not_change_the_video() {
    generate off --guidance-scale 2 --kv-cache off
    same one off 1e-6
}
check the_cache_does_not_change_the_video
context_noise_changes_it() {
    generate noisy --guidance-scale 2 --context-noise 100
    generate noisy_off --guidance-scale 2 --context-noise 100 --kv-cache off
    same noisy noisy_off 1e-6
    cmp -s one.latents.npy noisy.latents.npy && fail "--context-noise has no effect"
    # the model's own timestep; 0 replaces it
    cp -r "$model" trained && echo '{"context_noise": 100}' >trained/weft.json
    folder=trained generate own --guidance-scale 2
    same noisy own 0
    folder=trained generate clean --guidance-scale 2 --context-noise 0
    same one clean 0
}
check context_noise_changes_it
frames_come_before_the_end() {
    "$WEFT" generate --model "$model" "${asked[@]}" --guidance-scale 2 --save-latents --out kept.mp4 >kept.log 2>&1 || { cat kept.log; fail "--save-latents"; }
    "$WEFT" generate --model "$model" --decode-latents kept.latents.safetensors --frames-npy --out decoded.mp4 >decoded.log 2>&1 ||
        { cat decoded.log; fail "--decode-latents"; }
    cmp one.npy decoded.npy || fail "frames of blocks differ from frames of the finished latents"
    [ "$(message_field first_frame_seconds one.log job-report 'first_frame_seconds=?*')" ] || fail "no time of the first frame"
    has_message one.log job-report 'frames_per_second=?*' || fail "no frames per second"
    python3 -S - one.log <<'PY' || fail "the first frame is not reported before the last step"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
first = next(i for i, m in enumerate(lines) if "first_frame_seconds" in m.get("details", {}))
assert lines[first]["details"]["frames"] == 1, lines[first]
assert any("frames_per_second" in m.get("details", {}) for m in lines[first + 1:]), lines
PY
}
check frames_come_before_the_end
memory_is_constant_in_a_window() {
    local all=$SRC/tests/golden/pipelines/causal_wan_all asked=(--prompt "a red cat" --height 64 --width 64 --steps 1 --guidance-scale 1)
    generate short --frames 77
    generate long --frames 157
    folder=$all generate whole_short --frames 77
    folder=$all generate whole_long --frames 157
    local peaks=() name
    for name in short long whole_short whole_long; do peaks+=("$(message_field value "$name.log" job-report 'videos=?*')"); done
    echo "${peaks[@]}"
    [ "${peaks[0]}" = "${peaks[1]}" ] || fail "the window's memory grows: ${peaks[*]}"
    [ "${peaks[2]}" -lt "${peaks[3]}" ] || fail "the memory of all earlier blocks does not grow: ${peaks[*]}"
}
check memory_is_constant_in_a_window
layouts() {
    local axis
    for axis in cp=2 fsdp=2 cfg=2; do # sums of the same values in the same order
        on_ranks 2 "${axis%=*}" --guidance-scale 2 --parallel "$axis"
        same one "${axis%=*}" 0
    done
    on_ranks 2 tp --guidance-scale 2 --parallel tp=2
    same one tp 1e-5
    on_ranks 4 sp --guidance-scale 2 --parallel tp=2 --parallel sequence_parallel=true --parallel cfg=2
    same one sp 1e-5
    on_ranks 2 ring --guidance-scale 2 --parallel cp=2 --parallel context=ring --kv-cache off
    same one ring 1e-5
}
check layouts
refuse() { # OPTIONS...: of an option that causal models cannot have
    "$WEFT" generate --model "$model" "${asked[@]}" --out no "$@" >no.log 2>&1 && fail "$*: not refused"
    has_message no.log option-conflict "key=$1" || { cat no.log; fail "$*: another message"; }
}
refusals() {
    refuse --batch-size 2 --prompt "a blue cat"
    refuse --window 13
    refuse --feature-cache fast
    refuse --preview-interval 1
    "$WEFT" generate --model "$model" --prompt x --height 32 --width 32 --frames 33 --out no.mp4 >no.log 2>&1 && fail "frames that are not whole blocks"
    has_message no.log video-size key=--frames 'text~=number is 37' || { cat no.log; fail "the next number of frames"; }
    "$WEFT" generate --model "$SRC/tests/golden/pipelines/skyreels" --kv-cache off --frames 13 --height 32 --width 32 --prompt x --out no.mp4 >no.log 2>&1 &&
        fail "--kv-cache with a model that has none"
    "$WEFT" generate --model "$SRC/tests/golden/pipelines/skyreels" --context-noise 100 --frames 13 --height 32 --width 32 --prompt x --out no.mp4 >noise.log 2>&1 &&
        fail "--context-noise with a model that has no context"
    has_message noise.log option-no-effect key=--context-noise || { cat noise.log; fail "--context-noise without blocks"; }
    has_message no.log option-no-effect key=--kv-cache || { cat no.log; fail "--kv-cache without a cache"; }
}
check refusals
finish
