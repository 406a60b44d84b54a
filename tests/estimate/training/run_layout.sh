#!/bin/bash
# weft plan layout --run-config RUN lists all layouts of a run, the best first, each with the memory
# that training reports, byte for byte without program and libraries. A run accepts the file that it
# writes, and no other run does. context: auto chooses the cheaper kind.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >run.yaml <<'Y'
out: runs/one
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 5, num_attention_heads: 3, attention_head_dim: 12, ffn_dim: 46, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
optimizer: {ema_decay: 0.9}
checkpoint: {interval: 0}
stages:
  - {steps: 2, batch: 4, frames: 9, height: 32, width: 32, lr: 2e-3, warmup_steps: 0, lr_schedule: constant}
Y
plan() { "$WEFT" plan layout --run-config run.yaml --devices 2 "$@"; }
plan --out layout.json --explain >table.txt 2>plan.log || fail_with plan.log "plan layout --run-config"
plan --json >again.json || fail "plan layout --json"
an_unknown_backend_is_an_error() {
    plan --set backend=tpu >out 2>err && fail "an unknown backend is accepted"
    has_message err config-value file=run.yaml key=backend value=tpu 'text~=cpu, ref, virtual' || fail "unknown backend: $(cat err)"
    "$WEFT" inspect graph run.yaml --set backend=tpu >out 2>err && fail "inspect: an unknown backend is accepted"
    has_message err config-value file=run.yaml key=backend value=tpu || fail "inspect, unknown backend: $(cat err)"
}
check an_unknown_backend_is_an_error
all_layouts_are_listed() {
    python3 -S - <<'P' || fail "the plan: $(cat table.txt)"
import json, re
plan, again = json.load(open("layout.json")), json.load(open("again.json"))
known = [c for c in plan["candidates"] if c["fits"]]
names = [c["layout"] for c in plan["candidates"]]
assert len(set(names)) == len(names) > 15, names
for axis in ("dp=2", "fsdp=2", "dp=2 zero=1", "dp=2 zero=2", "tp=2", "tp=2 sequence=true", "cp=2 context=ring", "cp=2 context=ulysses"):
    assert axis in names, axis
for schedule in ("gpipe", "1f1b", "interleaved", "wave", "zero-bubble"):
    assert "pp=2 schedule=%s microbatches=4" % schedule in names, schedule
assert [c["seconds"] for c in known] == sorted(c["seconds"] for c in known)
assert not known[0]["why"] and all(c["why"] for c in plan["candidates"][1:])
for c in known:
    parts = c["compute_seconds"] + c["exposed_seconds"] + c["optimizer_seconds"] + c["bubble_seconds"]
    assert abs(parts - c["seconds"]) < 1e-6 * c["seconds"], c
    assert c["device_bytes"] + c["host_bytes"] == c["peak_bytes"] and c["device_bytes"] > 0 < c["host_bytes"], c
assert plan["predicted"]["seconds"] == known[0]["seconds"]
for p in (plan, again): # the same plan each time, except for the memory of this process
    for c in p["candidates"] + [p["predicted"]]:
        c.pop("peak_bytes"); c.pop("host_bytes"); c.pop("memory", None)
assert plan["candidates"] == again["candidates"] and plan["parallel"] == again["parallel"]
lines = [l for l in open("table.txt") if re.match(r"  \S*(dp|fsdp|tp|cp|pp)=", l)]
assert [l.split("  ")[1].strip() for l in lines] == names, lines
P
}
check all_layouts_are_listed

# A run reports the memory of its plan: the best layout, and some layouts of each kind.
planned() { # LAYOUT: reserved bytes of the plan
    python3 -S -c '
import json, sys
for c in json.load(open("layout.json"))["candidates"]:
    if c["layout"] == sys.argv[1]: print("%d" % c["reserved_bytes"])' "$1"
}
expect_memory() { # LOG LAYOUT
    [ "$(message_field reserved_bytes "$1" memory-report 'reserved_bytes=?*')" = "$(planned "$2")" ] ||
        fail_with "$1" "memory of $2: not the planned $(planned "$2") bytes"
}
first=$(python3 -S -c 'import json; print(json.load(open("layout.json"))["candidates"][0]["layout"])')
the_plan_is_trained() {
    ranks 2 "$WEFT" train run.yaml --set parallel.layout_file=layout.json >best.log 2>&1 || fail_with best.log "the plan is not trained"
    has_message best.log layout-chosen source=file "layout=$first" text~=layout.json || fail "the layout is not reported"
    expect_memory best.log "$first"
}
check the_plan_is_trained
a_layout_needs_the_planned_memory() { # LAYOUT
    local options=() o
    for o in $1; do options+=(--set "parallel.$o"); done
    ranks 2 "$WEFT" train run.yaml --set out=runs/some --set stages.0.steps=1 "${options[@]}" >some.log 2>&1 || fail_with some.log "$1"
    expect_memory some.log "$1"
    rm -r runs/some
}
for layout in "dp=2 zero=2" "cp=2 context=ring" "tp=2 sequence=true" "pp=2 schedule=wave microbatches=4"; do
    check "planned_memory_of_${layout// /_}" a_layout_needs_the_planned_memory "$layout"
