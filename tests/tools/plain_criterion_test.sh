#!/bin/bash
# Every check of Criterion that a test uses exists in tests/plain, with which the sanitizers build.
. "$SRC/tests/check.sh"
names() { # FOLDER [OPTIONS...]
    grep -rhoE --include='*.c' --include='*.h' "${@:2}" '\bcr_[a-z0-9_]+\b' "$1" | sort -u
}
all_exist() {
    names "$SRC/tests" --exclude-dir=plain >used
    names "$SRC/tests/plain" >known
    comm -23 used known >missing
    [ -s used ] || fail "no test uses Criterion"
    [ ! -s missing ] || fail "tests/plain/criterion lacks $(tr '\n' ' ' <missing)"
}
check all_exist all_exist
finish
