#!/bin/bash
# `weft curate --engine slurm` on a Slurm cluster of two nodes. Tasks are requeued, stopped, killed, run into their time
# limit, and lose their node, each at its first record; the folder equals one machine's, byte for byte. `make test-long`.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
[ "${WEFT_TEST_LONG-}" ] || skip "make test-long runs it"
. "$SRC/tests/slurm_cluster.sh"
. "$SRC/tests/signal_at.sh"
$WEFT synth --out set --shots 16 --seed 3 --held-out-clips 0 >/dev/null 2>&1
mkdir raw
cp set/train/* raw/
cp raw/v0000.mp4 raw/copy.mp4
head -c 3000 raw/v0000.mp4 >raw/cut.mp4
settings=(--set clips.preset=ultrafast --set stall_seconds=3000)
$WEFT curate --in raw --out a "${settings[@]}" >a.log 2>&1 || fail_with a.log "one machine"
$WEFT shard --in a --out a.shards >a.log 2>&1 || fail_with a.log "shards of one machine"
start_cluster

# submit OUT [OPTION...]: submits a curation of three jobs, whose numbers are in the array `job`.
submit() {
    local out=$1
    $WEFT curate --in raw --out "$out" "${settings[@]}" --engine slurm --shards 4 "${@:2}" --submit >submitted 2>&1 ||
        fail_with submitted "submit"
    read -r -a job <<<"$(sed -n 's/^submitted \([0-9]*\) .* \([0-9]*\) .* \([0-9]*\) .*/\1 \2 \3/p' submitted)"
    [ "${#job[@]}" = 3 ] || fail_with submitted "no jobs"
}
# submit_stopped OUT [OPTION...]: the same. The worker of one task stops itself at its first record: the task runs until
# this script ends it. Sets `worker`, its number, and `task`, `number` and `node`, of the task (JOB_INDEX, job number).
submit_stopped() {
    local preload="LD_PRELOAD=$signal_library,SIGNAL_NUMBER=$(kill -l STOP),SIGNAL_AT=*/$1/state/*.json"
    submit "$1" "--sbatch=--export=ALL,$preload,SIGNAL_ONCE=$PWD/stopped.$1" "${@:2}"
    until_true find_stopped "$1"
    task=$(variable SLURM_ARRAY_JOB_ID)_$(variable SLURM_ARRAY_TASK_ID)
    number=$(variable SLURM_JOB_ID) node=$(variable SLURMD_NODENAME)
    parent=$(awk '{print $4}' "/proc/$worker/stat")
}
find_stopped() { # OUT: the stopped process that writes to it
    for worker in $(pgrep -f -- "--out $PWD/$1 "); do
        [ "$(awk '{print $3}' "/proc/$worker/stat" 2>/dev/null)" != T ] || return 0
    done
    return 1
}
variable() { tr '\0' '\n' <"/proc/$worker/environ" | sed -n "s/^$1=//p"; }
ended() { has_state "${job[2]}" COMPLETED FAILED CANCELLED TIMEOUT; }
# Waits for the last job: the folder equals one machine's.
same_folder() { # OUT
    until_true ended
    [ "$(state_of "${job[2]}")" = COMPLETED ] || fail_with <(tail -n 20 "$1"/slurm/*.log) "the last job: $(state_of "${job[2]}")"
    diff -r -x state -x slurm a "$1"
    diff -r -x '*.lock' -x lock a/state "$1/state"
    [ -z "$(find "$1" -name '*.tmp.*')" ]
    $WEFT shard --in "$1" --out "$1.shards" >shard.log 2>&1 || fail_with shard.log "shards"
    for tar in a.shards/*.tar; do # their indexes have the stamps of the clips
        cmp "$tar" "$1.shards/${tar##*/}"
    done
}
waits() { has_message "$1" folder-locked >/dev/null 2>&1; } # LOG
runs_again() { [ "$(scontrol show job "$task" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p')" = 1 ]; }

tasks_on_two_nodes() {
    submit b
    same_folder b
    grep -ho 'videos, all analysed' b/slurm/*.log | wc -l | grep -qx 8 # tasks of two arrays
}
check tasks_on_two_nodes
a_requeued_task_continues() {
    submit_stopped c
    scontrol requeue "$task"
    start_now "$task"
    until_true runs_again
    same_folder c
}
check a_requeued_task_continues
# SIGTERM ends a task without a half-written file; the second array does its videos.
a_terminated_task_is_repaired() {
    submit_stopped d
    scancel --batch --signal=TERM "$task"
    until_true has_state "$task" FAILED CANCELLED
    scontrol show job "$task" | grep -q 'ExitCode=130:0'
    same_folder d
}
check a_terminated_task_is_repaired
a_killed_task_is_repaired() {
    submit_stopped e
    kill -KILL "$parent"
    until_true has_state "$task" FAILED
    same_folder e
}
check a_killed_task_is_repaired
# The process that reads one video is killed: its reason is recorded, and the second array reads the video again.
a_killed_worker_is_repaired() {
    submit_stopped f
    kill -KILL "$worker"
    same_folder f
}
check a_killed_worker_is_repaired
a_time_limit_is_exceeded() {
    submit_stopped g
    scontrol update "jobid=$task" TimeLimit=1
    until_true has_state "$task" FAILED TIMEOUT
    same_folder g
}
check a_time_limit_is_exceeded
# The daemon of a node is killed: Slurm starts a second copy of the task, which waits for the first one.
a_lost_daemon_makes_a_second_copy_wait() {
    submit_stopped h
    kill_node "$node"
    start_now "$task"
    until_true runs_again
    until_true waits h/slurm/weft-curate-$number.log
    kill -0 "$worker"
    start_node "$node" # it kills the first copy
    same_folder h
    until_true nodes_are_idle
}
check a_lost_daemon_makes_a_second_copy_wait
# A node is lost with all its processes.
a_lost_node_is_replaced() {
    submit_stopped i
    step=$(awk '{print $4}' "/proc/$parent/stat")
    kill_node "$node"
    kill -KILL "$step" "$parent" "$worker" || true
    start_now "$task"
    until_true runs_again
    same_folder i
    start_node "$node"
    until_true nodes_are_idle
}
check a_lost_node_is_replaced
finish
