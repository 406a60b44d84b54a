#!/bin/bash
# Buckets on an independent server, moto, and objects of the aws client in both directions. Needs
# moto_server (Python package moto[server]) and aws (awscli) in the PATH.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/storage/servers.sh"
PATH=$WEFT_BUILD/test-tools:$PATH
command -v moto_server >/dev/null && command -v aws >/dev/null || skip "no moto_server or no aws"
moto_server --help >/dev/null 2>&1 || skip "moto_server does not run"
aws --version >/dev/null 2>&1 || skip "aws does not run"
start_moto
export WEFT_CACHE_BYTES=0

python3 -S -c 'import random; open("large", "wb").write(random.Random(5).randbytes(37 << 20))'
head -c 100000 large >small
: >empty
aws s3 mb s3://bucket >/dev/null || fail "no bucket could be made"
moto_refuses_aws && skip "this moto refuses the aws client"

aws_reads() {
    local name
    for name in small empty large; do
        store s3://bucket/p put "$name" <$name && aws s3 cp "s3://bucket/p/$name" got >/dev/null &&
            cmp got $name || return 1
    done
}
check aws_reads
aws_writes() {
    local name
    for name in small empty large; do
        aws s3 cp $name "s3://bucket/q/ü $name" >/dev/null &&
            store s3://bucket/q get "ü $name" | cmp - $name || return 1
    done
    store s3://bucket/q list | cmp - <(printf 'ü %s\n' empty large small) || return 1
    store s3://bucket/q get 'ü large' 30000000 77 | cmp - <(tail -c +30000001 large | head -c 77)
}
check aws_writes
uncommitted() {
    store s3://bucket/p begin never <large || return 1
    [ -z "$(aws s3api list-multipart-uploads --bucket bucket --query 'Uploads[]' --output text |
        grep -v None)" ] || return 1
    expect_error file-not-found -- store s3://bucket/p facts never
}
check uncommitted
# moto returns 1,000 keys for each request.
list_pages() {
    mkdir many && (cd many && touch $(seq 1000 2204)) || return 1
    aws s3 cp --recursive many s3://bucket/many >/dev/null || return 1
    store s3://bucket/many list | cmp - <(seq 1000 2204)
}
check list_pages
errors() {
    AWS_SECRET_ACCESS_KEY=wrong expect_error storage-denied value=SignatureDoesNotMatch \
        -- store s3://bucket list || return 1
    expect_error storage-bucket -- store s3://missing list
}
check errors
finish
