#!/bin/bash
# weft estimate --model: weft generate prints the same peak, and weft plan generate prints the same
# figures of a layout.
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
python3 "$SRC/tests/generate/enlarge.py" model 192 256 2 128 128 2 200 || fail "a model"
size=(--frames 5 --height 32 --width 48)
estimate() { # NAME OPTIONS...
    local name=$1
    shift
    "$WEFT" estimate --model model "${size[@]}" "$@" --json >"$name.json" 2>err || { cat err; fail "weft estimate $*"; }
}
generation_has_the_estimated_peak() {
    estimate one --steps 2
    "$WEFT" generate --model model --prompt "a red cat" --seed 3 --steps 2 "${size[@]}" --out one.mp4 >one.log 2>&1 || { cat one.log; fail "weft generate"; }
    estimate two --parallel tp=2 --ranks 4 --on h100
    "$WEFT" plan generate --set model=model --set frames=5 --set height=32 --set width=48 --devices 4 --on h100 --json >plan.json 2>err ||
        { cat err; fail "weft plan generate"; }
    python3 -S - <<'P' || fail "other figures: $(cat one.json two.json)"
import json, re
one, two = (json.load(open(f)) for f in ("one.json", "two.json"))
logs = [json.loads(l).get("message", "") for l in open("one.log") if l.startswith("{")]
scale = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
peaks = [float(n) * scale[u] for m in logs for n, u in re.findall(r"peak ([0-9.]+) (.iB)", m)]
assert any(abs(one["peak_bytes"] / p - 1) < 0.01 for p in peaks), (one["peak_bytes"], peaks)
assert 1 <= two["flops"] * 4 / one["flops"] < 1.4, (one["flops"], two["flops"]) # rank 0 has two of three heads
assert sum(a["bytes"] for a in two["axes"]) > 0 and {a["axis"] for a in two["axes"]} == {"dp", "tp"}, two["axes"]
assert two["parameters"] == one["parameters"] > 0 < two["text_parameters"] == one["text_parameters"]
assert abs(two["compute_seconds"] + two["exposed_seconds"] - two["step_seconds"]) < 1e-6 * two["step_seconds"]
P
}
check generation_has_the_estimated_peak
plan_generate_has_the_same_figures() {
    needs generation_has_the_estimated_peak
    estimate halves --parallel cfg=2 --parallel tp=2 --on h100
    python3 -S - <<'P' || fail "weft plan generate has other figures: $(cat halves.json)"
import json
made, plan = json.load(open("halves.json")), {c["layout"]: c for c in json.load(open("plan.json"))["candidates"]}
c = plan[made["layout"]]
assert made["ranks"] == 4 and made["step_seconds"] == c["step"] and made["video_seconds"] == c["video"], (made, c)
assert made["peak_bytes"] == c["peak_bytes"] and sum(a["bytes"] for a in made["axes"]) == c["sent_bytes"], (made, c)
P
}
check plan_generate_has_the_same_figures
# A distilled model has steps and a guidance scale of its own in every estimate.
estimates_have_own_settings() {
    cp -r model distilled
    echo '{"frames": 5, "height": 32, "width": 48, "steps": 3, "guidance_scale": 1}' >distilled/weft.json
    estimate asked --steps 3 --guidance-scale 1 --on h100
    "$WEFT" estimate --model distilled --on h100 --json >own.json 2>err || { cat err; fail "weft estimate of a distilled model"; }
    "$WEFT" plan generate --set model=distilled --devices 1 --on h100 --json >planned.json 2>err || { cat err; fail "weft plan generate of a distilled model"; }
    python3 -S - <<'P' || fail "other settings: $(cat asked.json own.json planned.json)"
import json
asked, own, plan = (json.load(open(f + ".json")) for f in ("asked", "own", "planned"))
assert own["video_seconds"] == asked["video_seconds"] == plan["candidates"][0]["video"], (asked, own, plan)
P
}
check estimates_have_own_settings
# Options of the work of a video change seconds, and have the errors of weft generate. weft generate prints the same peak.
options_of_generate_are_part() {
    estimate plain --steps 4 --on h100
    estimate heun --steps 4 --sampler heun --on h100
    estimate half --steps 4 --guidance-end 0.5 --on h100
    estimate sigmas --sigmas 1,0.5,0 --on h100
    "$WEFT" estimate --model model --frames 9 --height 32 --width 48 --steps 4 --window 5 --window-overlap 4 --json >windows.json || fail "weft estimate"
    "$WEFT" generate --model model --prompt "a red cat" --steps 4 --frames 9 --height 32 --width 48 --window 5 --window-overlap 4 --out windows.mp4 >windows.log 2>&1 ||
        { cat windows.log; fail "weft generate"; }
    python3 -S - <<'P' || fail "other figures"
import json, re
plain, heun, half, sigmas, windows = (json.load(open(f + ".json")) for f in ("plain", "heun", "half", "sigmas", "windows"))
assert sigmas["video_seconds"] < half["video_seconds"] < plain["video_seconds"] < heun["video_seconds"], (plain, heun)
logs = [json.loads(l).get("message", "") for l in open("windows.log") if l.startswith("{")]
scale = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
peaks = [float(n) * scale[u] for m in logs for n, u in re.findall(r"peak ([0-9.]+) (.iB)", m)]
assert any(abs(windows["peak_bytes"] / p - 1) < 0.01 for p in peaks), (windows["peak_bytes"], peaks)
P
    "$WEFT" estimate --model model "${size[@]}" --steps 4 --feature-cache every:2 >cached.txt || fail "a feature cache"
    grep -q "if the feature cache skips nothing" cached.txt || fail "the seconds of a feature cache are not explained: $(cat cached.txt)"
    for option in "--frame-lag 2" "--reasoning-steps 2" "--window-mode history"; do
        # shellcheck disable=SC2086 # an option and its value
        "$WEFT" estimate --model model "${size[@]}" $option >refused.log 2>&1 && fail "$option"
        has_message refused.log model-input-unsupported || fail "$option: $(cat refused.log)"
    done
    "$WEFT" estimate --model model/transformer --sampler heun >refused.log 2>&1 && fail "one model"
    has_message refused.log option-no-effect || fail "one model: $(cat refused.log)"
}
check options_of_generate_are_part
# One model of the folder and its training step.
one_model_and_its_training_step() {
    "$WEFT" estimate --model model/transformer "${size[@]}" --json >transformer.json 2>err || { cat err; fail "one model"; }
    "$WEFT" estimate --model model/transformer "${size[@]}" --training-step --execute --json >step.json 2>err || { cat err; fail "its training step"; }
    "$WEFT" inspect model model/transformer "${size[@]}" --training-step --json >inspected.json 2>err || fail "weft inspect model"
    has_message err option-renamed "text~=weft estimate --model" || fail "weft inspect model --training-step has no notice"
    python3 -S - <<'P' || fail "one model"
import json
forward, step, inspected = (json.load(open(f + ".json")) for f in ("transformer", "step", "inspected"))
assert 2.5 < step["flops_step"] / forward["flops_step"] < 4 and step["simulated_seconds"] > 0, step
assert all(step[k] == inspected[k] for k in ("parameters", "flops_step", "weight_bytes")), (step, inspected)
P
}
check one_model_and_its_training_step
refuse() { # ID FIELD OPTIONS...
    local id=$1 field=$2
    shift 2
    ! "$WEFT" estimate "$@" >out 2>err || fail "accepted: $*"
    has_message err "$id" "$field" || { cat err; fail "$*: no message $id"; }
}
options_without_effect_are_refused() {
    refuse option-no-effect key=--ranks --model model/transformer --ranks 2
    refuse option-no-effect key=--execute --model model --execute
    refuse option-no-effect key=--set --model model --set seed=2
    refuse option-no-effect key=--frames run.yaml --frames 5
    refuse option-conflict key=--model run.yaml --model model
    refuse option-required key=--model
    refuse memory-needed file=model --model model "${size[@]}" --memory-limit 1MiB
}
check options_without_effect_are_refused
finish
