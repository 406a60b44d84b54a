#!/bin/bash
# weft simulate serve: tables, JSON, files of traces, and refused options.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
figures_agree() {
    "$WEFT" simulate serve poisson --jobs 200 --save trace.jsonl --out random.json >random.txt || fail "poisson"
    "$WEFT" simulate serve trace.jsonl --out file.json >file.txt || fail "a file"
    cmp random.json file.json && cmp random.txt file.txt || fail "a saved trace has other figures"
    "$WEFT" simulate serve trace.jsonl --policy edf --policy fifo --out two.json >two.txt || fail "--policy"
    python3 -S - <<'P' || fail "the figures"
import json
all, two = json.load(open("random.json")), json.load(open("two.json"))
assert [p["policy"] for p in all["policies"]] == ["fifo", "srpt", "edf", "fair"]
assert two["policies"] == [all["policies"][0], all["policies"][2]]
for p in all["policies"]:
    assert 0 <= p["slo_attainment"] <= 1 and p["deadlines"] == 200 and p["above_bound"] >= 0
    assert p["median"] <= p["p95"] <= p["p99"] <= p["longest"]
assert all["policies"][2]["slo_attainment"] > all["policies"][0]["slo_attainment"]
P
}
bad() { # ID KEY ARGUMENT...
    local id=$1 key=$2
    shift 2
    ! WEFT_LOG_FORMAT=json "$WEFT" simulate "$@" >bad.out 2>bad.log || fail "accepted: $*"
    has_message bad.log "$id" "key=$key" || fail "$*: $(cat bad.log)"
}
refusals() {
    bad option-invalid --policy serve poisson --policy sjf
    bad option-invalid --sizes serve poisson --sizes 3,x
    bad option-invalid --deadlines serve poisson --deadlines 1,-2
    bad option-no-effect --links serve poisson --links 3
    bad option-no-effect --load plan.json --load 0.5
    echo '{"arrival": 0, "seconds": 1}' >one.jsonl
    bad option-no-effect --jobs serve one.jsonl --jobs 3
    echo '{"arrival": 0, "seconds": 0}' >zero.jsonl
    bad format-damaged seconds serve zero.jsonl
    echo '{"sizes": []}' >none.json
    bad format-damaged sizes serve poisson --degrees none.json --workers 8
    bad option-invalid --workers serve poisson --degrees none.json --workers 9
    bad option-no-effect --policy serve poisson --degrees none.json --policy edf
    bad option-no-effect --round-seconds serve poisson --round-seconds 1
}
# A saved trace of jobs on several devices has the figures of the random one.
saved_jobs_are_equal() {
    cat >degrees.json <<'J'
{"sizes": [{"name": "a", "steps": 4, "step_seconds": [1, 0.6, 0.4, 0.3], "decode_seconds": 0.5, "share": 2},
           {"name": "b", "steps": 9, "step_seconds": [3, 1.6, 0.9, 0.5], "decode_seconds": 1, "share": 1}]}
J
    "$WEFT" simulate serve poisson --degrees degrees.json --workers 4 --jobs 60 --save devices.jsonl --out made.json >/dev/null || fail "poisson"
    "$WEFT" simulate serve devices.jsonl --degrees degrees.json --workers 4 --out read.json >/dev/null || fail "the saved trace"
    python3 -S - <<'J' || fail "other figures"
import json
made, read = (json.load(open(f))["policies"] for f in ("made.json", "read.json"))
assert [(p["policy"], round(p["mean"], 6), p["slo_attainment"]) for p in made] == [(p["policy"], round(p["mean"], 6), p["slo_attainment"]) for p in read]
J
}
check saved_jobs_are_equal
# Ends are known under fifo; others are predicted nearly as well as the bound permits.
ends_are_predicted() {
    "$WEFT" simulate serve poisson --jobs 200 --predictions --policy fifo --policy srpt --out predicted.json >predicted.txt || fail "--predictions"
    python3 -S - <<'P' || fail "the predictions"
import json
fifo, srpt = (p["prediction"] for p in json.load(open("predicted.json"))["policies"])
assert fifo["near"] == 1 and fifo["in_range"] == 1 and fifo["median_error"] < 1e-6, fifo
assert 0.9 < srpt["near"] <= srpt["bound"] + 0.03 and srpt["median_error"] < 0.1, srpt
P
    # a queue that grows without end is refused at once
    timeout 60 "$WEFT" simulate serve poisson --jobs 4000 --load 3 >/dev/null || fail "a high load"
    bad option-invalid --predictions serve poisson --jobs 4000 --load 3 --predictions
}
# A video alone on devices that are hardly used is predicted exactly; with a load, nearly as well as the bound permits.
shared_ends_are_predicted() {
    echo '{"sizes": [{"name": "a", "steps": 20, "step_seconds": [1, 0.6], "decode_seconds": 1, "share": 1}, {"name": "b", "steps": 40, "step_seconds": [3, 1.6],
        "decode_seconds": 1, "share": 1}]}' >two.json
    for load in 0.01 0.7; do
        "$WEFT" simulate serve poisson --degrees two.json --workers 2 --jobs 40 --load $load --predictions --out "shared-$load.json" >predicted.txt || fail "--predictions"
    done
    grep -q "^weft-start .*%$" predicted.txt && grep -q "^predicted at arrival" predicted.txt || fail_with predicted.txt "no table"
    python3 -S - <<'P' || fail "the predictions"
