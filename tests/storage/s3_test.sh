#!/bin/bash
# Buckets: every operation of a storage on an S3 server, with faults of the network and the server.
# The server checks signatures with code of its own. Whatever fails, an object is whole or absent.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/storage/servers.sh"
PATH=$WEFT_BUILD/test-tools:$PATH
export WEFT_LOG=info
start_s3
export WEFT_CACHE_BYTES=0

python3 -S -c 'import random; open("large", "wb").write(random.Random(5).randbytes(41 << 20))'
head -c 100000 large >small
: >empty

put_and_get() {
    local name
    for name in small empty large; do
        store s3://bucket/p put $name.bin <$name || return 1
        store s3://bucket/p get $name.bin | cmp - $name || return 1
        [ "$(store s3://bucket/p facts $name.bin)" = "$(stat -c %s $name)" ] || return 1
    done
    store s3://bucket/p get large.bin 20000000 12345 | cmp - <(tail -c +20000001 large | head -c 12345)
    [ "$(store s3://bucket/p sum large.bin)" = "$(store . sum large)" ]
}
check put_and_get

# Parts of 16 MiB: the third has the rest.
parts() {
    grep -c 'PUT .*partNumber=[123]&' data/requests | grep -qx 3 || return 1
    ! grep 'PUT .*partNumber=4' data/requests
}
check parts

keys() {
    local key
    for key in 'a b' 'ü-😀' 'x+y=z&1;2' "q~!*'()" '%41' 'h?a#b' 'c:d@e' '"quoted"' '<&>' 'deep/er/key'; do
        echo "$key" | store s3://bucket/keys put "$key" || return 1
        [ "$(store s3://bucket/keys get "$key")" = "$key" ] || { echo "$key"; return 1; }
    done
    store s3://bucket/keys list >listed
    # sorted by bytes; folders below are not listed, as in a folder
    printf '%s\n' '"quoted"' '%41' '<&>' 'a b' 'c:d@e' 'h?a#b' "q~!*'()" 'x+y=z&1;2' 'ü-😀' | cmp - listed
}
check keys

list_pages() {
    local i
    for i in $(seq 1000 3204); do : >"data/bucket/many%2F$i"; done
    store s3://bucket/many list | cmp - <(seq 1000 3204) || return 1
    [ "$(grep -c 'GET .*list-type=2.*prefix=many' data/requests)" = 3 ] || return 1
    [ -z "$(store s3://bucket/nothing list)" ]
}
check list_pages

remove() {
    store s3://bucket/p remove small.bin && store s3://bucket/p remove small.bin || return 1
    expect_error file-not-found file=s3://bucket/p/small.bin -- store s3://bucket/p get small.bin
}
check remove

# An upload without a commit is invisible and aborted.
uncommitted() {
    store s3://bucket/p begin never.bin <large || return 1
    grep -q 'DELETE .*never.bin?uploadId' data/requests || return 1
    expect_error file-not-found -- store s3://bucket/p facts never.bin
}
check uncommitted

# ---- faults ------------------------------------------------------------------------------------
faults_of_reading() {
    local kind
    store s3://bucket/f put a.bin <small || return 1
    for kind in 'status 503' 'status 500' 'status 429' 'code 400 RequestTimeout' 'retry 503 1' cut drop close; do
        fault "GET a.bin $kind" "HEAD a.bin status 502"
        store s3://bucket/f get a.bin 2>log | cmp - small || { cat log; return 1; }
        no_fault_is_left
    done
}
check faults_of_reading

