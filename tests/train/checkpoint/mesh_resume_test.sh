#!/bin/bash
# A run that resumes with another mesh at each start has the losses of one uninterrupted rank (1e-5:
# the order of summation differs) and exports the same tensors. Two sequences:
# fsdp, dp x fsdp with zero 1, zero 2 on three ranks (uneven shards), tp, one rank; and
# dp x tp, fsdp on three ranks, pp, one rank.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
options=(--set data.latents=latents --set stages.0.lr_schedule=constant --set checkpoint.interval=0)
"$WEFT" train dit.yaml --set out=runs/whole "${options[@]}" --set stages.0.steps=4 --set stages.1.steps=6 >whole.log 2>&1 ||
    { cat whole.log; fail "the uninterrupted run"; }
at=0
# resume_until RANKS STEPS0 STEPS1 [OPTIONS...]: resumes runs/parts up to these steps of the stages
resume_until() {
    local n=$1 steps="--set stages.0.steps=$2 --set stages.1.steps=$3" before=$at
    at=$(($2 + $3))
    shift 3
    ranks $n "$WEFT" train dit.yaml --set out=runs/parts "${options[@]}" $steps "$@" >part.log 2>&1 || { cat part.log; fail "$n ranks, $*"; }
    [ $before = 0 ] || has_message part.log run-resumed value=$before || fail "$*: did not resume from step $before"
}
split_parameters_and_states_resume() {
    resume_until 2 4 1 --set parallel.fsdp=2
    resume_until 4 4 2 --set parallel.dp=2 --set parallel.fsdp=2 --set parallel.zero=1
    resume_until 3 4 3 --set parallel.zero=2
    resume_until 2 4 4 --set parallel.tp=2
    resume_until 1 4 6
    paste <(losses runs/whole) <(losses runs/parts) | awk '
    function off(a, b) {return (a > b ? a - b : b - a) > 1e-5 * (a > 0 ? a : -a)}
    $1 != $4 || off($2, $5) || off($3, $6) {print; bad = 1} END {exit bad || NR != 10}' || fail "losses differ from one rank after resuming with other meshes"
}
check split_parameters_and_states_resume

# ten steps with dp=2 tp=2, then fsdp=3, then pp=2, then one rank
replicas_and_stages_resume() {
        [ ! -d runs/parts ] || mv runs/parts runs/before
    "$WEFT" train dit.yaml --set out=runs/long "${options[@]}" --set stages.0.steps=4 --set stages.1.steps=15 >long.log 2>&1 || { cat long.log; fail "the longer run"; }
    at=0
    resume_until 4 4 6 --set parallel.dp=2 --set parallel.tp=2
    resume_until 3 4 9 --set parallel.fsdp=3
    resume_until 2 4 12 --set parallel.pp=2
    resume_until 1 4 15
    paste <(losses runs/long) <(losses runs/parts) | awk '
    function off(a, b) {return (a > b ? a - b : b - a) > 1e-5 * (a > 0 ? a : -a)}
    $1 != $4 || off($2, $5) || off($3, $6) {print; bad = 1} END {exit bad || NR != 19}' || fail "losses differ from one rank after dp x tp, fsdp, pp and one rank"
        [ -d runs/parts ] && mv runs/parts runs/last
}
check replicas_and_stages_resume
the_models_have_the_same_tensors() {
    needs split_parameters_and_states_resume replicas_and_stages_resume
for part in transformer text_encoder; do
    diff <("$WEFT" inspect model runs/long/model/$part --tensors) <("$WEFT" inspect model runs/last/model/$part --tensors) || fail "other tensors in $part after dp x tp, fsdp, pp and one rank"
    diff <("$WEFT" inspect model runs/whole/model/$part --tensors) <("$WEFT" inspect model runs/before/model/$part --tensors) || fail "other tensors in $part after fsdp, zero, tp and one rank"
done
}
check the_models_have_the_same_tensors
finish
