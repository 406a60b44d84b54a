#!/bin/bash
# Runs that begin with the models of a published folder (tests/golden/pipelines), with all weights and with LoRA of the default layers:
# `weft generate` accepts the finished folder, and the folder with the adapter makes another video. The folder has all parts that its
# generation needs.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards 4
make_pictures
run() { # NAME OUT OPTIONS...
    "$WEFT" train "$1.yaml" --set "out=runs/$2" "${@:3}" >"$2.log" 2>&1 || { cat "$2.log"; fail "weft train $1 ${*:3}"; }
}
published_config() { # NAME FRAMES
    local name=$1 folder="$SRC/tests/golden/pipelines/$1" encoders
    encoders=$(ls -d "$folder"/text_encoder*)
    [ "$name" != flux ] || encoders=$(ls -dr "$folder"/text_encoder*) # the first one gives the pooled vector
    echo "autoencoder: {weights: $folder/vae}"
    echo "data: {path: shards, latents: latents}"
    echo "transformer: {weights: $folder/transformer}"
    echo "text_encoders:"
    printf '  - {weights: %s}\n' $encoders
    echo "checkpoint: {interval: 0}"
    echo "stages: [{steps: 1, batch: 2, frames: $2, height: 32, width: 32, lr: 1e-2, warmup_steps: 0, lr_schedule: constant}]"
}
published() { # NAME FRAMES GENERATE-OPTIONS...
    local name=$1
    published_config "$name" "$2" >"$name.yaml"
    run "$name" "$name"
    run "$name" "$name-lora" --set transformer.lora.rank=2 --set stages.0.steps=2
    for video in base adapted; do
        "$WEFT" generate --model "runs/$name/model" --prompt cat --steps 2 --latents-npy --out $video.mp4 "${@:3}" >generate.log 2>&1 || { cat generate.log; fail "weft generate with $name: $video"; }
        set -- "$@" --lora "runs/$name-lora/adapter"
    done
    ! cmp -s base.latents.npy adapted.latents.npy || fail "the adapter of $name has no effect"
}
# Framepack needs its image encoder, and videos of whole sections.
framepack() {
    published framepack 5 --image red.png
    has_message framepack.log run-finished "next=*--image FILE*" || fail_with framepack.log "the next command has no image"
    for part in image_encoder feature_extractor; do
        diff -r "$SRC/tests/golden/pipelines/framepack/$part" "runs/framepack/model/$part" || fail "$part is not the published one"
    done
    python3 -S -c 'import json
index, frames = json.load(open("runs/framepack/model/model_index.json")), json.load(open("runs/framepack/model/weft.json"))["frames"]
assert index["image_encoder"] == ["transformers", "SiglipVisionModel"] and "feature_extractor" in index and frames == 37, (index, frames)' ||
        fail "model_index.json or weft.json"
    # without one next to the weights, the run warns
    mkdir alone && cp -r "$SRC/tests/golden/pipelines/framepack/transformer" alone
    run framepack lonely --set transformer.weights=alone/transformer
    has_message lonely.log model-not-found level=warning key=image_encoder || fail_with lonely.log "the missing image encoder is not reported"
    # an unusable one is as none; weights in the form of torch are copied
    mkdir alone/image_encoder && echo '{"_class_name": "Other"}' >alone/image_encoder/config.json
    run framepack unusable --set transformer.weights=alone/transformer
    has_message unusable.log model-not-found level=warning key=image_encoder || fail_with unusable.log "the unusable image encoder is not reported"
    rm -r alone/image_encoder && cp -r "$SRC/tests/golden/pipelines/framepack/image_encoder" alone
    mv alone/image_encoder/model.safetensors alone/image_encoder/pytorch_model.bin
    run framepack torch --set transformer.weights=alone/transformer
    cmp alone/image_encoder/pytorch_model.bin runs/torch/model/image_encoder/pytorch_model.bin || fail "pytorch_model.bin is not copied"
}
check framepack
# Sections with their history (condition: history): of 4 frames after a first one, or of 5 frames that are videos of their own.
history() { # NAME FRAMES WINDOW
    published_config "$1" "$2" >"$1_history.yaml"
    sed -i 's/steps: 1,/steps: 4,/' "$1_history.yaml"
    printf 'condition: history\nhistory: {window: %s}\n' "$3" >>"$1_history.yaml"
    resumes_bitwise "$1_history"
    run "$1_history" "$1_history-lora" --set transformer.lora.rank=2
}
history_layouts() { # CONFIG OPTIONS..., each for a layout of two ranks
    local options
    for options in "${@:2}"; do
        # shellcheck disable=SC2086 # several options
        layout "$1" 2 $options
    done
}
section_video() { # CONFIG NAME FRAMES OPTIONS...
    "$WEFT" generate --model "runs/$1/model" --prompt cat --steps 2 --frames "$3" --latents-npy --out "$2.mp4" "${@:4}" >generate.log 2>&1 || { cat generate.log; fail "weft generate with $1 ${*:3}"; }
}
# The finished model has the length of its sections. Its order is the one of the training.
framepack_history() {
    history framepack 9 4
    section_video framepack_history plain 13 --image red.png
    section_video framepack_history reverse 13 --image red.png --window 4
    section_video framepack_history adapted 13 --image red.png --lora runs/framepack_history-lora/adapter
    cmp plain.latents.npy reverse.latents.npy || fail "the default is another length of the sections"
    ! cmp -s plain.latents.npy adapted.latents.npy || fail "the adapter has no effect"
    train framepack_history forward --set history.sections=forward
    ! cmp -s <(losses runs/framepack_history) <(losses runs/forward) || fail "the order has no effect"
    section_video forward forward 13 --image red.png
    section_video forward same 13 --image red.png --sections forward
    section_video forward turned 13 --image red.png --sections reverse
    cmp forward.latents.npy same.latents.npy || fail "the default is another order of the sections"
    ! cmp -s forward.latents.npy turned.latents.npy || fail "--sections has no effect"
    # a later training of the model has its sections, unless the config names others
    train framepack_history further --set transformer.weights=runs/forward/model/transformer --set history.window=0 --set stages.0.steps=1
    cmp runs/forward/model/weft.json runs/further/model/weft.json || fail "a later training has other sections"
    train framepack_history back --set transformer.weights=runs/forward/model/transformer --set history.sections=reverse --set stages.0.steps=1
    grep -q '"sections"' runs/back/model/weft.json && fail "history.sections has no effect on a later training"
    has_message framepack_history-lora.log run-finished "next=*--window 4 --sections reverse*" || fail_with framepack_history-lora.log "the next command has other sections"
    "$WEFT" generate --model runs/forward/model --prompt cat --steps 2 --image red.png --last-image blue.png --out last.mp4 >last.log 2>&1 && fail "a last image: not refused"
    has_message last.log option-conflict key=--last-image || fail_with last.log "a last image: another message"
}
helios_history() {
    history helios 10 5
    section_video helios_history one 15
    section_video helios_history two 15 --image red.png
    ! cmp -s one.latents.npy two.latents.npy || fail "the image has no effect"
    "$WEFT" generate --model runs/helios_history/model --prompt cat --frames 13 --out other.mp4 >other.log 2>&1 && fail "13 frames: not refused"
    has_message other.log video-size key=--frames value=13 || fail_with other.log "13 frames: another message"
}
# Predicted memory counts the history: the program reserves the predicted bytes, and the peak is within 5 %, with cached latents.
history_memory() { # CONFIG
    needs "$1"
    python3 "$SRC/tests/train/estimate/compare_memory.py" "$WEFT" "$1" "$1.yaml" --set "out=runs/$1-memory" --set stages.0.steps=1 ||
        fail "$1: predicted memory"
}
history_refusals() {
    refuse_run framepack_history config-value key=stages.0 value=5 -- --set stages.0.frames=5 --set history.window=8
    refuse_run framepack_history config-value key=stages.0 value=9 -- --set history.window=0
    refuse_run framepack_history config-value key=history.window value=6 -- --set history.window=6
    refuse_run framepack_history config-no-effect key=history.window -- --set condition=none
    refuse_run framepack_history config-conflict key=distill.method -- --set distill=lcm
    refuse_run framepack_history config-conflict key=parallel.cascades -- --set parallel.cascades.plan=every-iteration
    refuse_run helios_history config-value key=history.sections -- --set history.sections=reverse
    refuse_run helios_history config-value key=history.window value=6 -- --set history.window=6
    refuse_run helios_history config-value key=stages.0 value=11 -- --set stages.0.frames=11
    refuse_run helios_history config-conflict key=autoencoder.tile -- --set autoencoder.tile=16
    refuse_run wan22 model-input-unsupported key=condition value=history -- --set condition=history
}
check framepack_history
check framepack_history_layouts history_layouts framepack_history '--set parallel.tp=2 --set parallel.sequence_parallel=true' '--set parallel.pp=2 --set parallel.microbatches=2'
check helios_history
check helios_history_layouts history_layouts helios_history '--set parallel.cp=2' '--set parallel.dp=2 --set parallel.zero=2'
check framepack_history_memory history_memory framepack_history
check helios_history_memory history_memory helios_history
check cosmos2 published cosmos2 5 --image red.png
check hidream published hidream 1
# Four encoders, of which one gives all its layers.
hidream_in_few_steps() {
    needs hidream
    for method in "lcm" "dmd2 --set distill.student_steps=4 --set transformer.lora.rank=2"; do
        run hidream "hidream-${method%% *}" --set distill.guidance=3 --set distill.method=$method
    done
    for video in "--model runs/hidream-lcm/model" "--model runs/hidream/model --lora runs/hidream-dmd2/adapter"; do
        "$WEFT" generate $video --prompt cat --out few.mp4 >generate.log 2>&1 || fail_with generate.log "weft generate $video"
        has_message generate.log job-report "text~=4 steps of consistency, guidance 1;" || fail_with generate.log "$video has other settings"
    done
}
check hidream_in_few_steps
check flux published flux 1
# index_has NAME KEY...: model_index.json of the run has these entries of the published folder
index_has() {
    python3 -S - "$SRC/tests/golden/pipelines/$1/model_index.json" "runs/$1/model/model_index.json" "${@:2}" <<'PY' || fail "model_index.json of $1"
import json, sys
base, own = (json.load(open(f)) for f in sys.argv[1:3])
for key in sys.argv[3:]:
    assert key in base and own.get(key) == base[key], (key, base.get(key), own.get(key))
PY
}
# The other expert and the time at which the experts change. A run of the low-noise expert is a model of its own.
wan22() {
    published wan22 5
    index_has wan22 boundary_ratio transformer_2
    diff -r "$SRC/tests/golden/pipelines/wan22/transformer_2" runs/wan22/model/transformer_2 || fail "the other expert"
    run wan22 low --set "transformer.weights=$SRC/tests/golden/pipelines/wan22/transformer_2"
    [ ! -e runs/low/model/transformer_2 ] && ! grep -q boundary_ratio runs/low/model/model_index.json || fail "the low-noise expert as the high-noise one"
    # only the weights were copied, and their index is damaged
    mkdir alone
    cp -r "$SRC/tests/golden/pipelines/wan22/transformer" alone
    cp "$SRC/tests/golden/pipelines/wan22/model_index.json" alone
    run wan22 alone --set transformer.weights=alone/transformer/
    [ ! -e runs/alone/model/transformer_2 ] && ! grep -q transformer_2 runs/alone/model/model_index.json || fail "an expert that is not there"
    echo '{' >alone/model_index.json
    run wan22 damaged --set transformer.weights=alone/transformer
    has_message damaged.log text-damaged file=alone/transformer/../model_index.json || fail_with damaged.log "a damaged index without a warning"
}
check wan22
check history_refusals
# The class by which the model edits images, and the processor of its images.
qwen_edit() {
    published qwen_edit 1 --image red.png
    index_has qwen_edit _class_name processor
    has_message qwen_edit.log run-finished "next=*--image FILE*" || fail_with qwen_edit.log "the next command has no image"
}
check qwen_edit
flux2_klein() {
    published flux2_klein 1
    index_has flux2_klein _class_name is_distilled
}
check flux2_klein
guider() {
    published motif 5
    index_has motif guider
    diff -r "$SRC/tests/golden/pipelines/motif/guider" runs/motif/model/guider || fail "the guider"
}
check guider
finish
