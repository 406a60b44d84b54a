#!/bin/bash
# parallel.cascades with `encoders: ahead`: an iteration encodes the samples of the next step. The
# runs have two training stages, a frozen text encoder, caption dropout, and epochs that end inside
# of steps. Losses, gradient norms and weights equal one rank without cascades (1e-5: the order of
# summation differs), with planned ranks and with late dispatch. The replay of the executed
# plans is bitwise identical, also after a resume, which has lost the encoded rows.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
begin_cascade_config
cat >>c.yaml <<'Y'
stages: [{steps: 1, batch: 2, frames: 1, height: 32, width: 32}]
Y
"$WEFT" train c.yaml >c.log 2>&1 || { cat c.log; fail "the run that makes a text encoder"; }
sed '/^text_encoders/,$d' c.yaml >f.yaml
cat >>f.yaml <<'Y'
text_encoders: [{weights: runs/c/model/text_encoder}]
caption_dropout: 0.3
checkpoint: {interval: 3, keep_latest: 3}
stages:
  - steps: 4
    gradient_accumulation_steps: 4
    lr: 2e-3
    buckets: [{batch: 2, frames: 1, height: 32, width: 32}, {batch: 2, frames: 9, height: 64, width: 64}]
  - steps: 2
    gradient_accumulation_steps: 3
    lr: 2e-3
    buckets: [{batch: 1, frames: 9, height: 32, width: 64}, {batch: 3, frames: 9, height: 64, width: 64}]
Y
cat >compare.py <<'PY'
import glob, json, struct, sys
def metrics(run):
    return [json.loads(l) for l in open(run + "/metrics.jsonl")]
def weights(run):
    out = []
    for path in sorted(glob.glob(run + "/model/transformer/*.safetensors")):
        data = open(path, "rb").read()
        n = struct.unpack("<Q", data[:8])[0]
        out += struct.unpack(f"<{(len(data) - 8 - n) // 4}f", data[8 + n:])
    return out
a, b = sys.argv[1:3]
x, y = metrics(a), metrics(b)
assert len(x) == len(y) == 6, (len(x), len(y))
worst = max(abs(p[n] - q[n]) / abs(p[n]) for p, q in zip(x, y) for n in ("loss", "grad_norm"))
u, v = weights(a), weights(b)
difference = (sum((s - t) ** 2 for s, t in zip(u, v)) / sum(s * s for s in u)) ** 0.5
print(f"{b}: losses and norms within {worst:.1e}, weights within {difference:.1e}")
assert len(u) == len(v) > 0 and worst <= 1e-5 and difference <= 1e-5
PY
# plans.py RUN: samples of the next step have encoders only. The next step trains on them, with
# their encoders kept on the same ranks. Only the first step of a stage encodes its own
# samples, and only the last one encodes none of the next step.
cat >plans.py <<'PY'
import json, sys
plans = [p for p in map(json.loads, open(sys.argv[1] + "/cascades/plans.jsonl")) if "step" in p]
assert [p["step"] for p in plans] == list(range(6))
first, last = (0, 4), (3, 5)
def ranks(p, ahead, kept):
    found = {}
    for c in p["cascades"]:
        s = p["samples"][c["sample"]]
        if c["module"] != "dit" and s.get("ahead", False) == ahead and c.get("kept", False) == kept:
            found[str(s["items"]), c["module"]] = c["ranks"]
    return found
for i, p in enumerate(plans):
    own = [s for s in p["samples"] if not s.get("ahead")]
    assert len(own) == (4 if i < 4 else 3) and abs(sum(s["weight"] for s in own) - 1) < 1e-9
    trained = {c["sample"] for c in p["cascades"] if c["module"] == "dit"}
    assert trained == set(range(len(own))), (i, trained)
    assert bool(ranks(p, False, False)) == (i in first), (i, "own encoders")
    assert bool(ranks(p, True, False)) == (i not in last), (i, "encoders of the next step")
    assert ranks(p, False, True) == ({} if i in first else ranks(plans[i - 1], True, False)), i
