#!/bin/bash
# tools/loss_curves.py draws means of the steps of runs, on a logarithmic scale.
. "$SRC/tests/check.sh"
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
mkdir "$here/a" "$here/b"
# 40 steps, means of 10: losses 8, 4, 2, 1, and 0.8 of the last ones. Lines without a loss are skipped.
for i in 3 2 1 0; do
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        echo "{\"loss\": $((1 << i))}" >>"$here/a/metrics.jsonl"
        echo "{\"loss\": $([ $i = 0 ] && echo 0.8 || echo $((1 << i)))}" >>"$here/b/metrics.jsonl"
    done
    echo '{"evaluation": 1}' >>"$here/a/metrics.jsonl"
done

curves() { "$SRC/tools/loss_curves.py" loss "$@"; }

means_are_drawn() {
    curves one="$here/a" >"$here/one.svg" || fail "loss_curves.py failed"
    grep -q 'points="46.0,25.0 239.3,105.0 432.7,185.0 626.0,265.0"' "$here/one.svg" ||
        fail_with "$here/one.svg" "wrong points"
    curves one="$here/a" two="$here/b" >"$here/two.svg" 2>"$here/log" || fail "loss_curves.py failed"
    grep -q 'step differs by 5 %' "$here/log" || fail_with "$here/log" "wrong difference"
    [ "$(grep -c polyline "$here/two.svg")" = 2 ] || fail_with "$here/two.svg" "not two lines"
}
check means_are_drawn

curves_need_runs() {
    ! curves "$here/a" 2>"$here/log" || fail "a folder without a name is drawn"
}
check curves_need_runs
