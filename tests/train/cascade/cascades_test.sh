#!/bin/bash
# `weft train` with parallel.cascades. Losses, gradient norms and weights are those of one rank
# without cascades (1e-5: the order of summation differs), on 1, 2 and 3 ranks, with every policy,
# from latents and from pixels. Replayed plans give the same losses bitwise, also after resuming.
# Also: logs, charts and the report page; plans of another run and oversized samples are refused.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
begin_cascade_config
cat >>c.yaml <<'Y'
optimizer: {ema_decay: 0.9}
checkpoint: {interval: 3, keep_latest: 3}
stages:
  - steps: 6
    gradient_accumulation_steps: 5
    lr: 2e-3
    warmup_steps: 2
    buckets: [{batch: 2, frames: 1, height: 32, width: 32}, {batch: 1, frames: 9, height: 32, width: 64}, {batch: 2, frames: 9, height: 64, width: 64}]
Y
cat >compare.py <<'PY'
import glob, json, struct, sys
def metrics(run):
    return [json.loads(l) for l in open(run + "/metrics.jsonl")]
def weights(run):
    out = []
    for path in sorted(glob.glob(run + "/model/**/diffusion_pytorch_model.safetensors", recursive=True)):
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
plans="--set parallel.cascades.plan=every-iteration"
"$WEFT" train c.yaml >c.log 2>&1 || { cat c.log; fail "the run without cascades"; }
run() { # run NAME RANKS OPTION...
    ranks "$2" "$WEFT" train c.yaml --set "out=runs/$1" $plans "${@:3}" >"$1.log" 2>&1 || { cat "$1.log"; fail "$1"; }
    python3 compare.py runs/c "runs/$1" || fail "$1 differs from the run without cascades"
}
check one_ranks run one 1
check two_ranks run two 2
check three_ranks run three 3
# weights and losses of the same plans on a device of its own
far_has_the_bits_of_cpu() {
    needs two_ranks
    plans="--set parallel.cascades.plan=runs/two/cascades/plans.jsonl" run far 2 --set backend=far
    for file in $(cd runs/two/model && find . -name '*.safetensors'); do
        cmp "runs/two/model/$file" "runs/far/model/$file" || fail "$file differs on far"
    done
}
check far_has_the_bits_of_cpu
check static run static 2 --set parallel.cascades.policy=static-dp-cp
check ulysses run ulysses 2 --set parallel.cascades.policy=ulysses
check flexsp run flexsp 3 --set parallel.cascades.policy=flexsp
check knapformer run knapformer 2 --set parallel.cascades.policy=knapformer
check kept run kept 2 --set parallel.cascades.plan=static
check pixels run pixels 3 --set data.input=pixels
no_latents_of_a_run_from_pixels() {
    [ ! -e runs/pixels/latents ] || fail "latents were cached in a run from pixels"
}
check no_latents_of_a_run_from_pixels
check parts run parts 3 --set data.input=pixels --set parallel.cascades.policy=static-dp-cp --set parallel.cascades.degrees=[3]

# Each VAE cascade splits its clips over two or three of five ranks, in any order. The script writes
# these plans.
ranks 5 "$WEFT" train c.yaml --set out=runs/five --set data.input=pixels $plans >five.log 2>&1 || { cat five.log; fail "five ranks"; }
python3 -S - <<'PY'
import json, random
draw = random.Random(3)
with open("parts.jsonl", "w") as out:
    for line in open("runs/five/cascades/plans.jsonl"):
        plan = json.loads(line)
        for c in plan.get("cascades", []):
            if c["module"] == "vae":
                c["ranks"] = draw.sample(range(5), draw.choice([2, 3]))
        out.write(json.dumps(plan) + "\n")
PY
replay_parts() { plans="--set parallel.cascades.plan=parts.jsonl" run pieces 5 --set data.input=pixels; }
check clips_in_parts_on_any_ranks replay_parts
check zero run zero 2 --set parallel.zero=1
check covered run covered 3 --set parallel.cascades.gradient_reduction=representative

# Two training stages with a frozen text encoder and caption dropout: the encoder is a cascade (from
# pixels), or its embeddings are cached (from latents).
sed '/^text_encoders/,/^optimizer/d; /^stages/,$d' c.yaml >f.yaml
cat >>f.yaml <<'Y'
text_encoders: [{weights: runs/c/model/text_encoder}]
caption_dropout: 0.3
stages:
  - steps: 4
    gradient_accumulation_steps: 4
    buckets: [{batch: 2, frames: 1, height: 32, width: 32}, {batch: 2, frames: 9, height: 64, width: 64}]
  - steps: 2
    gradient_accumulation_steps: 3
    buckets: [{batch: 1, frames: 9, height: 32, width: 64}, {batch: 3, frames: 9, height: 64, width: 64}]
