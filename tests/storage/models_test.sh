#!/bin/bash
# Models and adapters of a bucket in weft inspect, convert, generate --lora and serve: the results are
# bitwise equal to a folder. A converted model is complete in the bucket or not taken for a model.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/storage/servers.sh"
start_s3
export WEFT_COPIES=$PWD/copies OMP_NUM_THREADS=1
model=$SRC/tests/golden/pipelines/wan_over
PYTHONPATH=$SRC/tests/serve PYTHONDONTWRITEBYTECODE=1 python3 -c 'import serve_client; serve_client.write_lora("lora.safetensors")' ||
    fail "no adapter"
# to_bucket FOLDER PREFIX: puts the files as objects.
to_bucket() {
    local name
    (cd "$1" && find . -type f) | while read -r name; do
        name=${name#./}
        cp "$1/$name" "data/bucket/$2%2F${name//\//%2F}" || exit 1
    done
}
to_bucket "$model" wan
cp lora.safetensors data/bucket/lora.safetensors
requests_since() { tail -n "+$(($(wc -l <"$1") + 1))" data/requests; } # requests_since FILE
# All but the path in the first line, and seconds.
same_report() { sed '1d; /built and planned/d' folder.txt | cmp - <(sed '1d; /built and planned/d' bucket.txt); }
# weft inspect reads no weights, so none are copied.
inspect() {
    cp data/requests before 2>/dev/null || : >before
    "$WEFT" inspect model "$model/transformer" --frames 5 --height 32 --width 32 >folder.txt 2>log || { cat log; return 1; }
    "$WEFT" inspect model s3://bucket/wan/transformer --frames 5 --height 32 --width 32 >bucket.txt 2>log || { cat log; return 1; }
    same_report || return 1
    ! requests_since before | grep 'GET .*safetensors' || return 1
    "$WEFT" inspect model s3://bucket/wan/transformer/config.json --frames 5 --height 32 --width 32 >bucket.txt 2>log &&
        same_report || { cat log; return 1; }
    expect_error file-not-found -- "$WEFT" inspect model s3://bucket/none
}
check inspect
# Output of another name is a folder or a file; configs are sent last, and nothing stays here.
convert() {
    "$WEFT" convert "$model/transformer" converted --dtype f32 --lora lora.safetensors:0.5 >log 2>&1 || { cat log; return 1; }
    cp data/requests before
    fault "PUT .safetensors drop" "PUT config.json close"
    "$WEFT" convert s3://bucket/wan/transformer s3://bucket/models/new --dtype f32 --lora s3://bucket/lora.safetensors:0.5 >log 2>&1 ||
        { cat log; return 1; }
    no_fault_is_left
    for file in converted/*; do cmp "$file" "data/bucket/models%2Fnew%2F${file#converted/}" || return 1; done
    [ "$(ls data/bucket | grep -c '^models%2Fnew')" = "$(ls converted | wc -l)" ] || return 1
    requests_since before | grep '^PUT' | tail -n 1 | grep -q 'json 200' || return 1
    ! ls -d copies/new-* 2>/dev/null || return 1
    "$WEFT" convert s3://bucket/models/new s3://bucket/one.safetensors --to original >log 2>&1 &&
        "$WEFT" convert converted one.safetensors --to original >log 2>&1 && cmp one.safetensors data/bucket/one.safetensors || { cat log; return 1; }
}
check convert
# What exists is not replaced, and a failed conversion sends nothing.
refused() {
    needs convert
    expect_error file-exists -- "$WEFT" convert "$model/transformer" s3://bucket/models/new || return 1
    expect_error file-exists -- "$WEFT" convert "$model/transformer" s3://bucket/one.safetensors --to original || return 1
    expect_error storage-location -- "$WEFT" convert "$model/transformer" https://127.0.0.1/new || return 1
    expect_error storage-location -- "$WEFT" convert "$model/transformer" s3://bucket || return 1
    ! "$WEFT" convert s3://bucket/lora.safetensors s3://bucket/wrong --config s3://bucket/wan/transformer 2>log || return 1
    ! ls data/bucket | grep wrong && ! ls -d copies/new-* 2>/dev/null
}
check refused
words=(--prompt "a red cat" --frames 5 --height 32 --width 32 --steps 2 --seed 3)
adapters() {
    "$WEFT" generate --model "$model" --out a.mp4 --lora lora.safetensors:0.5 "${words[@]}" >log 2>&1 || { cat log; return 1; }
    "$WEFT" generate --model "$model" --out b.mp4 --lora s3://bucket/lora.safetensors:0.5 "${words[@]}" >log 2>&1 || { cat log; return 1; }
    "$WEFT" generate --model s3://bucket/wan --out c.mp4 --lora transformer=s3://bucket/lora.safetensors:0.5 "${words[@]}" >log 2>&1 ||
        { cat log; return 1; }
    "$WEFT" generate --model "$model" --out d.mp4 --lora s3://bucket/lora.safetensors "${words[@]}" >log 2>&1 || { cat log; return 1; }
    cmp a.mp4 b.mp4 && ! cmp -s a.mp4 d.mp4
}
check adapters
serve() {
    "$WEFT" serve --model x --listen nowhere >probe.log 2>&1
    ! has_message probe.log library-missing >/dev/null 2>&1 || skip "this build has no server"
    cat >serve.py <<'PY'
from serve_client import MODEL, VIDEO, Server, undisturbed
server = Server("state", "--lora", "style=s3://bucket/lora.safetensors", models=("s3://bucket/wan", "second=s3://bucket/wan"))
request = dict(VIDEO, frames=5, steps=2)
server.finish(*[server.call("POST", "/v1/videos", dict(request, model=name))["id"] for name in ("wan", "second")])
want = undisturbed("want", request)
jobs = [job["id"] for job in server.call("GET", "/v1/videos")["data"]]
assert len(jobs) == 2 and all(server.content(id)[1] == want for id in jobs), jobs
styled = server.call("POST", "/v1/videos", dict(request, lora="style"))["id"]
server.finish(styled)
assert server.content(styled)[1] != want
assert server.stop() == 130
PY
    PYTHONPATH=$SRC/tests/serve PYTHONDONTWRITEBYTECODE=1 timeout 120 python3 serve.py >log 2>&1 || { cat log; tail -n 5 state.log; return 1; }
}
check serve
finish
