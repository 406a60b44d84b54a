#!/bin/bash
# One run at a time writes to a location of a bucket. A second run is refused with the name of the
# other machine. A killed run is replaced, and a run that lost its claim writes nothing more.
# Another machine is played by files of claims, which this script renews.
. "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/storage/servers.sh"
start_s3
export WEFT_CACHE=$PWD/cache WEFT_COPIES=$PWD/copies
store() { "$WEFT_BUILD/test-tools/store" "$@"; }
claims() { ls data/bucket | sed -n "s/^$1%2F.weft-owner%2F//p"; } # claims PREFIX
# claim PREFIX SECONDS COUNT: the claim of a run on the machine "far".
claim() {
    printf '{"host": "far", "pid": 7, "since": "2026-01-01 00:00:00", "machine": "another", "start": 1, "count": %s, "seconds": %s, "state": "owner"}' \
        "$3" "$2" >"new-claim$BASHPID"
    mv "new-claim$BASHPID" "data/bucket/$1%2F.weft-owner%2Ffar.json"
}
# renew PREFIX: the machine "far" lives until the file `stop` exists.
renew() {
    local count=1
    while [ ! -e stop ] && kill -0 $$; do claim "$1" 60 $count; count=$((count + 1)); sleep 0.1; done
    rm "data/bucket/$1%2F.weft-owner%2Ffar.json" stop
}
# own NAME: starts a process that owns s3://bucket/NAME until NAME.in is closed; sets `owner`.
own() {
    mkfifo "$1.in"
    "$WEFT_BUILD/test-tools/store" "s3://bucket/$1" own <"$1.in" >"$1.out" 2>"$1.err" &
    owner=$!
    exec 9>"$1.in"
    until [ -s "$1.out" ]; do kill -0 $owner 2>/dev/null || fail_with "$1.err" "no owner"; sleep 0.02; done
}
# A live process of this machine is seen at once, whatever the seconds are, also while it is stopped.
this_machine() {
    export WEFT_OWNER_SECONDS=10000
    own here
    kill -STOP $owner
    expect_error folder-locked value="$(hostname)" file=s3://bucket/here -- store s3://bucket/here own </dev/null || return 1
    expect_error folder-locked -- store s3://bucket/here/ look || return 1
    store s3://bucket/here2 own </dev/null >log || return 1 # another place
    kill -CONT $owner
    exec 9>&-
    ! ls cache/*.block >/dev/null 2>&1 || return 1 # claims change, so the cache keeps none
    wait $owner || { cat here.err; return 1; }
    [ -z "$(claims here)" ] && store s3://bucket/here own </dev/null >log && [ -z "$(claims here)" ]
}
check this_machine
# A killed process of this machine is replaced at once.
killed() {
    export WEFT_OWNER_SECONDS=10000
    own dead
    kill -9 $owner
    wait $owner 2>/dev/null
    exec 9>&-
    [ -n "$(claims dead)" ] || return 1
    store s3://bucket/dead own </dev/null >log 2>&1 && [ -z "$(claims dead)" ]
}
check killed
other_machine() {
    renew far &
    until [ -n "$(claims far)" ]; do sleep 0.02; done
    expect_error folder-locked value=far -- store s3://bucket/far own </dev/null || return 1
    expect_error folder-locked value=far -- store s3://bucket/far look || return 1
    touch stop
    wait
    store s3://bucket/far own </dev/null >log || return 1
    # it stops: nothing renews the claim
    claim far 0.3 1
    store s3://bucket/far own </dev/null >log 2>&1 || { cat log; return 1; }
    [ -z "$(claims far)" ] || return 1
    echo damaged >data/bucket/far%2F.weft-owner%2Fx.json
    WEFT_OWNER_SECONDS=nothing expect_error storage-settings -- store s3://bucket/far2 own </dev/null || return 1
    rm data/bucket/far%2F.weft-owner%2Fx.json
}
check other_machine
# The claim is renewed; an owner whose claim was removed or that sees another owner stops.
lost() {
    export WEFT_OWNER_SECONDS=0.3
    own mine
    local name count
    name=$(claims mine)
    count=$(python3 -IS -c 'import json, sys; print(json.load(open(sys.argv[1]))["count"])' "data/bucket/mine%2F.weft-owner%2F$name")
    until [ "$(python3 -IS -c 'import json, sys; print(json.load(open(sys.argv[1]))["count"])' "data/bucket/mine%2F.weft-owner%2F$name")" -gt $((count + 1)) ]; do
        sleep 0.02
    done
    echo >&9 # still the owner
    claim mine 60 1
    echo >&9
    exec 9>&-
    ! wait $owner || return 1
    has_message mine.err folder-locked value=far || { cat mine.err; return 1; }
    rm data/bucket/mine%2F.weft-owner%2F*
    export WEFT_OWNER_SECONDS=10000
    rm mine.in mine.out
    own mine
    rm data/bucket/mine%2F.weft-owner%2F*
    echo >&9
    exec 9>&-
    ! wait $owner && has_message mine.err folder-locked || { cat mine.err; return 1; }
    [ -z "$(claims mine)" ] # nothing writes the claim again
}
check lost
# Of processes that start together, at most one is the owner at any time, and at least one becomes it.
race() {
    for i in 1 2 3 4 5; do store s3://bucket/race own </dev/null >race$i.out 2>race$i.err & done
    wait
    cat race*.out | python3 -IS -c '
import sys
spans = [float(word) for line in sys.stdin for word in line.split()[1:]]
spans = sorted(zip(spans[::2], spans[1::2]))
assert spans and all(a[1] <= b[0] for a, b in zip(spans, spans[1:])), spans' || return 1
    for i in 1 2 3 4 5; do [ -s race$i.out ] || has_message race$i.err folder-locked || return 1; done
    [ -z "$(claims race)" ]
}
check race
# A claim that is rewritten while another process reads it is read again.
rewritten() {
    export WEFT_OWNER_SECONDS=10000
    own there
    local size
    for size in 20 4000; do
        fault "GET .json resized $size" "GET .json resized $size"
        expect_error folder-locked value="$(hostname)" file=s3://bucket/there -- store s3://bucket/there own </dev/null || return 1
        no_fault_is_left || return 1
    done
    exec 9>&-
    wait $owner
}
check rewritten
# Cut connections: the claim is correct, or the command fails.
cut() {
    fault "PUT .weft-owner drop" "PUT .weft-owner close" "GET list-type cut" "DELETE .weft-owner close"
    store s3://bucket/cut own </dev/null >log 2>&1 && no_fault_is_left && [ -z "$(claims cut)" ]
}
check cut
# The verbs: a training run and a curation are refused while another machine works there, and take
# over after it has stopped.
verbs() {
    make_shards
    write_configs
    train() { "$WEFT" train vae.yaml --set out=s3://bucket/run --set stages.0.steps=2 "$@"; }
    curate() { "$WEFT" curate --in raw/train --out s3://bucket/cur --set clips.preset=ultrafast "$@"; }
    renew run &
    until [ -n "$(claims run)" ]; do sleep 0.02; done
    expect_error folder-locked value=far key=out -- train || return 1
    touch stop
    wait
    claim run 0.3 1
    train >log 2>&1 || { cat log; return 1; }
    [ -e data/bucket/run%2Fmodel%2Fvae%2Fconfig.json ] && [ -z "$(claims run)" ] || return 1
    renew cur &
    until [ -n "$(claims cur)" ]; do sleep 0.02; done
    expect_error folder-locked value=far key=--out -- curate || return 1
    expect_error folder-locked value=far -- curate --shard 0/2 || return 1
    expect_error folder-locked value=far -- curate --finish || return 1
    curate --wait >log 2>&1 &
    until has_message log folder-locked level=info value=far 2>/dev/null; do kill -0 $! 2>/dev/null || fail_with log "no wait"; sleep 0.05; done
    touch stop
    wait $! || { cat log; return 1; }
    wait
    [ -e data/bucket/cur%2Fsummary.json ] && [ -z "$(claims cur)" ]
}
check verbs
# A training run that loses its claim ends with the error, and writes no later checkpoint.
run_lost() {
    needs verbs
    fault "PUT step-00000002/state.json hold"
    "$WEFT" train vae.yaml --set out=s3://bucket/taken --set checkpoint.interval=2 --set stages.0.steps=6 >log 2>&1 &
    until [ -e data/held ]; do kill -0 $! 2>/dev/null || fail_with log "the run ended"; sleep 0.05; done
    rm data/bucket/taken%2F.weft-owner%2F*
    claim taken 60 1
    rm data/held
    ! wait $! || { cat log; return 1; }
    has_message log folder-locked level=error value=far || { cat log; return 1; }
    ! ls data/bucket | grep 'taken.*step-0000000[46]\|taken%2Fmodel'
}
check run_lost
finish
