#!/bin/bash
# The activation plan of memory.limit, in bf16. With any measured rates the losses are bitwise those
# without a limit. A resumed run uses its first plan (<out>/activation-plan.json). A changed limit
# plans again.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >wide.yaml <<'Y'
out: runs/all
precision: bf16
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 4, num_attention_heads: 4, attention_head_dim: 32, ffn_dim: 512, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
stages:
  - {steps: 4, batch: 48, frames: 9, height: 64, width: 64, lr: 1e-3, warmup_steps: 0, lr_schedule: constant}
Y
printf 'nodes: 1\ndevices: 1\ndevice: {memory: 8GiB, flops: 1e15, memory_bandwidth: 1e15}\n' >quick.yaml
printf 'nodes: 1\ndevices: 1\ndevice: {memory: 8GiB, flops: 1e6, memory_bandwidth: 1e4}\n' >slow.yaml
told() { message_mib "$1" memory-report key= 'value=?*' | cut -d. -f1; }
try() { # NAME SETTINGS...
    local name=$1
    shift
    "$WEFT" train wide.yaml --set out=runs/$name "$@" >$name.log 2>&1 || { cat $name.log; fail "$name"; }
}
same() { diff <(losses runs/all) <(losses "runs/$1") || fail "$1: other losses than without a limit"; }
try fill --set stages.0.steps=1
try all
# Far from both ends (nothing to save, the least limit: 30 MiB lower): the resident library pages differ
# by some MiB between starts, more where the system takes back pages of files.
limit=$(($(told all.log) - 16))
keep="--set memory.limit=${limit}MiB --set memory.offload=auto"
plan=runs/run/activation-plan.json
# The rates determine which activations are recomputed or offloaded, but not the results.
rates_do_not_change_losses() {
    try slow $keep --set memory.profile=slow.yaml
    same slow
}
check rates_do_not_change_losses
rates_change_the_plan() {
    needs rates_do_not_change_losses
    try run $keep --set memory.profile=quick.yaml --set stages.0.steps=2
    has_message run.log memory-report stage=0 plan=new || { cat run.log; fail "nothing is planned"; }
    cp $plan begun.json
    python3 -S - begun.json runs/slow/activation-plan.json <<'P' || fail "the rates do not change the plan, so that this test shows nothing"
import json, sys
a, b = [json.load(open(name))["stages"][0] for name in sys.argv[1:]]
assert a["inputs"] == b["inputs"] and a["recompute"] and b["offload"] and a != b
P
}
check rates_change_the_plan
# Resumed with other rates, in a process that is larger by 6 MiB of environment, which is more than the
# tolerance of the limit.
a_resumed_run_uses_its_first_plan() {
    needs rates_change_the_plan
    (
        ulimit -s 32768 # a quarter of it may be environment
        page=$(head -c 130000 /dev/zero | tr '\0' x)
        for i in $(seq 48); do export "PAGE_$i=$page"; done
        exec "$WEFT" train wide.yaml --set out=runs/run $keep --set memory.profile=slow.yaml >run.log 2>&1
    ) || { cat run.log; fail "a larger process is refused"; }
    has_message run.log memory-report stage=0 plan=stored || { cat run.log; fail "the plan of the run is not used"; }
    cmp $plan begun.json || fail "resuming writes another plan"
    same run
    "$WEFT" inspect graph wide.yaml --set out=runs/run $keep --set memory.profile=slow.yaml >inspect.txt 2>&1 || { cat inspect.txt; fail inspect; }
    grep -q "the activation plan is that of the run" inspect.txt || { cat inspect.txt; fail "inspect shows another plan than the run's"; }
}
check a_resumed_run_uses_its_first_plan
# An edited plan is refused by name.
an_edited_plan_is_refused() {
    needs a_resumed_run_uses_its_first_plan
    python3 -S -c 'import json, sys
plan = json.load(open(sys.argv[1]))
plan["stages"][0]["recompute"].pop()
json.dump(plan, open(sys.argv[1], "w"))' $plan
    ! "$WEFT" train wide.yaml --set out=runs/run $keep --set stages.0.steps=5 >no.log 2>&1 || fail "an edited plan is used"
    has_message no.log plan-invalid level=error file=runs/run/activation-plan.json key=id 'text~=Remove the file' || { cat no.log; fail "the edited plan is not named"; }
}
check an_edited_plan_is_refused
a_changed_limit_plans_again() {
    needs an_edited_plan_is_refused
    cp begun.json $plan
    try run --set memory.limit=$((limit + 4))MiB --set memory.profile=quick.yaml --set stages.0.steps=5
    ! cmp -s $plan begun.json || fail "a changed limit uses the earlier plan"
    losses runs/run | head -4 | diff <(losses runs/all) - || fail "a changed limit has other losses"
}
check a_changed_limit_plans_again
pair="--set parallel.dp=2 --set stages.0.batch=96"
# Two ranks use the plan of rank 0.
two_ranks_use_the_plan_of_rank_0() {
    ranks 2 "$WEFT" train wide.yaml --set out=runs/pair $pair >pair.log 2>&1 || { cat pair.log; fail "two ranks without a limit"; }
    limit=$(($(told pair.log) - 16))
    echo $limit >pair.limit
    for steps in 2 4; do
        rates=$([ $steps = 2 ] && echo quick || echo slow)
        ranks 2 "$WEFT" train wide.yaml --set out=runs/two $pair --set memory.limit=${limit}MiB --set memory.offload=auto --set stages.0.steps=$steps --set memory.profile=$rates.yaml >two.log 2>&1 ||
            { cat two.log; fail "two ranks"; }
    done
    has_message two.log memory-report stage=0 plan=stored || { cat two.log; fail "two ranks plan again"; }
    diff <(losses runs/pair) <(losses runs/two) || fail "two ranks: other losses than without a limit"
}
check two_ranks_use_the_plan_of_rank_0
# A damaged plan is an error, not an interrupt: no rank exits with 130.
a_damaged_plan_is_an_error() {
    needs two_ranks_use_the_plan_of_rank_0
    limit=$(cat pair.limit)
    head -c 200 runs/two/activation-plan.json >cut.json && mv cut.json runs/two/activation-plan.json
    ranks 2 "$WEFT" train wide.yaml --set out=runs/two $pair --set memory.limit=${limit}MiB --set memory.offload=auto --set stages.0.steps=5 >cut.log 2>&1
    status=$?
    [ $status = 1 ] || { cat cut.log; fail "two ranks, a damaged plan: status $status"; }
    has_message cut.log json-syntax level=error file=runs/two/activation-plan.json || { cat cut.log; fail "the damaged plan is not named"; }
}
check a_damaged_plan_is_an_error
finish
