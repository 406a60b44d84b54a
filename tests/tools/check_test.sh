#!/bin/bash
# tests/check.sh, and how tests/run.sh counts: a copy of both runs scripts that pass, fail, skip and
# end early.
. "$SRC/tests/check.sh"
mkdir -p tests/suite build/test
cp "$SRC/tests/run.sh" "$SRC/tests/check.sh" tests/
head='#!/bin/bash
. "$SRC/tests/check.sh"
one() { touch one; }
two() { echo "a reason"; fail "two"; }
three() { needs one; [ -e one ] || fail "one has not run"; }
four() { needs two; }
five() { skip "no footage"; }
'
# script NAME: standard input becomes a script of the copy
script() {
    { echo "$head"; cat; } >"tests/suite/$1"
    chmod +x "tests/suite/$1"
}
# run EXPECTED [VARIABLE=VALUE...] -- PATTERN: the last line of the run is EXPECTED
run() {
    local expected=$1 variables=()
    shift
    while [ "$1" != -- ]; do variables+=("$1"); shift; done
    shift
    env WEFT_SHARED=/nonexistent WEFT_TEST_CASE= "${variables[@]}" bash tests/run.sh build "$@" >run.log 2>&1
    local status=$?
    [ "$(tail -n 1 run.log)" = "$expected" ] || fail_with run.log "expected $expected"
    [[ $expected == *" 0 failed"* ]] && [[ $expected != 0* ]] && expected_status=0 || expected_status=1
    [ $status = $expected_status ] || fail_with run.log "status $status"
}
script mixed_test.sh <<'S'
check one
check two
check three
check four
check five
check six [ -e one ]
finish
S
script good_test.sh <<'S'
check one
check three
finish
S
script early_test.sh <<'S'
check one
exit 0
finish
S
script unset_test.sh <<'S'
check one
check three "$no_such_variable"
finish
S
script none_test.sh <<'S'
skip "no golden files"
check one
finish
S
script setup_test.sh <<'S'
fail "the data are not there"
check one
finish
S
every_check_counts() {
    run "3 passed, 2 failed, 1 skipped" -- mixed
    [ "$(grep -c '^not ok' run.log)" = 2 ] && grep -q '^a reason$' run.log || fail_with run.log "the output of failed checks is not printed"
    ! grep -q '^ok 1 ' run.log || fail_with run.log "a check that passed is printed"
}
a_script_that_ends_early_fails() {
    run "1 passed, 1 failed, 0 skipped" -- early
    run "1 passed, 1 failed, 0 skipped" -- unset
    run "0 passed, 1 failed, 0 skipped" -- setup
}
a_skipped_script_is_one_case() { run "0 passed, 0 failed, 1 skipped" -- none; }
a_filter_selects_a_script() {
    run "2 passed, 0 failed, 0 skipped" WEFT_TEST_CASE='good/*' --
    run "2 passed, 0 failed, 0 skipped" WEFT_TEST_CASE='suite/good/*' --
}
a_filter_selects_a_check() {
    run "1 passed, 0 failed, 0 skipped" WEFT_TEST_CASE=good/one --
    run "1 passed, 0 failed, 0 skipped" WEFT_TEST_CASE='g*/t*ree' --
    run "0 passed, 1 failed, 0 skipped" WEFT_TEST_CASE=mixed/four --
}
check every_check_counts
check a_script_that_ends_early_fails
check a_skipped_script_is_one_case
check a_filter_selects_a_script
check a_filter_selects_a_check
finish