PY
"$WEFT" train f.yaml --set out=runs/one >one.log 2>&1 || { cat one.log; fail "one rank without cascades"; }
ahead="--set data.input=pixels --set parallel.cascades.encoders=ahead --set parallel.cascades.plan="
run() { # run NAME RANKS PLAN OPTION...
    ranks "$2" "$WEFT" train f.yaml --set "out=runs/$1" ${ahead}$3 "${@:4}" >"$1.log" 2>&1 || { cat "$1.log"; fail "$1"; }
    python3 compare.py runs/one "runs/$1" && python3 plans.py "runs/$1" || fail "$1"
}
check planned run planned 3 every-iteration
check reused run reused 2 static
check alone run alone 1 every-iteration
check late run late 3 every-iteration --set parallel.cascades.dispatch=late --set parallel.cascades.objective=expected
check search run search 2 every-iteration --set parallel.cascades.dispatch=search
check covered run covered 2 every-iteration --set parallel.cascades.gradient_reduction=representative
kept_rows_are_used_and_sent() {
    needs planned
    python3 - <<'PY' || fail "iterations.jsonl"
import json
for line in map(json.loads, open("runs/planned/cascades/iterations.jsonl")):
    assert line["samples"] == (4 if line["step"] < 4 else 3), line
    assert line["bytes"]["received"] == line["bytes"]["sent"], line["bytes"]
    # the last step of a stage has the rows of all its samples, and no encoder runs
    assert (line["modules"]["vae"] > 0) == (line["modules"]["text"] > 0) == (line["step"] not in (3, 5)), line["modules"]
    for c in line["cascades"]:
        assert c["executed"][1] > c["executed"][0] >= 0, c
PY
}
check kept_rows_are_used_and_sent
replays_bitwise() { # NAME RANKS
    needs "$1"
    run "$1-again" "$2" "runs/$1/cascades/plans.jsonl"
    diff <(losses "runs/$1") <(losses "runs/$1-again") && diff -r "runs/$1/model" "runs/$1-again/model" ||
        fail "$1: the replay of the executed plans has other results"
}
check replay_of_planned replays_bitwise planned 3
check replay_of_late replays_bitwise late 3
# The resumed run has no rows of step 3, in the middle of a stage.
a_replay_resumes_bitwise() {
    needs late
    cp -r runs/late cut
    rm -r cut/model cut/checkpoints/step-0000000[46]
    ranks 3 "$WEFT" train f.yaml --set out=cut ${ahead}runs/late/cascades/plans.jsonl >cut.log 2>&1 || { cat cut.log; fail "the resumed replay"; }
    has_message cut.log run-resumed value=3 || fail "did not resume from step 3"
    diff <(losses runs/late) <(losses cut) && diff -r runs/late/model cut/model || fail "results differ after resuming"
    python3 -S -c 'import json; assert [l for l in map(json.loads, open("cut/cascades/iterations.jsonl")) if l["step"] == 3][0]["modules"]["vae"] > 0' ||
        fail "step 3 did not encode its samples again"
}
check a_replay_resumes_bitwise
a_run_resumes() {
    needs planned
    cp -r runs/planned on
    rm -r on/model on/checkpoints/step-0000000[46]
    ranks 3 "$WEFT" train f.yaml --set out=on ${ahead}every-iteration >on.log 2>&1 || { cat on.log; fail "the resumed run"; }
    has_message on.log run-resumed value=3 || fail "did not resume from step 3"
    python3 compare.py runs/one on || fail "the resumed run"
}
check a_run_resumes
# One rank encodes all samples of the next step before it trains on its own ones, so it has the
# rows of both steps.
planned_rows_are_reserved() {
    sed '/^stages/,$d' f.yaml >g.yaml
    cat >>g.yaml <<'Y'
stages:
  - {steps: 3, gradient_accumulation_steps: 2, batch: 2, frames: 9, height: 32, width: 64}
Y
    "$WEFT" train g.yaml --set out=runs/any ${ahead}every-iteration >any.log 2>&1 || { cat any.log; fail "one bucket"; }
    python3 -S - <<'PY'
import json
with open("first.jsonl", "w") as out:
    for plan in map(json.loads, open("runs/any/cascades/plans.jsonl")):
        for c in plan.get("cascades", []):
            c["start"] += 1000 * (c["module"] == "dit")
        print(json.dumps(plan), file=out)
PY
    "$WEFT" train g.yaml --set out=runs/first ${ahead}first.jsonl >first.log 2>&1 || { cat first.log; fail "encoders first"; }
    planned=$(message_field planned_bytes first.log memory-report key=parallel.cascades.encoders)
    most=$(message_field rows_bytes any.log memory-report key=parallel.cascades.encoders)
    [ "$planned" -gt 0 ] && [ "$(message_field rows_bytes first.log memory-report key=parallel.cascades.encoders)" = "$planned" ] ||
        { cat first.log; fail "the planned bytes of encoded samples are not in memory"; }
    [ "$most" -gt 0 ] && [ "$most" -le "$planned" ] || { cat any.log; fail "encoded samples need more than planned"; }
}
check planned_rows_are_reserved
refusals() {
    "$WEFT" train f.yaml --set out=runs/no --set parallel.cascades.encoders=ahead --set parallel.cascades.plan=static >no.log 2>&1 && fail "ahead without pixels is accepted"
    has_message no.log config-no-effect key=parallel.cascades.encoders || fail "the error does not name encoders"
    "$WEFT" train f.yaml --set out=runs/no ${ahead}static --set parallel.cascades.policy=flexsp >no.log 2>&1 && fail "ahead with flexsp is accepted"
    has_message no.log config-no-effect key=parallel.cascades.encoders text~=flexsp || fail "the error does not name encoders and flexsp"
}
check refusals
a_dry_run_prints_samples_of_the_next_step() {
    "$WEFT" train f.yaml --dry-run --ranks 4 --set out=runs/dry ${ahead}every-iteration --iterations 2 >dry.txt 2>&1 || { cat dry.txt; fail "the dry run failed"; }
    # in two iterations of each stage: transformers of 4 and 3 samples; the second iterations have
    # no encoders of their own samples, and the last stage's one encodes nothing
    [ "$(grep -c '^s[0-9]\.dit' dry.txt)" = 14 ] && [ "$(grep -c '^s[0-9]\.vae' dry.txt)" = $((8 + 4 + 6)) ] || { cat dry.txt; fail "the output of the dry run"; }
}
check a_dry_run_prints_samples_of_the_next_step
finish
