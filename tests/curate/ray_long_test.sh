#!/bin/bash
# tools/ray_curate.py on Ray: two workers; a worker process, an actor, a node and the driver that are killed. The folder equals one machine's, byte for byte. Needs the Python package ray (WEFT_RAY_PYTHON: a python that has it).
# `make test-long`.
set -e
. "$SRC/tests/check.sh"
[ "${WEFT_TEST_LONG-}" ] || skip "make test-long runs it"
. "$SRC/tests/signal_at.sh"
python=${WEFT_RAY_PYTHON-python3}
"$python" -c 'import ray' 2>/dev/null || skip "no Ray (Python package ray)"
# Everything on 127.0.0.1, and in short paths: names of sockets have at most 107 bytes.
short=$(mktemp -d /tmp/ray.XXX)
export HOME=$short RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=disabled RAY_TMPDIR=$short
$WEFT synth --out set --shots 8 --seed 3 --held-out-clips 0 >/dev/null 2>&1
mkdir raw
cp set/train/* raw/
settings=(--set clips.preset=ultrafast --set stall_seconds=3000 --set 'operators=[{name: sum, expression: motion + sharpness, max: 100000}]')
$WEFT curate --in raw --out a "${settings[@]}" >a.log 2>&1 || fail_with a.log "one machine"
end() { # the processes of this Ray
    local pids
    pids=$(pgrep -f -- "$short" || true)
    [ -z "$pids" ] || kill -KILL $pids 2>/dev/null || true
    rm -rf "$short"
}
trap end EXIT

until_true() {
    local tries=0
    until "$@"; do
        [ $((tries += 1)) -lt 3000 ] || fail "not reached in five minutes: $*"
        sleep 0.1
    done
}
drive() { # OUT
    "$python" "$SRC/tools/ray_curate.py" --weft "$WEFT" --in raw --out "$1" --workers 2 "${@:2}" -- "${settings[@]}"
}
# drive_stopped OUT: the same in the background; a child of one worker process stops itself at its first record. Sets
# `driver`, and `child`, `worker` and `actor`: the stopped process, its parent and the actor.
drive_stopped() {
    stopping "$1" drive "$@" >"$1.log" 2>&1 &
    driver=$!
    until_true find_stopped "$1"
    worker=$(awk '{print $4}' "/proc/$child/stat")
    actor=$(awk '{print $4}' "/proc/$worker/stat")
}
stopping() { # OUT COMMAND...
    SIGNAL_ONCE=$PWD/stopped.$1 LD_PRELOAD=$signal_library SIGNAL_NUMBER=$(kill -l STOP) SIGNAL_AT="*/$1/state/*.json" "${@:2}"
}
find_stopped() {
    for child in $(pgrep -f -- "--out $PWD/$1 --worker"); do
        [ "$(awk '{print $3}' "/proc/$child/stat" 2>/dev/null)" != T ] || return 0
    done
    return 1
}
same_folder() { # OUT
    diff -r -x state a "$1"
    diff -r -x '*.lock' -x lock a/state "$1/state"
    [ -z "$(find "$1" -name '*.tmp.*')" ]
}
two_workers() {
    drive b >b.log 2>&1 || fail_with b.log "the driver"
    same_folder b
}
check two_workers
a_worker_is_killed() {
    drive_stopped c
    kill -KILL "$worker"
    wait $driver || fail_with c.log "the driver"
    same_folder c
}
check a_worker_is_killed
# A program whose version changes with each call, as on machines with other builds.
other_versions_refuse_to_work() {
    printf '#!/bin/sh\n[ "$1" != --version ] || { echo "weft $$"; exit; }\nexec "%s" "$@"\n' "$WEFT" >other
    chmod +x other
    WEFT=$PWD/other drive g >g.log 2>&1 && fail "a worker of another version worked"
    grep -q 'ray_curate: .*weft [0-9]*, and the driver weft' g.log && [ -z "$(ls g/state | grep json)" ] || fail_with g.log "the driver"
}
check other_versions_refuse_to_work
an_actor_is_killed() {
    drive_stopped d
    kill -KILL "$actor"
    wait $driver || fail_with d.log "the driver"
    same_folder d
}
check an_actor_is_killed
start_cluster() { # OUT: its actors are children of the nodes, and so have their environment
    rm -f address hold
    mkfifo hold
    stopping "$1" "$python" "$SRC/tests/curate/ray_cluster.py" address <hold >cluster.log 2>&1 &
    exec 9>hold # the cluster lives as long as the pipe
    until_true test -s address
}
# The actors of a killed driver end with its job. The second driver continues from the records.
the_driver_is_killed() {
    start_cluster e
    drive_stopped e --address "$(cat address)"
    kill -KILL "$(pgrep -P $driver)"
    wait $driver && fail "the driver was not killed"
    drive e --address "$(cat address)" >e2.log 2>&1 || fail_with e2.log "the second driver"
    same_folder e
    exec 9>&-
}
check the_driver_is_killed
# The node of the stopped worker dies for good: the other one does the work.
a_node_is_killed() {
    start_cluster f
    drive_stopped f --address "$(cat address)"
    kill -KILL "$(awk '{print $4}' "/proc/$actor/stat")"
    wait $driver || fail_with f.log "the driver"
    grep -q 'ray_curate: analyse' f.log || fail "no task was lost"
    same_folder f
    exec 9>&-
}
check a_node_is_killed
finish
