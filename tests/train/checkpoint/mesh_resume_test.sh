#!/bin/bash
# A run that goes on with another mesh at each start (parameters split, then optimizer states in parts of those parts, in uneven parts, then
# tensor parallel, then one rank; or dp x tp, fsdp, pp, one rank) has the losses of the run that one rank makes without a stop, to 1e-5, and leaves a model
# of the same tensors.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
options=(--set data.latents=latents --set stages.0.lr_schedule=constant --set checkpoint.interval=0)
"$WEFT" train dit.yaml --set out=runs/whole "${options[@]}" --set stages.0.steps=4 --set stages.1.steps=6 >whole.log 2>&1 ||
    { cat whole.log; fail "the run without a stop"; }
at=0
go_on() { # RANKS STEPS0 STEPS1 [OPTIONS...]
    local n=$1 steps="--set stages.0.steps=$2 --set stages.1.steps=$3" before=$at
    at=$(($2 + $3))
    shift 3
    ranks $n "$WEFT" train dit.yaml --set out=runs/parts "${options[@]}" $steps "$@" >part.log 2>&1 || { cat part.log; fail "$n ranks, $*"; }
    [ $before = 0 ] || has_message part.log run-resumed value=$before || fail "$*: not gone on from $before"
}
split_parameters_and_states_resume() {
    go_on 2 4 1 --set parallel.fsdp=2
    go_on 4 4 2 --set parallel.dp=2 --set parallel.fsdp=2 --set parallel.zero=1
    go_on 3 4 3 --set parallel.zero=2
    go_on 2 4 4 --set parallel.tp=2
    go_on 1 4 6
    paste <(losses runs/whole) <(losses runs/parts) | awk '
    function off(a, b) {return (a > b ? a - b : b - a) > 1e-5 * (a > 0 ? a : -a)}
    $1 != $4 || off($2, $5) || off($3, $6) {print; bad = 1} END {exit bad || NR != 10}' || fail "other losses on other meshes"
}
check split_parameters_and_states_resume

# ten steps with replicas of two tensor-parallel ranks, then parameters in three parts, then two stages of a pipeline, then one rank
replicas_and_stages_resume() {
        [ ! -d runs/parts ] || mv runs/parts runs/before
    "$WEFT" train dit.yaml --set out=runs/long "${options[@]}" --set stages.0.steps=4 --set stages.1.steps=15 >long.log 2>&1 || { cat long.log; fail "the longer run"; }
    at=0
    go_on 4 4 6 --set parallel.dp=2 --set parallel.tp=2
    go_on 3 4 9 --set parallel.fsdp=3
    go_on 2 4 12 --set parallel.pp=2
    go_on 1 4 15
    paste <(losses runs/long) <(losses runs/parts) | awk '
    function off(a, b) {return (a > b ? a - b : b - a) > 1e-5 * (a > 0 ? a : -a)}
    $1 != $4 || off($2, $5) || off($3, $6) {print; bad = 1} END {exit bad || NR != 19}' || fail "other losses from dp x tp to fsdp to pp to one rank"
        [ -d runs/parts ] && mv runs/parts runs/last
}
check replicas_and_stages_resume
the_models_have_the_same_tensors() {
    needs split_parameters_and_states_resume replicas_and_stages_resume
for part in transformer text_encoder; do
    diff <("$WEFT" inspect model runs/long/model/$part --tensors) <("$WEFT" inspect model runs/last/model/$part --tensors) || fail "other tensors in $part at the end"
    diff <("$WEFT" inspect model runs/whole/model/$part --tensors) <("$WEFT" inspect model runs/before/model/$part --tensors) || fail "other tensors in $part"
done
}
check the_models_have_the_same_tensors
finish
