#!/bin/bash
# Runs and models in a bucket: `out` and weights of weft train, and models of other verbs. Losses,
# models and videos are bitwise equal to folders. Whatever is cut or killed, a checkpoint in the
# bucket is complete or not visible, and no step that was saved is lost.
. "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/storage/servers.sh"
start_s3 --quirks
export WEFT_CACHE=$PWD/cache WEFT_COPIES=$PWD/copies
make_shards
write_configs
run=(env) # exec: in the process of the caller
vae() { # vae OUT [SET...]: trains a few steps, with a checkpoint after each 2
    "${run[@]}" "$WEFT" train vae.yaml --set out="$1" --set checkpoint.interval=2 --set checkpoint.keep_latest=2 \
        --set stages.0.steps=6 --set stages.0.lr_schedule=constant --set stages.0.warmup_steps=0 "${@:2}"
}
steps_in_bucket() { # steps_in_bucket RUN: steps of the visible checkpoints
    (cd data/bucket && ls) | sed -n "s/^$1%2Fcheckpoints%2Fstep-0*\([0-9]*\)%2Fstate.json$/\1/p" | tr '\n' ' '
}
# from_bucket PREFIX TO: writes its objects as files, as another client sees them.
from_bucket() {
    local object name
    for object in data/bucket/"$1"%2F*; do
        name=${object#data/bucket/"$1"%2F}
        name=$2/${name//%2F//}
        mkdir -p "${name%/*}" && cp "$object" "$name" || return 1
    done
}
tensors_are_equal() { # tensors_are_equal A B: the same safetensors files
    local file
    [ -n "$(cd "$1" && find . -name '*.safetensors')" ] || return 1
    (cd "$1" && find . -name '*.safetensors') | sort | while read -r file; do cmp "$1/$file" "$2/$file" || exit 1; done
}
folder() { vae folder >folder.log 2>&1 || { cat folder.log; return 1; }; losses folder >folder.losses; }
check folder
bucket() {
    needs folder
    vae s3://bucket/run >run.log 2>&1 || { cat run.log; return 1; }
    from_bucket run seen && losses seen | cmp - folder.losses || return 1
    tensors_are_equal folder/model seen/model && [ "$(steps_in_bucket run)" = "4 6 " ] || return 1
    tensors_are_equal folder/checkpoints seen/checkpoints || return 1
    grep -q "^out:.*s3://bucket/run" seen/checkpoints/step-00000006/config.yaml &&
        ! grep -rq "$WEFT_COPIES" seen --include=config.yaml || return 1
    # nothing hidden, no lock, no temporary file
    ! (cd data/bucket && ls) | grep -E '%2F\.|\.tmp\.|%2Flock$'
}
check bucket
# The last object of each checkpoint is its state.json, and it is the first one to be removed.
order() {
    needs bucket
    python3 -IS - <<'PY'
import re, urllib.parse
steps, gone = {}, {}
for line in open("data/requests"):
    method, path, status, _ = line.split()
    match = re.search(r"/run/checkpoints/(step-\d+)/(.*)", urllib.parse.unquote(path).split("?")[0])
    if match and status.startswith("2") and method in ("PUT", "POST"):
        steps.setdefault(match[1], []).append(match[2])
    if match and method == "DELETE":
        gone.setdefault(match[1], []).append(match[2])
assert sorted(steps) == ["step-00000002", "step-00000004", "step-00000006"], steps
assert all(names[-1] == "state.json" and names.count("state.json") == 1 for names in steps.values()), steps
assert list(gone) == ["step-00000002"] and gone["step-00000002"][0] == "state.json", gone
PY
}
check order
# Another machine continues the run; its losses are bitwise equal to a run without a break.
other_machine() {
    needs folder
    vae s3://bucket/moved --set stages.0.steps=4 >log 2>&1 || { cat log; return 1; }
    WEFT_COPIES=$PWD/copies2 vae s3://bucket/moved >log 2>&1 || { cat log; return 1; }
    from_bucket moved moved && losses moved | cmp - folder.losses || return 1
    tensors_are_equal folder/model moved/model || return 1
    # the first machine sees that, and has nothing to do; a longer run continues there
    vae s3://bucket/moved --set stages.0.steps=8 >log 2>&1 || { cat log; return 1; }
    rm -rf moved && from_bucket moved moved && losses moved | head -n 6 | cmp - folder.losses &&
        [ "$(steps_in_bucket moved)" = "6 8 " ]
}
check other_machine
# A cleaner of caches removes files of the working folder: the bucket keeps them, and the run continues.
lost_files() {
    needs folder
    local -x WEFT_COPIES=$PWD/copies3
    vae s3://bucket/lost --set stages.0.steps=4 >log 2>&1 || { cat log; return 1; }
    (cd data/bucket && ls lost%2F*) >objects
    rm -r copies3/out-*/files
    vae s3://bucket/lost --set stages.0.steps=4 >log 2>&1 || { cat log; return 1; }
    (cd data/bucket && ls lost%2F*) | cmp - objects || return 1
    vae s3://bucket/lost >log 2>&1 || { cat log; return 1; }
    from_bucket lost lost && losses lost | cmp - folder.losses && [ "$(steps_in_bucket lost)" = "4 6 " ]
}
check lost_files
# The server refuses a file of the second checkpoint: the checkpoint is not visible, training continues
# and the next one is complete.
refused_file() {
    needs folder
    fault "PUT step-00000004%2Foptimizer code 403 AccessDenied" "PUT step-00000004/optimizer code 403 AccessDenied"
    vae s3://bucket/refused >log 2>&1 || { cat log; return 1; }
    has_message log storage-send level=warning && [ "$(steps_in_bucket refused)" = "4 6 " ] || { cat log; return 1; }
    from_bucket refused refused && losses refused | cmp - folder.losses && tensors_are_equal folder/checkpoints refused/checkpoints
}
check refused_file
cut() {
    needs folder
    fault "PUT step-00000002 drop" "PUT step-00000002 close" "PUT step-00000004 status 503" "PUT state.json close" \
        "GET list-type cut"
    vae s3://bucket/cut >log 2>&1 || { cat log; return 1; }
    no_fault_is_left
    from_bucket cut cut && losses cut | cmp - folder.losses && tensors_are_equal folder/checkpoints cut/checkpoints
}
check cut
# The run ends while nothing can be written. The error is clear, nothing is visible, and the same
# command on this machine sends what is missing without training again.
no_server() {
    needs folder
    for i in $(seq 200); do echo "PUT /down code 403 AccessDenied"; done >data/faults
    expect_error storage-denied -- vae s3://bucket/down || return 1
    rm data/faults
    [ -z "$(steps_in_bucket down)" ] || return 1
    vae s3://bucket/down >log 2>&1 || { cat log; return 1; }
    from_bucket down down && losses down | cmp - folder.losses && tensors_are_equal folder/checkpoints down/checkpoints
}
check no_server
# Killed while it sends the files of the second checkpoint: only the first one is visible. The same
# machine then continues from the second, another one from the first.
killed() {
    needs folder
    local machine
    for machine in copies copies3; do
        fault "PUT step-00000004 hold"
        (run=(exec); vae "s3://bucket/killed$machine") >log 2>&1 &
        until [ -e data/held ]; do kill -0 $! 2>/dev/null || fail_with log "the run ended"; sleep 0.05; done
        kill -9 $!
        wait $! 2>/dev/null
        rm data/held
        [ "$(steps_in_bucket "killed$machine")" = "2 " ] || { steps_in_bucket "killed$machine"; return 1; }
        WEFT_COPIES=$PWD/$machine vae "s3://bucket/killed$machine" >log 2>&1 || { cat log; return 1; }
        [ "$(message_field value log run-resumed)" = "$([ $machine = copies ] && echo 4 || echo 2)" ] || { cat log; return 1; }
        from_bucket "killed$machine" "killed$machine" && losses "killed$machine" | cmp - folder.losses || return 1
        tensors_are_equal folder/checkpoints "killed$machine/checkpoints" || return 1
    done
}
check killed
# Another machine writes to the same place between two sends: the run reports the other writer and sends nothing more.
two_writers() {
    needs folder
    fault "PUT step-00000002%2Fstate.json hold" "PUT step-00000002/state.json hold"
    (run=(exec); vae s3://bucket/shared) >log 2>&1 &
    until [ -e data/held ]; do kill -0 $! 2>/dev/null || fail_with log "the run ended"; sleep 0.05; done
    cp folder/checkpoints/step-00000006/state.json data/bucket/shared%2Fcheckpoints%2Fstep-00000006%2Fstate.json
    rm data/held data/faults
    ! wait $! || { cat log; return 1; }
    has_message log storage-send level=warning && has_message log folder-locked level=error || { cat log; return 1; }
    [ "$(steps_in_bucket shared)" = "2 6 " ] && ! (cd data/bucket && ls) | grep shared.*step-00000004
}
check two_writers
two_ranks() {
    ranks 2 "$WEFT" train vae.yaml --set out=two --set stages.0.steps=4 >log 2>&1 || { cat log; return 1; }
    ranks 2 "$WEFT" train vae.yaml --set out=s3://bucket/two --set stages.0.steps=4 >log 2>&1 || { cat log; return 1; }
    from_bucket two pair && losses two >two.losses && losses pair | cmp - two.losses && tensors_are_equal two/checkpoints pair/checkpoints
}
check two_ranks
# A denoiser whose autoencoder and whose own weights are in the bucket, and generation from there.
models() {
    needs bucket
    local sets=(--set stages.1.steps=1 --set stages.0.steps=3 --set seed=5)
    "$WEFT" train dit.yaml --set out=dit --set autoencoder.weights=folder/model/vae "${sets[@]}" >log 2>&1 || { cat log; return 1; }
    "$WEFT" train dit.yaml --set out=s3://bucket/dit --set autoencoder.weights=s3://bucket/run/model/vae "${sets[@]}" >log 2>&1 || { cat log; return 1; }
    from_bucket dit seen_dit && losses dit >dit.losses && losses seen_dit | cmp - dit.losses || return 1
    local words=(--prompt "a red ball" --frames 5 --height 16 --width 16 --steps 2 --seed 3)
    "$WEFT" generate --model dit/model --out videos "${words[@]}" >log 2>&1 || { cat log; return 1; }
    fault "GET .safetensors cut" "GET .safetensors status 503" "GET config.json drop"
    "$WEFT" generate --model s3://bucket/dit/model --out videos2 "${words[@]}" >log 2>&1 || { cat log; return 1; }
    no_fault_is_left
    cmp videos/*.mp4 videos2/*.mp4 || return 1
    # the second time only the list is requested
    cp data/requests before
    "$WEFT" generate --model s3://bucket/dit/model --out videos3 "${words[@]}" >log 2>&1 && cmp videos/*.mp4 videos3/*.mp4 || return 1
    ! tail -n "+$(($(wc -l <before) + 1))" data/requests | grep -v 'GET .*list-type' || return 1
    "$WEFT" eval vae --model folder/model/vae --shards shards --split train --json a.json --frames 5 --height 16 --width 16 >log 2>&1 &&
        "$WEFT" eval vae --model s3://bucket/run/model/vae --shards shards --split train --json b.json --frames 5 --height 16 --width 16 >log 2>&1 ||
        { cat log; return 1; }
    python3 -S -c 'import json; a, b = (json.load(open(f + ".json"))["psnr"] for f in "ab"); assert a == b, (a, b)' || return 1
    # a file next to the model would change the copy
    expect_error storage-location key=--model -- "$WEFT" eval int8 --model s3://bucket/dit/model
}
check models
# A new version of an object gives a new copy, and a model that was replaced is never mixed.
versions() {
    needs models
    local config=data/bucket/dit%2Fmodel%2Fmodel_index.json
    echo >>$config
    "$WEFT" generate --model s3://bucket/dit/model --out videos4 --prompt "a red ball" --frames 5 --height 16 --width 16 --steps 2 \
        --seed 3 >log 2>&1 && cmp videos/*.mp4 videos4/*.mp4 || { cat log; return 1; }
    [ "$(ls copies | grep -c '^in-')" -ge 3 ] || return 1
    # a copy that does not fit replaces the copies that no process uses
    echo >>$config
    WEFT_COPIES_BYTES=1 "$WEFT" generate --model s3://bucket/dit/model --out videos5 --prompt "a red ball" --frames 5 --height 16 \
        --width 16 --steps 2 --seed 3 >log 2>&1 && [ "$(ls copies | grep -c '^in-')" = 1 ]
}
check versions
errors() {
    expect_error file-not-found -- "$WEFT" generate --model s3://bucket/nothing --out no --prompt x || return 1
    expect_error storage-bucket -- "$WEFT" train vae.yaml --set out=s3://missing/run || return 1
    expect_error storage-location -- "$WEFT" train vae.yaml --set out=https://127.0.0.1/run || return 1
    : >'data/bucket/evil%2F..%2F..%2Fescaped'
    expect_error file-name -- "$WEFT" generate --model s3://bucket/evil --out no --prompt x || return 1
    [ ! -e escaped ]
}
check errors

# The reply to the end of an upload has another ETag than later replies, as with rclone.
written_and_read() {
    head -c 20000000 /dev/urandom >large
    "$WEFT_BUILD/test-tools/store" s3://bucket/parts echo a <large | cmp - large
}
check written_and_read
finish
