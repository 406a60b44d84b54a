#!/bin/bash
# parallel.cascades with `dispatch: late` and `objective: expected`, from latents, from pixels and
# with zero, and `dispatch: search`. Losses and gradient norms are those of one rank without cascades (1e-5: the order of
# summation differs). plans.jsonl has the ranks that executed, and its replay has the same losses,
# bitwise. Settings that late dispatch cannot be combined with are refused.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
begin_cascade_config
cat >>c.yaml <<'Y'
stages:
  - steps: 5
    gradient_accumulation_steps: 5
    lr: 2e-3
    buckets: [{batch: 2, frames: 1, height: 32, width: 32}, {batch: 1, frames: 9, height: 32, width: 64}, {batch: 2, frames: 9, height: 64, width: 64}]
Y
cat >compare.py <<'PY'
import json, sys
x, y = ([json.loads(l) for l in open(run + "/metrics.jsonl")] for run in sys.argv[1:3])
assert len(x) == len(y) == 5, (len(x), len(y))
worst = max(abs(p[n] - q[n]) / abs(p[n]) for p, q in zip(x, y) for n in ("loss", "grad_norm"))
print(f"{sys.argv[2]}: losses and norms within {worst:.1e}")
assert worst <= 1e-5
PY
"$WEFT" train c.yaml >c.log 2>&1 || { cat c.log; fail "the run without cascades"; }
late="--set parallel.cascades.dispatch=late --set parallel.cascades.objective=expected"
run() { # run NAME RANKS PLAN OPTION...
    ranks "$2" "$WEFT" train c.yaml --set "out=runs/$1" --set "parallel.cascades.plan=$3" "${@:4}" >"$1.log" 2>&1 || { cat "$1.log"; fail "$1"; }
    python3 compare.py runs/c "runs/$1" || fail "$1 differs from the run without cascades"
}
late_dispatch() { # NAME
    local name=$1
    case $name in
        latents) options="" ;;
        pixels) options="--set data.input=pixels" ;;
        zero) options="--set parallel.zero=2" ;;
        search) options="--set data.input=pixels --set parallel.cascades.dispatch=search --set parallel.cascades.objective=makespan" ;;
    esac
    run $name 3 every-iteration $late $options
    run $name-again 3 runs/$name/cascades/plans.jsonl $options
    diff <(losses runs/$name) <(losses runs/$name-again) || fail "$name: the replay of the executed plans has other losses"
    [ $name != search ] || [ "$(grep '"dispatch":"search"' runs/$name/cascades/iterations.jsonl | grep -c '"searches":[1-9]')" = 5 ] ||
        fail "$name: iterations.jsonl does not report searches"
    ! grep -q '"late"\|"search"' runs/$name/cascades/plans.jsonl || fail "$name: plans.jsonl has planned ranks instead of executed ranks"
}
for name in latents pixels zero search; do check "late_dispatch_$name" late_dispatch "$name"; done
representatives_are_refused() {
    ranks 2 "$WEFT" train c.yaml --set out=runs/refused --set parallel.cascades.plan=every-iteration $late --set parallel.cascades.gradient_reduction=representative >refused.log 2>&1 &&
        fail "late dispatch with gradient_reduction: representative is accepted"
    has_message refused.log '*' level=error text~=gradient_reduction || fail "the error of late dispatch does not name gradient_reduction"
}
check representatives_are_refused
flexsp_is_refused() {
    ranks 2 "$WEFT" train c.yaml --set out=runs/refused --set parallel.cascades.plan=every-iteration --set parallel.cascades.objective=expected --set parallel.cascades.policy=flexsp >refused.log 2>&1 &&
        fail "objective: expected with policy: flexsp is accepted"
    has_message refused.log '*' level=error text~=flexsp || fail "the error does not name flexsp"
}
check flexsp_is_refused
finish
