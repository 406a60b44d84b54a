#!/bin/bash
# The tables in bench/*.md are those of bench/results, and tools/bench_tables.py stores the tables
# of a benchmark.
. "$SRC/tests/check.sh"
cd "$SRC" || exit 1
check pages_agree_with_results tools/bench_tables.py check
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
mkdir -p "$here/tools" "$here/bench/results"
cp tools/bench_tables.py "$here/tools"
a=$here/bench/results/a.csv more=$here/bench/results/a-more.csv
cat >"$a" <<'C'
case,machine,date,commit,ms,ratio
x,old machine,2026-01-01,unknown,5,
x,simulated,2026-01-01,unknown,6,2.0
C
echo "case,size,machine,date,commit,ms" >"$more"
printf '<!-- table a.csv -->\n<!-- /table -->\n' >"$here/bench/a.md"
printf '<!-- table a-more.csv | case=x | by size:\nms -->\nold\n<!-- /table -->\n' >"$here/bench/more.md"
run() { "$here/tools/bench_tables.py" record a "$@"; }
tables() { "$here/tools/bench_tables.py" "$@"; }
rows() { cut -d, -f1,2,5- "$a" | sed 1d; }

# A row with the same identity and machine is replaced; `machine:` is valid for the next table only.
rows_are_stored() {
    printf 'log line\nmachine: simulated\n| case | ms | ratio |\n|---|---|---|\n| x | 7 | 3.0 |\n| y | 8 | - |\n\n' >"$here/out"
    printf '| case | size | ms |\n|---|---|---|\n| x | 1 | 10 |\n| x | 2 | 20 |\n| z | 1 | 30 |\n' >>"$here/out"
    run cat "$here/out" >"$here/printed" || fail "record failed"
    cmp "$here/out" "$here/printed" || fail "the output of the benchmark is not printed"
    [ "$(rows)" = $'x,old machine,5,\nx,simulated,7,3.0\ny,simulated,8,' ] || fail_with "$a" "wrong rows"
    [ "$(grep -c '^[xz],[12],' "$more")" = 3 ] || fail_with "$more" "the second table is not stored"
    ! grep -q simulated "$more" || fail_with "$more" "the second table has the machine of the first one"
}
check rows_are_stored

failures_store_nothing() {
    local before
    before=$(rows)
    ! run false || fail "the exit status of the command is lost"
    printf '| case | other |\n|---|---|\n| x | 1 |\n' >"$here/out"
    ! run cat "$here/out" >/dev/null 2>&1 || fail "a table without a file is accepted"
    printf '| case | ms | ratio |\n|---|---|---|\n| w | 1 | 1 |\n' >"$here/out"
    BENCH_RECORD=no run cat "$here/out" >/dev/null || fail "BENCH_RECORD=no failed"
    [ "$(rows)" = "$before" ] || fail_with "$a" "rows have changed"
}
check failures_store_nothing

pages_are_written() {
    needs rows_are_stored
    ! tables check >/dev/null || fail "check accepts tables that differ from the results"
    tables update && tables check || fail "check refuses the tables of update"
    grep -q '^| x | 5 |$' "$here/bench/a.md" || fail_with "$here/bench/a.md" "the old machine is missing"
    grep -q '^| x | 7 | 3.0 |' "$here/bench/a.md" || fail_with "$here/bench/a.md" "the simulated machine is missing"
    grep -q '^| 10 | 20 |$' "$here/bench/more.md" || fail_with "$here/bench/more.md" "the columns by size are missing"
    sed -i 's/^x,simulated,\(.*\),7,/x,simulated,\1,9,/' "$a"
    ! tables check >/dev/null || fail "check does not detect a changed figure"
    printf '<!-- table a.csv | | other -->\n<!-- /table -->\n' >"$here/bench/a.md"
    ! tables update 2>/dev/null || fail "an unknown column is accepted"
}
check pages_are_written

# A page is printed unchanged, and its tables are files; an old row is removed.
tables_of_a_page_are_stored() {
    printf '# Page\n\n## First (Fig. 1)\n\ntext\n\n| model | ms |\n|---|---|\n| x | 1 |\n| y | 2 |\n\n## No table\n\ntext\n' >"$here/page"
    tables record-page plan cat "$here/page" | cmp - "$here/page" || fail "the page is not printed"
    [ "$(cut -d, -f1,2,5 "$here/bench/results/plan-first.csv")" = $'model,machine,ms\nx,computed,1\ny,computed,2' ] ||
        fail_with "$here/bench/results/plan-first.csv" "wrong rows"
    sed -i '/^| y/d' "$here/page"
    tables record-page plan cat "$here/page" >/dev/null
    ! grep -q '^y' "$here/bench/results/plan-first.csv" || fail "an old row is kept"
    [ ! -e "$here/bench/results/plan-no-table.csv" ] || fail "a section without a table has a file"
    ! tables record-page plan false || fail "the exit status of the command is lost"
}
check tables_of_a_page_are_stored
finish
