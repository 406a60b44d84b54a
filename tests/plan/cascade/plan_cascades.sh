#!/bin/bash
# weft plan cascades, simulate and topology from the command line: figures checked by a separate
# program, refusals, and golden plans of the presets.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=2
refuse() { # ID [FIELD=VALUE...] -- command...: must end with an error that holds TEXT
    take_message "$@"
    set -- "${rest[@]}"
    if "$@" >out 2>err; then fail "accepted: $*"; fi
    has_message err "${wanted[@]}" || fail "$*: not as expected"
}

cat >costs.json <<'JSON'
{"cascades": [
 {"id": "s0.text", "degrees": {"1": {"seconds": 0.5, "bytes": 1e9}}},
 {"id": "s0.vae", "after": ["s0.text"], "degrees": {"1": {"seconds": 4.0, "bytes": 2e9}, "3": {"seconds": 1.5, "bytes": 1e9}}},
 {"id": "s0.dit", "after": ["s0.text", "s0.vae"], "degrees": {"2": {"seconds": 9, "bytes": 6e9}, "5": {"seconds": 4, "bytes": 3e9}, "7": {"seconds": 3}}},
 {"id": "s1.vae", "degrees": {"1": {"seconds": 2, "bytes": 2e9}, "2": {"seconds": 1.1, "bytes": 1e9}}},
 {"id": "s1.dit", "after": ["s1.vae"], "degrees": {"1": {"seconds": 7, "bytes": 7e9}, "3": {"seconds": 2.6, "bytes": 3e9}}}]}
JSON
"$WEFT" plan cascades --costs costs.json --devices 7 --memory-limit 6500000000 --seed 3 --json --out plan.json >printed.json
cat >check.py <<'PY'
import json, sys
costs, plan = (json.load(open(p)) for p in sys.argv[1:3])
devices, memory = int(sys.argv[3]), float(sys.argv[4])
at = {c["id"]: c for c in plan["cascades"]}
assert sorted(at) == sorted(c["id"] for c in costs["cascades"]) and len(at) == len(plan["cascades"])
for c in costs["cascades"]:
    p = at[c["id"]]
    d = c["degrees"][str(p["degree"])]
    assert abs(p["end"] - p["start"] - d["seconds"]) < 1e-9 and d.get("bytes", 0) <= memory
    assert len(set(p["devices"])) == p["degree"] and all(0 <= x < devices for x in p["devices"])
    for q in c.get("after", []):
        assert p["start"] >= at[q]["end"]
for a in plan["cascades"]:
    for b in plan["cascades"]:
        if a["id"] < b["id"] and set(a["devices"]) & set(b["devices"]):
            assert a["end"] <= b["start"] or b["end"] <= a["start"], (a, b)
assert plan["makespan"] == max(p["end"] for p in plan["cascades"])
assert plan["lower_bound"] <= plan["makespan"] and (not plan["proved"] or plan["lower_bound"] == plan["makespan"])
PY
the_plan_of_five_is_right() {
    python3 check.py costs.json printed.json 7 6500000000
    cmp printed.json plan.json
    grep -q '"proved": true' plan.json || fail "a plan of five cascades is not proved"
    OMP_NUM_THREADS=1 "$WEFT" plan cascades --costs costs.json --devices 7 --memory-limit 6500000000 --seed 3 --json >again.json
    cmp printed.json again.json
}
check the_plan_of_five_is_right
a_plan_is_simulated() {
    "$WEFT" simulate plan.json --out figures.json --chrome trace.json --svg chart.svg >simulated
    { cat plan.json; echo '{}'; } | tr -d '\n' >lines.jsonl
    refuse argument-invalid file=lines.jsonl -- "$WEFT" simulate lines.jsonl
    refuse option-no-effect key=--pass-splits text~=plan.json -- "$WEFT" simulate plan.json --pass-splits 4
    python3 -S - <<'PY'
import json
f, p, t = (json.load(open(n)) for n in ("figures.json", "plan.json", "trace.json"))
assert abs(f["seconds"] - p["makespan"]) < 1e-9, (f["seconds"], p["makespan"])
assert len([e for e in t["traceEvents"] if e["ph"] == "X"]) > 5
PY
    grep -q '</svg>' chart.svg
}
check a_plan_is_simulated

check plans_are_right python3 "$SRC/tests/plan/cascade/check_cascades.py" "$WEFT" 40

