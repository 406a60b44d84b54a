#!/bin/bash
# docs/notes/serving-peers.md: each property of weft names checks that exist and that their script runs. Each column of the
# comparison has such a row, unless weft's cell is `no`.
. "$SRC/tests/check.sh"
page=$SRC/docs/notes/serving-peers.md
cat >read.py <<'P'
import os, re, sys
page, tests = sys.argv[1:]
rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in open(page, encoding="utf-8") if line.startswith("|")]
columns, weft = rows[0][1:], next(row for row in rows if row[0] == "weft")[1:]
proved = {row[0]: row[2] for row in rows[rows.index(["property of weft", "value", "checks"]) + 2:]}
missing = [c for c, cell in zip(columns, weft) if cell != "no" and c not in proved]
for name, proof in proved.items():
    named = re.findall(r"`(\w+)`: (all checks|(?:`\w+`(?:, )?)+)", proof)
    if not named:
        missing.append(f"{name}: no check")
    for file, checks in named:
        script = f"{tests}/{file}_test.sh"
        text = open(script, encoding="utf-8").read().replace("\\\n", " ") if os.path.exists(script) else ""
        run = set(re.findall(r"\w+", " ".join(re.findall(r"^cases \S+ (.*)$", text, re.M))))
        cases = open(f"{tests}/{file.removesuffix('_long')}_cases.py", encoding="utf-8").read() if run else ""
        wanted = sorted(run) if checks == "all checks" else re.findall(r"\w+", checks)
        missing += [f"{name}: {file}: {check}" for check in wanted if check not in run or f"\ndef {check}()" not in cases]
        if not run:
            missing.append(f"{name}: {file}: no script")
print("\n".join(missing))
sys.exit(bool(missing))
P
every_cell_names_a_check() { python3 -S read.py "$page" "$SRC/tests/serve" >missing || fail_with missing "no test for"; }
# The reader itself finds a check that does not exist, a property without one, and a column without a row.
gaps_are_found() {
    local change
    for change in 's/`events_show_the_steps`/`events_show_steps`/' 's/^| metrics | \(.*\) | .* |$/| metrics | \1 | - |/' '/^| preview | the/d'; do
        sed "$change" "$page" >changed.md
        ! cmp -s "$page" changed.md || fail "nothing changed: $change"
        ! python3 -S read.py changed.md "$SRC/tests/serve" >/dev/null || fail "not found: $change"
    done
}
check every_cell_names_a_check every_cell_names_a_check
check gaps_are_found gaps_are_found
finish