Y
"$WEFT" train f.yaml --set out=runs/f >f.log 2>&1 || { cat f.log; fail "a frozen encoder without cascades"; }
a_frozen_encoder() { # latents or pixels
    local from=$1
    ranks 2 "$WEFT" train f.yaml --set out=runs/f$from --set data.input=$from $plans >f$from.log 2>&1 || { cat f$from.log; fail "cascades from $from"; }
    python3 compare.py runs/f runs/f$from || fail "cascades from $from with a frozen encoder differ from one rank"
}
for from in latents pixels; do check "a_frozen_encoder_from_$from" a_frozen_encoder $from; done
a_text_encoder_is_a_cascade_from_pixels() {
    needs a_frozen_encoder_from_pixels a_frozen_encoder_from_latents
    grep -q '"module":"text"' runs/fpixels/cascades/iterations.jsonl || fail "from pixels: the text encoder is not a cascade"
    ! grep -q '"module":"text"' runs/flatents/cascades/iterations.jsonl || fail "from latents: the text encoder runs although its embeddings are cached"
}
check a_text_encoder_is_a_cascade_from_pixels

# iterations.jsonl has a line per iteration, with the planned and the executed times of each cascade
every_iteration_is_logged() {
    needs pixels
    python3 -S - <<'PY' || fail "iterations.jsonl, plans.jsonl, trace.json or timeline.svg of the run from pixels"
import json
lines = [json.loads(l) for l in open("runs/pixels/cascades/iterations.jsonl")]
plans = [json.loads(l) for l in open("runs/pixels/cascades/plans.jsonl")]
assert [l["step"] for l in lines] == list(range(6)) and len(plans) == 7 and plans[0]["ranks"] == 3
for line, plan in zip(lines, plans[1:]):
    assert line["planned"]["makespan"] == plan["makespan"] and line["planned"]["gap"] >= -1e-9
    assert len(line["idle"]) == 3 and 0 <= line["executed"]["idle"] < 1
    assert {c["id"] for c in line["cascades"]} == {c["id"] for c in plan["cascades"]} and len(line["cascades"]) == 10
    for c in line["cascades"]:
        assert c["executed"][1] > c["executed"][0] >= 0, c
    vae = {c["sample"]: c for c in line["cascades"] if c["module"] == "vae"}
    for c in line["cascades"]:  # on one clock: latents are complete before a DiT cascade begins
        before = vae[c["sample"]]
        if c["module"] == "dit":
            assert c["executed"][0] >= before["executed"][1], (before, c)
    assert line["bytes"]["received"] == line["bytes"]["sent"] == sum(c["sent"] for c in line["cascades"])
    assert "dit" in line["fit"] and "vae" in line["fit"]
    assert line["version"] == 2 and "estimate" in line["fit"]["dit"] and "told" not in line["fit"]["dit"], line["fit"]
items = [i[0] for s in plans[1]["samples"] for i in s["items"]]
assert len(items) == len(set(items)) == 8 or len(items) >= 5, items
trace = json.load(open("runs/pixels/cascades/trace.json"))["traceEvents"]
assert {e["pid"] for e in trace} == {0, 1}
assert open("runs/pixels/cascades/timeline.svg").read().count("<svg") == 3
PY
}
check every_iteration_is_logged
the_report_has_a_page_of_cascades() {
    needs pixels
    "$WEFT" report --run pixels=runs/pixels --out report.html >/dev/null && grep -q "Cascades: pixels" report.html && grep -q "as executed" report.html ||
        fail "the report has no page of cascades"
    # Lines of version 1 have no "version" and the key "told" for "estimate". The page is the same.
    cp -r runs/pixels earlier
    sed -i -E 's/"version": ?2, ?//; s/"estimate":/"told":/g' earlier/cascades/iterations.jsonl
    grep -q '"told"' earlier/cascades/iterations.jsonl && ! grep -q '"version"' earlier/cascades/iterations.jsonl || fail "the test did not make lines of version 1"
    "$WEFT" report --run pixels=earlier --out earlier.html >/dev/null && cmp report.html earlier.html || fail "a log of version 1 gives another page"
    rm -r earlier
    cp -r runs/pixels cut
    truncate -s -9 cut/cascades/iterations.jsonl # as after a kill or on a full disk
    "$WEFT" report --run cut=cut --out report.html >report.log 2>&1 && grep -q "Cascades: cut" report.html || { cat report.log; fail "the report fails on a truncated log"; }
    rm -r cut
}
check the_report_has_a_page_of_cascades

