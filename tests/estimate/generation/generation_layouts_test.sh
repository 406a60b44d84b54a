#!/bin/bash
# Layouts of generation: priced by weft plan generate, chosen by --parallel auto, taken from a config; any number of ranks gives one rank's numbers.
set -u
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
MPIRUN="$(command -v mpirun.openmpi || command -v mpirun)"
fail() { echo "FAILED: $*"; exit 1; }
python3 "$SRC/tests/generate/enlarge.py" model 192 256 2 128 128 2 200 || fail "a model"
size=(--set model=model --set frames=5 --set height=32 --set width=48)
plan() { "$WEFT" plan generate "${size[@]}" "$@" >plan.log 2>&1 || { cat plan.log; fail "weft plan generate $*"; }; }
plan --devices 4 --out four.json --explain
grep -q "19 layouts of 4 ranks" plan.log || { cat plan.log; fail "how many layouts"; }
plan --devices 7 --out seven.json
plan --devices 2 --memory-limit 9MiB --out short.json
plan --devices 3 --on h100:2 --set batch=2 --out three.json
python3 -S - <<'P' || fail "the plans"
import json
def read(name): return json.load(open(name + ".json"))["candidates"]
four, seven, short, three = map(read, ("four", "seven", "short", "three"))
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
assert "dp=3" not in {c["layout"] for c in read("seven")} and "dp=3" in {c["layout"] for c in three}  # four rows, of which three ranks have two, one, one
P
generate() { # RANKS OUT OPTIONS...
    local n=$1 out=$2
    shift 2
    local run=()
    [ "$n" = 1 ] || run=("$MPIRUN" --oversubscribe -n "$n")
    "${run[@]}" "$WEFT" generate --model model --prompt "a red cat" --seed 3 --steps 2 --frames 5 --height 32 --width 48 --latents-npy --out "$out.mp4" "$@" \
        >"$out.log" 2>&1 || { cat "$out.log"; fail "weft generate on $n ranks: $*"; }
}
generate 1 one
generate 2 auto --parallel auto
grep -q "layout of 2 ranks: .*, the best of 6: .* a step, .* a video; next .* \(slower: \|as fast;\)" auto.log || { cat auto.log; fail "auto does not say why"; }
generate 2 short --parallel auto --memory-limit 9MiB
grep -q "weights stream" short.log || { cat short.log; fail "auto does not stream what does not fit"; }
generate 2 halves --parallel cfg=2
cmp one.latents.npy halves.latents.npy || fail "cfg=2 gives other latents than one rank"
generate 1 tiles --frames-npy --vae-tile 24x24+8
generate 2 tiles2 --frames-npy --vae-tile 24x24+8 --parallel cfg=2
grep -q "decoded in 6 tiles" tiles.log || { cat tiles.log; fail "how many tiles"; }
cmp one.latents.npy tiles2.latents.npy && cmp tiles.npy tiles2.npy || fail "cfg=2 and tiles over ranks give another video than one rank"
# text encoders on one rank: one rank's bits, and its memory alone has them
generate 2 text --parallel cfg=2 --parallel text_encoder_rank=1
grep -q "text encoders on rank 1 alone" text.log || { cat text.log; fail "where the text encoders are is not told"; }
cmp one.latents.npy text.latents.npy || fail "text=1 gives other latents than one rank"
generate 3 text3 --parallel cp=3 --parallel context=ring --parallel text_encoder_rank=2
python3 -S - text.log text3.log <<'P' || fail "memory of text encoders"
import os, re, sys
unit = {"KiB": 1 << 10, "MiB": 1 << 20}
for log in sys.argv[1:]:
    without, having = [float(n) * unit[u] for n, u in re.findall(r"predicted peak ([0-9.]+) (.iB)", open(log).read())]
    weights = os.path.getsize("model/text_encoder/model.safetensors")
    print(log, without, having, weights)
    assert having - without > 0.95 * weights, log
P
refused_text() { # WORDS RANKS OPTIONS...
    local words=$1 n=$2
    shift 2
    "$MPIRUN" --oversubscribe -n "$n" "$WEFT" generate --model model --prompt x --frames 5 --height 32 --width 48 --out no "$@" >refused.log 2>&1 && fail "$*: not refused"
    grep -q -- "$words" refused.log || { cat refused.log; fail "$*: not told: $words"; }
}
refused_text "\[layout-invalid\]: .*text: '2' .* 0 to 1 " 2 --parallel text_encoder_rank=2
refused_text "\[layout-invalid\]: .*text: 'own' " 2 --parallel text_encoder_rank=own
refused_text "\[layout-invalid\]: .*text: '1' .* 0 to 0 " 1 --parallel text_encoder_rank=1
# seconds before the start, where a profile has rates
"$WEFT" profile --seconds 2 --hidden-size 64 --out profile.json >profile.log 2>&1 || { cat profile.log; fail "weft profile"; }
generate 2 foretold --parallel cfg=2 --on profile.json
grep -q "predicted: .* a step, .* for the denoising of 1, .* for the decoding of a video (.* % of it" foretold.log || { cat foretold.log; fail "no seconds before the start"; }
grep -q "^denoised in .*, [+-][0-9]* % " foretold.log || { cat foretold.log; fail "what was predicted is not held against what it took"; }
"$WEFT" plan generate "${size[@]}" --devices 1 --on profile.json --memory-limit 1GiB >foreign.log 2>&1 || { cat foreign.log; fail "weft plan generate by a profile of other shapes"; }
grep -q "; the profile has [0-9]* % of the best one's kernel time at its shapes, .*weft profile --model" foreign.log || { cat foreign.log; fail "not told: the profile is of other shapes"; }
grep -q "^predicted: " one.log && fail "seconds are told without measured rates"
# by the programs of this very video in every layout, which are timed whole; other sizes by their kernels
"$MPIRUN" --oversubscribe -n 2 "$WEFT" profile --model model --frames 5 --height 32 --width 48 --vae-tile 24x24+8 --seconds 2 --out two.json >two.log 2>&1 ||
    { cat two.log; fail "weft profile --model"; }
