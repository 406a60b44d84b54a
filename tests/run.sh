#!/bin/bash
# tests/run.sh BUILD [PATTERN]: runs the Criterion binaries and the scripts in tests/*/*.sh whose
# name matches PATTERN, and ends with "N passed, M failed, K skipped".
# A script passes with exit status 0, is skipped with 77, and fails with any other.
set -u
build=$1
pattern=${2-}
cd "$(dirname "$0")/.." || exit 1
export WEFT=$PWD/$build/weft WEFT_BUILD=$PWD/$build WEFT_SHARED=${WEFT_SHARED-$PWD/../shared}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl=self,vader OMPI_MCA_hwloc_base_binding_policy=none
export ASAN_OPTIONS=${ASAN_OPTIONS-detect_leaks=0}
export OMP_NUM_THREADS=${OMP_NUM_THREADS-2}
pass=0 fail=0 skip=0 failed=
logs=$build/test-logs
mkdir -p "$logs"
for bin in "$build"/test/*; do
    name=$(basename "$bin")
    [ -x "$bin" ] || continue
    [ -d "tests/$name" ] || continue # a stale binary
    case $name in *"$pattern"*) ;; *) continue ;; esac
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
    [ "${f:-0}" = 0 ] || { failed="$failed $name"; cat "$logs/$name.log"; }
    printf '   %d passed, %d failed, %d skipped  %.1f s\n' "$p" "$f" "$s" "$(echo "$(date +%s.%N) - $start" | bc -l 2>/dev/null || echo 0)"
    pass=$((pass + p)) fail=$((fail + f)) skip=$((skip + s))
done
for script in tests/*/*.sh; do
    name=${script#tests/}
    case $name in *"$pattern"*) ;; *) continue ;; esac
    [ -x "$script" ] || continue
    scratch=$(mktemp -d)
    start=$(date +%s)
    (cd "$scratch" && SRC=$OLDPWD timeout "${WEFT_TEST_TIMEOUT-600}" bash "$OLDPWD/$script") >"$logs/$(echo "$name" | tr / _).log" 2>&1
    status=$?
    rm -rf "$scratch"
    case $status in
    0) pass=$((pass + 1)) verdict=ok ;;
    77) skip=$((skip + 1)) verdict="skipped: $(tail -n 1 "$logs/$(echo "$name" | tr / _).log")" ;;
    *) fail=$((fail + 1)) failed="$failed $name" verdict="FAILED ($status)"; tail -n 40 "$logs/$(echo "$name" | tr / _).log" ;;
    esac
    printf '== %s: %s  %d s\n' "$name" "$verdict" $(($(date +%s) - start))
done
[ -z "$failed" ] || echo "failed:$failed"
echo "$pass passed, $fail failed, $skip skipped"
[ $fail -eq 0 ] && [ $((pass)) -gt 0 ]
