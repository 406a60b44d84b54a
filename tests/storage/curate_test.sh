#!/bin/bash
# weft curate with footage in a bucket: clips, metas and lists are bitwise equal to a folder.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/storage/servers.sh"
start_s3
export WEFT_COPIES=$PWD/copies
"$WEFT" synth --out set --shots 10 --seed 3 --held-out-clips 0 >log 2>&1 || fail_with log "synth"
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
errors() {
    expect_error storage-bucket -- curate s3://missing/raw no || return 1
    expect_error footage-not-found -- curate s3://bucket/nothing no || return 1
    expect_error storage-location -- curate https://127.0.0.1/raw no || return 1
    : >'data/bucket/odd%2Fa%2F%2Fb.mp4'
    cp raw/"$first.mp4" data/bucket/odd%2Fc.mp4
    curate s3://bucket/odd odd >log 2>&1 && grep -q '"source":"a//b.mp4".*no file can have' odd/rejects.jsonl
}
check errors
finish
