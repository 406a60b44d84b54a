#!/bin/bash
# weft plan pipeline, layout and memory from the command line.
set -eu
fail() { echo "FAIL: $*"; exit 1; }

python3 "$SRC/tests/pipeline/check_plan.py" "$WEFT"

# a wave on 4 devices: table, picture, JSON that reads back, candidates
python3 - >wave.json <<'PY'
import json
n = 16
print(json.dumps({"ops": [{"forward": 0.01, "backward": 0.02, "output_bytes": 1e6, "parameter_bytes": 1e8, "activation_bytes": 1e7}] * n,
                  "skips": [[i, n - 1 - i] for i in range(n // 2)], "lambda": 1, "bandwidth": 1e10, "latency": 1e-5}))
PY
"$WEFT" plan pipeline --costs wave.json --stages 8 --devices 4 --microbatches 4 --out plan.json --svg wave.svg --explain >table
grep -q 'slowest stage .*(optimal)' table || fail "no bottleneck: $(cat table)"
grep -q '^\* wave ' table || fail "the wave was not chosen: $(cat table)"
grep -q 'gpipe .* slower' table || fail "gpipe has no reason"
head -c 4 wave.svg | grep -q '<svg' || fail "no picture"
python3 -c "import xml.dom.minidom as x; x.parse('wave.svg')"
python3 - <<'PY'
import json
plan = json.load(open("plan.json"))
assert plan["bytes_per_microbatch"] == 2 * (4 - 1) * 1e6, plan["bytes_per_microbatch"]
assert plan["steps"] == plan["steps_lower_bound"] == 22
assert [m["device"] for m in plan["memory"]] == [0, 1, 2, 3]
PY

grep -q 'class="axis"' wave.svg && grep -q '>0</text>' wave.svg || fail "no time axis"

"$WEFT" simulate plan.json --chrome trace.json --svg gantt.svg >simulated
grep -q '^iteration time' simulated || fail "$(cat simulated)"
! "$WEFT" simulate plan.json --folds 4 2>err && grep -q -e '--folds: plan.json is a pipeline.s plan' err || fail "--folds of a pipeline's plan: $(cat err)"
sed 's/"bandwidth": [0-9.e+]*/"bandwidth": -1/' plan.json >negative.json
! "$WEFT" simulate negative.json 2>err || fail "simulated a bandwidth of -1"
grep -q '"bandwidth" is -1 and "latency" .*; neither may be negative' err || fail "$(cat err)"
python3 -c "import json; json.load(open('trace.json'))"

# what cannot be says so and writes nothing
refuse() { # refuse STATUS TEXT ARGUMENTS...
    local status=$1 text=$2 got=0
    shift 2
    "$WEFT" plan "$@" --out refused.json >out 2>err || got=$?
    [ "$got" = "$status" ] || fail "weft plan $*: exit status $got, not $status: $(cat err)"
    grep -qF -- "$text" err || fail "weft plan $*: '$(cat err)' does not say '$text'"
    [ ! -e refused.json ] || fail "weft plan $*: wrote a plan"
}
costs() { printf '%s' "$1" >bad.json; }
ops='{"forward":1,"output_bytes":1},{"forward":2},{"forward":3},{"forward":4},{"forward":5},{"forward":6}'
refuse 1 'at least 1' pipeline --costs wave.json
refuse 1 '17 stages need at least 17 operators; there are 16' pipeline --costs wave.json --stages 17
refuse 2 '--stages' pipeline --costs wave.json --stages -3
refuse 2 '--stages' pipeline --costs wave.json --stages many
refuse 1 'not between 1 and 16384' pipeline --costs wave.json --stages 8 --devices 1000000
refuse 2 '--devices' pipeline --costs wave.json --stages 2 --devices -1
refuse 1 'needs' pipeline --costs wave.json --stages 8 --memory 100MB
refuse 1 '1f1b needs as many stages as devices' pipeline --costs wave.json --stages 8 --schedule 1f1b
refuse 1 'it must be one of' pipeline --costs wave.json --stages 8 --schedule fast
refuse 1 'none.json' pipeline --costs none.json --stages 8
costs '{"ops":[],"lambda":0}'; refuse 1 'no operators' pipeline --costs bad.json --stages 1
costs '{"skips":[]}'; refuse 1 '"ops"' pipeline --costs bad.json --stages 1
costs '{"ops":[{"forward":-1}]}'; refuse 1 'operator 0: "forward" is -1' pipeline --costs bad.json --stages 1
costs '{"ops":[{"forward":NaN}]}'; refuse 1 'not valid JSON' pipeline --costs bad.json --stages 1
costs '{"ops":[{"forward":1e400}]}'; refuse 1 'not valid JSON' pipeline --costs bad.json --stages 1
costs '{"ops":[{"forward":1e308,"backward":0},{"forward":1e308,"backward":0}]}'; refuse 1 'add up' pipeline --costs bad.json --stages 1
costs '{"ops":[{"forward":1,"output_bytes":1},{"forward":1}],"lambda":1,"bandwidth":1e-320}'; refuse 1 'at most 1e+15 s' pipeline --costs bad.json --stages 1
costs '{"ops":[{"forward":1}],"lamda":2}'; refuse 1 'there is no key "lamda"; did you mean "lambda"?' pipeline --costs bad.json --stages 1
costs '{"ops":[{"forward":"1"}]}'; refuse 1 'ops[0]: "forward" is "1", not a number' pipeline --costs bad.json --stages 1
costs '{"ops":[7]}'; refuse 1 'ops[0]' pipeline --costs bad.json --stages 1
costs "{\"ops\":[$ops],\"skips\":[[0,6]]}"; refuse 1 '[0, 6] is outside the operators 0..5' pipeline --costs bad.json --stages 2
costs "{\"ops\":[$ops],\"skips\":[[-1,3]]}"; refuse 1 'skips[0]' pipeline --costs bad.json --stages 2
costs "{\"ops\":[$ops],\"skips\":[[3,3]]}"; refuse 1 'joins an operator with itself' pipeline --costs bad.json --stages 2
costs "{\"ops\":[$ops],\"skips\":[3]}"; refuse 1 'skips[0]' pipeline --costs bad.json --stages 2
costs "{\"ops\":[$ops],\"skips\":[[0,5]],\"lambda\":1}"; refuse 1 'bandwidth' pipeline --costs bad.json --stages 2
costs "{\"ops\":[$ops],\"skips\":[[0,2]]}"; refuse 1 'the most stages that can be had is 3' pipeline --costs bad.json --stages 4 --skips collocate
"$WEFT" plan pipeline --costs bad.json --stages 4 --json >priced.json
python3 -c "import json; p = json.load(open('priced.json')); assert p['skips'] == 'price' and p['bottleneck'] == 6 and len(p['collocated'] + p['sent']) == 1, p"
# odd stages, one stage, more devices than stages, zero costs: no reason to refuse
costs "{\"ops\":[$ops],\"skips\":[[0,5],[1,4]]}"
for stages in 1 2 3 4 5; do "$WEFT" plan pipeline --costs bad.json --stages $stages --devices 9 --json >/dev/null; done
costs '{"ops":[{"forward":0},{"forward":0},{"forward":0},{"forward":0}],"skips":[[0,3]]}'
"$WEFT" plan pipeline --costs bad.json --stages 4 --explain >/dev/null

# models on clusters, from the examples
"$WEFT" plan pipeline "$SRC/examples/plan-pipeline.yaml" --out model.json >table
! "$WEFT" simulate model.json --cluster h100 2>err || fail "simulated on another cluster"
grep -q 'was made for the cluster v100:1' err || fail "$(cat err)"
"$WEFT" simulate model.json >simulated
edit() { # edit TEXT FILE PYTHON: the plan of FILE after PYTHON on p is refused with TEXT
    python3 - "$2" "$3" <<'PY'
import json, sys
p = json.load(open(sys.argv[1]))
exec(sys.argv[2])
json.dump(p, open("edited.json", "w"))
PY
    ! "$WEFT" simulate edited.json 2>err || fail "simulated after: $3"
    grep -qF -- "$1" err || fail "$3: '$(cat err)' does not say '$1'"
}
edit 'not as it was made' model.json 'p["seconds"] *= 0.9'
edit 'not as it was made' model.json 'p["memory"][0]["parameter_bytes"] = 1.0'
edit 'not as it was made' model.json 'del p["candidates"]'
edit 'not as it was made' model.json 'del p["cluster"]'
edit 'not as it was made' plan.json 'del p["id"]'
edit 'no plan of this weft' plan.json 'p["format"] = "weft.pipeline/9"'
edit 'plan again with this weft' model.json 'del p["format"]'
grep -q '24 of 24 skips stay on their device' table || fail "$(cat table)"
"$WEFT" plan layout "$SRC/examples/plan-layout.yaml" --out layout.json --svg layout.svg >table
grep -q '^tp 1 cp 4 ' table || fail "$(cat table)"
edit 'has no steps to run' layout.json 'pass'
edit 'not as it was made' layout.json 'p["best"]["tp"] = 2'
! "$WEFT" simulate layout.json --cluster v100:1 2>err || fail "simulated a layout"
grep -q 'was made for the cluster h100:8' err || fail "$(cat err)"
[ "$(grep -c 'slower: ' table)" = 10 ] || fail "not ten reasons: $(cat table)"
"$WEFT" plan layout "$SRC/examples/plan-layout.yaml" --set model=uvit-1b --set cluster=v100:1 >table
grep -q 'samples/s' table || fail "$(cat table)"
"$WEFT" plan memory "$SRC/examples/plan-memory.yaml" --set offload=false --set limit=20GiB --json --svg memory.svg >memory.json
edit 'not as it was made' memory.json 'p["kept"] = 1'
edit 'has no steps to run' memory.json 'pass'
# a model that is another one now
cat >tiny.json <<'JSON'
{"_class_name": "WanTransformer3DModel", "num_layers": 4, "num_attention_heads": 2, "attention_head_dim": 24, "ffn_dim": 96, "text_dim": 32}
JSON
"$WEFT" plan pipeline "$SRC/examples/plan-pipeline.yaml" --set model=tiny.json --set devices=2 --set frames=5 --set height=64 --set width=64 \
    --out tiny.plan >table
"$WEFT" simulate tiny.plan >simulated
sed -i 's/"ffn_dim": 96/"ffn_dim": 112/' tiny.json
! "$WEFT" simulate tiny.plan 2>err || fail "simulated a plan of another model"
grep -q 'was made for another tiny.json: its costs were' err || fail "$(cat err)"
python3 -c "import xml.dom.minidom as x; x.parse('layout.svg'); x.parse('memory.svg')"
python3 -c "import json; p = json.load(open('memory.json')); assert p['kept'] <= p['limit'] and p['seconds'] > 0, p"
costs '{"items":[{"name":"a","bytes":20}]}'; refuse 1 'needs' memory --costs bad.json --memory 10
costs '{"items":[{"name":"a","bytes":-20}]}'; refuse 1 'item 0 a' memory --costs bad.json --memory 10
refuse 1 'no model "uvit"' pipeline "$SRC/examples/plan-pipeline.yaml" --set model=uvit
refuse 1 'a pipeline of 64 devices on a cluster of 8' pipeline "$SRC/examples/plan-pipeline.yaml" --set devices=64
refuse 1 'nothing fits' layout "$SRC/examples/plan-layout.yaml" --set cluster=v100:1 --set batch=8 --set model= --set layers=200 --set hidden=16384 --set heads=128
"$WEFT" plan layout --keys | grep -q least_zero || fail "no keys"
echo ok