# Cascades of zero seconds are planned, drawn and executed.
cascades_without_time_are_planned() {
    echo '{"cascades": [{"id": "a", "degrees": {"1": {"seconds": 0}, "4": {"seconds": 0}}}, {"id": "b", "after": ["a"], "degrees": {"2": {"seconds": 0}}}]}' >zero.json
    "$WEFT" plan cascades --costs zero.json --devices 4 --explain --out zero.plan --svg zero.svg >zero.txt
    grep -q 'makespan 0 s, lower bound 0 s, gap 0.00 % (proved' zero.txt
    "$WEFT" simulate zero.plan --svg zero.svg --chrome zero.trace >zero.txt
    if grep -qi nan zero.txt zero.svg zero.trace; then fail "not a number in the run of an empty second"; fi
}
check cascades_without_time_are_planned
many_cascades_are_planned() {
    python3 -S - <<'PY'
import json # too many for the exact search, half of them of zero seconds
json.dump({"cascades": [{"id": f"c{i}", "after": [f"c{i - 7}"] if i > 6 else [], "degrees":
           {str(k): {"seconds": (i % 5) / k if i % 2 else 0, "bytes": 1} for k in (1, 3, 4)}} for i in range(120)]},
          open("many.json", "w"))
PY
    "$WEFT" plan cascades --costs many.json --devices 6 --json >many.plan
    python3 check.py many.json many.plan 6 2
}
check many_cascades_are_planned

# Impossible requests.
cat >one.yaml <<'YAML'
nodes: 1
devices: 1
device: {memory: 28GiB, flops: 5e11, memory_bandwidth: 4e10}
link: {bandwidth: 1e10}
YAML
one() { echo "{\"cascades\": [$1]}" >bad.json; refuse "${@:2}" -- "$WEFT" plan cascades --costs bad.json --devices 4; }
refusals_of_costs() {
    refuse costs-invalid file=costs.json key=devices text~=0 -- "$WEFT" plan cascades --costs costs.json --devices 0
    refuse costs-invalid file=costs.json key=devices text~=0 -- "$WEFT" plan cascades --costs costs.json
    refuse '*' text~=devices -- "$WEFT" plan cascades --costs costs.json --devices -3
    refuse plan-infeasible file=costs.json key=s0.dit 'text~=the smallest degree of the cascade is 2' -- "$WEFT" plan cascades --costs costs.json --devices 1
    refuse plan-infeasible file=costs.json key=s0.text -- "$WEFT" plan cascades --costs costs.json --devices 7 --memory-limit 100
    one '' costs-invalid file=bad.json key=cascades
    one '{"id": 5, "degrees": {"1": {"seconds": 1}}}' json-value
    one '{"id": "a", "degrees": {"1": {"seconds": 1, "byte": 3}}}' '*' 'text~=byte: unknown key; did you mean "bytes"?'
    one '{"id": "a", "degrees": {}}' json-value 'file=bad.json*' 'text~=cascade "a": degrees:'
    one '{"id": "a", "degrees": {"1": {"seconds": -1}}}' '*' 'text~=degree 1: seconds: -1 '
    one '{"id": "a", "degrees": {"1": {"seconds": "NaN"}}}' '*' 'text~=not a number'
    one '{"id": "a", "degrees": {"1": {"seconds": NaN}}}' json-syntax
    one '{"id": "a", "degrees": {"1": {"seconds": 1e999}}}' json-syntax
    one '{"id": "a", "degrees": {"1": {"seconds": 1, "bytes": -5}}}' '*' 'text~=degree 1: bytes: -5 '
    one '{"id": "a", "degrees": {"1.5": {"seconds": 1}}}' '*' 'text~=cascade "a": degrees: the degree "1.5"'
    one '{"id": "a", "degrees": {"8": {"seconds": 1}}}' plan-infeasible file=bad.json key=a 'text~=the smallest degree of the cascade is 8'
    one '{"id": "a", "after": ["b"], "degrees": {"1": {"seconds": 1}}}' json-value 'file=bad.json*' 'text~=cascade "a": after: b'
    one '{"id": "a", "after": ["a"], "degrees": {"1": {"seconds": 1}}}' costs-invalid file=bad.json key=after
    one '{"id": "a", "degrees": {"1": {"seconds": 1}}}, {"id": "a", "degrees": {"1": {"seconds": 1}}}' json-value 'file=bad.json*' 'text~=cascade 1: id: "a"'
    echo '{"cascades": [{"id": "a", "degrees": {"4": {"seconds": 1, "bytes": 103294964531}, "6": {"seconds": 1, "bytes": 64e9}}}]}' >bad.json
    refuse '*' 'text~=needs 96.2 GiB per device at degree 4, limit 80 GiB; smallest feasible degree 6' -- \
        "$WEFT" plan cascades --costs bad.json --devices 5 --memory-limit 80GiB
}
check refusals_of_costs
refusals_of_models() {
    refuse costs-invalid -- "$WEFT" plan cascades --set 'buckets.0.frames=9' --set 'buckets.0.height=64' --set 'buckets.0.width=64' --set 'buckets.0.weight=0'
    refuse '*' text~=needs -- "$WEFT" plan cascades --set model=wan-14b --set cluster=v100:1
    refuse plan-infeasible key=degrees 'text~=none of the degrees 32, 64 is within the 16 devices' -- "$WEFT" plan cascades --set degrees=[32,64] --set cluster=h100:2
    refuse '*' 'text~=per device at degree 8, limit 80 GiB; smallest feasible degree 504, devices 8' -- "$WEFT" plan cascades --set cluster=h100:1 \
        --set text=false --set samples=0 --set buckets.0.frames=129 --set buckets.0.height=4320 --set buckets.0.width=7680 \
        --set buckets.0.batch=8 --set buckets.0.count=1
    refuse '*' 'text~=smallest feasible degree' -- "$WEFT" plan cascades --set model=wan-1.3b --set cluster=one.yaml --set samples=1 --set text=false --set zero=0
    refuse '*' 'text~=did you mean' -- "$WEFT" plan cascades --set model=hunyuanvideo-13
}
check refusals_of_models
# Options without effect, and the config of a run in place of that of a plan.
what_has_no_effect_is_refused() {
    refuse option-no-effect key=--on -- "$WEFT" plan cascades --on h100:4
    refuse option-no-effect key=--memory-limit -- "$WEFT" plan cascades --set samples=1 --memory-limit 10GiB
    refuse option-no-effect key=--set -- "$WEFT" plan cascades --costs costs.json --devices 7 --set samples=1
    refuse option-no-effect key=--stages -- "$WEFT" plan compare --stages 2
    refuse '*' 'text~=weft plan layout takes --set cluster=' -- "$WEFT" plan layout "$SRC/examples/plan-layout.yaml" --on h100
    refuse '*' "text~=weft plan layout --run-config $SRC/examples/dit.yaml" -- "$WEFT" plan layout "$SRC/examples/dit.yaml"
    refuse '*' 'text~=cascades.yaml --dry-run' -- "$WEFT" plan cascades "$SRC/examples/cascades.yaml"
}
check what_has_no_effect_is_refused

