#!/bin/bash
# weft doctor --collectives prints estimates for other machines. On running ranks it times every
# algorithm and writes a table of the fastest, which jobs read (WEFT_COLLECTIVES).
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
MPIRUN="$(command -v mpirun.openmpi || command -v mpirun)"
other_machines_are_estimated() {
    "$WEFT" doctor --collectives 64/8 >model.txt 2>model.log || { cat model.log; fail "the estimates"; }
    grep -q "^by the model: costs of messages built in" model.txt && ! grep -q "each algorithm timed" model.txt || { cat model.txt; fail "the output does not separate estimates from measurements"; }
}
check other_machines_are_estimated
a_model_is_not_saved() {
    "$WEFT" doctor --collectives 2 --out no.json >no.log 2>&1 && fail "estimates are written as measurements"
    has_message no.log option-conflict key=--out 'text~=mpirun -n 2' || fail "the error does not name mpirun"
}
check a_model_is_not_saved
# An output file that cannot be written is refused before the timing, which would not end on such a
# slow link.
an_unwritable_file_is_refused_first() {
    WEFT_LINK="0.0001 Gbit/s, 1000 us, 1 per node" timeout 300 "$MPIRUN" --oversubscribe -n 2 "$WEFT" doctor --collectives 2 --out nowhere/here.json >no.log 2>&1
    [ $? = 1 ] && has_message no.log file-not-found file=nowhere/here.json || fail "--out in a folder that does not exist"
}
check an_unwritable_file_is_refused_first
every_algorithm_is_timed() {
    "$MPIRUN" --oversubscribe -n 2 "$WEFT" doctor --collectives 2 --out here.json >here.txt 2>here.log || { cat here.log; fail "doctor on two ranks"; }
    for op in all_reduce all_gather reduce_scatter broadcast; do
        [ "$(grep -cE "^$op .* [0-9.]+ (us|ms|s)$" here.txt)" -ge 9 ] || { cat here.txt; fail "the seconds of $op are missing"; }
    done
    grep -q "WEFT_COLLECTIVES=here.json" here.txt || { cat here.txt; fail "the output does not name WEFT_COLLECTIVES"; }
    python3 -S - <<'P' || fail "the table: $(cat here.json)"
import json
t = json.load(open("here.json"))
assert t["format"] == "weft.collectives/1"
for op in ("all_reduce", "all_gather", "reduce_scatter", "broadcast"):
    rows = [r for r in t["choices"] if r["op"] == op]
    assert rows and rows[0]["from"] == 0 and [r["from"] for r in rows] == sorted(r["from"] for r in rows), (op, rows)
    assert all((r["ranks"], r["nodes"], r["per_node"]) == (2, 1, 2) for r in rows), rows
P
}
check every_algorithm_is_timed
a_job_reads_the_table() {
    needs every_algorithm_is_timed
    WEFT_COLLECTIVES=here.json "$MPIRUN" --oversubscribe -n 2 "$WEFT" doctor --ranks >ranks.log 2>&1 || { cat ranks.log; fail "a job with the table"; }
    WEFT_COLLECTIVES=nowhere.json "$MPIRUN" --oversubscribe -n 2 "$WEFT" doctor --ranks >ranks.log 2>&1 && fail "a missing table is accepted"
    has_message ranks.log file-not-found file=nowhere.json || fail "the file is not named"
}
check a_job_reads_the_table
damaged_tables_are_refused() {
    : >empty.json
    WEFT_COLLECTIVES=empty.json "$MPIRUN" --oversubscribe -n 2 "$WEFT" doctor --ranks >ranks.log 2>&1 && fail "an empty table is accepted"
    has_message ranks.log format-unknown file=empty.json key=WEFT_COLLECTIVES 'text~=the file is empty' || fail "an empty table is not reported"
    echo '{"format": "weft.collectives/1", "choices": [{"op": "sum"}]}' >broken.json
    WEFT_COLLECTIVES=broken.json "$MPIRUN" --oversubscribe -n 2 "$WEFT" doctor --ranks >ranks.log 2>&1 && fail "a damaged table is accepted"
    has_message ranks.log '*' level=error 'text~=choices[0]' || fail "the damaged row is not named"
}
check damaged_tables_are_refused
finish
