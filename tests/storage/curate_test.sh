#!/bin/bash
# weft curate with footage in a bucket: clips, metas and lists are bitwise equal to a folder.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/storage/servers.sh"
start_s3
export WEFT_COPIES=$PWD/copies
"$WEFT" synth --out set --shots 8 --seed 3 --held-out-clips 0 >log 2>&1 || fail_with log "synth"
mkdir -p raw/deep
cp set/train/* raw/
first=$(basename "$(find raw -maxdepth 1 -name '*.mp4' | sort | head -n 1)" .mp4)
cp "raw/$first.mp4" "raw/deep/a copy.mp4"
echo "not a video" >raw/text.mp4
echo "# notes" >raw/notes.md
echo "a lost caption" >raw/lost.txt
printf 'file,caption\na copy.mp4,a copied shape\nnone.mp4,nothing\n' >raw/deep/captions.csv
# to_bucket FOLDER PREFIX: puts the files as objects, as another client does.
to_bucket() {
    local name object
    (cd "$1" && find . -type f) | while read -r name; do
        object=$(python3 -S -c 'import sys, urllib.parse; print(urllib.parse.quote(sys.argv[1], "-._~"))' "$2/${name#./}")
        cp "$1/$name" "data/bucket/$object" || exit 1
    done
}
to_bucket raw raw
echo '{"host": "far"}' >data/bucket/raw%2F.weft-owner%2F0123456789abcdef.json # another run writes there
sets=(--set clips.preset=ultrafast --set workers=2)
curate() { "$WEFT" curate --in "$1" --out "$2" "${sets[@]}" "${@:3}"; }
# are_same A B: the folders have the same clips, metas and lists.
are_same() {
    local name
    diff -r "$1/clips" "$2/clips" && diff -r "$1/metas" "$2/metas" || return 1
    for name in manifest.jsonl rejects.jsonl summary.json; do cmp "$1/$name" "$2/$name" || return 1; done
}
folder() {
    curate raw out >log 2>&1 || { cat log; return 1; }
    [ "$(find out/clips -name '*.mp4' | wc -l)" -gt 5 ]
}
check folder
footage() {
    needs folder
    fault "GET .mp4 cut" "GET .mp4 status 503" "GET captions.csv drop" "GET list-type close"
    curate s3://bucket/raw out2 >log 2>&1 || { cat log; return 1; }
    no_fault_is_left
    are_same out out2 || return 1
    ! grep -rq copies out2/rejects.jsonl out2/metas out2/state
}
check footage
# The second run analyses nothing: no video is requested.
resumed() {
    needs footage
    rm -r copies
    cp data/requests before
    curate s3://bucket/raw out2 >log 2>&1 && are_same out out2 || { cat log; return 1; }
    # one pair of files has equal sizes, and their bytes are compared
    ! tail -n "+$(($(wc -l <before) + 1))" data/requests | grep 'GET .*\.mp4' | grep -v "$first.mp4\|copy.mp4"
}
check resumed
# Copies that do not fit are removed, and the videos are requested again when their clips are written.
bounded() {
    needs folder
    WEFT_COPIES_BYTES=1 WEFT_COPIES=$PWD/small curate s3://bucket/raw out3 --set workers=1 >log 2>&1 && are_same out out3 ||
        { cat log; return 1; }
    [ "$(find small -name complete | wc -l)" -le 2 ] # one video, and the captions
}
check bounded
# A video that cannot be fetched is not rejected: the run stops, and the next one finishes.
unreachable() {
    needs folder
    local i
    rm -rf copies
    fault "GET $first.mp4 code 403 AccessDenied" "GET $first.mp4 code 403 AccessDenied"
    # the first request compares bytes of equal files; unreadable ones are analysed
    expect_error storage-request -- curate s3://bucket/raw out4 || return 1
    rm -f data/faults
    curate s3://bucket/raw out4 >log 2>&1 && are_same out out4 || { cat log; return 1; }
}
check unreachable
# A video that is replaced is analysed again, and the others are not.
replaced() {
    needs footage
    cp data/requests before
    cp "data/bucket/raw%2Ftext.mp4" kept
    echo "also not a video" >data/bucket/raw%2Ftext.mp4
    curate s3://bucket/raw out2 >log 2>&1 || { cat log; return 1; }
    cp kept data/bucket/raw%2Ftext.mp4
    tail -n "+$(($(wc -l <before) + 1))" data/requests | grep -q 'GET .*text.mp4'
}
check replaced
# from_bucket PREFIX TO: writes its objects as files, as another client sees them.
from_bucket() {
    rm -rf "$2"
    python3 -S - "$1" "$2" <<'PY'
import os, shutil, sys, urllib.parse
for name in os.listdir("data/bucket"):
    key = urllib.parse.unquote(name)
    if key.startswith(sys.argv[1] + "/") and not name.endswith("~"):
        path = sys.argv[2] + key[len(sys.argv[1]):]
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile("data/bucket/" + name, path)
PY
}
requests_since() { tail -n "+$(($(wc -l <"$1") + 1))" data/requests; } # requests_since FILE
# Clips and metas are in the bucket before the manifest, and the summary is the last object.
output() {
    needs folder
    cp data/requests before
    fault "PUT clips close" "PUT manifest.jsonl drop" "PUT state status 503" "PUT metas close"
    curate raw s3://bucket/out >log 2>&1 || { cat log; return 1; }
    no_fault_is_left
    from_bucket out seen
    are_same out seen || return 1
    # no lock, no temporary file; clips stay in the bucket only
    ! (cd data/bucket && ls) | grep '^out' | grep -E '%2F\.|\.tmp\.|lock$' || return 1
    [ -z "$(find copies/shared-* -name '*.mp4')" ] || return 1
    requests_since before | python3 -IS -c '
import sys
puts = [line.split()[1] for line in sys.stdin if line.split()[0] == "PUT" and line.split()[2] == "200"]
assert "summary.json" in puts[-1], puts[-1]
manifest = [i for i, path in enumerate(puts) if "manifest.jsonl" in path][0]
assert all(i < manifest for i, path in enumerate(puts) if "/clips" in path or "/metas" in path)
for meta in (path for path in puts if "/metas" in path):
    clip = meta.replace("/metas", "/clips").replace(".json", ".mp4")
    assert puts.index(clip) < len(puts) - 1 - puts[::-1].index(meta), meta'
}
check output
# Again on this machine and on another one: nothing is analysed or encoded, and only lists are sent.
output_again() {
    needs output
    local machine
    for machine in copies other; do
        cp data/requests before
        WEFT_COPIES=$PWD/$machine curate raw s3://bucket/out >log 2>&1 || { cat log; return 1; }
        ! requests_since before | grep -E '^(PUT|POST|DELETE) .*(clips|metas|state)|GET .*clips.*mp4' || return 1
    done
    from_bucket out seen && are_same out seen
}
check output_again
# A video was removed: its clips are removed, their metas first.
output_removed() {
    needs output
    local name
    mkdir less && cp -r raw/. less/ && rm "less/$first".* || return 1
    curate less lesser >log 2>&1 || { cat log; return 1; }
    curate less s3://bucket/out >log 2>&1 || { cat log; return 1; }
    from_bucket out seen && are_same lesser seen || return 1
    [ "$(grep -c '^DELETE.*metas' data/requests)" -ge 1 ] &&
        [ "$(grep '^DELETE' data/requests | grep -v weft-owner | head -n 1 | grep -c metas)" = 1 ] || return 1
    curate raw s3://bucket/out >log 2>&1 || { cat log; return 1; }
    from_bucket out seen && are_same out seen
}
check output_removed
# Killed while the first clip is sent: nothing half-written is visible, and another machine
# continues from the records.
output_killed() {
    needs folder
    fault "PUT clips hold"
    "$WEFT" curate --in raw --out s3://bucket/killed "${sets[@]}" >log 2>&1 &
    until [ -e data/held ]; do kill -0 $! 2>/dev/null || fail_with log "the run ended"; sleep 0.05; done
    kill -9 $!
    wait $! 2>/dev/null
    rm data/held
    sleep 0.3 # the held request is answered to no client
    from_bucket killed seen
    [ ! -e seen/manifest.jsonl ] || return 1
    for name in seen/metas/*.json; do
        [ ! -e "$name" ] || [ -e "seen/clips/$(basename "$name" .json).mp4" ] || return 1
    done
    cp data/requests before
    WEFT_COPIES=$PWD/other curate raw s3://bucket/killed >log 2>&1 || { cat log; return 1; }
    from_bucket killed seen && are_same out seen || return 1
    ! requests_since before | grep 'PUT .*state.*parts' # no video is analysed again
}
check output_killed
# The server refuses an object: the run ends with the error, and the next run sends what is missing.
output_refused() {
    needs folder
    fault "PUT metas code 403 AccessDenied"
    expect_error storage-request -- curate raw s3://bucket/refused || return 1
    from_bucket refused seen && [ ! -e seen/manifest.jsonl ] || return 1
    curate raw s3://bucket/refused >log 2>&1 && from_bucket refused seen && are_same out seen
}
check output_refused
# Two machines analyse a shard each at the same time; a third one publishes. Footage is in the bucket.
shards() {
    needs folder
    local i pids=()
    for i in 0 1; do
        WEFT_COPIES=$PWD/machine$i "$WEFT" curate --in s3://bucket/raw --out s3://bucket/shards "${sets[@]}" --shard $i/2 >log$i 2>&1 &
        pids+=($!)
    done
    for i in 0 1; do wait "${pids[i]}" || { cat log$i; return 1; }; done
    WEFT_COPIES=$PWD/third curate s3://bucket/raw s3://bucket/shards --finish >log 2>&1 || { cat log; return 1; }
    from_bucket shards seen && are_same out seen
}
check shards
# A shard ends before its next write when another machine owns the output since.
shard_meets_owner() {
    local pid claim='{"host": "far", "pid": 7, "since": "x", "machine": "another", "start": 1, "count": %s, "seconds": 600, "state": "owner"}'
    fault "PUT state hold"
    WEFT_LOG_FORMAT=json WEFT_COPIES=$PWD/late "$WEFT" curate --in s3://bucket/raw --out s3://bucket/owned "${sets[@]}" --shard 0/1 >log 2>error.log &
    pid=$!
    until [ -e data/held ]; do kill -0 $pid 2>/dev/null || fail_with error.log "the run ended"; sleep 0.05; done
    printf "$claim" 1 >data/bucket/owned%2F.weft-owner%2Ffar.json
    rm data/held
    until has_message error.log folder-locked level=info value=far 2>/dev/null; do
        kill -0 $pid 2>/dev/null || fail_with error.log "the owner was not seen"
        sleep 0.1
    done
    printf "$claim" 2 >data/bucket/owned%2F.weft-owner%2Ffar.json
    ! wait $pid && has_message error.log folder-locked level=error value=far || { cat error.log; return 1; }
}
check shard_meets_owner
# A shard with --wait meets an owner that completes the result. It begins again after the owner's end,
# finds nothing to do, and writes nothing into the result.
shard_waits_for_owner() {
    needs shards
    local pid name claim='{"host": "far", "pid": 7, "since": "x", "machine": "another", "start": 1, "count": %s, "seconds": 600, "state": "owner"}'
    fault "PUT state hold"
    WEFT_LOG_FORMAT=json WEFT_COPIES=$PWD/waiting "$WEFT" curate --in s3://bucket/raw --out s3://bucket/waited "${sets[@]}" --shard 0/1 --wait >log 2>error.log &
    pid=$!
    until [ -e data/held ]; do kill -0 $pid 2>/dev/null || fail_with error.log "the run ended"; sleep 0.05; done
    printf "$claim" 1 >data/bucket/waited%2F.weft-owner%2Ffar.json
    rm data/held
    until has_message error.log folder-locked 'text~=begins again' 2>missing.txt; do
        kill -0 $pid 2>/dev/null || fail_with error.log "the shard did not begin again"
        printf "$claim" $RANDOM >data/new
        mv data/new data/bucket/waited%2F.weft-owner%2Ffar.json # it is renewed
        sleep 0.1
    done
    for name in data/bucket/shards%2F*; do cp "$name" "${name/shards%2F/waited%2F}" || return 1; done
    cp data/requests before
    rm data/bucket/waited%2F.weft-owner%2Ffar.json
    wait $pid || { cat error.log; return 1; }
    ! requests_since before | grep -E '^(PUT|POST|DELETE) .*waited.*(clips|metas|state|json)' || return 1
    from_bucket waited seen && are_same out seen
}
check shard_waits_for_owner
# Looks for an owner use one connection and the credentials of the start: the command that gives them
# runs as often for one video as for many.
looks() {
    needs folder
    local count
    printf '[default]\ncredential_process = bash %s/give.sh\n' "$PWD" >aws-config
    printf 'echo call >>%s/calls\necho %s\n' "$PWD" "'{\"Version\": 1, \"AccessKeyId\": \"testkey1\", \"SecretAccessKey\": \"testsecret12\"}'" >give.sh
    mkdir one && cp "raw/$first.mp4" one/
    for count in one raw; do
        (
            unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
            rm -f calls
            AWS_CONFIG_FILE=$PWD/aws-config WEFT_COPIES=$PWD/looking curate $count s3://bucket/looks-$count --shard 0/1
        ) >log 2>&1 || { cat log; return 1; }
        mv calls calls-$count
    done
    cmp calls-one calls-raw
}
check looks
# Workers of two machines: one lists and analyses, the other one writes the clips.
workers() {
    needs folder
    local worker=("$WEFT" curate --in raw --out s3://bucket/workers "${sets[@]}" --worker)
    echo '{"task": "list"}' | "${worker[@]}" >list 2>log || { cat log; return 1; }
    python3 -S -c 'import json; [print(json.dumps({"task": "analyse", "video": v})) for v in json.load(open("list"))["videos"]]' >tasks
    WEFT_COPIES=$PWD/machine0 "${worker[@]}" <tasks >results 2>log && ! grep -v '"done":true' results || { cat log results; return 1; }
    python3 -S -c 'import json; [print(json.dumps({"task": "write", "video": v})) for v in json.load(open("list"))["videos"]]' >tasks
    WEFT_COPIES=$PWD/machine1 "${worker[@]}" <tasks >results 2>log && ! grep -v '"done":true' results || { cat log results; return 1; }
    cp data/requests before
    curate raw s3://bucket/workers --finish >log 2>&1 || { cat log; return 1; }
    from_bucket workers seen && are_same out seen || return 1
    ! requests_since before | grep 'PUT .*clips'
}
check workers
# Shards and workers of another version are refused; a run without shards updates the output.
versions() {
    needs workers
    local version=data/bucket/workers%2Fstate%2Fversion
    cp $version kept_version
    echo 0.0.1 | "$WEFT_BUILD/test-tools/store" s3://bucket/workers/state put version || return 1
    expect_error config-changed key=version value=0.0.1 -- curate raw s3://bucket/workers --shard 0/2 || return 1
    expect_error config-changed key=version value=0.0.1 -- curate raw s3://bucket/workers --finish || return 1
    expect_error config-changed key=version value=0.0.1 -- curate raw s3://bucket/workers --worker </dev/null || return 1
    curate raw s3://bucket/workers >log 2>&1 && cmp kept_version $version || { cat log; return 1; }
    curate raw s3://bucket/workers --shard 0/2 >log 2>&1 || { cat log; return 1; }
    from_bucket workers seen && are_same out seen
}
check versions
# Captions of a server are made from clips that only the bucket has, and operators score footage of
# the bucket.
captions() {
    local options name
    mkdir server
    export WEFT_COPIES=$PWD/captioning
    python3 -S "$SRC/tests/curate/caption_server.py" "$PWD/server" >server.log 2>&1 &
    caption_server=$!
    trap 'kill $caption_server 2>/dev/null' EXIT
    until [ -e server/port ] || ! kill -0 $caption_server 2>/dev/null; do sleep 0.05; done
    options=(--set "captions.url=http://127.0.0.1:$(cat server/port)/v1" --set captions.model=small --set captions.frames=2
        --set captions.side=64 --set captions.concurrency=1 --set operator_order=fixed
        --set 'operators=[{name: blur, measure: blur}]')
    rm raw/*.txt raw/deep/*.csv
    curate raw captioned "${options[@]}" >log 2>&1 && curate s3://bucket/raw s3://bucket/captioned >log 2>&1 || { cat log; return 1; }
    rm data/bucket/raw%2F*.txt data/bucket/raw%2Fdeep%2F*.csv
    curate s3://bucket/raw s3://bucket/captioned "${options[@]}" >log 2>&1 || { cat log; return 1; }
    from_bucket captioned seen && are_same captioned seen && diff -r captioned/captions seen/captions || return 1
    grep -q '"caption"' seen/captions/*.json && [ -z "$(find captioning/shared-* -name '*.mp4')" ] || return 1
    for name in captioned/state/*.scores.json; do [ -e "seen/state/${name##*/}" ] || return 1; done
}
check captions
errors() {
    expect_error option-conflict -- curate s3://bucket/raw s3://bucket/raw/ || return 1
    expect_error storage-location -- curate raw https://127.0.0.1/out || return 1
    expect_error storage-location key=--out -- curate raw s3://bucket/slurm --engine slurm || return 1
    expect_error storage-bucket -- curate s3://missing/raw no || return 1
    expect_error footage-not-found -- curate s3://bucket/nothing no || return 1
    expect_error storage-location -- curate https://127.0.0.1/raw no || return 1
    : >'data/bucket/odd%2Fa%2F%2Fb.mp4'
    cp raw/"$first.mp4" data/bucket/odd%2Fc.mp4
    curate s3://bucket/odd odd >log 2>&1 && grep -q '"source":"a//b.mp4".*no file can have' odd/rejects.jsonl
}
check errors
finish
