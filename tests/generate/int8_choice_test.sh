#!/bin/bash
# `weft eval int8` keeps the layers with the largest errors until the PSNR meets --psnr, and writes them to int8.json.
# `--weights int8` leaves these layers in the type of the files.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=1 # small programs, which would only wait for each other
cp -rL "$SRC/tests/golden/pipelines/skyreels" model
printf 'a red cat walks\na blue dog\n' >prompts.txt
echo 'a red cat walks' >one.txt
common=(--model model --frames 5 --height 32 --width 32 --steps 2)
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
    generate int8 --weights int8
    cmp -s f32.latents.npy int8.latents.npy && fail "no layer computes in int8"
    rm model/int8.json
    generate without --weights int8
    cmp int8.latents.npy without.latents.npy || fail "without int8.json not all layers compute in int8"
}
check kept_layers_are_not_int8
damaged_choice_is_refused() {
    echo '{"format": "weft.int8/1", "f32": {"kept": "transformer"}}' >model/int8.json
    "$WEFT" generate "${common[@]}" --prompt x --weights int8 --out x.mp4 >x.log 2>&1 && fail "a damaged int8.json is accepted"
    has_message x.log json-value file=model/int8.json key=kept || fail "$(cat x.log)"
    echo '{"format": "weft.int8/9", "f32": {"kept": []}}' >model/int8.json
    "$WEFT" generate "${common[@]}" --prompt x --weights int8 --out x.mp4 >x.log 2>&1 && fail "another format is accepted"
    has_message x.log json-value file=model/int8.json key=format || fail "$(cat x.log)"
}
check damaged_choice_is_refused
finish
