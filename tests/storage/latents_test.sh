#!/bin/bash
# A latent cache in a bucket: losses are bitwise equal to a cache in a folder, on one and two ranks. A finished cache is
# read and not written. Failed and damaged caches are completed, and runs that encode at the same time wait for each other.
. "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/storage/servers.sh"
start_s3 --quirks
PATH=$WEFT_BUILD/test-tools:$PATH
export WEFT_CACHE=$PWD/cache WEFT_COPIES=$PWD/copies
make_shards
write_configs
"$WEFT" train vae.yaml --set stages.0.steps=2 --set stages.0.warmup_steps=0 >vae.log 2>&1 || fail_with vae.log "no autoencoder"
dit() { # RANKS OUT LATENTS: both stages have the clips of one cache
    ranks "$1" "$WEFT" train dit.yaml --set "out=$2" --set "data.latents=$3" --set checkpoint.interval=0 --set stages.1.frames=9 >"$2.log" 2>&1
}
# names PREFIX: the objects below it, without the hash of the cache.
names() { (cd data/bucket && ls -A) | sed -n "s/^$1%2F\([0-9a-f]\{16\}\)%2F//p" | sort; }
key_of() { (cd data/bucket && ls -A) | sed -n "s/^$1%2F\([0-9a-f]\{16\}\)%2F.*/\1/p" | sort | head -n 1; } # PREFIX
requests_since() { tail -n "+$(($(wc -l <"$1") + 1))" data/requests; }                                        # FILE

folder() { dit 1 folder latents && losses folder >folder.losses; }
check folder
bucket() {
    needs folder
    dit 1 bucket s3://bucket/latents || { cat bucket.log; return 1; }
    losses bucket | cmp - folder.losses || return 1
    names latents >seen
    grep -qx complete seen && grep -qx data-report.json seen && grep -qx 'train-0000-000000.tar' seen || { cat seen; return 1; }
    ! grep -E 'weft-owner|lock|\.tmp\.' seen && [ ! -e s3: ] && [ ! -e bucket/latents ]
}
check bucket
finished() {
    needs bucket
    cp data/requests before
    dit 1 again s3://bucket/latents || { cat again.log; return 1; }
    losses again | cmp - folder.losses || return 1
    ! requests_since before | grep -E '^(PUT|POST|DELETE) '
}
check finished
two_ranks() {
    dit 2 folder2 latents2 && dit 2 bucket2 s3://bucket/latents2 || { cat folder2.log bucket2.log; return 1; }
    losses folder2 >expected && losses bucket2 | cmp - expected || return 1
    names latents2 | grep -qx 'train-0001-000000.tar'
}
check two_ranks
# The mark of a finished cache is refused: the next run keeps all samples.
refused() {
    needs folder
    for i in $(seq 10); do echo "PUT %2Fcomplete code 403 AccessDenied"; echo "PUT /complete code 403 AccessDenied"; done >data/faults
    ! dit 1 no s3://bucket/latents3 && has_message no.log storage-denied || { cat no.log; return 1; }
    rm -f data/faults
    ! names latents3 | grep -qx complete || return 1
    cp data/requests before
    dit 1 after s3://bucket/latents3 || { cat after.log; return 1; }
    has_message after.log data-report 'text~=samples are encoded already' || return 1
    losses after | cmp - folder.losses || return 1
    ! requests_since before | grep -E '^PUT .*\.tar '
}
check refused
# A shard that another program has cut is encoded again.
damaged() {
    needs folder
    dit 1 whole s3://bucket/latents4 || { cat whole.log; return 1; }
    local shard
    shard=$(echo data/bucket/latents4%2F*train-0000-000000.tar)
    head -c 2000 "$shard" >cut && cp cut "$shard"
    dit 1 mended s3://bucket/latents4 || { cat mended.log; return 1; }
    has_message mended.log latents-rebuilt && losses mended | cmp - folder.losses
}
check damaged
# A run waits for another one that encodes the same latents.
waits() {
    needs bucket
    local owner train hold
    mkfifo hold
    : >owned
    store "s3://bucket/latents5/$(key_of latents)" own <hold >owned 2>&1 &
    owner=$!
    exec {hold}>hold
    until grep -q owned owned; do kill -0 $owner 2>/dev/null || { cat owned; return 1; }; sleep 0.1; done
    dit 1 waiting s3://bucket/latents5 {hold}>&- &
    train=$!
    until has_message waiting.log folder-locked level=info 2>/dev/null; do kill -0 $train || { cat waiting.log; return 1; }; sleep 0.1; done
    ! names latents5 | grep -q tar || return 1
    exec {hold}>&-
    wait $owner && wait $train || { cat waiting.log; return 1; }
    losses waiting | cmp - folder.losses
}
check waits
web() { expect_error storage-location key=data.latents -- "$WEFT" train dit.yaml --set out=web --set data.latents=https://127.0.0.1/latents; }
check web
finish
