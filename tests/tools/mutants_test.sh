#!/bin/bash
# Every mutant of tools/mutants.py applies to this tree, and its tests exist. Each folder of src has
# two or more mutants.
. "$SRC/tests/check.sh"
every_mutant_applies() {
    python3 -S - "$SRC" <<'PY'
import os, sys
sys.path.insert(0, os.path.join(sys.argv[1], "tools"))
sys.dont_write_bytecode = True
import mutants
problems = mutants.check(mutants.MUTANTS)
for folder in sorted(os.listdir(os.path.join(sys.argv[1], "src"))):
    count = sum(m[1].startswith(f"src/{folder}/") for m in mutants.MUTANTS)
    if count < 2:
        problems.append(f"src/{folder}: {count} mutants")
print(len(mutants.MUTANTS), "mutants", *problems, sep="\n")
sys.exit(bool(problems))
PY
}
check every_mutant_applies
finish