# interrupted in the middle of a training stage: charts of the last iteration are written
a_stopped_run_has_charts() {
    "$WEFT" train c.yaml --set out=runs/stopped $plans --set stages.0.steps=100000 --set checkpoint.interval=0 >stopped.log 2>&1 &
    for _ in $(seq 3000); do
        [ ! -s runs/stopped/cascades/iterations.jsonl ] || break
        sleep 0.01
    done
    kill -TERM $!
    wait $!
    grep -q "<svg" runs/stopped/cascades/timeline.svg && [ -s runs/stopped/cascades/trace.json ] || { cat stopped.log; fail "an interrupted run wrote no charts"; }
}
check a_stopped_run_has_charts

# A replay has bitwise the same losses, also when it resumes from the middle.
replay="--set parallel.cascades.plan=runs/three/cascades/plans.jsonl"
replayed_plans_are_bitwise_identical() {
    needs three_ranks
    plans=$replay run again 3
    diff <(losses runs/three) <(losses runs/again) || fail "the replay of the same plans has other losses"
}
check replayed_plans_are_bitwise_identical
a_replay_resumes_bitwise() {
    needs three_ranks
    cp -r runs/three cut
    rm -r cut/model cut/checkpoints/step-00000006
    ranks 3 "$WEFT" train c.yaml --set out=cut $replay >cut.log 2>&1 || { cat cut.log; fail "the resumed replay failed"; }
    has_message cut.log run-resumed value=3 || fail "did not resume from step 3"
    diff <(losses runs/three) <(losses cut) || fail "losses differ after resuming"
    [ "$(grep -c '"step"' cut/cascades/iterations.jsonl)" = 6 ] || fail "iterations.jsonl does not have 6 lines after resuming"
}
check a_replay_resumes_bitwise

# Plans of two training stages with different buckets: one file has a header for each stage.
replay2="--set data.input=pixels --set parallel.cascades.plan=runs/fpixels/cascades/plans.jsonl"
plans_of_two_stages_are_replayed() {
    needs a_frozen_encoder_from_pixels
    [ "$(grep -c '"format"' runs/fpixels/cascades/plans.jsonl)" = 2 ] || fail "plans.jsonl does not have two headers"
    ranks 2 "$WEFT" train f.yaml --set out=runs/fagain $replay2 >fagain.log 2>&1 || { cat fagain.log; fail "the replay of the plans of two stages failed"; }
    diff <(losses runs/fpixels) <(losses runs/fagain) || fail "the replay of the plans of two stages has other losses"
}
check plans_of_two_stages_are_replayed