import json
for load in ("0.01", "0.7"):
    for p in json.load(open(f"shared-{load}.json"))["policies"]:
        q = p["prediction"]
        if load == "0.01":
            assert q["near"] > 0.95 and q["median_error"] < 1e-6, (load, p)
        elif p["policy"] in ("weft", "weft-start"):
            assert q["near"] <= q["bound"] + 0.05 and q["near"] > q["bound"] - 0.15, (load, p)
P
    bad option-invalid --predictions serve poisson --degrees two.json --workers 2 --jobs 4000 --load 3 --predictions
}
# Devices: weft's policy meets the most deadlines; equal seeds give equal figures.
devices_are_shared() {
    cat >degrees.json <<'J'
{"sizes": [{"name": "small", "steps": 20, "step_seconds": [0.2, 0.12, 0.09, 0.08], "decode_seconds": 0.1, "share": 4},
           {"name": "large", "steps": 20, "step_seconds": [8, 4.1, 2.1, 1.1], "decode_seconds": 1.5, "share": 1}]}
J
    for n in 1 2; do
        "$WEFT" simulate serve poisson --degrees degrees.json --workers 8 --jobs 300 --load 0.7 --out "devices$n.json" >"devices$n.txt" || fail "--degrees"
    done
    cmp devices1.json devices2.json && cmp devices1.txt devices2.txt || fail "other figures"
    python3 -S - <<'P' || fail "the figures"
import json
policies = json.load(open("devices1.json"))["policies"]
met = {p["policy"]: p["slo_attainment"] for p in policies}
assert list(met) == ["fixed-1", "fixed-2", "fixed-4", "fixed-8", "ddit", "tetriserve", "genserve", "weft", "weft-start"]
fixed = max(met[name] for name in met if name.startswith("fixed"))
assert met["weft-start"] > max(fixed, met["ddit"]), met
assert met["weft"] >= 1.3 * fixed and met["weft"] > max(met["ddit"], met["tetriserve"], met["genserve"]), met
P
}
# A trace of a server: jobs that never meet have the seconds of their fastest degree, so that the measured ends agree, and one is
# 10 % late. A size without a degree of 2 is not run by fixed-2.
measured_ends_are_compared() {
    cat >two.json <<'J'
{"sizes": [{"name": "a", "steps": 20, "step_seconds": [0.2, 0.12], "decode_seconds": 0.1, "share": 1},
           {"name": "b", "steps": 10, "step_seconds": [1], "decode_seconds": 0.5, "share": 1}]}
J
    cat >measured.jsonl <<'J'
{"arrival": 100, "size": "b", "end": 110.5}
{"arrival": 0, "size": "a", "deadline": 4, "end": 2.5}
{"arrival": 200, "size": "a", "deadline": 201, "priority": 2, "end": 202.75}
{"arrival": 300, "size": "a"}
J
    "$WEFT" simulate serve measured.jsonl --degrees two.json --workers 2 --out measured.json >measured.txt || fail "a trace with --degrees"
    python3 -S - <<'P' || fail "the measured ends"
import json
policies = {p["policy"]: p for p in json.load(open("measured.json"))["policies"]}
assert list(policies) == ["fixed-1", "ddit", "tetriserve", "genserve", "weft", "weft-start"], policies
assert abs(policies["weft"]["error"]) < 1e-9 and abs(policies["weft-start"]["error"]) < 1e-9, policies
assert policies["fixed-1"]["error"] > 0.3 and policies["weft"]["met"] == 1 and policies["weft"]["deadlines"] == 2, policies
P
    sed 's/"a", "deadline": 4/"c"/' measured.jsonl >unknown.jsonl
    bad format-damaged size serve unknown.jsonl --degrees two.json --workers 2
    bad option-no-effect --load serve measured.jsonl --degrees two.json --workers 2 --load 0.5
}
check "figures agree" figures_agree
check "ends are predicted" ends_are_predicted
check "shared ends are predicted" shared_ends_are_predicted
check "measured ends" measured_ends_are_compared
check "devices are shared" devices_are_shared
check "refusals" refusals
finish
