#!/bin/bash
# weft plan pipeline, layout and memory from the command line.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"

check plans_are_right python3 "$SRC/tests/plan/pipeline/check_plan.py" "$WEFT"

# A wave on 4 devices: table, chart, JSON that loads again, candidates.
python3 -S - >wave.json <<'PY'
import json
n = 16
print(json.dumps({"ops": [{"forward": 0.01, "backward": 0.02, "output_bytes": 1e6, "parameter_bytes": 1e8, "activation_bytes": 1e7}] * n,
                  "skips": [[i, n - 1 - i] for i in range(n // 2)], "lambda": 1, "bandwidth": 1e10, "latency": 1e-5}))
PY
"$WEFT" plan pipeline --costs wave.json --stages 8 --devices 4 --microbatches 4 --out plan.json --svg wave.svg --explain >table
a_wave_is_planned_and_drawn() {
    grep -q 'slowest stage .*(optimal)' table || fail "no bottleneck: $(cat table)"
    grep -q '^\* wave ' table || fail "the wave was not chosen: $(cat table)"
    grep -q 'gpipe .* slower' table || fail "gpipe has no reason"
    head -c 4 wave.svg | grep -q '<svg' || fail "no chart"
    python3 -S -c "import xml.dom.minidom as x; x.parse('wave.svg')"
    python3 -S - <<'PY'
import json
plan = json.load(open("plan.json"))
assert plan["bytes_per_microbatch"] == 2 * (4 - 1) * 1e6, plan["bytes_per_microbatch"]
assert plan["steps"] == plan["steps_lower_bound"] == 22
assert [m["device"] for m in plan["memory"]] == [0, 1, 2, 3]
PY

    grep -q 'class="axis"' wave.svg && grep -q '>0</text>' wave.svg || fail "no time axis"
}
check a_wave_is_planned_and_drawn

a_plan_is_simulated() {
    "$WEFT" simulate plan.json --chrome trace.json --svg gantt.svg >simulated
    grep -q '^iteration time' simulated || fail "$(cat simulated)"
    ! "$WEFT" simulate plan.json --pass-splits 4 2>err && has_message err option-no-effect key=--pass-splits text~=plan.json || fail "--pass-splits of a pipeline's plan: $(cat err)"
    sed 's/"bandwidth": [0-9.e+]*/"bandwidth": -1/' plan.json >negative.json
    ! "$WEFT" simulate negative.json 2>err || fail "simulated a bandwidth of -1"
    has_message err plan-invalid file=negative.json key=bandwidth text~=-1 || fail "$(cat err)"
    python3 -S -c "import json; json.load(open('trace.json'))"
}
check a_plan_is_simulated

# Impossible requests are errors and write nothing.
refuse() { # STATUS ID [FIELD=VALUE...] -- ARGUMENTS...
    local status=$1 got=0
    take_message "${@:2}"
    set -- "${rest[@]}"
    "$WEFT" plan "$@" --out refused.json >out 2>err || got=$?
    [ "$got" = "$status" ] || fail "weft plan $*: exit status $got, not $status: $(cat err)"
    has_message err "${wanted[@]}" || fail "$*: another message"
    [ ! -e refused.json ] || fail "weft plan $*: wrote a plan"
}
costs() { printf '%s' "$1" >bad.json; }
ops='{"forward":1,"output_bytes":1},{"forward":2},{"forward":3},{"forward":4},{"forward":5},{"forward":6}'
refusals_of_options() {
    refuse 1 option-required key=--stages -- pipeline --costs wave.json
    refuse 1 plan-infeasible key=stages 'text~=17 stages need at least 17 operators; the model has 16' -- pipeline --costs wave.json --stages 17
    refuse 2 '*' text~=--stages -- pipeline --costs wave.json --stages -3
    refuse 2 '*' text~=--stages -- pipeline --costs wave.json --stages many
    refuse 1 option-invalid key=--devices 'text~=1000000 is not from 1 to 16384' -- pipeline --costs wave.json --stages 8 --devices 1000000
    refuse 2 '*' text~=--devices -- pipeline --costs wave.json --stages 2 --devices -1
    refuse 1 plan-infeasible -- pipeline --costs wave.json --stages 8 --memory-limit 100MB
    refuse 1 plan-infeasible 'text~=no schedule fits: 1f1b' -- pipeline --costs wave.json --stages 8 --schedule 1f1b
    refuse 1 option-invalid key=--schedule "text~='fast'" -- pipeline --costs wave.json --stages 8 --schedule fast
    refuse 1 '*' text~=none.json -- pipeline --costs none.json --stages 8
}
check refusals_of_options
refusals_of_costs() {
    costs '{"ops":[],"lambda":0}'; refuse 1 costs-invalid file=bad.json key=ops -- pipeline --costs bad.json --stages 1
    costs '{"skips":[]}'; refuse 1 json-value file=bad.json key=ops -- pipeline --costs bad.json --stages 1
    costs '{"ops":[{"forward":-1}]}'; refuse 1 costs-invalid file=bad.json 'key=ops[0].forward' text~=-1 -- pipeline --costs bad.json --stages 1
    costs '{"ops":[{"forward":NaN}]}'; refuse 1 json-syntax -- pipeline --costs bad.json --stages 1
    costs '{"ops":[{"forward":1e400}]}'; refuse 1 json-syntax -- pipeline --costs bad.json --stages 1
    costs '{"ops":[{"forward":1e308,"backward":0},{"forward":1e308,"backward":0}]}'; refuse 1 costs-invalid file=bad.json key=ops 'text~=the costs' -- pipeline --costs bad.json --stages 1
    costs '{"ops":[{"forward":1,"output_bytes":1},{"forward":1}],"lambda":1,"bandwidth":1e-320}'; refuse 1 '*' 'text~=limit of 1e+15 s' -- pipeline --costs bad.json --stages 1
    costs '{"ops":[{"forward":1}],"lamda":2}'; refuse 1 '*' 'text~=lamda: unknown key; did you mean "lambda"?' -- pipeline --costs bad.json --stages 1
    costs '{"ops":[{"forward":"1"}]}'; refuse 1 json-value 'file=bad.json: ops[0]' key=forward -- pipeline --costs bad.json --stages 1
    costs '{"ops":[7]}'; refuse 1 json-value 'file=bad.json: ops[0]' -- pipeline --costs bad.json --stages 1
    costs "{\"ops\":[$ops],\"skips\":[[0,6]]}"; refuse 1 costs-invalid 'file=bad.json*' 'text~=skips[0]' 'text~=[0, 6] is outside the operators 0 to 5' -- pipeline --costs bad.json --stages 2
    costs "{\"ops\":[$ops],\"skips\":[[-1,3]]}"; refuse 1 costs-invalid 'file=bad.json*' 'text~=skips[0]' -- pipeline --costs bad.json --stages 2
    costs "{\"ops\":[$ops],\"skips\":[[3,3]]}"; refuse 1 costs-invalid 'file=bad.json*' 'text~=skips[0]' 'text~=[3, 3]' -- pipeline --costs bad.json --stages 2
    costs "{\"ops\":[$ops],\"skips\":[3]}"; refuse 1 json-value 'file=bad.json: skips[0]' -- pipeline --costs bad.json --stages 2
    costs "{\"ops\":[$ops],\"skips\":[[0,5]],\"lambda\":1}"; refuse 1 costs-invalid file=bad.json key=bandwidth -- pipeline --costs bad.json --stages 2
    costs "{\"ops\":[$ops],\"skips\":[[0,2]]}"; refuse 1 '*' 'text~=at most 3 stages are possible; without the skip [0, 2]' -- pipeline --costs bad.json --stages 4 --skips collocate
    "$WEFT" plan pipeline --costs bad.json --stages 4 --json >priced.json
    python3 -S -c "import json; p = json.load(open('priced.json')); assert p['skips'] == 'price' and p['bottleneck'] == 6 and len(p['collocated'] + p['sent']) == 1, p"
}
check refusals_of_costs
# Odd stages, one stage, more devices than stages, and zero costs are legal.
any_number_of_stages_is_planned() {
    costs "{\"ops\":[$ops],\"skips\":[[0,5],[1,4]]}"
    for stages in 1 2 3 4 5; do "$WEFT" plan pipeline --costs bad.json --stages $stages --devices 9 --json >/dev/null; done
    costs '{"ops":[{"forward":0},{"forward":0},{"forward":0},{"forward":0}],"skips":[[0,3]]}'
    "$WEFT" plan pipeline --costs bad.json --stages 4 --explain >/dev/null
}
check any_number_of_stages_is_planned

# Models on clusters, from the examples.
"$WEFT" plan pipeline "$SRC/examples/plan-pipeline.yaml" --out model.json >table
a_plan_belongs_to_its_cluster() {
    ! "$WEFT" simulate model.json --on h100 2>err || fail "simulated on another cluster"
    has_message err plan-outdated file=model.json key=cluster text~=v100:1 text~=h100 || fail "$(cat err)"
    "$WEFT" simulate model.json >simulated
}
check a_plan_belongs_to_its_cluster
edit() { # FILE PYTHON ID [FIELD=VALUE...]: the plan of FILE after PYTHON on p is refused with this message
    python3 -S - "$1" "$2" <<'PY'
import json, sys
p = json.load(open(sys.argv[1]))
exec(sys.argv[2])
json.dump(p, open("edited.json", "w"))
PY
    ! "$WEFT" simulate edited.json 2>err || fail "simulated after: $2"
    has_message err "${@:3}" || fail "$2"
}
changed_plans_are_refused() {
    edit model.json 'p["seconds"] *= 0.9' plan-invalid file=edited.json key=id
    edit model.json 'p["memory"][0]["parameter_bytes"] = 1.0' plan-invalid file=edited.json key=id
    edit model.json 'del p["candidates"]' plan-invalid file=edited.json key=id
    edit model.json 'del p["cluster"]' plan-invalid file=edited.json key=id
    edit plan.json 'del p["id"]' plan-invalid file=edited.json key=id
    edit plan.json 'p["format"] = "weft.pipeline/9"' plan-invalid file=edited.json key=format
    edit model.json 'del p["format"]' plan-invalid file=edited.json key=format
}
check changed_plans_are_refused
skips_stay_on_their_device() { grep -q '24 of 24 skips stay on their device' table || fail "$(cat table)"; }
check skips_stay_on_their_device
layouts_are_planned_and_checked() {
    "$WEFT" plan layout "$SRC/examples/plan-layout.yaml" --out layout.json --svg layout.svg >table
    grep -q '^tp 1 cp 4 ' table || fail "$(cat table)"
    edit layout.json 'pass' argument-invalid file=edited.json key=format
    edit layout.json 'p["best"]["tp"] = 2' plan-invalid file=edited.json key=id
    ! "$WEFT" simulate layout.json --on v100:1 2>err || fail "simulated a layout"
    has_message err plan-outdated file=layout.json key=cluster text~=h100:8 || fail "$(cat err)"
    [ "$(grep -c 'slower: ' table)" = 10 ] || fail "not ten reasons: $(cat table)"
}
check layouts_are_planned_and_checked
memory_is_planned_and_checked() {
    needs layouts_are_planned_and_checked
    "$WEFT" plan layout "$SRC/examples/plan-layout.yaml" --set model=uvit-1b --set cluster=v100:1 >table
    grep -q 'samples/s' table || fail "$(cat table)"
    "$WEFT" plan memory "$SRC/examples/plan-memory.yaml" --set offload=false --set limit=20GiB --json --svg memory.svg >memory.json
    edit memory.json 'p["kept"] = 1' plan-invalid file=edited.json key=id
    edit memory.json 'pass' argument-invalid file=edited.json key=format
}
check memory_is_planned_and_checked
# A model that was replaced.
a_plan_belongs_to_its_model() {
    cat >tiny.json <<'JSON'
{"_class_name": "WanTransformer3DModel", "num_layers": 4, "num_attention_heads": 2, "attention_head_dim": 24, "ffn_dim": 96, "text_dim": 32}
JSON
    "$WEFT" plan pipeline "$SRC/examples/plan-pipeline.yaml" --set model=tiny.json --set devices=2 --set frames=5 --set height=64 --set width=64 \
        --out tiny.plan >table
    "$WEFT" simulate tiny.plan >simulated
    sed -i 's/"ffn_dim": 96/"ffn_dim": 112/' tiny.json
    ! "$WEFT" simulate tiny.plan 2>err || fail "simulated a plan of another model"
    has_message err plan-outdated file=tiny.plan key=model || fail "$(cat err)"
}
check a_plan_belongs_to_its_model
charts_and_json_are_well_formed() {
    needs layouts_are_planned_and_checked memory_is_planned_and_checked
    python3 -S -c "import xml.dom.minidom as x; x.parse('layout.svg'); x.parse('memory.svg')"
    python3 -S -c "import json; p = json.load(open('memory.json')); assert p['kept'] <= p['limit'] and p['seconds'] > 0, p"
}
check charts_and_json_are_well_formed
refusals_of_memory_and_models() {
    costs '{"items":[{"name":"a","bytes":20}]}'; refuse 1 plan-infeasible -- memory --costs bad.json --memory-limit 10
    costs '{"items":[{"name":"a","bytes":-20}]}'; refuse 1 costs-invalid 'file=bad.json*' 'text~=items[0]' -- memory --costs bad.json --memory-limit 10
    refuse 1 model-not-found "text~=unknown model 'uvit'" -- pipeline "$SRC/examples/plan-pipeline.yaml" --set model=uvit
    refuse 1 '*' 'text~=plan-pipeline.yaml: devices: a pipeline of 64 devices does not fit the cluster, which has 8' -- pipeline "$SRC/examples/plan-pipeline.yaml" --set devices=64
    refuse 1 plan-infeasible -- layout "$SRC/examples/plan-layout.yaml" --set cluster=v100:1 --set batch=8 --set model= --set layers=200 --set hidden=16384 --set heads=128
}
check refusals_of_memory_and_models
list_keys_has_every_key() { "$WEFT" plan layout --list-keys | grep -q least_zero || fail "no keys"; }
check list_keys_has_every_key
finish
