#!/bin/bash
# Verbs that read from buckets and write there: synth, shots, shard, report, generate and the options
# with files. The bytes are equal to folders, also with cut connections. A failed verb sends nothing,
# or what a later one continues.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/storage/servers.sh"
start_s3
export WEFT_COPIES=$PWD/copies WEFT_CACHE=$PWD/cache OMP_NUM_THREADS=1
model=$SRC/tests/golden/pipelines/wan_over
requests_since() { tail -n "+$(($(wc -l <"$1") + 1))" data/requests; } # requests_since FILE
synth() {
    local words=(--shots 8 --seed 3 --held-out-clips 1)
    "$WEFT" synth --out set "${words[@]}" >log 2>&1 || { cat log; return 1; }
    fault "PUT .mp4 drop" "PUT heldout.json close" "GET list-type cut"
    "$WEFT" synth --out s3://bucket/set "${words[@]}" >log 2>&1 || { cat log; return 1; }
    no_fault_is_left
    get_folder set seen && diff -r set seen || return 1
    expect_error file-exists -- "$WEFT" synth --out s3://bucket/set "${words[@]}" || return 1
    # an error of the options sends nothing, and nothing stays here
    ! "$WEFT" synth --out s3://bucket/none --size 33 >log 2>&1 || return 1
    ! ls data/bucket | grep none && ! ls -d copies/new-* 2>/dev/null
}
check synth
shots() {
    needs synth
    put_folder set/train footage
    "$WEFT" shots set/train >folder.jsonl 2>log || { cat log; return 1; }
    fault "GET .mp4 cut" "GET .mp4 status 503"
    "$WEFT" shots s3://bucket/footage >bucket.jsonl 2>log || { cat log; return 1; }
    no_fault_is_left
    [ -s folder.jsonl ] && sed 's|s3://bucket/footage/|set/train/|' bucket.jsonl | cmp - folder.jsonl || return 1
    "$WEFT" shots set/train --csv --out lists >log 2>&1 || { cat log; return 1; }
    fault "PUT Scenes.csv close"
    "$WEFT" shots s3://bucket/footage --csv --out s3://bucket/lists >log 2>&1 || { cat log; return 1; }
    get_folder lists lists2 && diff -r lists lists2 && ! ls -d copies/out-* 2>/dev/null || return 1
    local one=(set/train/v*.mp4) # one object, without a list
    one=${one[0]##*/}
    "$WEFT" shots "s3://bucket/footage/$one" >one.jsonl 2>log || { cat log; return 1; }
    grep "/$one\"" bucket.jsonl | cmp - one.jsonl && [ -s one.jsonl ]
}
check shots
# A video that cannot be copied ends the command: nothing is skipped for an error of the network. A
# damaged video is skipped.
shots_refused() {
    needs shots
    local first=(set/train/s*.mp4)
    first=${first[0]##*/}
    for i in $(seq 3); do echo "GET $first code 403 AccessDenied"; done >data/faults
    WEFT_COPIES=$PWD/copies2 expect_error storage-request -- "$WEFT" shots s3://bucket/footage --out s3://bucket/half || return 1
    ! has_message stderr footage-skipped 2>/dev/null || return 1
    rm data/faults
    echo text >data/bucket/damaged%2Fa.mp4
    cp "set/train/$first" data/bucket/damaged%2Fb.mp4
    expect_error video-unreadable -- "$WEFT" shots s3://bucket/damaged --out s3://bucket/half || return 1
    [ -e data/bucket/half%2Fb.jsonl ] || return 1
    expect_error footage-not-found -- "$WEFT" shots s3://bucket/lists || return 1
    expect_error video-unreadable -- "$WEFT" shots s3://bucket/nothing
}
check shots_refused
shard() {
    mkdir -p in/clips in/metas
    for i in $(seq 10 29); do
        head -c $((20000 + i * 100)) /dev/urandom >in/clips/v$i.mp4
        echo "{\"caption\": \"clip $i\", \"frames\": $i, \"width\": 64, \"height\": 64, \"fps\": 24}" >in/metas/v$i.json
    done
    head -c 9000000 /dev/urandom >in/clips/v30.mp4 # several pieces, more than a block of the cache
    echo '{"frames": 30}' >in/metas/v30.json
    echo '{"caption": ' >in/metas/v28.json # damaged
    rm in/metas/v29.json
    touch in/clips/v31.mp4 # empty
    echo '{"frames": 31}' >in/metas/v31.json
    printf 'file,caption\nv30.mp4,a listed caption\n' >in/captions.csv
    # all clips of one source: some are held out by their own number, which split.json remembers
    for i in $(seq 10 31); do echo "{\"id\": \"v$i\", \"source_video\": \"a.mp4\", \"frame_span\": [$i, $i]}"; done >in/manifest.jsonl
    echo text >in/clips/notes.txt
    put_folder in in
    local sets=(--set max_samples=5 --set heldout=0.2)
    "$WEFT" shard --in in --out shards "${sets[@]}" >folder.log 2>&1 || { cat folder.log; return 1; }
    fault "GET clips/v12 cut" "GET clips/v30 status 503" "GET metas drop"
    "$WEFT" shard --in s3://bucket/in --out shards2 "${sets[@]}" >bucket.log 2>&1 || { cat bucket.log; return 1; }
    no_fault_is_left
    for file in shards/*.tar shards/index.json; do cmp "$file" "shards2/${file#*/}" || return 1; done
    [ -e in/split.json ] && cmp in/split.json data/bucket/in%2Fsplit.json || return 1 # as in a folder
    # from bucket to bucket; the second run keeps the shards
    "$WEFT" shard --in s3://bucket/in --out s3://bucket/shards "${sets[@]}" >log 2>&1 || { cat log; return 1; }
    cp data/requests before
    "$WEFT" shard --in s3://bucket/in --out s3://bucket/shards "${sets[@]}" >log 2>&1 || { cat log; return 1; }
    ! requests_since before | grep 'PUT .*[.]tar ' || return 1
    get_folder shards seen_shards
    for file in shards/*.tar shards/index.json; do cmp "$file" "seen_shards/${file#*/}" || return 1; done
}
check shard
# A clip that cannot be read ends the command, and drops no clip; the next run completes the shards.
shard_refused() {
    needs shard
    export WEFT_CACHE=$PWD/cache3
    for i in $(seq 20); do echo "GET clips/v15 code 403 AccessDenied"; done >data/faults
    expect_error storage-denied -- "$WEFT" shard --in s3://bucket/in --out shards3 --set max_samples=5 --set heldout=0.2 || return 1
    [ ! -e shards3/index.json ] || return 1
    rm data/faults
    "$WEFT" shard --in s3://bucket/in --out shards3 --set max_samples=5 --set heldout=0.2 >log 2>&1 || { cat log; return 1; }
    for file in shards/*.tar shards/index.json; do cmp "$file" "shards3/${file#*/}" || return 1; done
    expect_error file-not-found -- "$WEFT" shard --in s3://bucket/none --out shards4 || return 1
    expect_error storage-location -- "$WEFT" shard --in "${AWS_ENDPOINT_URL_S3}/bucket/in" --out shards4
}
check shard_refused
# generate PLACE OUT: two videos.
words=(--frames 5 --height 32 --width 32 --seed 3 --precision f32)
generate() {
    printf '{"prompt": "a red cat"}\n{"prompt": "a dog"}\n' >prompts.jsonl
    cp prompts.jsonl data/bucket/prompts.jsonl
    "$WEFT" generate --model "$model" --prompts prompts.jsonl --out videos --sheet sheet.png "${words[@]}" --steps 2 >log 2>&1 || { cat log; return 1; }
    fault "PUT 0000.mp4 drop" "PUT prompts.jsonl close" "PUT sheet.png close"
    "$WEFT" generate --model "$model" --prompts s3://bucket/prompts.jsonl --out s3://bucket/videos --sheet s3://bucket/sheet.png \
        "${words[@]}" --steps 2 >shown 2>log || { cat log; return 1; }
    no_fault_is_left
    [ "$(cat shown)" = $'s3://bucket/videos\ns3://bucket/sheet.png' ] || { cat shown; return 1; }
    get_folder videos videos2 && cmp sheet.png data/bucket/sheet.png || return 1
    cmp videos/0000.mp4 videos2/0000.mp4 && cmp videos/0001.mp4 videos2/0001.mp4 && [ "$(ls videos)" = "$(ls videos2)" ] || return 1
    ! grep -q copies videos2/prompts.jsonl && ! ls -d copies/out-* copies/new-* 2>/dev/null || return 1
    # one video with the files of its name; others of the folder are not read
    "$WEFT" generate --model "$model" --prompt "a red cat" --out one.mp4 --save-latents "${words[@]}" --steps 2 >log 2>&1 || { cat log; return 1; }
    cp data/requests before
    "$WEFT" generate --model "$model" --prompt "a red cat" --out s3://bucket/videos/one.mp4 --save-latents "${words[@]}" --steps 2 >log 2>&1 || { cat log; return 1; }
    ! requests_since before | grep 'GET .*/000' || return 1
    cmp one.mp4 data/bucket/videos%2Fone.mp4 && cmp one.latents.safetensors data/bucket/videos%2Fone.latents.safetensors || return 1
    "$WEFT" generate --model "$model" --decode-latents s3://bucket/videos/one.latents.safetensors --out s3://bucket/again.mp4 >log 2>&1 || { cat log; return 1; }
    [ -s data/bucket/again.mp4 ] || return 1
    expect_error file-name -- "$WEFT" generate --model "$model" --prompt x --out s3://bucket/dog.avi "${words[@]}"
}
check generate
# Two ranks write the files of one folder, which is sent when both have ended. Ranks with folders of
# their own are refused.
ranks() {
    needs generate
    local command=("$WEFT" generate --model "$model" --prompts prompts.jsonl --out s3://bucket/ranks "${words[@]}" --steps 2 --batch-size 1) mpirun
    mpirun=$(command -v mpirun.openmpi || command -v mpirun) || skip "no mpirun"
    "$mpirun" --oversubscribe -n 2 "${command[@]}" >log 2>&1 || { cat log; return 1; }
    get_folder ranks ranks && [ "$(ls videos)" = "$(ls ranks)" ] || return 1
    rm data/bucket/ranks*
    ! "$mpirun" --oversubscribe -n 1 env WEFT_COPIES="$PWD/one" "${command[@]}" : -n 1 env WEFT_COPIES="$PWD/two" "${command[@]}" >log 2>&1 || return 1
    has_message log ranks-disagree && ! ls data/bucket | grep ranks
}
check ranks
# Ctrl-C sends the state of sampling; another machine continues from the state.
interrupted() {
    needs generate
    local states
    "$WEFT" generate --model "$model" --prompt "a red cat" --out long.mp4 "${words[@]}" --steps 900 >log 2>&1 || { cat log; return 1; }
    "$WEFT" generate --model "$model" --prompt "a red cat" --out s3://bucket/long.mp4 "${words[@]}" --steps 900 >log 2>&1 &
    until ls copies/out-*/files/long.sampling.safetensors >/dev/null 2>&1; do kill -0 $! 2>/dev/null || break; sleep 0.01; done
    kill -INT $! 2>/dev/null
    wait $!
    states=$?
    if [ $states = 130 ]; then
        [ -e data/bucket/long.sampling.safetensors ] && [ ! -e data/bucket/long.mp4 ] || return 1
    fi
    WEFT_COPIES=$PWD/copies4 "$WEFT" generate --model "$model" --prompt "a red cat" --out s3://bucket/long.mp4 --resume "${words[@]}" --steps 900 \
        >log 2>&1 || { cat log; return 1; }
    [ $states != 130 ] || has_message log run-resumed || { cat log; return 1; }
    cmp long.mp4 data/bucket/long.mp4 && [ ! -e data/bucket/long.sampling.safetensors ]
}
check interrupted
report() {
    mkdir -p run/checkpoints
    python3 -S -c 'import json
for i in range(1, 20): print(json.dumps({"step": i, "loss": 1 / i, "grad_norm": 1.0, "seconds": 0.1, "stage": 0}))' >run/metrics.jsonl
    head -c 100000 /dev/urandom >run/checkpoints/weights.safetensors
    cp "$SRC/tests/golden/pipelines/wan_over/model_index.json" run/model_index.json
    python3 -S -c 'for i in range(20): print("{\"step\": %d, \"seconds\": 0.%d}" % (i, i + 1))' >times.jsonl
    put_folder run run
    cp times.jsonl data/bucket/times.jsonl
    "$WEFT" report --run a=run --step-times times.jsonl --out page.html >log 2>&1 || { cat log; return 1; }
    cp data/requests before
    "$WEFT" report --run a=s3://bucket/run --step-times s3://bucket/times.jsonl --out s3://bucket/page.html >shown 2>log || { cat log; return 1; }
    [ "$(cat shown)" = s3://bucket/page.html ] && cmp page.html data/bucket/page.html || return 1
    ! requests_since before | grep 'GET .*safetensors' || return 1
    # the page is replaced; a failed report leaves the page as it is
    "$WEFT" report --step-times s3://bucket/times.jsonl --out s3://bucket/page.html >log 2>&1 || { cat log; return 1; }
    ! cmp -s page.html data/bucket/page.html && cp data/bucket/page.html kept.html || return 1
    ! "$WEFT" report --run a=s3://bucket/none --out s3://bucket/page.html >log 2>&1 && cmp kept.html data/bucket/page.html
}
check report
# Options with one file, read and written.
files() {
    "$WEFT" topology h100:2 --yaml >cluster.yaml && cp cluster.yaml data/bucket/cluster.yaml || return 1
    "$WEFT" topology cluster.yaml --svg a.svg >folder.txt 2>log || { cat log; return 1; }
    "$WEFT" topology s3://bucket/cluster.yaml --svg s3://bucket/a.svg >bucket.txt 2>log || { cat log; return 1; }
    cmp a.svg data/bucket/a.svg && cmp folder.txt bucket.txt || return 1
    "$WEFT" simulate serve poisson --jobs 20 --save trace.jsonl >log 2>&1 && cp trace.jsonl data/bucket/trace.jsonl || { cat log; return 1; }
    "$WEFT" simulate serve trace.jsonl --out figures.json >folder.txt 2>log || { cat log; return 1; }
    "$WEFT" simulate serve s3://bucket/trace.jsonl --out s3://bucket/figures.json >bucket.txt 2>log || { cat log; return 1; }
    cmp figures.json data/bucket/figures.json || return 1
    "$WEFT" plan layout "$SRC/examples/plan-layout.yaml" --set cluster=cluster.yaml >folder.txt 2>log || { cat log; return 1; }
    "$WEFT" plan layout "$SRC/examples/plan-layout.yaml" --set cluster=s3://bucket/cluster.yaml >bucket.txt 2>log || { cat log; return 1; }
    [ "$(wc -l <folder.txt)" -gt 1 ] && sed '1,2d' folder.txt | cmp - <(sed '1,2d' bucket.txt) || return 1
    put_folder "$model/tokenizer" tokenizer
    "$WEFT" tokenize "$model/tokenizer" "https://127.0.0.1:1/a" s3://bucket/none >folder.txt 2>log || { cat log; return 1; }
    "$WEFT" tokenize s3://bucket/tokenizer "https://127.0.0.1:1/a" s3://bucket/none >bucket.txt 2>log || { cat log; return 1; }
    [ -s folder.txt ] && cmp folder.txt bucket.txt || return 1 # texts are not places
    # places that stay on this machine, with the reason
    expect_error storage-location -- "$WEFT" serve --model "$model" --state s3://bucket/state || return 1
    expect_error storage-location -- "$WEFT" curate --in set --out s3://bucket/c --engine slurm || return 1
    expect_error storage-location -- "$WEFT" report --out "$AWS_ENDPOINT_URL_S3/bucket/page.html" --step-times times.jsonl
}
check files
# Models of a curation: another machine has other paths and the same versions, so it embeds nothing again.
models() {
    needs synth
    put_folder "$SRC/tests/golden/pipelines/wan_i2v/image_encoder" clip
    curate() { "$WEFT" curate --in set/train --out "$1" --set clips.preset=ultrafast --set "embeddings.model=$2" --set embeddings.frames=1; }
    curate cur "$SRC/tests/golden/pipelines/wan_i2v/image_encoder" >log 2>&1 || { cat log; return 1; }
    curate cur2 s3://bucket/clip >log 2>&1 || { cat log; return 1; }
    for file in cur/metas/*.json cur/manifest.jsonl; do cmp "$file" "cur2/${file#cur/}" || return 1; done
    for file in cur/state/*.embeddings.safetensors; do [ "$(wc -c <"$file")" = "$(wc -c <"cur2/${file#cur/}")" ] || return 1; done
    sed -n 's/.*model: *//p' cur2/state/config.yaml | tr -d '"' >place
    [ "$(grep -c '^s3://bucket/clip$' place)" = 1 ] || { cat place; return 1; }
    touch -d 2001-01-01 cur2/state/*.embeddings.safetensors
    WEFT_COPIES=$PWD/copies5 curate cur2 s3://bucket/clip >log 2>&1 || { cat log; return 1; }
    [ -z "$(find cur2/state -name '*.embeddings.safetensors' -newermt 2002-01-01)" ]
}
check models
finish