# A plan for another cluster.
a_plan_belongs_to_its_cluster() {
    "$WEFT" plan cascades --set stage=360p --set samples=2 --out h100.json >/dev/null
    "$WEFT" simulate h100.json --on h100:2 >/dev/null
    refuse plan-outdated file=h100.json key=cluster -- "$WEFT" simulate h100.json --on h100:4
    refuse plan-outdated file=h100.json key=cluster -- "$WEFT" simulate h100.json --on h200:2
    sed 's/"frames": [0-9]*/"frames": 1000000000000/' h100.json >bad.json
    refuse plan-invalid file=bad.json key=workload -- "$WEFT" simulate bad.json
    sed 's/"degree": [0-9]*/"degree": 99/' plan.json >bad.json
    refuse '*' 'text~=cascade 0: devices:' -- "$WEFT" simulate bad.json
}
check a_plan_belongs_to_its_cluster
devices_that_overlap_are_refused() {
    python3 -S - <<'PY'
import json
p = json.load(open("plan.json"))
for c in p["cascades"]:
    c["devices"] = list(range(c["degree"]))
json.dump(p, open("bad.json", "w"))
PY
    refuse plan-invalid file=bad.json text~=device -- "$WEFT" simulate bad.json
}
check devices_that_overlap_are_refused

