#!/bin/bash
# weft doctor --collectives: by the model for machines that are not here; of the ranks at hand every algorithm is timed, what was
# quickest is kept, and jobs take it from there.
set -u
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
MPIRUN="$(command -v mpirun.openmpi || command -v mpirun)"
fail() { echo "FAILED: $*"; exit 1; }
"$WEFT" doctor --collectives 64/8 >model.log 2>&1 || { cat model.log; fail "the model"; }
grep -q "^by the model: costs of messages built in" model.log && ! grep -q "each algorithm timed" model.log || { cat model.log; fail "what is modelled is not told"; }
"$WEFT" doctor --collectives 2 --out no.json >no.log 2>&1 && fail "kept what nobody timed"
grep -q "keeps what was timed, and 1 rank is here: mpirun -n 2" no.log || { cat no.log; fail "not told what would do"; }
# a file that cannot be written is told before the timing, which on such a link would not end
WEFT_LINK="0.0001 Gbit/s, 1000 us, 1 per node" timeout 300 "$MPIRUN" --oversubscribe -n 2 "$WEFT" doctor --collectives 2 --out nowhere/here.json >no.log 2>&1
[ $? = 1 ] && grep -q 'cannot write nowhere/here.json' no.log || { cat no.log; fail "--out in a folder that is not there"; }
"$MPIRUN" --oversubscribe -n 2 "$WEFT" doctor --collectives 2 --out here.json >here.log 2>&1 || { cat here.log; fail "doctor on two ranks"; }
for op in all_reduce all_gather reduce_scatter broadcast; do
    [ "$(grep -cE "^$op .* [0-9.]+ (us|ms|s)$" here.log)" -ge 9 ] || { cat here.log; fail "no seconds of $op"; }
done
grep -q "WEFT_COLLECTIVES=here.json" here.log || { cat here.log; fail "how to use it is not told"; }
python3 - <<'P' || fail "the table: $(cat here.json)"
import json
t = json.load(open("here.json"))
assert t["format"] == "weft.collectives/1"
for op in ("all_reduce", "all_gather", "reduce_scatter", "broadcast"):
    rows = [r for r in t["choices"] if r["op"] == op]
    assert rows and rows[0]["from"] == 0 and [r["from"] for r in rows] == sorted(r["from"] for r in rows), (op, rows)
    assert all((r["ranks"], r["nodes"], r["per_node"]) == (2, 1, 2) for r in rows), rows
P
WEFT_COLLECTIVES=here.json "$MPIRUN" --oversubscribe -n 2 "$WEFT" doctor --ranks >ranks.log 2>&1 || { cat ranks.log; fail "a job with the table"; }
WEFT_COLLECTIVES=nowhere.json "$MPIRUN" --oversubscribe -n 2 "$WEFT" doctor --ranks >ranks.log 2>&1 && fail "a table that is not there"
grep -q "nowhere.json" ranks.log || { cat ranks.log; fail "the file is not named"; }
: >empty.json
WEFT_COLLECTIVES=empty.json "$MPIRUN" --oversubscribe -n 2 "$WEFT" doctor --ranks >ranks.log 2>&1 && fail "an empty table"
grep -q "empty.json: an empty file" ranks.log || { cat ranks.log; fail "an empty table is not told"; }
echo '{"format": "weft.collectives/1", "choices": [{"op": "sum"}]}' >broken.json
WEFT_COLLECTIVES=broken.json "$MPIRUN" --oversubscribe -n 2 "$WEFT" doctor --ranks >ranks.log 2>&1 && fail "a broken table"
grep -q "choices\[0\]" ranks.log || { cat ranks.log; fail "the row is not named"; }
exit 0
