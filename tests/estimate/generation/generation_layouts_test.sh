#!/bin/bash
# Layouts of generation: priced by weft plan generate, chosen by --parallel auto, or read from a config.
# Any number of ranks has the results of one rank.
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
MPIRUN="$(command -v mpirun.openmpi || command -v mpirun)"
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
python3 "$SRC/tests/generate/enlarge.py" model 192 256 2 128 128 2 200 || fail "a model"
size=(--set model=model --set frames=5 --set height=32 --set width=48)
plan() { "$WEFT" plan generate "${size[@]}" "$@" >plan.txt 2>plan.log || { cat plan.log; fail "weft plan generate $*"; }; }
plan_generate_lists_the_layouts() {
    plan --devices 4 --out four.json --explain
    plan --devices 7 --out seven.json
    plan --devices 2 --memory-limit 9MiB --out short.json
    plan --devices 3 --on h100:2 --set batch=2 --out three.json
    python3 -S - <<'P' || fail "the plans"
import json
def read(name): return json.load(open(name + ".json"))["candidates"]
four, seven, short, three = map(read, ("four", "seven", "short", "three"))
assert len(four) == 19, len(four)
for plan in four, seven, short, three:
    fits = [c for c in plan if c["fits"]]
    assert fits and plan[:len(fits)] == fits and all(a["video"] <= b["video"] for a, b in zip(fits, fits[1:])), plan
    assert all(c["why"] for c in plan[1:])
    for c in fits:
        assert abs(c["video"] - (c["text"] + 30 * c["step"]) / (2 if plan is three else 1) - c["decode"]) < 1e-6 * c["video"] + c["text"], c
names = {c["layout"]: c for c in four}
assert "cfg=2 tp=2" in names and "fsdp=4" in names and "cp=4 context={ulysses: 2, ring: 2}" in names, list(names)
assert names["fsdp=4"]["peak_bytes"] < names["cp=4 context=ring"]["peak_bytes"]
assert names["cfg=2 cp=2 context=ring"]["sent_bytes"] < names["fsdp=4"]["sent_bytes"]
assert {c["layout"] for c in seven} == {"fsdp=7", "tp=7", "tp=7 sequence=true", "cp=7 context=ulysses", "cp=7 context=ring"}, seven
assert any("weights stream" in c["layout"] for c in short) and any(not c["fits"] and "does not fit" in c["why"] for c in short), short
assert "dp=3" not in {c["layout"] for c in read("seven")} and "dp=3" in {c["layout"] for c in three}  # of four rows, three ranks have two, one and one
P
}
check plan_generate_lists_the_layouts
estimate_auto_is_the_first_of_plan_generate() {
    needs plan_generate_lists_the_layouts
    local of=("$WEFT" estimate --model model --frames 5 --height 32 --width 48 --json --parallel auto)
    "${of[@]}" --ranks 4 >four-auto.json 2>err && "${of[@]}" --ranks 2 --memory-limit 9MiB >short-auto.json 2>err || { cat err; fail "weft estimate"; }
    python3 -S - <<'P' || fail "another layout"
import json
for name in "four", "short":
    best, made = json.load(open(name + ".json"))["candidates"][0], json.load(open(name + "-auto.json"))
    assert (made["layout"], made["video_seconds"], made["peak_bytes"]) == (best["layout"], best["video"], best["peak_bytes"]), (made, best)
P
    ! "${of[@]}" >/dev/null 2>err && has_message err option-required key=--ranks || fail "auto without --ranks is accepted"
    ! "${of[@]}" --ranks 2 --parallel cp=2 >/dev/null 2>err && has_message err option-conflict key=--parallel || fail "auto and another key are accepted"
    ! "${of[@]}" --ranks 2 --memory-limit 1MiB >/dev/null 2>err && has_message err "*" key=--parallel || { cat err; fail "a layout that does not fit is accepted"; }
}
check estimate_auto_is_the_first_of_plan_generate
generate() { # RANKS OUT OPTIONS...
    local n=$1 out=$2
    shift 2
    local run=()
    [ "$n" = 1 ] || run=("$MPIRUN" --oversubscribe -n "$n")
    "${run[@]}" "$WEFT" generate --model model --prompt "a red cat" --seed 3 --steps 2 --frames 5 --height 32 --width 48 --latents-npy --out "$out.mp4" "$@" \
        >"$out.log" 2>&1 || { cat "$out.log"; fail "weft generate on $n ranks: $*"; }
}
auto_chooses_a_layout() {
    generate 1 one
    generate 2 auto --parallel auto
    has_message auto.log layout-chosen ranks=2 layouts=6 'layout=?*' 'next=?*' 'step_seconds=?*' 'video_seconds=?*' || { cat auto.log; fail "auto reports no reason"; }
    generate 2 short --parallel auto --memory-limit 9MiB
    has_message short.log layout-chosen stream=1 || { cat short.log; fail "auto does not stream weights that do not fit"; }
}
check auto_chooses_a_layout
cfg_has_the_latents_of_one_rank() {
    needs auto_chooses_a_layout
    generate 2 halves --parallel cfg=2
    cmp one.latents.npy halves.latents.npy || fail "cfg=2 gives other latents than one rank"
}
check cfg_has_the_latents_of_one_rank
tiles_over_ranks_have_the_video_of_one_rank() {
    needs auto_chooses_a_layout
    generate 1 tiles --frames-npy --vae-tile 24x24+8
    generate 2 tiles2 --frames-npy --vae-tile 24x24+8 --parallel cfg=2
    has_message tiles.log job-report 'tiles=6 tiles of 24x24' || { cat tiles.log; fail "the number of tiles"; }
    cmp one.latents.npy tiles2.latents.npy && cmp tiles.npy tiles2.npy || fail "cfg=2 and tiles over ranks give another video than one rank"
}
check tiles_over_ranks_have_the_video_of_one_rank
weights=$(stat -c %s model/text_encoder/model.safetensors)
more_memory() { # LOG RANK: the rank with the text encoders has the largest peak
    local having without
    having=$(message_field value "$1" job-report rank="$2") && without=$(message_field value "$1" job-report videos=1) || fail "no peaks in $1"
    echo "$1 $without $having $weights"
    [ $((100 * (having - without))) -gt $((95 * weights)) ] || fail "memory of text encoders: $1"
}
# Text encoders on one rank: bitwise the results of one rank, and only this rank has their memory.
text_encoders_on_one_rank() {
    needs auto_chooses_a_layout
    generate 2 text --parallel cfg=2 --parallel text_encoder_rank=1
    has_message text.log job-report rank=1 'value=?*' || fail "the rank of the text encoders is not reported"
    cmp one.latents.npy text.latents.npy || fail "text=1 gives other latents than one rank"
    generate 3 text3 --parallel cp=3 --parallel context=ring --parallel text_encoder_rank=2
    more_memory text.log 1
    more_memory text3.log 2
}
check text_encoders_on_one_rank
refused() { # ID [FIELD=VALUE...] -- COMMAND...
    take_message "$@"
    ! "${rest[@]}" >refused.log 2>&1 || fail "${rest[*]}: not refused"
    has_message refused.log "${wanted[@]}" level=error || fail "${rest[*]}: another error"
}
refused_text() { # RANKS VALUE [FIELD=VALUE...]
    refused layout-invalid key=text_encoder_rank value="$2" "${@:3}" -- "$MPIRUN" --oversubscribe -n "$1" "$WEFT" generate --model model --prompt x \
        --frames 5 --height 32 --width 48 --out no --parallel text_encoder_rank="$2"
}
a_wrong_rank_of_the_text_encoders_is_refused() {
    refused_text 2 2 text~="0 to 1 "
    refused_text 2 own
    refused_text 1 1 text~="0 to 0 "
}
check a_wrong_rank_of_the_text_encoders_is_refused
# With a profile, seconds are predicted before the start.
a_profile_predicts_seconds() {
    needs auto_chooses_a_layout
    "$WEFT" profile --seconds 2 --hidden-size 64 --out profile.json >profile.log 2>&1 || { cat profile.log; fail "weft profile"; }
    generate 2 foretold --parallel cfg=2 --on profile.json
    has_message foretold.log estimate 'value=?*' 'step_seconds=?*' 'decode_seconds=?*' 'measured_share=?*' || fail "no predicted seconds"
    has_message foretold.log estimate 'value=?*' predicted_seconds="$(message_field value foretold.log estimate 'step_seconds=?*')" ||
        fail "the prediction is not compared with the measured seconds"
    plan --devices 1 --on profile.json --memory-limit 1GiB --out foreign.json
    grep -q "weft profile --model" plan.txt || { cat plan.txt; fail "a profile of other shapes is not reported"; }
    [ "$(count_messages one.log estimate 'measured_share=?*')" = 0 ] || fail "seconds are predicted without measured rates"
}
check a_profile_predicts_seconds
# Complete programs of this video are timed in every layout. Other sizes are priced by their kernels.
a_profile_of_a_model_has_its_programs() {
    "$MPIRUN" --oversubscribe -n 2 "$WEFT" profile --model model --frames 5 --height 32 --width 48 --vae-tile 24x24+8 --seconds 2 --out two.json >two.log 2>&1 ||
        { cat two.log; fail "weft profile --model"; }
    generate 2 known --parallel cfg=2 --vae-tile 24x24+8 --on two.json
    has_message known.log estimate measured_share=1 || { cat known.log; fail "timed programs are not found in the profile"; }
    "$WEFT" profile --model model --frames 5 --height 32 --width 48 --guidance-scale 1 --parallel dp=1 --seconds 0.2 --out alone.json >alone.log 2>&1 ||
        { cat alone.log; fail "weft profile --model on one rank"; }
    for frames in 5 9; do
        plan --set frames=$frames --devices 2 --on two.json --memory-limit 1GiB --out two$frames.json
        [ $frames = 9 ] || ! grep "weft profile --model" plan.txt || fail "a profile of these shapes is reported as one of other shapes"
    done
    python3 -S - <<'P' || fail "the content of a profile of a model"
import json
profile, alone = json.load(open("two.json")), json.load(open("alone.json"))
seconds = {p["what"]: p["seconds"] for p in profile["programs"]}
layouts = "cfg=2", "fsdp=2", "tp=2", "tp=2 sequence=true", "cp=2 context=ulysses", "cp=2 context=ring"
assert len({p["program"] for p in profile["programs"]}) == len(profile["programs"]), "a program twice"
assert not any(r["node"].split()[0] in ("all_gather", "all_reduce", "all_to_all") for r in profile["rates"]), "an exchange among the kernels"
assert profile["touch"] > 0
decoders = [w for w in seconds if "decoder" in w]
assert any("1 x 4x6" in w for w in decoders) and any("1 x 3x3" in w for w in decoders), decoders  # the complete decoder, and tiles
for name in layouts:
    assert name + ", denoiser" in seconds and name + ", transformer_2" in seconds, (name, list(seconds))
for frames in 5, 9:
    plan = {c["layout"]: c for c in json.load(open(f"two{frames}.json"))["candidates"]}
    for name in layouts:
        c, own = plan[name], [seconds[f"{name}, {part}"] for part in ("denoiser", "transformer_2")]
        known = min(own) * (1 - 1e-9) <= c["step"] <= max(own) * (1 + 1e-9)  # steps of both experts
        assert known or frames == 9, (name, c, own)
        assert c["first"] > 0 and c["step"] > 0, c
assert {p["what"].split(", ")[-1] for p in alone["programs"]} >= {"denoiser", "transformer_2"} and not alone["exchanges"], alone["programs"]
P
}
check a_profile_of_a_model_has_its_programs
profile_refuses_options_without_effect() {
    refused plan-infeasible file=model text~="need 2 ranks" -- "$WEFT" profile --model model --frames 5 --height 32 --width 48 --parallel tp=2 --out none.json
    refused option-conflict key=--model value=run.yaml -- "$WEFT" profile run.yaml --model model
    refused option-no-effect key=--frames text~=--model -- "$WEFT" profile --frames 5
}
check profile_refuses_options_without_effect
several_ranks_have_the_results_of_one() {
    needs auto_chooses_a_layout
    printf 'parallel: {tp: 3}\n' >run.yaml
    generate 3 config --config run.yaml --parallel sequence_parallel=true
    generate 5 five --parallel fsdp=5
    generate 7 seven --parallel cp=7 --parallel context=ring
    python3 -S - <<'P' || fail "one rank and several differ"
import array, struct
def load(name):
    data = open(name + ".latents.npy", "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
one = load("one")
for name in "auto", "short", "config", "five", "seven":
    error = sum((x - y) ** 2 for x, y in zip(one, load(name))) ** 0.5 / sum(x * x for x in one) ** 0.5
    print(name, error)
    assert error <= 1e-5, (name, error)
P
}
check several_ranks_have_the_results_of_one
wrong_layouts_are_refused() {
    needs several_ranks_have_the_results_of_one
    refused config-missing-key key=model text~="--set model=DIR" -- "$WEFT" plan generate
    refused plan-infeasible file=model text~="2 ranks" text~=nearest -- "$WEFT" plan generate "${size[@]}" --devices 2 --memory-limit 1MiB
    refused option-conflict key=--parallel text~="another --parallel" -- "$WEFT" generate --model model --prompt x --parallel auto --parallel tp=2
    refused option-conflict key=--parallel text~=--config -- "$WEFT" generate --model model --prompt x --parallel auto --config run.yaml
    refused layout-invalid key=parallel value=3 -- "$WEFT" generate --model model --prompt x --frames 5 --height 32 --width 48 --config run.yaml
}
check wrong_layouts_are_refused
finish
