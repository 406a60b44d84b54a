#!/bin/bash
# A proxy between weft and a server cuts connections and replies, delays, loses and refuses requests. Nothing is lost, and
# no object becomes visible half-written. Two of five requests have a fault. peers_long_test.sh does this with other servers.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/storage/servers.sh"
start_s3
PATH=$WEFT_BUILD/test-tools:$PATH
export WEFT_CACHE=$PWD/cache AWS_MAX_ATTEMPTS=12
start_proxy "$AWS_ENDPOINT_URL_S3" 11
through() { AWS_ENDPOINT_URL_S3=$proxy "$@"; }
# faults KIND...: each kind of request was served since the last call.
faults() {
    local kind
    for kind; do grep -q "^$kind " proxy-requests || fail "no request was '$kind'"; done
    rm proxy-requests
}
python3 -S -c 'import random; open("large", "wb").write(random.Random(6).randbytes(37 << 20))'
head -c 20000000 large >small

objects() {
    local i
    for i in 1 2; do
        through store s3://bucket/p put "$i" <large 2>log && store s3://bucket/p get "$i" | cmp - large || { cat log; return 1; }
        through store s3://bucket/p get "$i" 2>log | cmp - large || { cat log; return 1; }
        WEFT_CACHE_BYTES=0 through store s3://bucket/p stream "$i" 2>log | cmp - large || { cat log; return 1; }
        through store s3://bucket/p get "$i" 10000000 12345 2>log | cmp - <(tail -c +10000001 large | head -c 12345) || { cat log; return 1; }
    done
    through store s3://bucket/p remove 1 2>log && ! store s3://bucket/p facts 1 2>/dev/null || return 1
    faults none delay busy unsent unanswered cut short
}
check objects
# 2,205 names in three replies, of which some are cut.
lists() {
    local i
    for i in $(seq 1000 3204); do : >"data/bucket/many%2F$i"; done
    for i in $(seq 6); do
        through store s3://bucket/many list 2>log | cmp - <(seq 1000 3204) || { cat log; return 1; }
    done
    faults cut short
}
check lists
# A reader without the proxy sees one of two versions, whole, while they replace each other.
versions() {
    local i reader
    store s3://bucket/v put object <large || return 1
    sha256sum large small | cut -d ' ' -f 1 | sort >versions
    while [ ! -e written ]; do
        WEFT_CACHE_BYTES=0 store s3://bucket/v get object >seen 2>/dev/null && sha256sum <seen | cut -d ' ' -f 1
    done >sums &
    reader=$!
    for i in 1 2; do
        through store s3://bucket/v put object <small 2>log || { cat log; return 1; }
        through store s3://bucket/v put object <large 2>log || { cat log; return 1; }
    done
    : >written
    wait $reader
    [ -s sums ] && sort -u sums | comm -23 - versions | cmp - /dev/null
}
check versions
# Uploads that were given up are invisible.
uncommitted() {
    through store s3://bucket/p begin never <large 2>log || { cat log; return 1; }
    expect_error file-not-found -- store s3://bucket/p facts never
}
check uncommitted
finish
