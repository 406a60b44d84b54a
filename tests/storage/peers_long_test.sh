#!/bin/bash
# Objects of the aws client in both directions, owners, curation, training runs, models and latents in buckets of three independent servers: juicefs gateway, rclone
# serve s3 and moto, if they are in the PATH. Results are bitwise equal to folders. `make test-long`.
. "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/storage/servers.sh"
[ "${WEFT_TEST_LONG-}" ] || skip "make test-long runs it"
PATH=$WEFT_BUILD/test-tools:$PATH
unset AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3
export WEFT_CACHE=$PWD/cache HOME=$PWD/home AWS_MAX_ATTEMPTS=4
mkdir -p home
pids=() # servers
trap 'kill "${pids[@]}" ${moto_process-} 2>/dev/null' EXIT
free_port() { python3 -IS -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# wait_for PORT: a server listens.
wait_for() {
    local i
    for i in $(seq 300); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return 0
        sleep 0.1
    done
    fail "no server at port $1"
}
# Each sets the variables of the AWS tools. The bucket is `bucket`.
start_juicefs() {
    local port
    port=$(free_port)
    juicefs format --storage file --bucket "$PWD/juice/" --trash-days 0 "sqlite3://$PWD/meta.db" test >juice.log 2>&1 || fail_with juice.log "format"
    MINIO_ROOT_USER=testkey1 MINIO_ROOT_PASSWORD=testsecret12 juicefs gateway --no-bgjob --backup-meta 0 --no-usage-report --multi-buckets \
        --keep-etag --object-meta --no-banner --cache-dir "$PWD/juice-cache" --log "$PWD/gw.log" --metrics "127.0.0.1:$(free_port)" \
        "sqlite3://$PWD/meta.db" "127.0.0.1:$port" >juice.log 2>&1 &
    pids+=($!)
    wait_for "$port"
    export AWS_ENDPOINT_URL_S3=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=testkey1 AWS_SECRET_ACCESS_KEY=testsecret12
}
start_rclone() {
    local port
    port=$(free_port)
    mkdir -p rcl
    rclone serve s3 --config /dev/null --addr "127.0.0.1:$port" --auth-key testkey1,testsecret12 --vfs-cache-mode off rcl >rclone.log 2>&1 &
    pids+=($!)
    wait_for "$port"
    export AWS_ENDPOINT_URL_S3=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=testkey1 AWS_SECRET_ACCESS_KEY=testsecret12
}
start_moto_server() {
    unset AWS_ENDPOINT_URL_S3
    start_moto
    pids+=("$moto_process")
    trap 'kill "${pids[@]}" 2>/dev/null' EXIT # start_moto has set another one
}
aws_s3() { aws --endpoint-url "${AWS_ENDPOINT_URL_S3-$AWS_ENDPOINT_URL}" s3 "$@" >aws.log 2>&1 || { cat aws.log; return 1; }; }

# ---- the same in folders
"$WEFT" synth --out set --shots 6 --seed 3 --held-out-clips 0 >log 2>&1 || fail_with log "synth"
mkdir -p footage/deep
cp set/train/* footage/
cp "$(find footage -name '*.mp4' | sort | head -n 1)" "footage/deep/a copy.mp4"
sets=(--set clips.preset=ultrafast --set workers=2)
"$WEFT" curate --in footage --out out "${sets[@]}" >log 2>&1 || fail_with log "curate"
make_shards
write_configs
vae() {
    "$WEFT" train vae.yaml --set out="$1" --set checkpoint.interval=2 --set checkpoint.keep_latest=1 --set stages.0.steps="$2" \
        --set stages.0.lr_schedule=constant --set stages.0.warmup_steps=0
}
vae folder 4 >log 2>&1 || fail_with log "train"
head -c 40000000 /dev/urandom >big
dit() { # OUT LATENTS
    ranks 2 "$WEFT" train dit.yaml --set "out=$1" --set "autoencoder.weights=$PWD/folder/model/vae" --set "data.latents=$2" --set checkpoint.interval=0 \
        --set stages.1.frames=9 >"$1.log" 2>&1
}
dit latents-run latents-folder && losses latents-run >latents.losses || fail_with latents-run.log "train dit"
"$WEFT" convert folder/model/vae converted --dtype bf16 >log 2>&1 || fail_with log "convert"

curation() { # SERVER: footage and output in the bucket, two shards at once, and another machine finishes
    local i waited=() name
    aws_s3 cp --recursive footage s3://bucket/footage || return 1
    for i in 0 1; do
        WEFT_COPIES=$PWD/copies-$1-$i "$WEFT" curate --in s3://bucket/footage --out s3://bucket/out "${sets[@]}" --shard $i/2 >log$i 2>&1 &
        waited+=($!)
    done
    for i in 0 1; do wait "${waited[i]}" || { cat log$i; return 1; }; done
    WEFT_COPIES=$PWD/copies-$1-2 "$WEFT" curate --in s3://bucket/footage --out s3://bucket/out "${sets[@]}" --finish >log 2>&1 || { cat log; return 1; }
    aws_s3 cp --recursive s3://bucket/out "seen-$1" || return 1
    diff -r out/clips "seen-$1/clips" && diff -r out/metas "seen-$1/metas" || return 1
    for name in manifest.jsonl rejects.jsonl summary.json; do cmp "out/$name" "seen-$1/$name" || return 1; done
}
training() { # SERVER: a run that another machine continues, and its model
    WEFT_COPIES=$PWD/copies-$1-0 vae s3://bucket/run 2 >log 2>&1 || { cat log; return 1; }
    WEFT_COPIES=$PWD/copies-$1-1 vae s3://bucket/run 4 >log 2>&1 || { cat log; return 1; }
    aws_s3 cp --recursive s3://bucket/run "run-$1" || return 1
    losses folder >folder.losses && losses "run-$1" | cmp - folder.losses || return 1
    for file in folder/model/vae/*.safetensors; do cmp "$file" "run-$1/${file#folder/}" || return 1; done
    [ -e "run-$1/checkpoints/step-00000004/state.json" ] && [ ! -e "run-$1/checkpoints/step-00000002/state.json" ]
}
models() { # SERVER: weft convert from and to the bucket
    export WEFT_COPIES=$PWD/copies-$1-0
    "$WEFT" convert s3://bucket/run/model/vae s3://bucket/converted --dtype bf16 >log 2>&1 || { cat log; return 1; }
    aws_s3 cp --recursive s3://bucket/converted "converted-$1" && diff -r converted "converted-$1" || return 1
    expect_error file-exists -- "$WEFT" convert s3://bucket/run/model/vae s3://bucket/converted
}
transfers() { # SERVER: objects of several parts, and a folder of clips that aws has written
    store() { "$WEFT_BUILD/test-tools/store" "$@"; }
    aws_s3 cp big s3://bucket/parts/aws.bin && store s3://bucket/parts get aws.bin | cmp - big || return 1
    store s3://bucket/parts put weft.bin <big && aws_s3 cp s3://bucket/parts/weft.bin got && cmp got big || return 1
    aws_s3 cp --recursive out s3://bucket/clips --exclude 'state/*' || return 1
    "$WEFT" shard --in out --out shards-folder >log 2>&1 || { cat log; return 1; }
    export WEFT_COPIES=$PWD/copies-$1-0
    "$WEFT" shard --in s3://bucket/clips --out s3://bucket/shards >log 2>&1 || { cat log; return 1; }
    aws_s3 cp --recursive s3://bucket/shards "shards-$1" || return 1
    for file in shards-folder/*.tar shards-folder/index.json; do cmp "$file" "shards-$1/${file#*/}" || return 1; done
    "$WEFT" shots footage >folder.jsonl 2>log || { cat log; return 1; }
    aws_s3 cp --recursive footage s3://bucket/videos || return 1
    "$WEFT" shots s3://bucket/videos --out s3://bucket/lists >log 2>&1 || { cat log; return 1; }
    aws_s3 cp --recursive s3://bucket/lists "lists-$1" || return 1
    [ "$(cat folder.jsonl | sort | sed 's|.*"type"||')" = "$(find "lists-$1" -name '*.jsonl' -exec cat {} + | sed 's|s3://bucket/videos|footage|' | sort | sed 's|.*"type"||')" ]
}
owners() { # SERVER: owners that start together, a dead one of another machine, and a live one
    local i claim='{"host": "far", "pid": 7, "since": "x", "machine": "another", "start": 1, "count": %s, "seconds": %s, "state": "owner"}'
    store() { "$WEFT_BUILD/test-tools/store" "$@"; }
    for i in 1 2 3 4; do store s3://bucket/owned own </dev/null >"race$i.out" 2>"race$i.err" & pids+=($!); done
    for i in 1 2 3 4; do wait "${pids[-$i]}"; done
    cat race*.out | python3 -IS -c '
import sys
spans = [float(word) for line in sys.stdin for word in line.split()[1:]]
spans = sorted(zip(spans[::2], spans[1::2]))
assert spans and all(a[1] <= b[0] for a, b in zip(spans, spans[1:])), spans' || return 1
    printf "$claim" 1 0.5 >claim.json
    aws_s3 cp claim.json s3://bucket/owned/.weft-owner/far.json || return 1
    store s3://bucket/owned own </dev/null >log 2>&1 || { cat log; return 1; }
    printf "$claim" 1 600 >claim.json
    aws_s3 cp claim.json s3://bucket/owned/.weft-owner/far.json || return 1
    store s3://bucket/owned own </dev/null >log 2>error.log &
    i=$!
    until has_message error.log folder-locked level=info value=far 2>/dev/null; do kill -0 $i 2>/dev/null || fail_with error.log "no wait"; sleep 0.1; done
    printf "$claim" 2 600 >claim.json
    aws_s3 cp claim.json s3://bucket/owned/.weft-owner/far.json || return 1
    ! wait $i && has_message error.log folder-locked level=error value=far || { cat error.log; return 1; }
}
latents() { # SERVER: a latent cache that two ranks write; another machine reads it and writes nothing
    local i
    for i in 0 1; do
        export WEFT_COPIES=$PWD/copies-$1-latents-$i WEFT_CACHE=$PWD/cache-$1-latents-$i
        dit "latents-$1-$i" s3://bucket/latents || { cat "latents-$1-$i.log"; return 1; }
        losses "latents-$1-$i" | cmp - latents.losses || return 1
        aws_s3 ls --recursive s3://bucket/latents/ && cp aws.log "listed-$i" || return 1
    done
    grep -q '/complete$' listed-0 && grep -q '/train-0001-000000.tar$' listed-0 && cmp listed-0 listed-1 || { cat listed-0; return 1; }
    ! grep -E 'weft-owner|lock|\.tmp\.' listed-0
}
faults() { # SERVER: objects and a curation through a proxy with faults; other clients see whole objects
    local name
    export WEFT_COPIES=$PWD/copies-$1-faults WEFT_CACHE=$PWD/cache-$1-faults AWS_MAX_ATTEMPTS=12
    start_proxy "${AWS_ENDPOINT_URL_S3-$AWS_ENDPOINT_URL}" 17
    through() { AWS_ENDPOINT_URL_S3=$proxy "$@"; }
    rm -f proxy-requests
    for name in 1 2 3; do
        through "$WEFT_BUILD/test-tools/store" s3://bucket/faults put $name.bin <big 2>log || { cat log; return 1; }
        aws_s3 cp s3://bucket/faults/$name.bin got && cmp got big || return 1
        through "$WEFT_BUILD/test-tools/store" s3://bucket/faults get $name.bin 2>log | cmp - big || { cat log; return 1; }
    done
    through "$WEFT" curate --in s3://bucket/footage --out s3://bucket/faulted "${sets[@]}" >log 2>&1 || { cat log; return 1; }
    aws_s3 cp --recursive s3://bucket/faulted "faulted-$1" || return 1
    diff -r out/clips "faulted-$1/clips" && diff -r out/metas "faulted-$1/metas" || return 1
    for name in manifest.jsonl rejects.jsonl summary.json; do cmp "out/$name" "faulted-$1/$name" || return 1; done
    for name in delay busy unsent unanswered cut short; do grep -q "^$name " proxy-requests || fail "no request was '$name'"; done
}
for server in juicefs rclone moto_server; do
    command -v "$server" >/dev/null && command -v aws >/dev/null || { echo "# no $server"; continue; }
    "start_$server"
    aws_s3 mb s3://bucket || fail "$server: no bucket could be made"
    if [ "$server" = moto_server ] && moto_refuses_aws; then
        echo "# this moto refuses the aws client"
        continue
    fi
    check "transfers_$server" transfers "$server"
    check "owners_$server" owners "$server"
    check "curation_$server" curation "$server"
    check "training_$server" training "$server"
    check "models_$server" models "$server"
    check "latents_$server" latents "$server"
    check "faults_$server" faults "$server"
done
[ "$check_total" -gt 0 ] || skip "no juicefs, rclone or moto_server with aws"
finish