# An edited plan: a missing cascade, another ZeRO stage, an older file, another model.
edit() { # PYTHON ID [FIELD=VALUE...]: of the plan p; and the same without its id
    python3 -S -c "import json; p = json.load(open('h100.json')); $1; json.dump(p, open('bad.json', 'w'))"
    refuse "${@:2}" -- "$WEFT" simulate bad.json
}
changed_plans_are_refused() {
    edit 'del p["cascades"][-1]; p["makespan"] = max(c["end"] for c in p["cascades"]); p["lower_bound"] = 0' '*' 'text~=of the workload is not in the plan'
    edit 'p["workload"]["zero"] = 7' plan-invalid file=bad.json key=zero text~=7
    edit 'p["workload"]["zero"] = 3' plan-invalid file=bad.json key=id
    edit 'del p["format"]' plan-invalid file=bad.json key=format
    edit 'p["model"]["id"] = "0123456789abcdef"' plan-invalid file=bad.json key=id
    sed 's/"start": 0.0/"start": 0.001/' plan.json >bad.json && refuse plan-invalid file=bad.json key=id -- "$WEFT" simulate bad.json
}
check changed_plans_are_refused

# A sample has the same colour in the plan and in its simulation. An unused degree has one cause.
charts_and_causes_agree() {
    "$WEFT" plan cascades --set stage=360p --set samples=3 --out h100.json --svg planned.svg --explain >explained.txt
    "$WEFT" simulate h100.json --svg simulated.svg >/dev/null
    python3 -S - <<'PY'
import re
def hues(path):
    return set(re.findall(r"hsl\((\d+)", open(path).read()))
# 0: the exchange of all samples
assert hues("planned.svg") == hues("simulated.svg") - {"0"}, (hues("planned.svg"), hues("simulated.svg"))
PY
    if grep -q 'memory, or' explained.txt; then fail "two causes in one phrase"; fi
    grep -q 'no faster than a smaller degree' explained.txt || fail "no cause: $(cat explained.txt)"
}
check charts_and_causes_agree

# clusters
clusters_are_printed() {
    "$WEFT" topology h100:2 --yaml >mine.yaml
    "$WEFT" topology mine.yaml --svg mine.svg >mine.txt
    "$WEFT" topology h100:2 >preset.txt
    cmp mine.txt preset.txt
    grep -q '</svg>' mine.svg
    "$WEFT" topology local >local.txt
}
check clusters_are_printed
refusals_of_clusters() {
    needs clusters_are_printed
    sed 's/up: "*spine"*/up: nowhere/' mine.yaml >bad.yaml && refuse cluster-invalid file=bad.yaml key=switches.0 -- "$WEFT" topology bad.yaml
    sed 's/^nodes: .*/nodes: 0/' mine.yaml >bad.yaml && refuse cluster-invalid file=bad.yaml key=nodes -- "$WEFT" topology bad.yaml
    cat >bad.yaml <<'YAML'
nodes: 2
devices: 2
device: {memory: 1GiB, flops: 1e12, memory_bandwidth: 1e11}
link: {}
host: {}
nics: [{switch: a, bandwidth: 1e9}]
switches: [{name: a, up: b, bandwidth: 1e9}, {name: b, up: a, bandwidth: 1e9}]
YAML
    refuse cluster-invalid file=bad.yaml key=switches.0 'text~=the uplinks' -- "$WEFT" topology bad.yaml
    sed -i '/^nics/d; /^switches/d' bad.yaml && refuse cluster-invalid file=bad.yaml key=nics -- "$WEFT" topology bad.yaml
}
check refusals_of_clusters

# Golden plans and clusters: a change is visible in review (GOLDEN=write accepts it).
golden() { local name=$1; shift; check "golden_$name" same_as_golden "$name" "$@"; }
same_as_golden() { # NAME COMMAND...
    local name=$1.txt; shift
    "$@" >"$name"
    if [ "${GOLDEN-}" = write ]; then cp "$name" "$SRC/tests/plan/cascade/golden/$name"; fi
    diff -u "$SRC/tests/plan/cascade/golden/$name" "$name" || fail "$name has changed (GOLDEN=write accepts it)"
}
for preset in h100:2 h200:1 a100:2 v100:2 ascend910a:2; do
    for stage in 360p 720p 1080p; do
        model=hunyuanvideo-13b
        case $preset in a100*|v100*|ascend*) model=wan-1.3b ;; esac
        golden ${preset%:*}-$stage "$WEFT" plan cascades --set cluster=$preset --set stage=$stage --set model=$model --set samples=3 --seed 5
    done
    golden topology-${preset%:*} "$WEFT" topology ${preset%:*}
done
golden h100-64-720p "$WEFT" plan cascades --set cluster=h100:8 --set stage=720p --seed 5
golden topology-h100-512 "$WEFT" topology h100:512
finish
