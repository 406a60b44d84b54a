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
    bad option-choice --policy serve poisson --policy sjf
    bad option-invalid --sizes serve poisson --sizes 3,x
    bad option-invalid --deadlines serve poisson --deadlines 1,-2
    bad option-no-effect --links serve poisson --links 3
    bad option-no-effect --load plan.json --load 0.5
    echo '{"arrival": 0, "seconds": 1}' >one.jsonl
    bad option-no-effect --jobs serve one.jsonl --jobs 3
    echo '{"arrival": 0, "seconds": 0}' >zero.jsonl
    bad trace-invalid seconds serve zero.jsonl
}
check "figures agree" figures_agree
check "refusals" refusals
finish
