#!/bin/bash
# weft generate from the command line: sampler, guidance and shift each change the video, and new
# folders are created. Invalid options, models and prompts are refused before the denoising, with
# the place and the remedy.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >train.log 2>&1 && "$WEFT" train dit.yaml >>train.log 2>&1 || { cat train.log; fail "weft train"; }
model=runs/dit/model
make_video() { "$WEFT" generate --model $model --prompt "a red circle moving left" --steps 3 "$@" >out.log 2>&1 || { cat out.log; fail "weft generate $*"; }; }
every_option_changes_the_video() {
    for sampler in euler heun; do
        for guidance in 1 3; do
            for shift in 1 5; do
                make_video --sampler $sampler --guidance-scale $guidance --shift $shift --frames-npy --sheet sheets/deep/x.png \
                    --out new/folder/$sampler-$guidance-$shift.mp4
            done
        done
    done
    [ "$(cat new/folder/*.npy | wc -c)" -gt 0 ] && [ -s sheets/deep/x.png ] || fail "no files"
    [ "$(md5sum new/folder/*.npy | cut -d' ' -f1 | sort -u | wc -l)" = 8 ] || { md5sum new/folder/*; fail "an option has no effect"; }
}
check every_option_changes_the_video
# Temporary files of a killed run with these names are removed; those of other processes stay.
leftovers_of_a_killed_run_are_removed() {
    needs every_option_changes_the_video
    dead=$(bash -c 'echo $$')
    mkdir videos
    touch again.mp4.tmp.$dead again.npy.tmp.$dead other.mp4.tmp.$dead again.mp4.tmp.$$ videos/0007.mp4.tmp.$dead
    make_video --sampler heun --guidance-scale 3 --shift 5 --frames-npy --out again.mp4
    make_video --out videos
    [ "$(echo *.tmp.* videos/*)" = "again.mp4.tmp.$$ other.mp4.tmp.$dead videos/0000.mp4 videos/prompts.jsonl" ] ||
        fail "other files than expected: $(echo *.tmp.* videos/*)"
    cmp again.npy new/folder/heun-3-5.npy || fail "the same options gave another video"
}
check leftovers_of_a_killed_run_are_removed

# refuse ID [FIELD=VALUE...] -- ARGUMENTS...: refused with this message; refused.mp4 is not written
refuse() { check "refuses $*" refused "$@"; }
refused() {
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" generate --prompt x --out refused.mp4 "$@" >out.log 2>&1
    local status=$?
    [ $status != 0 ] && has_message out.log "${wanted[@]}" || fail "$*: another message than expected"
    ! is_progress out.log || fail "weft generate $*: refused after the work"
    [ ! -e refused.mp4 ] || fail "weft generate $*: refused, but a video was written"
}
refuse model-not-found file=nowhere -- --model nowhere
refuse config-unknown-key key=foo 'text~=unknown key; known: dp,' -- --model $model --parallel foo=2
refuse video-size key=--frames value=9 'text~=number is 13' -- --model "$SRC/tests/golden/pipelines/skyreels" --frames 9 --height 64 --width 64
# without diffusion forcing; an image that is the whole video
cp -r "$SRC/tests/golden/pipelines/skyreels" plain_skyreels
sed -i 's/SkyReelsV2DiffusionForcing/SkyReelsV2/' plain_skyreels/model_index.json
refuse model-input-unsupported key=--frame-lag -- --model plain_skyreels --frames 13 --height 32 --width 32 --frame-lag 2
refuse video-size key=--frames value=1 'text~=at least 5' -- --model "$SRC/tests/golden/pipelines/skyreels" --frames 1 --height 32 --width 32 --block-frames 1 --image "$SRC/tests/golden/pipelines/skyreels/image_image.png"
# Blocks of LongCat-Video's tokens have 4 latent frames; given frames and all frames have whole blocks.
blocks=$SRC/tests/golden/pipelines/longcat_blocks
refuse video-size key=--frames value=21 'text~=number is 29' -- --model "$blocks" --frames 21 --height 32 --width 48
refuse video-size key=--image value=1 -- --model "$blocks" --frames 29 --height 32 --width 48 --image "$blocks/video_video.png"
refuse video-size key=--given-frames value=9 'text~=--given-frames 13' -- --model "$blocks" --frames 29 --height 32 --width 48 --video "$blocks/video_video.png" --given-frames 9
# Refinement: a model and a coarse video that can be refined, and no option that it excludes.
coarse=$SRC/tests/golden/pipelines/longcat/refine_refine.png still=$SRC/tests/golden/pipelines/longcat/video_video.png
echo "not a video" >text.mp4
longcat=(--model "$SRC/tests/golden/pipelines/longcat" --height 32) refine=("${longcat[@]}" --width 48 --refine "$coarse")
refuse model-input-unsupported key=--refine 'text~=LongCatVideoTransformer3DModel' -- --model $model --refine "$coarse"
refuse model-input-unsupported key=--block-sparse value=on -- --model $model --block-sparse on
refuse option-no-effect key=--refine-level -- --model $model --refine-level 0.5
refuse option-no-effect key=--refine-frames -- --model $model --refine-frames same
for level in 0 1.5; do refuse option-invalid key=--refine-level value=$level -- "${refine[@]}" --refine-level $level; done
refuse option-invalid key=--refine-frames value=triple -- "${refine[@]}" --refine-frames triple
for option in block-sparse kv-cache sections first-section-steps; do refuse option-invalid key=--$option value=maybe -- --model $model --$option maybe; done
refuse video-size key=--frames value=9 'text~=is odd' -- "${refine[@]}" --frames 9
refuse video-size key=--frames value=2 'text~=two frames' -- "${refine[@]}" --frames 2
refuse video-size key=--width value=40 -- "${longcat[@]}" --refine "$coarse" --width 40
refuse video-input file="$coarse" key=--refine value=5 'text~=needs 7' -- "${refine[@]}" --frames 14
refuse video-input file="$still" key=--refine value=1 -- "${longcat[@]}" --width 48 --refine "$still"
refuse video-unreadable file=text.mp4 -- "${longcat[@]}" --width 48 --refine text.mp4
refuse video-input file="$coarse" key=--refine 'text~=36x24' -- "${longcat[@]}" --refine "$coarse" --width 64
refuse video-size key=--given-frames value=10 -- "${refine[@]}" --video "$still" --given-frames 10
refuse option-conflict key=--given-frames -- "${refine[@]}" --video "$still" --given-frames 5 --image "$still"
refuse option-conflict key=--video 'text~=--given-frames' -- "${refine[@]}" --video "$coarse"
for other in "--strength 0.5" "--tail-steps 3" "--window 9" "--window-mode history" "--frame-lag 1" "--control $coarse" "--face $coarse" "--mask $coarse" "--last-image $coarse"; do
    refuse option-conflict key=${other% *} -- "${refine[@]}" $other
done
other_blocks() { # NAME SIDES THRESHOLD: the folder with other parameters
    cp -r "$blocks" "$1"
    sed -i "s/\"sparsity\"/\"cdf_threshold\": $3, \"sparsity\"/" "$1/dit/config.json"
    python3 -S -c 'import json, sys; c = json.load(open(sys.argv[1])); c["bsa_params"]["chunk_3d_shape_k"] = json.loads(sys.argv[2]); json.dump(c, open(sys.argv[1], "w"))' \
        "$1/dit/config.json" "$2"
}
other_blocks thresholds '[4, 1, 1]' 0.5
other_blocks sides '[4, 2, 1]' null
refuse model-config-unsupported key=cdf_threshold -- --model thresholds --frames 29 --height 32 --width 48
refuse model-config key=bsa_params.chunk_3d_shape_k value=2 -- --model sides --frames 29 --height 32 --width 48
refuse option-invalid key=--timesteps value=x -- --model $model --timesteps 999,x
refuse option-invalid key=--timesteps value=500 -- --model $model --timesteps 400,500
refuse option-invalid key=--sigmas value=-1 -- --model $model --sigmas 1,-1
refuse option-invalid key=--sigmas value=0 -- --model $model --sigmas 0
refuse option-conflict key=--steps -- --model $model --sigmas 1,0.5 --steps 2
refuse option-conflict key=--timesteps -- --model $model --sigmas 1,0.5 --timesteps 999,500
refuse sampling-invalid key=sigmas value=1.5 'text~=at most 1' -- --model $model --sigmas 1.5,0.5
refuse sampling-invalid key=timesteps value=1200 -- --model $model --timesteps 1200,500
# an image to edit is not a frame of the result
flux2=(--model "$SRC/tests/golden/pipelines/flux2" --frames 1 --height 64 --width 96 --image "$SRC/tests/golden/pipelines/flux2/image_edit.png")
refuse option-conflict key=--video -- "${flux2[@]}" --video "$SRC/tests/golden/pipelines/flux2/image_edit.png"
refuse model-input-unsupported key=--last-image 'text~=edits the image' -- "${flux2[@]}" --last-image "$SRC/tests/golden/pipelines/flux2/image_edit.png"
one=$SRC/tests/golden/pipelines/chronoedit/image.png
refuse model-input-unsupported key=--image 'text~=takes one image' -- --model "$SRC/tests/golden/pipelines/chronoedit" --frames 5 --height 32 --width 32 --image "$one" --image "$one"
# the strength of a control needs a control, and a model with control blocks
refuse option-no-effect key=--control-scale value=0.5 -- --model "$SRC/tests/golden/pipelines/wan_vace" --frames 9 --height 32 --width 32 --control-scale 0.5
refuse model-input-unsupported key=--control-scale value=0.5 -- --model "$SRC/tests/golden/pipelines/flux_control" --frames 1 --height 64 --width 96 --control x.png --control-scale 0.5
a_given_schedule_is_used() {
    local given=(--model $model --prompt "a red circle moving left" --frames-npy)
    "$WEFT" generate "${given[@]}" --sigmas 1,0.6,0.2,0 --out given.mp4 >out.log 2>&1 || fail "--sigmas"
    has_message out.log job-report "text~=3 steps" || fail "the number of steps"
    "$WEFT" generate "${given[@]}" --timesteps 1000,600,200 --out times.mp4 >out.log 2>&1 || fail "--timesteps"
    make_video --frames-npy --out own.mp4
    ! cmp -s given.npy own.npy || fail "--sigmas has no effect"
    ! cmp -s times.npy own.npy || fail "--timesteps has no effect"
}
check a_given_schedule_is_used
# options that the guidance method does not use
refuse option-no-effect key=--negative-prompt value=blurry -- --model $model --guidance-scale 1 --negative-prompt blurry
refuse model-input-unsupported key=--guidance-method value=true_cfg -- --model $model --true-cfg-scale 3
refuse option-no-effect key=--true-cfg-scale -- --model $model --guidance-method cfg --true-cfg-scale 3
refuse text-encoder-mismatch key=max_length value=8 -- --model $model --max-sequence-length 8
flux=$SRC/tests/golden/pipelines/flux
refuse model-input-unsupported key=--control -- --model $flux --frames 1 --height 64 --width 96 --control x.png
framepack=$SRC/tests/golden/pipelines/framepack skyreels=$SRC/tests/golden/pipelines/skyreels
refuse option-no-effect key=--sections -- --model $model --sections forward
refuse model-input-unsupported key=--frame-lag -- --model $model --frame-lag 2
refuse model-input-unsupported key=--reasoning-frames -- --model $model --reasoning-frames 9 --reasoning-steps 1
refuse video-size key=--frames value=17 'text~=possible number is 25' -- --model "$framepack" --image x.png --window 12 --frames 17 --height 32 --width 32
refuse option-conflict key=--last-image -- --model "$framepack" --image x.png --last-image x.png --sections forward --window 12 --frames 13 --height 32 --width 32
# weakened passes: a model with perturbed attention, blocks of the model, and a scale
ltx2=(--model "$SRC/tests/golden/pipelines/ltx2" --frames 9 --height 64 --width 64 --max-sequence-length 32)
refuse model-input-unsupported key=--stg-scale -- --model $model --stg-scale 1 --stg-blocks 1
refuse model-input-unsupported key=--modality-scale -- --model $model --modality-scale 3
refuse option-required key=--stg-blocks -- "${ltx2[@]}" --stg-scale 1
refuse option-no-effect key=--stg-blocks -- "${ltx2[@]}" --stg-blocks 1
refuse option-invalid key=--stg-blocks value=1,x -- "${ltx2[@]}" --stg-scale 1 --stg-blocks 1,x
refuse model-shape "text~=blocks 0 to 1, and block 2" -- "${ltx2[@]}" --stg-scale 1 --stg-blocks 0,2
refuse option-conflict key=--modality-scale -- "${ltx2[@]}" --modality-scale 3 --guidance-method apg
# rescaling of the sound, without the method or without sound
refuse option-no-effect key=--audio-guidance-rescale value=0.5 "text~=not rescale" -- "${ltx2[@]}" --guidance-method cfg --audio-guidance-rescale 0.5
refuse option-no-effect key=--audio-guidance-rescale "text~=no sound" -- --model $model --guidance-method rescale --audio-guidance-rescale 0.5
for scale in guidance-scale guidance-rescale stg-scale modality-scale; do
    refuse option-no-effect key=--audio-$scale -- --model $model --audio-$scale 0.5
done
helios=$SRC/tests/golden/pipelines/helios
refuse video-size key=--frames value=20 "text~=generates 9 n frames" -- --model "$helios" --window 9 --frames 20 --height 32 --width 32
refuse video-size key=--given-frames value=10 "text~=9 n frames" -- --model "$helios" --video x.png --given-frames 10 --window 9 --frames 18 --height 32 --width 32
refuse option-no-effect key=--sections -- --model "$helios" --sections forward --window 9 --frames 18 --height 32 --width 32
refuse model-input-unsupported key=--video -- --model "$helios" --video x.png --window 9 --frames 18 --height 32 --width 32
refuse model-input-unsupported key=--last-image -- --model "$helios" --last-image x.png --window 9 --frames 18 --height 32 --width 32
# refuse_scheduler KEY EXPRESSION: a scheduler that the expression of sed changes
refuse_scheduler() {
    rm -rf other_helios && cp -r "$helios" other_helios
    sed -i "$2" other_helios/scheduler/scheduler_config.json
    refuse scheduler-unsupported key=$1 -- --model other_helios --window 9 --frames 18 --height 32 --width 32
}
refuse_scheduler stages 's/"stages": 1/"stages": 3/'
refuse_scheduler 'stages value=5' 's/"stages": 1/"stages": 5/'
refuse_scheduler 'stages value=1' 's/"HeliosScheduler"/"HeliosDMDScheduler"/; /predict_x0/d; /disable_corrector/d; /solver/d; /thresholding/d; /scheduler_type/d; /lower_order/d'
refuse_scheduler prediction_type 's/"flow_prediction"/"epsilon"/'
refuse_scheduler scheduler_type 's/"unipc"/"dmd"/'
refuse_scheduler shift 's/"shift": 1.0/"shift": 3.0/'
refuse_scheduler lower_order_final 's/"lower_order_final": true/"lower_order_final": false/'
refuse option-no-effect key=--stage-steps -- --model "$helios" --stage-steps 2,2,2 --window 9 --frames 18 --height 32 --width 32
refuse option-no-effect key=--first-section-steps -- --model "$helios" --first-section-steps double --window 9 --frames 18 --height 32 --width 32
# Helios-Mid and Helios-Distilled: sizes of latents, their steps and their scheduler
mid=(--model "$SRC/tests/golden/pipelines/helios_mid" --window 9 --frames 18 --width 128)
refuse video-size key=--height value=96 'text~=multiple of 64, which 3 sizes' -- "${mid[@]}" --height 96
refuse option-invalid key=--stage-steps value=2 'text~=3 sizes' -- "${mid[@]}" --height 64 --stage-steps 2,2
refuse option-invalid key=--stage-steps -- "${mid[@]}" --height 64 --stage-steps 2,0,2
refuse option-invalid key=--stage-steps -- "${mid[@]}" --height 64 --stage-steps 2,2,2,2,2
refuse option-conflict key=--steps -- "${mid[@]}" --height 64 --stage-steps 2,2,2 --steps 6
refuse option-invalid key=--steps value=2 -- "${mid[@]}" --height 64 --steps 2
refuse option-conflict key=--guidance-end -- "${mid[@]}" --height 64 --guidance-end 0.5
refuse option-conflict key=--sigmas -- "${mid[@]}" --height 64 --sigmas 1,0.5,0
refuse option-no-effect key=--first-section-steps -- "${mid[@]}" --height 64 --first-section-steps double
refuse option-no-effect key=--zero-init-steps -- "${mid[@]}" --height 64 --zero-init-steps 1 --guidance-method cfg
refuse_mid() { # KEY CLASS FILE EXPRESSION
    rm -rf other_mid && cp -r "${mid[1]}" other_mid
    sed -i "$4" "other_mid/$3"
    refuse "$2" key=$1 -- --model other_mid --window 9 --frames 18 --height 64 --width 128
}
refuse_mid stages model-config scheduler/scheduler_config.json 's/"stages": 3/"stages": 1/'
refuse_mid stages scheduler-unsupported model_index.json 's/HeliosPyramidPipeline/HeliosPipeline/'
refuse_mid gamma model-config scheduler/scheduler_config.json 's/"gamma": 0.33*,/"gamma": 0.5,/'
refuse_mid stage_range scheduler-unsupported scheduler/scheduler_config.json 's/"stages": 3/"stages": 4/'
refuse_mid 'stage_range text~=rise' scheduler-unsupported scheduler/scheduler_config.json 's/0.66*,/0.2,/'
refuse_mid shift scheduler-unsupported scheduler/scheduler_config.json 's/"shift": 1.0/"shift": 2.0/'
refuse video-size key=--frames value=37 'text~=29 + 24 n' -- --model "$skyreels" --window-mode history --window 29 --window-overlap 5 --frames 37 --height 32 --width 32
refuse option-conflict key=--video -- --model "$skyreels" --frame-lag 1 --video x.png --frames 13 --height 32 --width 32
refuse model-input-unsupported key=--frame-lag -- --model "$framepack" --image x.png --frame-lag 1 --window 12 --frames 13 --height 32 --width 32
refuse model-input-unsupported key=--window-mode -- --model "$framepack" --image x.png --window-mode history --window 12 --frames 13 --height 32 --width 32
refuse option-conflict key=--feature-cache -- --model "$skyreels" --frame-lag 1 --feature-cache fast --frames 13 --height 32 --width 32
refuse option-conflict key=--control -- --model "$SRC/tests/golden/pipelines/wan_vace" --frames 9 --height 32 --width 32 --video x.png --control x.png
# Wan Animate: what its poses, face and background need, and what it has no meaning for
animate=$SRC/tests/golden/pipelines/wan_animate
moved=(--model "$animate" --height 32 --width 32 --guidance-scale 1 --image "$animate/image.png" --control "$animate/control.png")
refuse video-input key=--face -- "${moved[@]}" --frames 9
refuse video-input key=--mask -- "${moved[@]}" --frames 9 --face "$animate/face.png" --video "$animate/video_replace.png"
refuse model-input-unsupported key=--window-mode -- "${moved[@]}" --frames 9 --face "$animate/face.png" --window 5
refuse video-size key=--window-overlap -- "${moved[@]}" --face "$animate/face.png" --frames 13 --window 9 --window-overlap 2 --window-mode continue
vace=(--model "$SRC/tests/golden/pipelines/wan_vace" --frames 9 --height 32 --width 32 --reference-image "$SRC/tests/golden/pipelines/wan_vace/reference_image_reference.png")
refuse option-conflict key=--video -- "${vace[@]}" --video x.png
refuse option-conflict key=--window -- "${vace[@]}" --window 5
refuse option-conflict key=--window-mode -- "${vace[@]}" --window 5 --window-mode continue
printf 'P6 7 40 255\n%840s' "" >narrow.ppm
refuse video-input key=--reference-image 'text~=7x40' -- "${vace[@]}" --reference-image narrow.ppm
refuse model-input-unsupported key=--reference-image -- --model $flux --frames 1 --height 64 --width 96 --reference-image x.png
refuse model-input-unsupported key=--reference-image -- "${moved[@]}" --frames 9 --reference-image x.png
refuse model-input-unsupported key=--face -- --model "$SRC/tests/golden/pipelines/wan_vace" --frames 9 --height 32 --width 32 --face "$animate/face.png"
refuse option-no-effect key=--negative-prompt 'text~=--true-cfg-scale' -- --model $flux --frames 1 --height 64 --width 96 --negative-prompt blurry
refuse option-required key=--true-cfg-scale -- --model $flux --frames 1 --height 64 --width 96 --guidance-method true_cfg
refuse option-invalid key=--max-sequence-length value=513 -- --model $flux --frames 1 --height 64 --width 96 --max-sequence-length 513
a_negative_prompt_of_a_list_has_an_effect() {
    echo '{"prompt": "x", "negative": "blurry", "guidance": 1}' >list.jsonl
    "$WEFT" generate --model $model --prompts list.jsonl --out listed >out.log 2>&1 && fail "a negative prompt without effect is accepted"
    has_message out.log option-no-effect file=list.jsonl line=1 key=negative value=blurry
}
check a_negative_prompt_of_a_list_has_an_effect
a_missing_file_is_named() { # PART
    local part=$1 file
    for file in config.json '*.safetensors'; do
        rm -rf part
        cp -r $model part
        rm part/$part/$file
        refused model-not-found "file=part/$part" -- --model part
    done
}
for part in transformer text_encoder vae; do check "a_missing_file_of_${part}_is_named" a_missing_file_is_named $part; done
# Truncated weights, and weights with a changed bit, are named before the work.
damaged_weights_are_named() { # PART
    local part=$1 how
    for how in cut data header zeros; do
        rm -rf part
        cp -r $model part
        python3 -S - part/$part/*.safetensors $how <<'PY'
import struct, sys
path, how = sys.argv[1:]
data = bytearray(open(path, "rb").read())
start = 8 + struct.unpack("<Q", data[:8])[0]
if how == "cut":
    del data[len(data) * 2 // 3:]
elif how == "data":
    data[start + (len(data) - start) // 2] ^= 1
elif how == "header":
    data[data.index(b'"pt"') + 1] ^= 1
else:
    data[start + 1000:start + 1256] = bytes(256)
open(path, "wb").write(data)
PY
        refused '*' "text~=part/$part/" text~=.safetensors: -- --model part
    done
}
for part in transformer text_encoder vae; do check "damaged_weights_of_${part}_are_named" damaged_weights_are_named $part; done
rm -rf part && cp -r $model part && rm part/weft.json
refuse video-size file=part text~=weft.json 'text~=--frames, --height and --width' -- --model part
refuse video-size key=--width text~=30 text~=16, text~=32 -- --model $model --width 30
refuse video-size key=--height text~=3 text~=16 -- --model $model --height 3
refuse option-invalid key=--fps text~=1e-09 text~=0.01 -- --model $model --fps 1e-9
refuse file-name file=x.jpg text~=.png -- --model $model --sheet x.jpg
printf '# no prompt\n\n' >none.txt
refuse job-invalid file=none.txt -- --model $model --prompts none.txt
a_folder_as_video_is_refused() {
    mkdir folder.mp4
    "$WEFT" generate --model $model --prompt x --steps 1 --out folder.mp4 >folder.log 2>&1 && fail "a folder is accepted as --out folder.mp4"
    has_message folder.log file-exists file=folder.mp4 && ! is_progress folder.log || { cat folder.log; fail "the error of a folder as video"; }
}
check a_folder_as_video_is_refused
refuse video-size key=--frames 'text~=1 + 4 n frames, not 6;' text~=5 -- --model $model --frames 6
# CogVideoX: the user's number and the nearest possible ones
for frames in '10 9' '47 49'; do
    refuse video-size key=--frames "text~=not ${frames% *};" "text~=the nearest is ${frames#* }" -- --model "$SRC/tests/golden/pipelines/cog15" --frames "${frames% *}" --height 32 --width 32
done
refuse option-invalid key=--sampler "text~='foo'" 'text~=euler, heun' -- --model $model --sampler foo
refuse option-invalid key=--guidance-scale text~=nan 'text~=0 to 100' -- --model $model --guidance-scale nan
printf '\n# two of them\n {"prompt": "x", "steps": 0}\n' >behind.txt # JSON after a comment
refuse json-value file=behind.txt line=3 key=steps text~=0 -- --model $model --prompts behind.txt
# prompts that are not UTF-8 text, and one that is longer than max_length
refuse prompt-invalid file=--prompt line=2 -- --model $model --prompt "$(printf 'a\377')"
printf 'a dog\n\na\0cat\n' >nul.txt
refuse prompt-invalid file=nul.txt line=3 -- --model $model --prompts nul.txt
a_truncated_prompt_is_reported() {
    "$WEFT" generate --model $model --steps 1 --out long.mp4 --prompt "$(printf '%0300d' 0)" >long.log 2>&1 || { cat long.log; fail "generating from a long prompt"; }
    has_message long.log prompt-truncated 'text~=prompt 1' 'text~=300 bytes' || fail "the truncated prompt is not reported"
}
check a_truncated_prompt_is_reported
a_byte_order_mark_is_skipped() {
    printf '\357\273\277a red circle moving left\n' >bom.txt
    "$WEFT" generate --model $model --steps 2 --prompts bom.txt --out bom >bom.log 2>&1 || { cat bom.log; fail "generating from a prompt after a byte order mark"; }
    grep -q '"prompt":"a red circle moving left"' bom/prompts.jsonl || grep -q '"prompt": "a red circle moving left"' bom/prompts.jsonl || { cat bom/prompts.jsonl; fail "the byte order mark is in the prompt"; }
}
check a_byte_order_mark_is_skipped
# A field that weft does not implement is named in every file of a model's folder.
other_fields_are_refused() { # PIPELINE FILE KEY VALUE OPTIONS...
    local pipeline=$1 file=$2 key=$3 value=$4
    shift 4
    rm -rf fields && cp -r "$SRC/tests/golden/pipelines/$pipeline" fields && chmod -R u+w fields
    python3 -S - "fields/$file" "$key" "$value" <<'PY'
import json, sys
path, key, value = sys.argv[1:]
fields = json.load(open(path))
fields[key] = json.loads(value)
json.dump(fields, open(path, "w"))
PY
    refused '*-unsupported' "file=fields/$file" "key=$key" -- --model fields --frames 13 --height 32 --width 32 "$@"
}
for field in 'hunyuan15 guider/guider_config.json guidance_rescale 0.5' 'hunyuan15 guider/guider_config.json _class_name "SkipLayerGuidance"' \
    'hunyuan15 guider/guider_config.json new_switch true' 'motif guider/guider_config.json adaptive_projected_guidance_norm_dim [-1]' \
    'motif guider/guider_config.json start 0.5' 'motif guider/guider_config.json new_switch true' 'motif transformer/config.json qk_norm "layer_norm"' \
    'hunyuan15 transformer/config.json new_switch true' \
    'hunyuan15 vae/config.json new_switch true' 'hunyuan15 text_encoder/config.json new_switch true' \
    'hunyuan15 scheduler/scheduler_config.json new_switch true' \
    'mochi model_index.json force_zeros_for_empty_prompt true' 'mochi model_index.json new_switch 1'; do
    # shellcheck disable=SC2086 # four words
    check "other_field_$(echo $field | tr ' /' '__')" other_fields_are_refused $field
done
for field in 'new_switch true' 'resample 1' 'do_center_crop false' 'rescale_factor 0.5'; do
    # shellcheck disable=SC2086 # two words
    check "other_field_preprocessor_${field/ /_}" other_fields_are_refused wan_i2v image_processor/preprocessor_config.json $field \
        --image "$SRC/tests/golden/pipelines/wan_i2v/image.png"
done
other_formats_are_refused() {
    "$WEFT" generate --model $model --prompt x --steps 1 --out foo.avi >avi.log 2>&1 && fail "--out foo.avi"
    "$WEFT" generate --model $model --prompt x --steps 1 --out foo.png >png.log 2>&1 && fail "--out foo.png"
    has_message png.log file-name file=foo.png && [ ! -e foo.png ] || { cat png.log; fail "--out foo.png"; }
    has_message avi.log file-name file=foo.avi text~=.mp4 && [ ! -e foo.avi ] || { cat avi.log; fail "--out foo.avi"; }
}
check other_formats_are_refused
refuse model-not-found file=runs/dit text~=runs/dit/model -- --model runs/dit
touch plain
refuse file-io file=plain -- --model $model --sheet plain/x.png
# Only rank 0 writes. Its failure ends the other rank at once.
a_failure_of_rank_0_ends_the_others() {
    ranks 2 "$WEFT" generate --model $model --prompt x --steps 2 --out plain/x.mp4 >out.log 2>&1 && fail "2 ranks: exit code 0"
    has_message out.log file-io file=plain || fail "2 ranks: the error is not reported"
    [ "$(count_messages out.log rank-failed 'value=?*')" = 0 ] || { cat out.log; fail "2 ranks: the other rank waited for its deadline"; }
}
check a_failure_of_rank_0_ends_the_others
a_full_disk_is_reported() {
    if [ "$(id -u)" = 0 ] && mkdir full && mount -t tmpfs -o size=4k tmpfs full 2>/dev/null; then
        "$WEFT" generate --model $model --prompt x --steps 2 --frames-npy --out full/x.mp4 >full.log 2>&1
        status=$?
        left=$(ls -A full | grep -vx 'x\.\(sampling\|latents\)\.safetensors') # the files from which --resume resumes
        umount full
        [ $status = 1 ] && has_message full.log disk-full text~=full/x || fail "a full disk: status $status"
        [ -z "$left" ] || fail "files are left on the full disk: $left"
    else
        skip "no tmpfs can be mounted"
    fi
}
check a_full_disk_is_reported
finish