generate 2 known --parallel cfg=2 --vae-tile 24x24+8 --on two.json
grep -q "predicted: .* (100 % of it" known.log || { cat known.log; fail "programs that were timed are not known again"; }
"$WEFT" profile --model model --frames 5 --height 32 --width 48 --guidance-scale 1 --parallel dp=1 --seconds 0.2 --out alone.json >alone.log 2>&1 ||
    { cat alone.log; fail "weft profile --model on one rank"; }
for frames in 5 9; do
    "$WEFT" plan generate "${size[@]}" --set frames=$frames --devices 2 --on two.json --memory-limit 1GiB --out two$frames.json >plan.log 2>&1 ||
        { cat plan.log; fail "weft plan generate by such a profile"; }
    [ $frames = 9 ] || ! grep "the profile has" plan.log || fail "told of a profile of these shapes"
done
python3 -S - <<'P' || fail "what a profile of a model has"
import json
profile, alone = json.load(open("two.json")), json.load(open("alone.json"))
seconds = {p["what"]: p["seconds"] for p in profile["programs"]}
layouts = "cfg=2", "fsdp=2", "tp=2", "tp=2 sequence=true", "cp=2 context=ulysses", "cp=2 context=ring"
assert len({p["program"] for p in profile["programs"]}) == len(profile["programs"]), "a program twice"
assert not any(r["node"].split()[0] in ("all_gather", "all_reduce", "all_to_all") for r in profile["rates"]), "an exchange among the kernels"
assert profile["touch"] > 0
decoders = [w for w in seconds if "decoder" in w]
assert any("1 x 4x6" in w for w in decoders) and any("1 x 3x3" in w for w in decoders), decoders  # whole, and in tiles
for name in layouts:
    assert name + ", denoiser" in seconds and name + ", transformer_2" in seconds, (name, list(seconds))
for frames in 5, 9:
    plan = {c["layout"]: c for c in json.load(open(f"two{frames}.json"))["candidates"]}
    for name in layouts:
        c, own = plan[name], [seconds[f"{name}, {part}"] for part in ("denoiser", "transformer_2")]
        known = min(own) * (1 - 1e-9) <= c["step"] <= max(own) * (1 + 1e-9)  # one expert's steps and the other's
        assert known or frames == 9, (name, c, own)
        assert c["first"] > 0 and c["step"] > 0, c
assert {p["what"].split(", ")[-1] for p in alone["programs"]} >= {"denoiser", "transformer_2"} and not alone["exchanges"], alone["programs"]
P
"$WEFT" profile --model model --frames 5 --height 32 --width 48 --parallel tp=2 --out none.json >refused.log 2>&1 && fail "a layout of two ranks on one"
grep -q "need 2 ranks, but 1 run" refused.log || { cat refused.log; fail "not told: which ranks are missing"; }
"$WEFT" profile run.yaml --model model >refused.log 2>&1 && fail "a config and a model"
"$WEFT" profile --frames 5 >frames.log 2>&1 && fail "frames of no model"
grep -q "error\[option-no-effect\]: --frames: .*--model" frames.log || { cat frames.log; fail "not told: which model"; }
grep -q "error\[option-conflict\]: --model: .*run.yaml" refused.log || { cat refused.log; fail "not told: a config or a model"; }
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
refused() { # WORDS COMMAND...
    local words=$1
    shift
    "$@" >refused.log 2>&1 && fail "$*: not refused"
    grep -q -- "$words" refused.log || { cat refused.log; fail "$*: not told: $words"; }
}
refused "error\[config-missing-key\]: model: .*--set model=DIR" "$WEFT" plan generate
refused "error\[layout-infeasible\]: model: .* 2 ranks .* nearest" "$WEFT" plan generate "${size[@]}" --devices 2 --memory-limit 1MiB
refused "error\[option-conflict\]: --parallel: .*another --parallel" "$WEFT" generate --model model --prompt x --parallel auto --parallel tp=2
refused "error\[option-conflict\]: --parallel: .*--config" "$WEFT" generate --model model --prompt x --parallel auto --config run.yaml
refused "tp 3 need 3 ranks, but 1 run" "$WEFT" generate --model model --prompt x --frames 5 --height 32 --width 48 --config run.yaml
exit 0
