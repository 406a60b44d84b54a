#!/bin/bash
# Videos that are denoised in parts resume bitwise after a kill in each step. Framepack and Helios have sections, which Helios-Mid and
# Helios-Distilled denoise in three sizes. SkyReels-V2 has blocks
# of frames with levels of their own, in two windows. ChronoEdit has steps with and without reasoning frames. Kandinsky 5 changes its
# first frames once, after the last step. The guider of Motif-Video averages over the steps. LongCat-Video fills its cache of given
# frames again, and ends with steps of its own; its refinement begins with the latents of a coarse video.
. "$SRC/tests/check.sh"
export OMP_NUM_THREADS=1
source "$SRC/tests/signal_at.sh"
folder=$SRC/tests/golden/pipelines
# resumes NAME STEPS OPTION...: each run is killed when it saves its first step
resumes() {
    local name=$1 steps=$2 kills=0
    local options=(--model "$folder/$1" --prompt "a red cat" --seed 5 --height "${height-32}" --latents-npy "${@:3}")
    "$WEFT" generate "${options[@]}" --out "$name.mp4" >"$name.log" 2>&1 || { cat "$name.log"; fail "$name without a kill"; }
    until signal_at KILL "*killed-$name.sampling.safetensors" "$WEFT" generate "${options[@]}" ${split---split-states} --resume \
        --out "killed-$name.mp4" >"$name.log" 2>&1; do
        [ -e "killed-$name.sampling.safetensors" ] || { cat "$name.log"; fail "$name has no saved state"; }
        [ $((kills += 1)) -le "$steps" ] || { cat "$name.log"; fail "$name does not end"; }
    done
    [ $kills -ge $((steps - 1)) ] || fail "$name was killed $kills times, not after each of $steps steps"
    cmp "$name.latents.npy" "killed-$name.latents.npy" || fail "$name differs after its resumes"
}
resumes_64() { height=64 resumes "$@"; }
check sections resumes framepack 4 --image "$folder/framepack/image.png" --window 12 --frames 25 --width 48 --steps 2
check sections_after_an_image resumes helios 6 --image "$folder/helios/image_image.png" --window 9 --frames 27 --width 48 --steps 2
check sizes_of_latents resumes_64 helios_mid 8 --image "$folder/helios_mid/image_image.png" --window 9 --frames 18 --width 128 --stage-steps 2,1,1 \
    --zero-init-steps 1
without_split() { split='' resumes_64 "$@"; } # the cache belongs to a batch
check sizes_of_latents_with_a_cache without_split helios_mid 14 --window 9 --frames 18 --width 128 --steps 7 --feature-cache every:2
check distilled_sizes_of_latents resumes_64 helios_distilled 9 --window 9 --frames 18 --width 128 --steps 3 --first-section-steps double
check levels resumes skyreels 5 --window 13 --window-overlap 5 --window-mode history --frames 21 --frame-lag 1 --steps 2 --width 32
check reasoning resumes chronoedit 3 --image "$folder/chronoedit/image.png" --frames 5 --reasoning-frames 17 --reasoning-steps 1 --steps 3 \
    --width 32
check blocks resumes causal_wan 4 --frames 13 --width 32 --steps 2 --guidance-scale 1
check blocks_without_cache resumes causal_wan 4 --frames 13 --width 32 --steps 2 --guidance-scale 1 --kv-cache off
check settled resumes kandinsky5 2 --image "$folder/kandinsky5/image_i2v.png" --frames 21 --steps 2 --width 48
check average resumes motif 3 --frames 5 --steps 3 --width 48
given=(--video "$folder/longcat/video_video.png" --given-frames 9 --frames 21 --width 48 --steps 3 --tail-steps 2)
check given_frames resumes longcat 4 "${given[@]}"
check given_frames_without_cache resumes longcat 4 "${given[@]}" --kv-cache off
check given_blocks resumes longcat_blocks 4 --video "$folder/longcat/video_video.png" --given-frames 13 --frames 29 --width 48 --steps 3 --tail-steps 2
coarse=(--refine "$folder/longcat/refine_refine.png" --width 48 --steps 20)
check refinement resumes longcat 3 "${coarse[@]}"
check refinement_after_an_image resumes longcat_blocks 3 "${coarse[@]}" --image "$folder/longcat/video_video.png"
finish
