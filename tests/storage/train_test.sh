#!/bin/bash
# Training from a bucket: shards written to s3:// are byte for byte those of a folder, and batches
# and losses are bitwise identical, also with faults, with a cache and on two ranks.
. "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/storage/servers.sh"
start_s3 --quirks
export WEFT_CACHE=$PWD/cache
make_shards
write_configs
vae() { # vae RUN DATA [SET...]: trains a few steps
    "$WEFT" train vae.yaml --set out="$1" --set data.path="$2" --set stages.0.steps=6 "${@:3}" >"$1.log" 2>&1
}
shard_to_bucket() {
    "$WEFT" shard --in cur --out s3://bucket/set --set heldout=0 >log 2>&1 || { cat log; return 1; }
    local file
    for file in shards/*.tar shards/index.json; do
        cmp "$file" "data/bucket/set%2F${file#shards/}" || return 1
    done
    # again: nothing is written
    cp data/requests before
    "$WEFT" shard --in cur --out s3://bucket/set --set heldout=0 >log 2>&1 || { cat log; return 1; }
    ! tail -n "+$(($(wc -l <before) + 1))" data/requests | grep -E 'PUT .*\.tar '
}
check shard_to_bucket
folder() { vae folder shards && losses folder >folder.losses; }
check folder
bucket() {
    vae bucket s3://bucket/set && losses bucket | cmp - folder.losses
}
needs_folder() { needs folder shard_to_bucket; bucket; }
check bucket needs_folder
# Clips of a bucket without shards, also with faults.
raw_videos() {
    needs folder
    local file
    for file in $(cd cur && find clips metas -type f); do cp "cur/$file" "data/bucket/raw%2F${file//\//%2F}"; done
    fault "GET .mp4 cut" "GET .mp4 status 503" "GET list-type status 500" "GET .json drop"
    vae raw s3://bucket/raw || { cat raw.log; return 1; }
    no_fault_is_left
    losses raw | cmp - folder.losses && [ -s data/bucket/raw%2F.weft-videos.index ] || return 1
    # the stored index is read and not written again
    rm -rf cache
    cp data/requests before
    vae again s3://bucket/raw && losses again | cmp - folder.losses || return 1
    tail -n "+$(($(wc -l <before) + 1))" data/requests | grep -q 'GET .*weft-videos.index' &&
        ! tail -n "+$(($(wc -l <before) + 1))" data/requests | grep 'PUT .*weft-videos.index'
}
check raw_videos
faults() {
    needs folder shard_to_bucket
    rm -rf cache
    fault "GET .tar cut" "GET .tar status 503" "GET list-type status 500" "GET .tar drop"
    vae faults s3://bucket/set || { cat faults.log; return 1; }
    no_fault_is_left
    losses faults | cmp - folder.losses
}
check faults
# A refusal of the server ends the run; no other sample replaces the missing one.
refusals_end_the_run() {
    needs folder shard_to_bucket
    local kind
    for kind in "403 AccessDenied:storage-denied" "412 PreconditionFailed:file-changed"; do
        rm -rf cache no
        for i in $(seq 40); do echo "GET .tar code ${kind%:*}"; done >data/faults
        AWS_MAX_ATTEMPTS=1 expect_error "${kind#*:}" -- "$WEFT" train vae.yaml --set out=no --set data.path=s3://bucket/set \
            --set stages.0.steps=6 || return 1
        rm -f data/faults
    done
}
check refusals_end_the_run
# An index that may not be read is an error, also where a list or other objects may be read; a list
# that may not be read is reported, also if only the first one is refused.
refused_index() {
    needs folder shard_to_bucket
    rm -rf cache no
    for i in $(seq 20); do echo "GET .tar.index code 403 AccessDenied"; done >data/faults
    expect_error storage-denied 'file=s3://bucket/set/*.tar.index' -- "$WEFT" train vae.yaml --set out=no \
        --set data.path=s3://bucket/set --set stages.0.steps=1 || return 1
    rm -f data/faults
}
check refused_index
refused_list() {
    needs folder shard_to_bucket
    rm -rf cache no
    fault "GET list-type code 403 AccessDenied"
    "$WEFT" train vae.yaml --set out=no --set data.path=s3://bucket/set --set stages.0.steps=1 >log 2>&1
    no_fault_is_left
    has_message log storage-denied file=s3://bucket 'text~=s3:ListBucket'
}
check refused_list
two_ranks() {
    needs folder shard_to_bucket
    rm -rf cache
    ranks 2 "$WEFT" train vae.yaml --set out=two --set data.path=shards --set stages.0.steps=4 >two.log 2>&1 &&
        ranks 2 "$WEFT" train vae.yaml --set out=pair --set data.path=s3://bucket/set \
            --set stages.0.steps=4 >pair.log 2>&1 || { cat pair.log; return 1; }
    losses two >two.losses
    losses pair | cmp - two.losses
}
check two_ranks
one_shard() {
    needs folder shard_to_bucket
    vae one s3://bucket/set/train-000000.tar || { cat one.log; return 1; }
    cp -r data/bucket data/web # a folder of a web server
    vae braces "http://127.0.0.1:$s3_port/web/set/train-{000000..000000}.tar" || { cat braces.log; return 1; }
    losses one | cmp - folder.losses && losses braces | cmp - folder.losses
}
check one_shard
# weft.json of a pipeline in a bucket says what follows a first frame, as in a folder.
frames_after_the_first() {
    needs folder
    local file short=(--set condition=first_frame --set autoencoder.weights=folder/model/vae --set stages.0.frames=5 --set stages.0.steps=1
        --set stages.1.frames=5 --set stages.1.steps=1)
    "$WEFT" train dit.yaml "${short[@]}" --set out=zeros --set transformer.config.in_channels=12 \
        --set transformer.config.out_channels=4 >log 2>&1 || { cat log; return 1; }
    for file in weft.json transformer/config.json transformer/diffusion_pytorch_model.safetensors; do
        cp "zeros/model/$file" "data/bucket/zeros%2F${file//\//%2F}"
        case $file in transformer/*) cp "zeros/model/$file" "data/bucket/published%2F${file//\//%2F}" ;; esac
    done
    sed '/^transformer:/,/^text_encoders:/{/^text_encoders:/!d}' dit.yaml >weights.yaml
    for file in zeros published; do
        "$WEFT" train weights.yaml "${short[@]}" --set "out=after-$file" --set "transformer.weights=s3://bucket/$file/transformer/" >log 2>&1 ||
            { cat log; return 1; }
    done
    ! grep -q rest after-zeros/model/weft.json && grep -q '"rest": "grey"' after-published/model/weft.json
}
check frames_after_the_first
missing() {
    expect_error shards-not-found -- "$WEFT" train vae.yaml --set out=no --set data.path=s3://bucket/none || return 1
    expect_error storage-bucket -- "$WEFT" train vae.yaml --set out=no --set data.path=s3://missing/none
}
check missing
finish
