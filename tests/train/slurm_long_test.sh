#!/bin/bash
# `weft train` under `srun --mpi=pmix` on a Slurm cluster of two nodes: losses of mpirun, preempted and queued
# again, ended by its time limit. `make test-long`.
. "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
[ "${WEFT_TEST_LONG-}" ] || skip "make test-long runs it"
. "$SRC/tests/slurm_cluster.sh"
. "$SRC/tests/signal_at.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || fail_with vae.log "no autoencoder"
ranks 2 "$WEFT" train dit.yaml --set out=a --set checkpoint.interval=2 >a.log 2>&1 || fail_with a.log "mpirun"
losses a >expected
export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo # the nodes have other names
start_cluster
srun --mpi=list 2>&1 | grep -q pmix || skip "this Slurm has no plugin pmix"

# write_script OUT: the job script of docs/how-to/train-on-a-cluster.md. A rank stops itself when the checkpoint of step 4
# is complete, once: the run waits until this script ends it.
write_script() {
    cat >"$1.sh" <<JOB
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --requeue --open-mode=append --output=$1.log --partition=low
export LD_PRELOAD=$signal_library SIGNAL_NUMBER=$(kill -l STOP) SIGNAL_AT='*checkpoints/step-00000004' SIGNAL_ONCE=$PWD/stopped.$1
exec srun --mpi=pmix "$WEFT" train dit.yaml --set out=$1 --set checkpoint.interval=2
JOB
}
submit() { # OUT [OPTION...]: sets job
    write_script "$1"
    job=$(sbatch --parsable "${@:2}" "$1.sh") || fail "sbatch"
}
same_losses() { # OUT
    until_true has_state "$job" COMPLETED FAILED CANCELLED TIMEOUT
    [ "$(state_of "$job")" = COMPLETED ] || fail_with "$1.log" "the job: $(state_of "$job")"
    losses "$1" | cmp expected - || fail_with "$1.log" "other losses"
}
resumed() { [ "$(scontrol show job "$job" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p')" = 1 ] && has_message "$1.log" run-resumed; }

two_nodes() {
    touch stopped.b # no rank stops
    submit b
    same_losses b
}
check two_nodes
# Slurm ends the job for one of a higher priority, and queues it again.
preempted() {
    submit c
    until_true test -e stopped.c
    high=$(sbatch --parsable --partition=high --nodes=2 --exclusive --output=high.log --wrap=hostname)
    until_true has_state "$high" COMPLETED
    start_now "$job"
    same_losses c
    resumed c || fail_with c.log "not resumed"
}
check preempted
# A time limit is exceeded; the same script is submitted again.
time_limit() {
    submit e
    until_true test -e stopped.e
    scontrol update "jobid=$job" TimeLimit=1
    until_true has_state "$job" TIMEOUT FAILED COMPLETED
    [ "$(state_of "$job")" = TIMEOUT ] || fail_with e.log "state $(state_of "$job")"
    submit e
    same_losses e
    has_message e.log run-resumed || fail_with e.log "not resumed"
}
check time_limit
finish
