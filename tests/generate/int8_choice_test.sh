#!/bin/bash
# `weft eval int8` keeps the layers with the largest errors until the PSNR meets --psnr, and smooths the inputs of others.
# int8.json has both. `--weights int8` leaves kept layers in the type of the files.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=1 # small programs, which would only wait for each other
cp -rL "$SRC/tests/golden/pipelines/skyreels" model
printf 'a red cat walks\na blue dog\n' >prompts.txt
echo 'a red cat walks' >one.txt
size=(--frames 5 --height 32 --width 32 --steps 2)
common=(--model model "${size[@]}")
smooths_nothing() { # FOLDER: removes the factors of its choice
    python3 -S -c 'import json, sys; path = sys.argv[1] + "/int8.json"; c = json.load(open(path)); c["smoothed"] = {}; json.dump(c, open(path, "w"))' "$1"
}
choose() { # NAME PROMPTS OPTIONS...
    "$WEFT" eval int8 "${common[@]}" --prompts "$2" --seed 5 --json "$1.json" "${@:3}" >"$1.log" 2>&1 || { cat "$1.log"; fail "weft eval int8 $*"; }
}
generate() { # OUT OPTIONS...
    "$WEFT" generate "${common[@]}" --prompt "a red cat walks" --seed 5 --latents-npy --out "$1.mp4" "${@:2}" >"$1.log" 2>&1 || { cat "$1.log"; fail "weft generate $*"; }
}
# The videos of the choice have the PSNR that the file reports, and meet the goal unless no layer is left. Layers that
# are kept add more error per FLOP than others, so that few are enough.
choice_meets_the_goal() {
    choose goal prompts.txt --psnr 46
    "$WEFT" eval savings "${common[@]}" --prompts prompts.txt --seed 5 --guidance-scale 4 --setting weights=int8 \
        --setting "weights=int8 precision=bf16" --json savings.json >savings.log 2>&1 || { cat savings.log; fail "weft eval savings"; }
    python3 -S - <<'PY' || { cat goal.json savings.log; fail "the choice"; }
import json
goal, stored, rows = json.load(open("goal.json")), json.load(open("model/int8.json")), json.load(open("savings.json"))["each"]
assert stored["format"] == "weft.int8/1" and stored["f32"]["kept"] == goal["f32"]["kept"]
for kind, row in zip(("f32", "bf16"), rows):
    c = goal[kind]
    print(kind, c["psnr"], c["psnr_all"], len(c["kept"]), goal["layers"])
    assert abs(row["psnr"] - c["psnr"]) < 1e-6 and abs(row["psnr_least"] - c["psnr_least"]) < 1e-6, (kind, row, c)
    assert (c["psnr"] >= 46 and c["psnr_least"] >= 42) or len(c["kept"]) == goal["layers"], (kind, c)
c = goal["f32"]
assert c["psnr_all"] < 46 and 0 < len(c["kept"]) < goal["layers"] / 2 and c["flops"] > 0.5, c
PY
}
check choice_meets_the_goal
# All layers are kept, or none.
kept_layers_are_not_int8() {
    generate f32
    choose all one.txt --psnr 99
    generate kept --weights int8
    cmp f32.latents.npy kept.latents.npy || fail "a kept layer computes in int8"
    choose none one.txt --psnr 0
    smooths_nothing model
    generate int8 --weights int8
    cmp -s f32.latents.npy int8.latents.npy && fail "no layer computes in int8"
    rm model/int8.json
    generate without --weights int8
    cmp int8.latents.npy without.latents.npy || fail "without int8.json not all layers compute in int8"
}
check kept_layers_are_not_int8
# Input channels that are 100 times as large, with smaller weights, do not change the model in f32. One such channel in
# each block of 8 takes the steps of its block, unless the inputs are smoothed: then the PSNR is near the plain model's.
outliers_are_smoothed() {
    local kind
    cp -rL "$SRC/tests/golden/pipelines/skyreels" planted
    python3 -S - planted/transformer/*.safetensors <<'PY' || fail "planting outliers"
import array, json, sys
path = sys.argv[1]
data = open(path, "rb").read()
start = 8 + int.from_bytes(data[:8], "little")
header, values = json.loads(data[8:start]), array.array("f", data[start:])
def scale(name, by, columns):
    first, end = (x // 4 for x in header[name]["data_offsets"])
    width = header[name]["shape"][-1] if columns else (end - first) // header[name]["shape"][0]
    for i in range(first, end):
        channel = (i - first) % width if columns else (i - first) // width
        if channel % 8 == 1:
            values[i] *= by
for name in header:
    if name.endswith(("to_v.weight", "to_v.bias", "norm2.weight", "norm2.bias")):
        scale(name, 100, False)
    elif name.endswith(("to_out.0.weight", "attn2.to_q.weight")):
        scale(name, 1 / 100, True)
open(path, "wb").write(data[:start] + values.tobytes())
PY
    for kind in model planted; do
        "$WEFT" eval int8 "${size[@]}" --model $kind --prompts prompts.txt --psnr 0 --seed 5 --json $kind.json >$kind.log 2>&1 || { cat $kind.log; fail "weft eval int8"; }
    done
    cp planted/int8.json smoothed.json
    smooths_nothing planted
    "$WEFT" eval savings "${size[@]}" --model planted --prompts prompts.txt --seed 5 --guidance-scale 4 --setting weights=int8 \
        --setting "weights=int8 precision=bf16" --json rough.json >rough.log 2>&1 || { cat rough.log; fail "weft eval savings"; }
    python3 -S - <<'PY' || fail "smoothing"
import json
plain, planted, rough = (json.load(open(name + ".json")) for name in ("model", "planted", "rough"))
for kind, row in zip(("f32", "bf16"), rough["each"]):
    print(kind, plain[kind]["psnr"], planted[kind]["psnr"], row["psnr"])
    assert planted[kind]["psnr"] > plain[kind]["psnr"] - 2, kind
    assert planted[kind]["psnr"] > row["psnr"] + (6 if kind == "f32" else 1), kind
for name, steps in planted["smoothed"].items():
    if name.endswith("to_out.0.weight"):
        assert all((ord(steps[k]) - ord(steps[k + 1])) > 10 for k in range(1, 24, 8)), (name, steps)
assert sum(name.endswith("to_out.0.weight") for name in planted["smoothed"]) == 2, planted["smoothed"]
PY
    mv smoothed.json planted/int8.json
}
check outliers_are_smoothed
# Two ranks have the columns of a smoothed layer with their factors; sums in another order move a few values.
ranks_have_their_factors() {
    needs outliers_are_smoothed
    local one=("${size[@]}" --model planted --prompt "a red cat walks" --seed 5 --weights int8 --latents-npy)
    "$WEFT" generate "${one[@]}" --out one.mp4 >one.log 2>&1 || { cat one.log; fail "one rank"; }
    mpirun.openmpi -n 2 "$WEFT" generate "${one[@]}" --parallel tp=2 --out two.mp4 >two.log 2>&1 || { cat two.log; fail "two ranks"; }
    python3 -S - <<'PY' || fail "latents of two ranks"
import array
a, b = (array.array("f", open(name + ".latents.npy", "rb").read()[128:]) for name in ("one", "two"))
error = (sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a)) ** 0.5
print(error)
assert error < 1e-3, error
PY
}
check ranks_have_their_factors
# The goal of int8, with the options of the generator that these models need.
families_meet_the_goal() { # NAME OPTIONS...
    local name=$1 from=$SRC/tests/golden/pipelines/$1
    shift
    cp -rL "$from" "$name"
    "$WEFT" eval int8 --model "$name" --steps 2 --prompts one.txt --seed 5 --json "$name.json" "$@" >"$name.log" 2>&1 || { cat "$name.log"; fail "weft eval int8, $name"; }
    "$WEFT" eval savings --model "$name" --steps 2 --prompts prompts.txt --seed 7 --setting weights=int8 --json "$name.psnr" "$@" >"$name.log" 2>&1 ||
        { cat "$name.log"; fail "weft eval savings, $name"; }
    python3 -S - "$name" <<'PY' || fail "$name: the PSNR of int8"
import json, sys
choice, row = json.load(open(sys.argv[1] + ".json")), json.load(open(sys.argv[1] + ".psnr"))["each"][0]
print(sys.argv[1], row["psnr"], choice["f32"]["flops"])
assert row["psnr"] is not None and row["psnr"] >= 35 and choice["f32"]["flops"] > 0.3, row
PY
}
picture=(--frames 1 --height 64 --width 96)
small=(--frames 5 --height 32 --width 32)
ends=(--image "$SRC/tests/golden/pipelines/wan_flf/image.png" --last-image "$SRC/tests/golden/pipelines/wan_flf/last_image.png")
edits=(--control "$SRC/tests/golden/pipelines/wan_vace/control.png" --mask "$SRC/tests/golden/pipelines/wan_vace/mask.png")
check qwen_image_meets_the_goal families_meet_the_goal qwen_image "${picture[@]}"
check flux2_meets_the_goal families_meet_the_goal flux2 "${picture[@]}"
check kandinsky5_meets_the_goal families_meet_the_goal kandinsky5 "${small[@]}"
check chronoedit_meets_the_goal families_meet_the_goal chronoedit "${small[@]}" --image "$SRC/tests/golden/pipelines/chronoedit/image.png"
check wan_flf_meets_the_goal families_meet_the_goal wan_flf "${small[@]}" "${ends[@]}"
check wan_vace_meets_the_goal families_meet_the_goal wan_vace "${small[@]}" "${edits[@]}"
damaged_choice_is_refused() {
    echo '{"format": "weft.int8/1", "f32": {"kept": "transformer"}}' >model/int8.json
    "$WEFT" generate "${common[@]}" --prompt x --weights int8 --out x.mp4 >x.log 2>&1 && fail "a damaged int8.json is accepted"
    has_message x.log json-value file=model/int8.json key=kept || fail "$(cat x.log)"
    echo '{"format": "weft.int8/1", "smoothed": {"transformer.proj_out.weight": "?!"}, "f32": {"kept": []}}' >model/int8.json
    "$WEFT" generate "${common[@]}" --prompt x --weights int8 --out x.mp4 >x.log 2>&1 && fail "damaged steps are accepted"
    has_message x.log json-value file=model/int8.json key=smoothed || fail "$(cat x.log)"
    echo '{"format": "weft.int8/9", "f32": {"kept": []}}' >model/int8.json
    "$WEFT" generate "${common[@]}" --prompt x --weights int8 --out x.mp4 >x.log 2>&1 && fail "another format is accepted"
    has_message x.log json-value file=model/int8.json key=format || fail "$(cat x.log)"
}
check damaged_choice_is_refused
# The operands of kernels must be in memory of the host.
other_devices_are_refused() {
    "$WEFT" eval int8 "${common[@]}" --prompts one.txt --backend far >far.log 2>&1 && fail "a device that is apart is accepted"
    has_message far.log kernel-unsupported key=--backend value=far || { cat far.log; fail "the refusal"; }
}
check other_devices_are_refused
finish