# A range that is cut again and again continues at the byte that is missing, and progress gives the
# attempts back: six cuts with two attempts. Bytes are requested once. Without progress it is an error.
cut_often() {
    local root verb i
    export AWS_MAX_ATTEMPTS=2
    mkdir -p data/web
    for root in s3://bucket/p http://127.0.0.1:$s3_port/web/p; do
        store ${root/http*web/s3://web} put often.bin <large || return 1
        for verb in get stream; do
            cp data/requests before
            fault $(for i in 1 2 3 4 5 6; do echo "GET often.bin cut 3000000"; done | tr ' \n' '_ ')
            sed -i 's/_/ /g' data/faults
            store $root $verb often.bin 2>log | cmp - large || { cat log; return 1; }
            no_fault_is_left
            tail -n "+$(($(wc -l <before) + 1))" data/requests | awk '/^GET/ { print $4 }' |
                cmp - <(seq "$(stat -c %s large)" -3000000 $(($(stat -c %s large) - 18000000))) || return 1
        done
        fault "GET often.bin cut 60000" "GET often.bin cut 60000"
        expect_error storage-request attempts=2 -- store $root get often.bin || return 1
        no_fault_is_left
    done
}
check cut_often

# An object that is replaced between the cut and the rest, also on a server that ignores If-Match.
changed_between() {
    local verb
    [ $# = 0 ] || start_s3 "$1"
    for verb in get stream; do
        cp large data/bucket/c%2Fb.bin
        fault "GET b.bin cut 1000000" "GET b.bin hold"
        expect_error file-changed -- store s3://bucket/c $verb b.bin &
        until [ -e data/held ]; do kill -0 $! 2>/dev/null || return 1; sleep 0.02; done
        head -c "$(stat -c %s large)" /dev/urandom >data/new && mv data/new data/bucket/c%2Fb.bin
        rm data/held
        wait $! || return 1
        no_fault_is_left
    done
}
compared() { changed_between --quirks; }
check changed_between
check compared

faults_of_writing() {
    local kind
    for kind in 'status 503' 'code 400 RequestTimeout' cut drop close; do
        fault "PUT w.bin $kind"
        store s3://bucket/f put w.bin <small || return 1
        no_fault_is_left
        store s3://bucket/f get w.bin | cmp - small || return 1
        store s3://bucket/f remove w.bin
    done
}
check faults_of_writing

faults_of_multipart() {
    local kind
    for kind in 'status 503' drop close error200; do
        fault "POST uploads= ${kind/error200/status 500}" "PUT partNumber=2 ${kind/error200/cut}" \
            "POST uploadId $kind"
        store s3://bucket/f put m.bin <large || return 1
        no_fault_is_left
        store s3://bucket/f get m.bin | cmp - large || return 1
        store s3://bucket/f remove m.bin
    done
}
check faults_of_multipart

# A failure that does not pass: the object keeps its old content, and the upload is aborted.
final_failure() {
    store s3://bucket/f put old.bin <small || return 1
    export AWS_MAX_ATTEMPTS=2
    fault "PUT partNumber=2 status 503" "PUT partNumber=2 status 503"
    expect_error storage-request status=503 -- store s3://bucket/f put old.bin <large || return 1
    no_fault_is_left
    grep -q 'DELETE .*old.bin?uploadId' data/requests || return 1
    fault "POST uploadId status 500" "POST uploadId error200"
    expect_error storage-request value=InternalError -- store s3://bucket/f put old.bin <large || return 1
    store s3://bucket/f get old.bin | cmp - small
}
check final_failure

# An upload whose last reply was lost is found by its object. One that the server has lost is an error,
# although the object has its size and number of parts.
lost_reply() { # [--quirks]
    [ $# = 0 ] || start_s3 "$1"
    head -c "$(stat -c %s large)" /dev/zero >other
    store s3://bucket/f put lost.bin <other || return 1
    fault "POST uploadId close"
    store s3://bucket/f put lost.bin <large 2>log || { cat log; return 1; }
    no_fault_is_left
    store s3://bucket/f get lost.bin | cmp - large || return 1
    fault "POST uploadId code 404 NoSuchUpload"
    ! store s3://bucket/f put lost.bin <other 2>/dev/null || return 1
    no_fault_is_left
    store s3://bucket/f get lost.bin | cmp - large
}
lost_reply_without_etag() { lost_reply --quirks; }
check lost_reply
check lost_reply_without_etag

# Ctrl-C and kill -9 in the middle of an upload leave the object as it was.
killed_upload() {
    store s3://bucket/f put k.bin <small || return 1
    mkfifo pipe
    store s3://bucket/f put k.bin <pipe &
    exec 8>pipe
    cat large >&8 # the first parts are on their way
    kill -9 $!
    wait $! 2>/dev/null
    exec 8>&-
    store s3://bucket/f get k.bin | cmp - small
}
check killed_upload

changed_object() {
    store s3://bucket/c put c.bin <large || return 1
    fault "GET c.bin code 412 PreconditionFailed"
    expect_error file-changed -- store s3://bucket/c get c.bin || return 1
    local size
    for size in 1000 $(($(stat -c %s large) + 1)); do
        fault "GET c.bin resized $size"
        expect_error file-changed -- store s3://bucket/c get c.bin || return 1
        no_fault_is_left || return 1
    done
}
check changed_object

# An object that was there a moment ago is not just "not found".
removed_object() {
    store s3://bucket/c put r.bin <small || return 1
    fault "GET r.bin code 404 NoSuchKey"
    expect_error file-changed file=s3://bucket/c/r.bin -- store s3://bucket/c get r.bin
}
check removed_object

# ---- errors ------------------------------------------------------------------------------------
errors() {
    AWS_SECRET_ACCESS_KEY=wrongsecret expect_error storage-denied value=SignatureDoesNotMatch \
        -- store s3://bucket/p list || return 1
    AWS_ACCESS_KEY_ID=nobody expect_error storage-denied value=InvalidAccessKeyId \
        -- store s3://bucket/p list || return 1
    expect_error storage-bucket value=NoSuchBucket -- store s3://missing list || return 1
    expect_error storage-bucket -- store s3:// list || return 1
    AWS_ACCESS_KEY_ID='' expect_error storage-settings -- store s3://bucket list || return 1
    AWS_ACCESS_KEY_ID='' AWS_SECRET_ACCESS_KEY='' expect_error storage-credentials \
        -- store s3://bucket list || return 1
    AWS_PROFILE=other expect_error storage-settings key=AWS_PROFILE value=other \
        -- store s3://bucket list || return 1
    AWS_ENDPOINT_URL_S3=127.0.0.1:1 expect_error storage-settings -- store s3://bucket list || return 1
    local endpoint
    for endpoint in http:// http://user:secret@127.0.0.1:1 'http://127.0.0.1:1?x=1'; do
        AWS_ENDPOINT_URL_S3=$endpoint expect_error storage-settings -- store s3://bucket list || return 1
    done
    AWS_ENDPOINT_URL_S3=http://127.0.0.1:1 AWS_MAX_ATTEMPTS=2 expect_error storage-request attempts=2 \
        -- store s3://bucket list || return 1
    # the same in every attempt: a malformed URL, missing certificates, and a proxy that refuses
    AWS_ENDPOINT_URL_S3='http://a b:1' expect_error storage-request attempts=1 -- store s3://bucket list || return 1
    AWS_CA_BUNDLE=$PWD/none AWS_ENDPOINT_URL_S3=https://127.0.0.1:$s3_port expect_error storage-request attempts=1 \
        -- store s3://bucket list || return 1
    https_proxy=$AWS_ENDPOINT_URL_S3 AWS_ENDPOINT_URL_S3=https://127.0.0.1:9 expect_error storage-request attempts=1 \
        -- store s3://bucket list || return 1
    AWS_ENDPOINT_URL_S3=https://127.0.0.1:$s3_port expect_error storage-request attempts=2 \
        -- store s3://bucket list || return 1
    fault "GET prefix code 403 RequestTimeTooSkewed"
    expect_error storage-clock -- store s3://bucket list || return 1
    # a reply to HEAD has no code
    fault "HEAD p/large.bin skewed 1000" "HEAD p/large.bin skewed -1000" "HEAD p/large.bin skewed 800"
    expect_error storage-clock file=s3://bucket/p/large.bin -- store s3://bucket/p facts large.bin || return 1
    expect_error storage-clock -- store s3://bucket/p facts large.bin || return 1
    expect_error storage-denied -- store s3://bucket/p facts large.bin || return 1
    # another code names another cause, and a request that is not signed has no date
    fault "GET prefix skewed 1000" "HEAD p/large.bin skewed 1000"
    expect_error storage-denied value=SignatureDoesNotMatch -- store s3://bucket list || return 1
    WEFT_S3_UNSIGNED=1 expect_error storage-denied -- store s3://bucket/p facts large.bin || return 1
    no_fault_is_left
    expect_error storage-location -- store S3://bucket list || return 1
    expect_error storage-location -- store gs://bucket list
}
check errors

# Two threads learn the region of the bucket at the same time, and both repeat their requests.
regions() {
    store s3://bucket/r put one <small && store s3://bucket/r put two <small || return 1
    fault "HEAD r/one region 2" "HEAD r/two region 2"
    [ "$(store s3://bucket/r together one two)" = "100000 100000" ] || return 1
    no_fault_is_left
}
check regions

# A folder of a web server: read only, with the same repetitions and checks.
web() {
    local root=http://127.0.0.1:$s3_port/web/p kind
    mkdir -p data/web
    store s3://web/p put small.bin <small && echo 1 | store s3://web/p put 'a b%#?.txt' || return 1
    for kind in 'status 503' cut drop; do
        fault "GET small.bin $kind" "HEAD small.bin status 502"
        store $root get small.bin 2>log | cmp - small || { cat log; return 1; }
        no_fault_is_left
    done
    store $root/ get small.bin 50000 123 | cmp - <(tail -c +50001 small | head -c 123) || return 1
    [ "$(store $root get 'a b%#?.txt')" = 1 ] || return 1
    expect_error file-not-found file=$root/none 'text~=status 404' -- store $root get none || return 1
    expect_error file-not-found file=$root/index.json -- store $root list || return 1
    echo '{"shards": [{"file": "b.tar"}, {"file": "a.tar"}]}' | store s3://web/p put index.json || return 1
    [ "$(store $root list | tr '\n' ' ')" = 'a.tar b.tar index.json ' ] || return 1
    fault "GET small.bin code 412 PreconditionFailed"
    expect_error file-changed -- store $root get small.bin || return 1
    expect_error storage-denied status=403 -- store http://127.0.0.1:$s3_port/bucket/p get small.bin || return 1
    expect_error storage-location -- store $root put x <small || return 1
    expect_error storage-location -- store $root remove small.bin || return 1
    for kind in http:// http://u:secret@127.0.0.1 'http://127.0.0.1/?x'; do
        expect_error storage-location -- store "$kind" list || return 1
    done
    store http://u:secret@127.0.0.1 list 2>everything
    ! grep secret everything
}
check web

# What may not be listed or read is an error with its object and the permission that it needs.
denied() {
    fault "GET prefix code 403 AccessDenied"
    expect_error storage-denied file=s3://bucket 'text~=s3:ListBucket' -- store s3://bucket/p list || return 1
    fault "HEAD none code 403 AccessDenied"
    expect_error storage-denied file=s3://bucket/p/none 'text~=s3:ListBucket' -- store s3://bucket/p facts none
}
check denied

# A profile of the config files, with credentials of a command.
profile() {
    cat >config <<EOF
[profile lab]
region = eu-central-1
services = own
credential_process = cat $PWD/keys.json
[services own]
s3 =
  endpoint_url = $AWS_ENDPOINT_URL_S3
EOF
    echo '{"Version": 1, "AccessKeyId": "testkey1", "SecretAccessKey": "testsecret12"}' >keys.json
    unset AWS_ENDPOINT_URL_S3 AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    AWS_CONFIG_FILE=$PWD/config AWS_PROFILE=lab store s3://bucket/p get large.bin | cmp - large
}
check profile

# write_credentials SECONDS: credentials of a command that expire in this time. Only its first call
# succeeds.
write_credentials() {
    rm -f calls
    cat >once.sh <<EOF
echo call >>$PWD/calls
[ "\$(wc -l <$PWD/calls)" = 1 ] || exit 1
echo '{"AccessKeyId": "testkey1", "SecretAccessKey": "testsecret12", "Expiration":' \
    '"$(date -u -d "$1 seconds" +%Y-%m-%dT%H:%M:%SZ)"}'
EOF
    printf '[default]\ncredential_process = bash %s/once.sh\n' "$PWD" >config
}
# A renewal before the end that fails is one warning; after the end it is an error.
renewal() {
    export AWS_CONFIG_FILE=$PWD/config
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    write_credentials 250
    store s3://bucket/p put renewed.bin <large 2>log || { cat log; return 1; }
    [ "$(wc -l <calls)" = 2 ] || return 1
    [ "$(count_messages log storage-credentials level=warning)" = 1 ] || return 1
    write_credentials -10
    expect_error storage-credentials -- store s3://bucket/p get renewed.bin
}
check renewal

# No secret is in a log, at any level.
secrets() {
    local verb
    export WEFT_LOG=debug AWS_SESSION_TOKEN=sessiontoken123
    fault "GET prefix status 503" "GET prefix code 403 AccessDenied"
    store s3://bucket/p list >everything 2>&1
    AWS_SECRET_ACCESS_KEY=wrongsecret store s3://bucket/p list >>everything 2>&1
    echo '{"AccessKeyId": "testkey1", "SecretAccessKey": "processsecret"' >broken.json
    printf '[default]\ncredential_process = cat %s\n' "$PWD/broken.json" >config
    AWS_CONFIG_FILE=$PWD/config AWS_ACCESS_KEY_ID='' AWS_SECRET_ACCESS_KEY='' \
        store s3://bucket/p list >>everything 2>&1
    AWS_ACCESS_KEY_ID='' AWS_SECRET_ACCESS_KEY='' \
        AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1:1/get?token=uritoken123 \
        store s3://bucket/p list >>everything 2>&1
    [ "$(count_messages everything 'storage-*')" -ge 6 ] || { cat everything; return 1; }
    ! grep -E 'testsecret12|wrongsecret|processsecret|sessiontoken123|uritoken123|Signature=' everything
}
check secrets

finish
