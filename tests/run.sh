#!/bin/bash
# tests/run.sh [--programs] BUILD [PATTERN...]: runs the Criterion programs and the scripts below
# tests whose path contains one of the PATTERNs (none: all), and ends with
# "N passed, M failed, K skipped". Each test of a program and each check of a script
# (tests/check.sh) is one case. A script that ends before `finish` has failed. A test that skips
# although the footage ($WEFT_SHARED/videos) exists has failed.
# --programs: Criterion programs of just these names.
# WEFT_TEST_CASE=SUITE/CASE (both may have * in them) runs these cases of the programs and scripts
# that have the suite. The suite of tests/train/checkpoint/resume_test.sh is resume or
# train/checkpoint/resume. WEFT_TEST_CASE='!(SUITE/CASE|...)' runs all cases of programs but these.
# At the end the ten slowest programs and scripts are printed.
set -u
scripts=yes
[ "$1" != --programs ] || { scripts=; shift; }
build=$1
shift
patterns=("$@")
cd "$(dirname "$0")/.." || exit 1
export WEFT=$PWD/$build/weft WEFT_BUILD=$PWD/$build WEFT_SHARED=${WEFT_SHARED-$PWD/../shared}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl=self,vader OMPI_MCA_hwloc_base_binding_policy=none
# Complete stacks: OpenMPI unloads its components, and only a caller below them names the library.
export LSAN_OPTIONS=${LSAN_OPTIONS-suppressions=$PWD/tests/lsan.supp:print_suppressions=0}
case $build in */asan) LSAN_OPTIONS=$LSAN_OPTIONS:fast_unwind_on_malloc=0 ;; esac
# The interpreter itself: a version manager's shim doubles the time of a start.
python=$(python3 -S -c 'import os, sys; print(os.path.dirname(sys.executable))') && PATH=$python:$PATH
export OMP_NUM_THREADS=${OMP_NUM_THREADS-2}
# Several programs share the cores: a thread that waits must not spin on one of them.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY-passive}
pass=0 fail=0 skip=0 failed=
case=${WEFT_TEST_CASE-}
[[ $case != !* ]] || scripts=
wanted() { # NAME
    local pattern
    [ ${#patterns[@]} -gt 0 ] || return 0
    for pattern in "${patterns[@]}"; do
        if [ -z "$scripts" ]; then [ "$1" = "${pattern//-//}" ] && return 0; continue; fi
        case $1 in *"$pattern"*) return 0 ;; esac
    done
    return 1
}
missed_footage() { # LOG: whether the test skipped although the footage exists
    [ -d "$WEFT_SHARED/videos" ] && grep -q 'no shared footage' "$1"
}
has_case() { # PROGRAM: whether the program has the suite of $case
    local suite
    case $case in '' | !*) return 0 ;; */*/*) return 1 ;; esac
    while read -r suite; do
        # shellcheck disable=SC2254 # a pattern
        case $suite in ${case%%/*}) return 0 ;; esac
    done < <(sed -nE 's/^(Parameterized)?Test\( *([a-z0-9_]+).*/\2/p' "tests/$1"/*.c | sort -u)
    return 1
}
logs=$build/test-logs
mkdir -p "$logs"
rm -f "$logs/seconds"
for bin in "$build"/test/*; do
    name=$(basename "$bin")
    log=$logs/$name
    name=${name//-//} # build/test/train-cascade is of tests/train/cascade
    [ -x "$bin" ] || continue
    [ -d "tests/$name" ] || continue # a stale binary
    { [ -n "$case" ] && [ ${#patterns[@]} = 0 ] || wanted "$name"; } && has_case "$name" || continue
    echo "== $name"
    start=$(date +%s.%N)
    # No case takes 25 minutes on any machine: one that hangs is a failure, not the end of the run.
    "$bin" -j2 --timeout=1500 ${case:+"--filter=$case"} --tap="$log.tap" >"$log.log" 2>&1
    status=$?
    # TAP lines: "ok - suite::test  reason", "not ok - ...", "ok - ... # SKIP"
    s=$(grep -cE '^ok .*# SKIP' "$log.tap" 2>/dev/null)
    p=$(($(grep -cE '^ok ' "$log.tap" 2>/dev/null) - s))
    f=$(grep -cE '^not ok ' "$log.tap" 2>/dev/null)
    if [ $status -ne 0 ] && [ "${f:-0}" = 0 ]; then
        f=1 # ended before it could report
    fi
    # For Criterion a case whose process leaks has passed: the report of the leak is a failure.
    f=$((${f:-0} + $(grep -c 'ERROR: LeakSanitizer' "$log.log")))
    if missed_footage "$log.tap"; then
        f=$((${f:-0} + 1)) s=$((s - 1))
    fi
    [ "${f:-0}" = 0 ] || { failed="$failed $name"; cat "$log.log"; }
    seconds=$(echo "$(date +%s.%N) - $start" | bc -l 2>/dev/null || echo 0)
    printf '   %d passed, %d failed, %d skipped  %.1f s\n' "$p" "$f" "$s" "$seconds"
    printf '%.1f %s\n' "$seconds" "$name" >>"$logs/seconds"
    pass=$((pass + p)) fail=$((fail + f)) skip=$((skip + s))
done
is_suite() { # SCRIPT: whether it is the suite of $case
    local suite=${1%.sh}
    suite=${suite%_test}
    # shellcheck disable=SC2254 # patterns
    case $suite in ${case%/*} | */${case%/*}) return 0 ;; esac
    [ -z "$case" ]
}
# count LOG STATUS SCRIPT: prints "passed failed skipped" of a script.
count() {
    local ok not_ok skipped plan
    if [ "$(tail -n 1 "tests/$3")" != finish ]; then # a script of one check
        case $2 in 0) echo "1 0 0" ;; 77) echo "0 0 1" ;; *) echo "0 1 0" ;; esac
        return
    fi
    ok=$(grep -cE '^ok [0-9]+ - ' "$1")
    skipped=$(grep -cE '^ok [0-9]+ - .* # SKIP' "$1")
    not_ok=$(grep -cE '^not ok [0-9]+ - ' "$1")
    plan=$(sed -nE 's/^1\.\.([0-9]+)( # SKIP .*)?$/\1/p' "$1" | tail -n 1)
    if [ "$2" = 77 ] && [ "$plan" = 0 ] && [ $((ok + not_ok)) = 0 ]; then
        echo "0 0 1"
    elif [ "$plan" != $((ok + not_ok)) ] || { [ "$2" != 0 ] && [ "$not_ok" = 0 ]; }; then
        echo "$((ok - skipped)) $((not_ok + 1)) $skipped" # it ended early
    else
        echo "$((ok - skipped)) $not_ok $skipped"
    fi
}
# print_failures LOG: the output of each failed check, and the output after the last check.
print_failures() {
    awk '{block[n++] = $0}
         /^(not )?ok [0-9]+ - / {if (/^not/) for (i = n > 40 ? n - 40 : 0; i < n; i++) print block[i]; n = 0}
         END {if (block[n - 1] !~ /^1\.\.[0-9]/) for (i = n > 40 ? n - 40 : 0; i < n; i++) print block[i]}' "$1"
}
run_script() { # NAME: prints its verdict in one piece, and writes its counts to a file
    local name=$1 log status start scratch passed failed skipped
    log=$(log_of "$name")
    scratch=$(mktemp -d)
    start=$(date +%s)
    (cd "$scratch" && SRC=$OLDPWD WEFT_TEST_CHECK=${case##*/} \
        timeout "${WEFT_TEST_TIMEOUT-1500}" bash "$OLDPWD/tests/$name") >"$log" 2>&1
    status=$?
    rm -rf "$scratch"
    read -r passed failed skipped < <(count "$log" $status "$name")
    ! missed_footage "$log" || failed=$((failed + 1)) skipped=$((skipped - 1))
    echo "$passed $failed $skipped" >"$log.counts"
    {
        printf '== %s: %d s  %d passed, %d failed, %d skipped\n' "$name" $(($(date +%s) - start)) \
            "$passed" "$failed" "$skipped"
        [ "$failed" = 0 ] || print_failures "$log"
        [ "$skipped" = 0 ] || grep '# SKIP' "$log" || tail -n 1 "$log"
    } >"$log.verdict"
    cat "$log.verdict"
    echo "$(($(date +%s) - start)) $name" >>"$logs/seconds"
}
log_of() { # NAME
    echo "$logs/${1//\//_}.log"
}
# A script leaves one core idle most of its time, so several run at once. No test needs an idle
# machine.
names=()
for script in tests/*/*.sh tests/*/*/*.sh; do
    [ -n "$scripts" ] && [ -x "$script" ] && wanted "${script#tests/}" && is_suite "${script#tests/}" || continue
    names+=("${script#tests/}")
    while [ "$(jobs -rp | wc -l)" -ge "${WEFT_TEST_JOBS-2}" ]; do wait -n; done
    rm -f "$(log_of "${names[-1]}").counts"
    run_script "${names[-1]}" &
done
wait
for name in ${names[@]+"${names[@]}"}; do
    read -r p f s < <(cat "$(log_of "$name").counts" 2>/dev/null)
    [[ $f =~ ^[0-9]+$ ]] || { p=0 f=1 s=0; } # it left no counts
    pass=$((pass + p)) fail=$((fail + f)) skip=$((skip + s))
    [ "$f" = 0 ] || failed="$failed $name"
done
if [ "$(wc -l <"$logs/seconds" 2>/dev/null || echo 0)" -gt 10 ]; then
    echo "slowest:"
    sort -rn "$logs/seconds" | head -n 10 | awk '{printf "  %6.1f s  %s\n", $1, $2}'
fi
[ -z "$failed" ] || echo "failed:$failed"
echo "$pass passed, $fail failed, $skip skipped"
[ $fail -eq 0 ] && [ $((pass)) -gt 0 ]