# refused plans and settings: the message names the difference
refused() { # ID [FIELD=VALUE...] -- RANKS OPTION...
    take_message "$@"
    set -- "${rest[@]}"
    ranks "$1" "$WEFT" train c.yaml --set out=runs/refused "${@:2}" >refused.log 2>&1 && fail "not refused: $*"
    has_message refused.log "${wanted[@]}" || fail "$*: another message than expected"
}
refusals() {
    needs three_ranks pixels
    refused layout-invalid key=ranks 'text~=the plans are for 3 ranks, and the run has 2' -- 2 $replay
    refused '*' 'text~=for another model' -- 3 $replay --set transformer.config.ffn_dim=40
    refused '*' text~=2x9x64x64 -- 3 $replay --set stages.0.buckets.2.batch=1
    refused '*' 'text~=in which other modules are cascades' -- 3 $replay --set data.input=pixels
    refused '*' 'text~=in which other modules are cascades' -- 3 --set parallel.cascades.plan=runs/pixels/cascades/plans.jsonl
    refused '*' 'text~=did you mean every-iteration' -- 1 --set parallel.cascades.plan=every-iterations
    refused '*' 'text~=fits on no degree' -- 2 $plans --set parallel.cascades.memory_limit=1MiB
    refused plan-infeasible file=c.yaml key=parallel.cascades text~=parallel.cascades.memory_limit: text~=MiB -- 2 $plans --set parallel.cascades.memory_limit=1MiB
    would=$(message_field message refused.log plan-infeasible | sed 's/.*memory_limit: \([0-9]*MiB\).*/\1/')
    ranks 2 "$WEFT" train c.yaml --set out=runs/refused $plans --set parallel.cascades.memory_limit="$would" >would.log 2>&1 ||
        { cat refused.log would.log; fail "the proposed memory limit, $would, is refused, too"; }
    rm -r runs/refused # the refusals below need a folder without a finished run
}
check refusals
memory_limit_bounds_cascades() {
    ranks 2 "$WEFT" train c.yaml --set out=runs/limit $plans --set memory.limit=1GiB --set stages.0.steps=1 >limit.log 2>&1 && has_message limit.log cascade-report "text~=1.00 GiB" ||
        { cat limit.log; fail "cascades do not have memory.limit as their limit"; }
}
check memory_limit_bounds_cascades
echo '{"cascades": [{"id": "s0.dit", "degrees": {"1": {"seconds": 1}}}]}' >costs.json
"$WEFT" plan cascades --costs costs.json --devices 1 --out bare.json >/dev/null || fail "weft plan cascades"
refusals_of_policies() {
    refused json-syntax file=bare.json line=1 text~=plans.jsonl -- 1 --set parallel.cascades.plan=bare.json
    refused '*' 'text~=a power of two, as flexsp' -- 3 $plans --set parallel.cascades.policy=flexsp --set parallel.cascades.degrees=[3]
    refused config-value file=c.yaml key=parallel.cascades.degrees 'text~=equal groups' -- 3 $plans --set parallel.cascades.policy=static-dp-cp --set parallel.cascades.degrees=[2]
    refused '*' "text~=divides the attention's heads and 3 ranks" -- 3 $plans --set parallel.cascades.policy=ulysses --set parallel.cascades.degrees=[3]
    refused config-conflict file=c.yaml key=parallel.cascades.degree text~=3 -- 3 $plans --set parallel.cascades.policy=static-dp-cp --set parallel.cascades.degrees=[1] --set parallel.cascades.degree=3
}
check refusals_of_policies
a_full_disk_is_reported() {
    if [ "$(id -u)" = 0 ] && mkdir -p runs/full/cascades && mount -t tmpfs -o size=8k tmpfs runs/full/cascades 2>/dev/null; then
        ranks 2 "$WEFT" train c.yaml --set out=runs/full $plans >full.log 2>&1
        status=$?
        umount runs/full/cascades
        [ $status != 0 ] && has_message full.log disk-full file=runs/full/cascades/*.jsonl || fail "a full disk under the logs is not reported: status $status"
    else
        echo "note: no tmpfs can be mounted; the full disk was not tested"
    fi
}
check a_full_disk_is_reported
refusals_of_keys() {
    refused config-missing-key file=c.yaml key=data.input -- 1 --set data.input=pixels
    refused config-conflict key=*parallel.cascades.gradient_reduction text~=zero -- 2 $plans --set parallel.zero=1 --set parallel.cascades.gradient_reduction=representative
    refused '*' text~=parallel.tp -- 2 $plans --set parallel.tp=2
    refused config-conflict key=backend -- 1 $plans --set backend=virtual
}
check refusals_of_keys

# a dry run prints plans and starts nothing
a_dry_run_prints_plans() {
    "$WEFT" train c.yaml --dry-run --ranks 4 --set out=runs/dry $plans --set data.input=pixels --iterations 2 --svg dry.svg >dry.txt 2>&1 ||
        { cat dry.txt; fail "the dry run failed"; }
    [ "$(grep -c '^s[0-4]\.dit' dry.txt)" = 10 ] && grep -q "lower bound" dry.txt && grep -q "highest peak: rank" dry.txt && [ -s dry.svg ] || { cat dry.txt; fail "the output of the dry run"; }
    [ ! -e runs/dry ] || fail "the dry run wrote files"
}
check a_dry_run_prints_plans

# A clip that does not decode is replaced by another, by the same one on all ranks.
a_damaged_clip_is_replaced_on_all_ranks() {
    python3 -S - <<'PY'
import tarfile
path = "mixed/train-000000.tar"
with tarfile.open(path) as tar:
    clip = next(m for m in tar.getmembers() if m.name.endswith(".mp4"))
data = bytearray(open(path, "rb").read())
data[clip.offset_data + 40 : clip.offset_data + clip.size] = b"U" * (clip.size - 40)
open(path, "wb").write(data)
PY
    for n in 1 3; do
        ranks $n "$WEFT" train c.yaml --set out=runs/hurt$n $plans --set data.input=pixels >hurt$n.log 2>&1 || { cat hurt$n.log; fail "a clip that does not decode"; }
        has_message hurt$n.log sample-skipped || fail "the replaced clip is not reported"
    done
    python3 compare.py runs/hurt1 runs/hurt3 || fail "with a clip that does not decode, three ranks differ from one"
}
check a_damaged_clip_is_replaced_on_all_ranks
finish
