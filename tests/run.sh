#!/bin/bash
# tests/run.sh [--programs] BUILD [PATTERN...]: runs the Criterion programs and the scripts in tests/*/*.sh
# whose name has one of the PATTERNs in it (none: all), and ends with "N passed, M failed, K skipped".
# A script passes with exit status 0, is skipped with 77, and fails with any other. What is skipped for want of
# footage that is there ($WEFT_SHARED/videos) has failed. --programs: Criterion programs of just these names.
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
export ASAN_OPTIONS=${ASAN_OPTIONS-detect_leaks=0}
export OMP_NUM_THREADS=${OMP_NUM_THREADS-2}
# Several programs share the cores: a thread that waits must not spin on one of them.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY-passive}
pass=0 fail=0 skip=0 failed=
wanted() { # NAME
    local pattern
    [ ${#patterns[@]} -gt 0 ] || return 0
    for pattern in "${patterns[@]}"; do
        if [ -z "$scripts" ]; then [ "$1" = "$pattern" ] && return 0; continue; fi
        case $1 in *"$pattern"*) return 0 ;; esac
    done
    return 1
}
missed_footage() { # LOG: it skipped for want of footage that is there
    [ -d "$WEFT_SHARED/videos" ] && grep -q 'no shared footage' "$1"
}
logs=$build/test-logs
mkdir -p "$logs"
for bin in "$build"/test/*; do
    name=$(basename "$bin")
    [ -x "$bin" ] || continue
    [ -d "tests/$name" ] || continue # a stale binary
    wanted "$name" || continue
    echo "== $name"
    start=$(date +%s.%N)
    "$bin" -j2 --tap="$logs/$name.tap" >"$logs/$name.log" 2>&1
    status=$?
    # TAP lines: "ok - suite::test  reason", "not ok - ...", "ok - ... # SKIP"
    s=$(grep -cE '^ok .*# SKIP' "$logs/$name.tap" 2>/dev/null)
    p=$(($(grep -cE '^ok ' "$logs/$name.tap" 2>/dev/null) - s))
    f=$(grep -cE '^not ok ' "$logs/$name.tap" 2>/dev/null)
    if [ $status -ne 0 ] && [ "${f:-0}" = 0 ]; then
        f=1 # died before it could report
    fi
    if missed_footage "$logs/$name.tap"; then
        f=$((${f:-0} + 1)) s=$((s - 1))
    fi
    [ "${f:-0}" = 0 ] || { failed="$failed $name"; cat "$logs/$name.log"; }
    printf '   %d passed, %d failed, %d skipped  %.1f s\n' "$p" "$f" "$s" "$(echo "$(date +%s.%N) - $start" | bc -l 2>/dev/null || echo 0)"
    pass=$((pass + p)) fail=$((fail + f)) skip=$((skip + s))
done
run_script() { # NAME: its verdict, in one piece, and its status into a file
    local name=$1 log status verdict start scratch
    log=$(log_of "$name")
    scratch=$(mktemp -d)
    start=$(date +%s)
    (cd "$scratch" && SRC=$OLDPWD timeout "${WEFT_TEST_TIMEOUT-600}" bash "$OLDPWD/tests/$name") >"$log" 2>&1
    status=$?
    rm -rf "$scratch"
    [ $status != 77 ] || ! missed_footage "$log" || status="skipped although the footage is there"
    echo "$status" >"$log.status"
    case $status in
    0) verdict=ok ;;
    77) verdict="skipped: $(tail -n 1 "$log")" ;;
    *) verdict="FAILED ($status)"$'\n'"$(tail -n 40 "$log")" ;;
    esac
    printf '== %s: %d s  %s\n' "$name" $(($(date +%s) - start)) "$verdict"
}
log_of() { # NAME
    echo "$logs/${1//\//_}.log"
}
# Most of a script's time one core is idle: some at once. None of them rests on a quiet machine.
names=()
for script in tests/*/*.sh; do
    [ -n "$scripts" ] && [ -x "$script" ] && wanted "${script#tests/}" || continue
    names+=("${script#tests/}")
    while [ "$(jobs -rp | wc -l)" -ge "${WEFT_TEST_JOBS-2}" ]; do wait -n; done
    rm -f "$(log_of "${names[-1]}").status"
    run_script "${names[-1]}" &
done
wait
for name in ${names[@]+"${names[@]}"}; do
    case $(cat "$(log_of "$name").status" 2>/dev/null) in
    0) pass=$((pass + 1)) ;;
    77) skip=$((skip + 1)) ;;
    *) fail=$((fail + 1)) failed="$failed $name" ;;
    esac
done
[ -z "$failed" ] || echo "failed:$failed"
echo "$pass passed, $fail failed, $skip skipped"
[ $fail -eq 0 ] && [ $((pass)) -gt 0 ]