done
the_plan_is_the_run_of_its_degrees() {
    needs the_plan_is_trained
    local options=() o
    for o in $first; do options+=(--set "parallel.$o"); done
    ranks 2 "$WEFT" train run.yaml --set out=runs/given "${options[@]}" >given.log 2>&1 || fail_with given.log "$first"
    diff <(losses runs/one) <(losses runs/given) || fail "the plan's run has other losses than its degrees"
}
check the_plan_is_the_run_of_its_degrees

with() { "$WEFT" inspect graph run.yaml --set parallel.layout_file=layout.json "$@"; }
inspect_takes_a_plan() {
    with >inspect.txt 2>inspect.log || fail_with inspect.log "inspect with a plan"
    grep -q "layout by layout.json: $first$" inspect.txt || fail_with inspect.txt "inspect does not show the layout"
}
check inspect_takes_a_plan

# refuse ID [FIELD=VALUE...] -- COMMAND...
refuse() { check "refuses $*" expect_error "$@"; }
refuse layout-invalid file=run.yaml key=parallel.layout_file value=layout.json 'text~=2 ranks' -- "$WEFT" train run.yaml --set out=runs/no --set parallel.layout_file=layout.json
refuse layout-invalid file=run.yaml key=parallel.layout_file value=layout.json 'text~={"accumulate":1,"sizes":["4 x 9x32x32"]}' 'text~={"accumulate":1,"sizes":["8 x 9x32x32"]}' -- with --set stages.0.batch=8
refuse layout-invalid key=parallel.layout_file 'text~={"accumulate":2' -- with --set stages.0.gradient_accumulation_steps=2
refuse layout-invalid key=parallel.layout_file 'text~=trained parameters, and this run has a WanTransformer3DModel' -- with --set transformer.config.num_layers=6
refuse layout-invalid key=parallel.layout_file 'text~=other training steps of a WanTransformer3DModel' -- with --set transformer.config.eps=1e-5
refuse config-conflict key=parallel.layout_file text~=tp -- with --set parallel.tp=2
refuse config-conflict key=parallel.layout_file text~=microbatches -- with --set parallel.microbatches=2
sed 's/"seconds": [0-9.e-]*/"seconds": 1.0/' layout.json >edited.json
refuse '*' file=edited.json key=id -- with --set parallel.layout_file=edited.json
refuse '*' text~=no_such.json -- with --set parallel.layout_file=no_such.json
refuse option-conflict key=--run-config -- "$WEFT" plan layout run.yaml --run-config run.yaml

# The table has a column for each memory, and one for offloaded bytes if a layout offloads.
the_table_has_both_memories() {
    grep -q "^  layout .* device  *host$" table.txt || fail "no columns of both memories: $(head -3 table.txt)"
    grep -q "^memory of the rank with the highest peak: device: .*; host: .* backend computes in host memory" table.txt || fail "the memories are not explained"
}
check the_table_has_both_memories
offloaded_bytes_are_listed() {
    plan --explain --set memory.optimizer_states=offload --set transformer.config.ffn_dim=4096 --out moved.json >moved.txt 2>moved.log || fail_with moved.log "offloaded states"
    grep -q "^  layout .* device  *host  *offloaded$" moved.txt && grep -q "offloaded: to a file" moved.txt || fail "no column of offloaded bytes: $(head -3 moved.txt)"
    python3 -S -c '
import json
plain, moved = ({c["layout"]: c for c in json.load(open(f))["candidates"] if c["fits"]} for f in ("layout.json", "moved.json"))
assert all(c["offloaded_bytes"] == 0 for c in plain.values()) and all(c["offloaded_bytes"] > 0 for c in moved.values())
assert moved["fsdp=2"]["offloaded_bytes"] < moved["dp=2"]["offloaded_bytes"]' || fail "offloaded bytes"
}
check offloaded_bytes_are_listed

# A limit that all layouts satisfy, and one that none satisfies.
a_limit_above_all_peaks_is_kept() {
    local all
    all=$(python3 -S -c 'import json; print(max(c["peak_bytes"] for c in json.load(open("layout.json"))["candidates"] if c["fits"]) >> 20)')
    plan --set memory.limit=$((all + 8))MiB --json >roomy.json 2>roomy.log || fail_with roomy.log "a limit of $((all + 8)) MiB"
}
check a_limit_above_all_peaks_is_kept
refuse plan-infeasible file=run.yaml -- plan --set memory.limit=20MiB
refuse plan-infeasible file=run.yaml -- plan --memory-limit 20MiB

# Clusters with more ranks than the search estimates layouts for.
refuse option-required key=--devices text~=131072 -- "$WEFT" plan layout --run-config run.yaml --on h100:16384
refuse option-required key=--devices text~=8192 -- "$WEFT" plan generate --set model=none --on h100:1024

the_cheaper_context_is_chosen() {
    local cheap
    cheap=$(python3 -S -c '
import json
print([c["layout"] for c in json.load(open("layout.json"))["candidates"] if c["layout"].startswith("cp=2")][0])')
    ranks 2 "$WEFT" train run.yaml --set out=runs/auto --set parallel.cp=2 --set parallel.context=auto >auto.log 2>&1 || fail_with auto.log "context: auto"
    has_message auto.log layout-chosen source=estimate "layout=$cheap" 'text~=ulysses 2 x ring 1' 'text~=ulysses 1 x ring 2' || fail "not the cheaper kind, $cheap"
}
check the_cheaper_context_is_chosen
finish
