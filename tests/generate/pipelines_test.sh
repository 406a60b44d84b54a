#!/bin/bash
# Pipelines in the folders that diffusers publishes give the latents of diffusers from the same
# noise, with a relative error below 3e-5. Makers: tools/golden_pipeline.py and
# tools/golden_*_pipeline.py.
. "$SRC/tests/check.sh"
same_latents() { # NAME [VARIANT]
    local name=$1 folder options variant=${2:+_$2} model
    folder=$SRC/tests/golden/pipelines/$name model=$name$variant
    local noise=$folder/noise$variant.npy
    # links to the files of the folder; a variant may replace the scheduler and the guider
    mkdir "$model"
    ln -s "$folder"/* "$model"
    mapfile -t options < <(python3 -S - "$folder/asked$variant.json" "$model" <<'PY'
import json, os, sys
variant = os.path.basename(sys.argv[1])[len("asked"):-len(".json")]
names = {"prompt": "--prompt", "negative": "--negative-prompt", "height": "--height", "width": "--width", "num_frames": "--frames",
         "num_inference_steps": "--steps", "guidance_scale": "--guidance-scale", "guidance_scale_2": "--guidance-scale-2",
         "frame_rate": "--fps", "strength": "--strength", "guide": "--guidance-method", "true_cfg_scale": "--true-cfg-scale",
         "guidance_rescale": "--guidance-rescale", "audio_guidance_scale": "--audio-guidance-scale",
         "max_sequence_length": "--max-sequence-length", "sigmas": "--sigmas", "timesteps": "--timesteps", "window": "--window",
         "sections": "--sections", "window_overlap": "--window-overlap", "window_mode": "--window-mode", "frame_lag": "--frame-lag",
         "block_frames": "--block-frames", "reasoning_frames": "--reasoning-frames", "reasoning_steps": "--reasoning-steps",
         "given_frames": "--given-frames", "kv_cache": "--kv-cache", "context_noise": "--context-noise", "control_scale": "--control-scale",
         "stage_steps": "--stage-steps", "first_section_steps": "--first-section-steps", "zero_steps": "--zero-init-steps"}
for key, value in json.load(open(sys.argv[1])).items():
    if key in ("scheduler", "guider"):
        os.remove(f"{sys.argv[2]}/{key}")
        os.mkdir(f"{sys.argv[2]}/{key}")
        json.dump(value, open(f"{sys.argv[2]}/{key}/{key}_config.json", "w"))
    else:
        print(names[key], ",".join(map(str, value)) if isinstance(value, list) else value, sep="\n")
for what in "image", "image2", "last_image", "video", "control", "face", "mask":
    path = os.path.join(os.path.dirname(sys.argv[1]), what + variant + ".png")
    if not os.path.exists(path) and "wan_animate" in sys.argv[2] and what in ("image", "control", "face"):
        path = os.path.join(os.path.dirname(sys.argv[1]), what + ".png")  # the same in all variants
    if os.path.exists(path):
        print("--" + what.strip("2").replace("_", "-"), path, sep="\n")
PY
    )
    [ -f "$noise" ] || noise=$folder/noise.npy
    # a video of several windows has frames, but no latents
    local what=latents
    ! grep -q '"window_mode": "continue"' "$folder/asked$variant.json" || what=frames
    "$WEFT" generate --model "$model" --init-latents "$noise" --$what-npy --out "$model.mp4" "${options[@]}" >"$model.log" 2>&1 ||
        { cat "$model.log"; fail "weft generate with $model"; }
    case $what in
    latents) compare "$model" "$folder/latents$variant.npy" "$model.latents.npy" ;;
    frames) compare "$model" "$folder/frames$variant.npy" "$model.npy" ;;
    esac
    if [ -f "$folder/audio_latents$variant.npy" ]; then
        compare "$model" "$folder/audio_latents$variant.npy" "$model.audio-latents.npy"
    fi
}
compare() { # NAME REFERENCE.npy OURS.npy
    python3 -S - "$@" <<'PY' || fail "$3 of $1"
import array, math, struct, sys
def load(path):
    data = open(path, "rb").read()
    head = 10 + struct.unpack("<H", data[8:10])[0]
    return eval(data[10:head])["shape"], array.array("f", data[head:])
(shape, theirs), (own, ours) = load(sys.argv[2]), load(sys.argv[3])
assert shape == own, (shape, own)
error = math.sqrt(sum((a - b) ** 2 for a, b in zip(theirs, ours)) / sum(a * a for a in theirs))
print(f"{sys.argv[1]}: {error:.2g} of the norm")
# f32 in every step on both sides; the timestep 1e-4 of given frames has an effect of 5e-6 to 1e-5
assert error < (4e-6 if sys.argv[1].startswith("cosmos2") else 3e-5), error
PY
}
for name in framepack wan22 hunyuan hunyuan_i2v hunyuan_replace flux chroma z_image qwen_image qwen_edit qwen_edit_plus flux2 flux2_klein hidream hunyuan_dit latte wan_i2v wan_flf wan_ti2v wan_over wan_vace wan_animate skyreels chronoedit ltx_i2v ltx_timed mochi cog_i2v cog_control flux_control cog15 cog15_i2v cosmos2 flux_schnell hunyuan_dit_11 hunyuan15 kandinsky5 \
    cosmos25 cosmos25_transfer sana sana_720 motif ltx2 ltx23 helios helios_mid helios_distilled causal_wan causal_wan_all osp15 osp13; do check $name same_latents $name; done
# variants: other settings of the same folders. The schedulers of Latte draw no noise.
for name in chronoedit/reasoning skyreels/lag skyreels/image skyreels/image2 skyreels/long skyreels/long_lag skyreels/video framepack/forward framepack/last hunyuan15/i2v flux/true_cfg flux/sigmas hunyuan/true_cfg cog15/dynamic_cfg latte/pndm latte/pndm_prk latte/euler latte/timesteps latte/lms latte/singlestep kandinsky5/i2v flux2/edit flux2/edits flux2_klein/edit flux2_klein/edits \
    cosmos25/image cosmos25/video cosmos25/video1 cosmos25_transfer/weak wan_vace/weak wan_animate/guided wan_animate/replace wan_animate/long wan_animate/long5 sana/empty sana/i2v sana_720/i2v motif/cfg motif/zero_star motif/zero_star2 motif/i2v ltx2/i2v ltx23/i2v ltx23/rescale helios/euler helios/image helios/video helios_mid/one helios_mid/image helios_mid/video helios_distilled/one helios_distilled/image helios_distilled/video causal_wan/guided causal_wan/listed causal_wan/off causal_wan/noisy causal_wan/short osp15/rescale osp13/empty; do
    check "${name/\//_}" same_latents "${name%/*}" "${name#*/}"
