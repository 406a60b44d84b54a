#!/bin/bash
# Parts of a model's folder that decide the result are read completely: a missing file or folder and
# a wrong value are refused with the file and the key, before the denoising.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
golden=$SRC/tests/golden/pipelines
refused() { # ID [FIELD=VALUE...] -- ARGUMENTS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" generate --prompt x --out refused.mp4 --model fields "$@" >out.log 2>&1 && fail "$*: not refused"
    has_message out.log "${wanted[@]}" || { cat out.log; fail "$*: another message than expected"; }
}
value_is_refused() { # MODEL FILE FIELD VALUE NAMED-KEY ARGUMENTS...
    rm -rf fields && cp -r "$golden/$1" fields && chmod -R u+w fields
    python3 -S - "fields/$2" "$3" "$4" <<'PY'
import json, sys
path, field, value = sys.argv[1:]
config = json.load(open(path))
config[field] = json.loads(value)
json.dump(config, open(path, "w"))
PY
    refused '*' "file=fields/$2" "key=$5" -- "${@:6}"
}
folder_is_missed() { # MODEL FOLDER NAMED-KEY ARGUMENTS...
    rm -rf fields && cp -r "$golden/$1" fields && chmod -R u+w fields && rm -r "fields/$2"
    refused model-config file=fields "key=$3" -- "${@:4}"
}
edited=(--frames 1 --height 64 --width 96 --image "$golden/qwen_edit/image.png")
motif=(--frames 5 --height 32 --width 48)
for field in 'image_std [0.5,"x",0.5]' 'image_std [0.5,0,0.5]' 'image_mean [0.5]' 'max_pixels -1' 'min_pixels 999999' \
    'patch_size "14"' 'patch_size 14' 'resample 2' 'new_switch true'; do
    # shellcheck disable=SC2086 # two words
    check "processor_$(echo $field | tr -c 'a-z0-9\n' '_')" value_is_refused qwen_edit processor/preprocessor_config.json $field \
        "${field%% *}" "${edited[@]}"
done
check processor_without_sizes value_is_refused qwen_edit processor/preprocessor_config.json size '{}' shortest_edge "${edited[@]}"
check momentum_of_text value_is_refused motif guider/guider_config.json adaptive_projected_guidance_momentum '"0.1"' \
    adaptive_projected_guidance_momentum "${motif[@]}"
check clip_deviation_of_0 value_is_refused wan_i2v image_processor/preprocessor_config.json image_std '[0.5,0.5,0]' image_std \
    --frames 13 --height 32 --width 32 --image "$golden/wan_i2v/image.png"
check missing_guider folder_is_missed motif guider guider "${motif[@]}"
check missing_feature_extractor folder_is_missed motif feature_extractor feature_extractor "${motif[@]}" --image "$golden/motif/image_i2v.png"
check missing_image_processor folder_is_missed wan_i2v image_processor image_processor --frames 13 --height 32 --width 32 \
    --image "$golden/wan_i2v/image.png"
check missing_processor folder_is_missed qwen_edit processor processor/preprocessor_config.json "${edited[@]}"
# A text alone needs no processor of images.
a_text_needs_no_processor() {
    rm -rf fields && cp -r "$golden/motif" fields && chmod -R u+w fields && rm -r fields/feature_extractor
    "$WEFT" generate --prompt x --model fields "${motif[@]}" --steps 2 --out text.mp4 >text.log 2>&1 || { cat text.log; fail "a video from a text"; }
}
check a_text_needs_no_processor
finish
