#!/bin/bash
# A mixture of four experts: the load of the experts is logged, and losses and gradient norms are
# those of one rank (1e-5: the order of summation differs) with ep over 2, 3 and 4 ranks and with
# pp. The run resumes on another number of ranks, its model generates, layout searches list ep, and
# capacity_factor drops tokens.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >moe.yaml <<'Y'
out: runs/whole
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer:
  class: WeftMoeTransformer3DModel
  config: {num_layers: 3, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 46, freq_dim: 32, first_k_dense_replace: 1,
           num_routed_experts: 4, num_activated_experts: 2, moe_intermediate_size: 20, n_shared_experts: 1, aux_loss_alpha: 0.05}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
checkpoint: {interval: 0}
log_interval: 1
stages: [{steps: 6, batch: 6, frames: 9, height: 32, width: 32, lr: 2e-3, warmup_steps: 2, lr_schedule: constant}]
Y
metric() { # RUN NAME: prints this metric of each step
    python3 -S - "runs/$1/metrics.jsonl" "$2" <<'P'
import json, sys
for line in open(sys.argv[1]):
    row = json.loads(line)
    if "loss" in row: print("%.9g" % row[sys.argv[2]])
P
}
"$WEFT" train moe.yaml >whole.log 2>&1 || { cat whole.log; fail "one rank"; }
the_load_is_measured() {
    for name in balance fullest dropped; do
        [ "$(metric whole $name | wc -l)" = 6 ] || fail "no $name in the metrics"
    done
    metric whole fullest | awk '$1 < 1 || $1 > 2 {exit 1}' || fail "the fullest of four experts, two per token, does not have 1 to 2 times the mean load"
    metric whole dropped | awk '$1 != 0 {exit 1}' || fail "tokens were dropped without a capacity"
    "$WEFT" inspect model runs/whole/model/transformer --tensors | grep -q "^blocks.2.ff.experts.3.w2.weight f32 24,20$" ||
        fail "the file does not have a tensor per expert"
}
check the_load_is_measured
matches_one_rank() { # RUN: losses and gradient norms are those of one rank
    paste <(losses runs/whole) <(losses "runs/$1") | awk '
        function off(a, b) {return (a > b ? a - b : b - a) > 1e-5 * (a > 0 ? a : -a)}
        $1 != $4 || off($2, $5) || off($3, $6) {print; bad = 1} END {exit bad || NR != 6}' || fail "$1: losses or gradient norms differ from one rank"
}
train_with() { # RANKS NAME DEGREES...: trains with these degrees and compares with one rank
    local n=$1 name=$2 options=()
    shift 2
    for o in "$@"; do options+=(--set "parallel.$o"); done
    ranks "$n" "$WEFT" train moe.yaml --set "out=runs/$name" "${options[@]}" >"$name.log" 2>&1 || { cat "$name.log"; fail "$name"; }
    matches_one_rank "$name"
}
experts_on_two_ranks() {
    train_with 2 two ep=2
    has_message two.log stage-report text~=ep text~=expert || fail "the layout is not reported"
    paste <(metric whole fullest) <(metric two fullest) | awk '{d = $1 - $2} d * d > 1e-8 {exit 1}' || fail "the expert load differs on two ranks"
}
check experts_on_two_ranks
check experts_on_three_ranks train_with 3 three ep=3
check experts_and_data_parallel train_with 4 parts ep=2 dp=2 zero=2
experts_in_stages() {
    train_with 4 stages ep=2 pp=2 microbatches=3
    for name in balance fullest dropped; do
        [ "$(metric stages $name | wc -l)" = 6 ] || fail "no $name in the metrics of pipeline stages"
        paste <(metric whole $name) <(metric stages $name) | awk '{d = $1 - $2} d * d > 1e-8 {exit 1}' || fail "$name differs in pipeline stages"
    done
}
check experts_in_stages
# two ranks, then one rank, then a video from their model
another_number_of_ranks_resumes_and_generates() {
    ranks 2 "$WEFT" train moe.yaml --set out=runs/on --set stages.0.steps=3 --set parallel.ep=2 >on.log 2>&1 || { cat on.log; fail "training on two ranks"; }
    "$WEFT" train moe.yaml --set out=runs/on >on.log 2>&1 || { cat on.log; fail "resuming on one rank"; }
    has_message on.log run-resumed value=3 || fail "did not resume from step 3"
    matches_one_rank on
    "$WEFT" generate --model runs/on/model --prompt "a red square" --out one.mp4 --steps 2 --seed 3 >one.log 2>&1 || { cat one.log; fail "generate"; }
    ranks 2 "$WEFT" generate --model runs/on/model --prompt "a red square" --out two.mp4 --steps 2 --seed 3 --parallel ep=2 >two.log 2>&1 ||
        { cat two.log; fail "generate on two ranks"; }
}
check another_number_of_ranks_resumes_and_generates
# Both layout searches list layouts with ep, and the layout file of such a layout trains.
wide=(--set transformer.config.moe_intermediate_size=8192 --set transformer.config.num_layers=2)
# Kernel launches cost nothing, and the link is slow, so that the bytes of such a small model decide.
cat >cluster.yaml <<'Y'
nodes: 1
devices: 2
device: {memory: 80GiB, flops: 989e12, memory_bandwidth: 3.35e12, launch: 0}
link: {bandwidth: 50e9, latency: 2e-6}
Y
a_planned_layout_trains() {
    needs another_number_of_ranks_resumes_and_generates
    "$WEFT" plan layout --run-config moe.yaml --devices 2 --on cluster.yaml "${wide[@]}" --out layout.json >plan.log 2>&1 ||
        { cat plan.log; fail "weft plan layout"; }
    "$WEFT" plan generate --set model=runs/on/model --set frames=9 --set height=32 --set width=32 --devices 4 --out generate.json >plan.log 2>&1 ||
        { cat plan.log; fail "weft plan generate"; }
    python3 -S - <<'P' || fail "the searches do not list layouts with ep, or choose another layout"
import json
train, videos = ({c["layout"]: c for c in json.load(open(f))["candidates"]} for f in ("layout.json", "generate.json"))
for plan, layouts in (train, ("ep=2",)), (videos, ("ep=4", "cfg=2 ep=2", "fsdp=2 ep=2", "ep=2 tp=2", "ep=2 cp=2 context=ring")):
    for name in layouts:
        assert plan[name]["fits"] and plan[name].get("seconds", plan[name].get("video")) > 0, (name, list(plan))
assert json.load(open("layout.json"))["parallel"]["ep"] == 2, json.load(open("layout.json"))["parallel"]
P
    ranks 2 "$WEFT" train moe.yaml "${wide[@]}" --set out=runs/planned --set stages.0.steps=1 --set parallel.layout_file=layout.json >planned.log 2>&1 || { cat planned.log; fail "training with a layout file that has ep"; }
    has_message planned.log layout-chosen text~=layout.json text~=ep=2 || fail "the layout of the layout file is not printed"
}
check a_planned_layout_trains
# a capacity of half the mean load
tokens_above_the_capacity_are_dropped() {
    "$WEFT" train moe.yaml --set out=runs/few --set transformer.config.capacity_factor=0.5 --set stages.0.steps=2 >few.log 2>&1 ||
        { cat few.log; fail "training with capacity_factor"; }
    metric few dropped | awk '$1 < 0.45 || $1 > 1 {exit 1}' || fail "not about half of the choices were dropped"
}
check tokens_above_the_capacity_are_dropped
finish