done
# Tokens of an image are split over ranks like the others. Adapters of Wan Animate have all tokens of some heads on each rank.
by_ranks() { # NAME VARIANT OPTIONS...
    local mpirun name=$1 variant=$2
    shift 2
    mpirun=$(command -v mpirun.openmpi || command -v mpirun) || skip "no mpirun"
    mkdir -p "by_ranks/$name.$variant.$*" && cd "by_ranks/$name.$variant.$*" || return
    printf '#!/bin/bash\nexec "%s" --oversubscribe -n 2 "%s" "$@" %s\n' "$mpirun" "$WEFT" "$*" >weft_by_ranks
    chmod +x weft_by_ranks
    WEFT=$PWD/weft_by_ranks same_latents "$name" ${variant:+"$variant"}
}
check flux2_edit_by_ranks by_ranks flux2 edit --parallel cp=2
check qwen_edit_plus_by_ranks by_ranks qwen_edit_plus "" --parallel cp=2
for axis in tp cp fsdp cfg; do check "motif_i2v_by_ranks_of_$axis" by_ranks motif i2v --parallel $axis=2; done
check motif_i2v_by_ranks_of_sp by_ranks motif i2v --parallel tp=2 --parallel sequence_parallel=true
check motif_i2v_by_ranks_of_ring by_ranks motif i2v --parallel cp=2 --parallel context=ring
for axis in tp cp fsdp cfg; do check "osp15_by_ranks_of_$axis" by_ranks osp15 "" --parallel $axis=2; done
check osp15_by_ranks_of_sp by_ranks osp15 "" --parallel tp=2 --parallel sequence_parallel=true
check osp15_by_ranks_of_ring by_ranks osp15 "" --parallel cp=2 --parallel context=ring
for axis in tp cp fsdp cfg; do check "osp13_by_ranks_of_$axis" by_ranks osp13 "" --parallel $axis=2; done
# Open-Sora-Plan: the frames as well, which the autoencoder decodes from latents with a factor and a shift per channel
frames_of() { # NAME FRAMES SCALE
    local folder=$SRC/tests/golden/pipelines/$1
    "$WEFT" generate --model "$folder" --init-latents "$folder/noise.npy" --frames-npy --out "$1_frames.mp4" --prompt "A Red cat walks and sleeps" \
        --negative-prompt blurry --height 32 --width 48 --frames "$2" --steps 5 --guidance-scale "$3" >"$1_frames.log" 2>&1 ||
        { cat "$1_frames.log"; fail "weft generate"; }
    compare "$1_frames" "$folder/frames.npy" "$1_frames.npy"
}
check frames_of_osp15 frames_of osp15 17 8
check frames_of_osp13 frames_of osp13 9 7.5
for axis in tp cp fsdp; do check "wan_animate_by_ranks_of_$axis" by_ranks wan_animate "" --parallel $axis=2; done
check wan_animate_by_ranks_of_ring by_ranks wan_animate "" --parallel cp=2 --parallel context=ring
check wan_animate_long5_by_ranks by_ranks wan_animate long5 --parallel cp=2
for axis in tp cp fsdp cfg; do check "helios_mid_by_ranks_of_$axis" by_ranks helios_mid "" --parallel $axis=2; done
check helios_mid_by_ranks_of_sp by_ranks helios_mid "" --parallel tp=2 --parallel sequence_parallel=true
check helios_mid_by_ranks_of_ring by_ranks helios_mid "" --parallel cp=2 --parallel context=ring
for axis in tp cp fsdp; do check "helios_distilled_by_ranks_of_$axis" by_ranks helios_distilled video --parallel $axis=2; done
finish
