#!/bin/bash
# Both stages of LongCat-Video: a coarse video is generated and refined. The refined video has twice its frames at twice its rate.
# Saved latents are decoded to the same frames. The option of block-sparse attention has the effect of the config. A folder without a
# scheduler prints its defaults. Golden files have the values (pipelines_test.sh).
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=1
folder=$SRC/tests/golden/pipelines
image=$folder/longcat/video_video.png
generate() { # OUT OPTIONS...
    "$WEFT" generate --model "${model:-$folder/longcat}" --prompt "a red cat" --seed 5 --out "$1.mp4" "${@:2}" >"$1.log" 2>&1 ||
        { cat "$1.log"; fail "weft generate ${*:2}"; }
}
# rate_and_frames FILE: frames per second, and frames
rate_and_frames() { ffprobe -v error -count_frames -show_entries stream=r_frame_rate,nb_read_frames -of csv=p=0 "$1"; }
expect_video() { [ "$(rate_and_frames "$1.mp4")" = "$2" ] || fail "$1 has $(rate_and_frames "$1.mp4"), not $2"; }
refined() { generate "$1" --refine coarse.mp4 --height 32 --width "${width-64}" --steps 20 "${@:2}"; }
frames_and_their_rate_double() {
    generate coarse --frames 5 --height 16 --width 32 --steps 1 --fps 12 --guidance-scale 1
    refined double
    expect_video double 24/1,10
    refined same --refine-frames same
    expect_video same 12/1,5
    width=48 refined some --fit crop --frames 6 --fps 10
    expect_video some 10/1,6
    has_message double.log job-report "text~=guidance 1" sampler=euler steps=3 || fail_with double.log "steps without guidance"
}
check frames_and_their_rate_double
# The frames before and after the video that complete blocks are dropped.
saved_latents_have_the_frames() {
    needs frames_and_their_rate_double
    refined saved --image "$image" --save-latents --frames-npy
    "$WEFT" generate --model "$folder/longcat" --decode-latents saved.latents.safetensors --frames-npy --out decoded.mp4 >decoded.log 2>&1 ||
        fail_with decoded.log "--decode-latents"
    cmp saved.npy decoded.npy || fail "other frames than the saved latents have"
    expect_video decoded 24/1,10
}
check saved_latents_have_the_frames
# Of a list of prompts, a line may have frames of its own, which the coarse video needs.
lines_have_their_own_frames() {
    needs frames_and_their_rate_double
    printf '%s\n' '{"prompt": "a", "frames": 6}' '{"prompt": "b"}' >list.jsonl
    "$WEFT" generate --model "$folder/longcat" --prompts list.jsonl --refine coarse.mp4 --height 32 --width 64 --steps 20 --out list >list.log 2>&1 ||
        fail_with list.log "a list of prompts"
    expect_video list/0000 24/1,6
    expect_video list/0001 24/1,10
    sed -i s/6/14/ list.jsonl
    expect_error video-input file=coarse.mp4 key=--refine value=5 -- "$WEFT" generate --model "$folder/longcat" --prompts list.jsonl \
        --refine coarse.mp4 --height 32 --width 64 --out more || fail "more frames than the coarse video has"
    # --resume, which opens its outputs early, has the same checks
    expect_error video-input file=coarse.mp4 key=--refine value=5 -- "$WEFT" generate --model "$folder/longcat" --prompts list.jsonl \
        --refine coarse.mp4 --height 32 --width 64 --out more --resume || fail "more frames than the coarse video has, with --resume"
}
check lines_have_their_own_frames
block_sparse_is_the_option_or_the_config() {
    cp -r "$folder/longcat_blocks" off
    sed -i 's/"enable_bsa": true/"enable_bsa": false/' off/dit/config.json
    local coarse=(--refine "$folder/longcat/refine_refine.png" --height 32 --width 48 --steps 20 --latents-npy)
    model=off generate on_by_option "${coarse[@]}" --block-sparse on
    model=$folder/longcat_blocks generate on_by_config "${coarse[@]}" --block-sparse config
    model=off generate off_by_config "${coarse[@]}"
    model=$folder/longcat_blocks generate off_by_option "${coarse[@]}" --block-sparse off
    cmp on_by_option.latents.npy on_by_config.latents.npy || fail "--block-sparse on"
    cmp off_by_option.latents.npy off_by_config.latents.npy || fail "--block-sparse off"
    ! cmp -s on_by_option.latents.npy off_by_option.latents.npy || fail "--block-sparse has no effect"
}
check block_sparse_is_the_option_or_the_config
# Saved states of other attention and other levels are not resumed.
other_settings_are_not_resumed() {
    needs block_sparse_is_the_option_or_the_config
    local coarse=(--model off --prompt "a red cat" --seed 5 --refine "$folder/longcat/refine_refine.png" --height 32 --width 48 --steps 20)
    "$WEFT" generate "${coarse[@]}" --save-latents --out kept.mp4 >kept.log 2>&1 || fail_with kept.log "weft generate"
    rm kept.mp4
    for other in "--block-sparse on" "--refine-level 0.6" "--refine-frames same"; do
        expect_error latents-mismatch -- "$WEFT" generate "${coarse[@]}" $other --resume --save-latents --out kept.mp4 || fail "resumed with $other"
    done
}
check other_settings_are_not_resumed
a_folder_without_a_scheduler_prints_defaults() {
    needs block_sparse_is_the_option_or_the_config
    rm -r off/scheduler
    model=off generate defaults --refine "$folder/longcat/refine_refine.png" --height 32 --width 48 --steps 4
    has_message defaults.log job-report file=off key=scheduler "text~=shift 1" || fail_with defaults.log "no notice"
    ! has_message off_by_config.log job-report key=scheduler 2>err || fail "a notice of a folder with a scheduler"
}
check a_folder_without_a_scheduler_prints_defaults
# Work on whole blocks (13 of 10 frames), without guidance, in the steps from the level on.
the_estimate_is_of_the_refinement() {
    local asked=(--model "$folder/longcat" --height 32 --width 48 --steps 20 --json)
    "$WEFT" estimate "${asked[@]}" --guidance-scale 1 --frames 13 >plain.json || fail "weft estimate"
    "$WEFT" estimate "${asked[@]}" --refine "$folder/longcat/refine_refine.png" >refined.json || fail "weft estimate --refine"
    python3 -S - <<'PY' || fail "the estimate of a refinement"
import json
plain, refined = (json.load(open(f"{name}.json")) for name in ("plain", "refined"))
steps = [(e["video_seconds"] - e["text_seconds"] - e["first_seconds"] - e["decode_seconds"]) / e["step_seconds"] for e in (plain, refined)]
assert abs(steps[0] - 20) < 1e-6 and abs(steps[1] - 3) < 1e-6, steps
assert all(plain[key] == refined[key] for key in ("step_seconds", "decode_seconds", "flops")), (plain, refined)
PY
}
check the_estimate_is_of_the_refinement
finish
