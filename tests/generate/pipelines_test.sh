#!/bin/bash
# Pipelines in the folders that diffusers publishes give the latents of diffusers from the same
# noise, on one rank (weft parity --all) and on two. Each case is an asked*.json with options, files
# and tolerance. Makers: tools/golden_pipeline.py and tools/golden_*_pipeline.py.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
cases=$SRC/tests/golden/pipelines
all_cases_pass() {
    "$WEFT" parity --all "$cases" >all.txt 2>err || fail_with all.txt "weft parity --all"
    local files models
    files=$(find "$cases" -name 'asked*.json' | wc -l) models=$(find "$cases" -name asked.json | wc -l)
    grep -qx "$files files: $files passed, 0 failed, 0 skipped" all.txt || fail_with all.txt "not all $files cases"
    [ "$(cut -d/ -f1 all.txt | grep -Fxc -f <(ls "$cases"))" = "$files" ] && [ "$files" -ge 130 ] && [ "$models" -ge 53 ] ||
        fail_with all.txt "cases of $models models"
}
check all_cases_pass
# Wrong reference values, and a model with another scheduler, fail.
other_results_fail() {
    cp -r "$cases/wan22" other
    python3 -S - <<'PY'
import json, struct
data = bytearray(open("other/latents.npy", "rb").read())
data[-4:] = struct.pack("<f", struct.unpack("<f", data[-4:])[0] + 1)
open("other/latents.npy", "wb").write(data)
asked = json.load(open("other/asked.json"))
json.dump(asked | {"options": asked["options"] | {"--no-such-option": "1"}}, open("other/asked_option.json", "w"))
json.dump(asked | {"tolerance": 0}, open("other/asked_tolerance.json", "w"))
PY
    "$WEFT" parity other/asked.json >out 2>err && fail "a changed value passed"
    has_message err parity-failed value=1 || fail_with err "the message"
    "$WEFT" parity other/asked_option.json >out 2>err && fail "an unknown option passed"
    has_message err option-unknown || fail_with err "the option's message"
    "$WEFT" parity other/asked_tolerance.json >out 2>err && fail "no tolerance passed"
    has_message err format-damaged key=tolerance || fail_with err "the tolerance's message"
}
check other_results_fail
# The case by several ranks. Values of npy files are compared here.
compare() { # NAME TOLERANCE REFERENCE.npy OURS.npy
    python3 -S - "$@" <<'PY' || fail "$4 of $1"
import array, math, struct, sys
def load(path):
    data = open(path, "rb").read()
    head = 10 + struct.unpack("<H", data[8:10])[0]
    return eval(data[10:head])["shape"], array.array("f", data[head:])
(shape, theirs), (own, ours) = load(sys.argv[3]), load(sys.argv[4])
assert shape == own, (shape, own)
error = math.sqrt(sum((a - b) ** 2 for a, b in zip(theirs, ours)) / sum(a * a for a in theirs))
print(f"{sys.argv[1]}: {error:.2g} of the norm")
assert error < float(sys.argv[2]), error
PY
}
# Tokens of an image are split over ranks like the others. Adapters of Wan Animate have all tokens of some heads on each rank.
by_ranks() { # NAME VARIANT OPTIONS...
    local mpirun name=$1 case=asked${2:+_$2}.json what=latents options
    local folder=$cases/$name
    shift 2
    mpirun=$(command -v mpirun.openmpi || command -v mpirun) || skip "no mpirun"
    mkdir -p "by_ranks/$name.$case.$*" && cd "by_ranks/$name.$case.$*" || return
    mapfile -t options < <(python3 -S - "$folder/$case" <<'PY'
import json, os, sys
case, folder = json.load(open(sys.argv[1])), os.path.dirname(sys.argv[1])
assert "scheduler" not in case and "guider" not in case
what, reference = next(iter(case["expected"].items()))  # latents before frames
print(case["tolerance"], what, f"{folder}/{reference}", "--init-latents", f"{folder}/{case['noise']}", sep="\n")
for option, value in case["options"].items():
    print(option, value, sep="\n")
for option, files in case.get("files", {}).items():
    for file in files:
        print(option, f"{folder}/{file}", sep="\n")
PY
    )
    what=${options[1]}
    "$mpirun" --oversubscribe -n 2 "$WEFT" generate --model "$folder" "--$what-npy" --out video.mp4 "${options[@]:3}" "$@" >log 2>&1 || fail_with log "weft generate"
    case $what in
    latents) compare "$name" "${options[0]}" "${options[2]}" video.latents.npy ;;
    frames) compare "$name" "${options[0]}" "${options[2]}" video.npy ;;
    esac
}
check flux2_edit_by_ranks by_ranks flux2 edit --parallel cp=2
check z_image_by_ranks_of_sp by_ranks z_image "" --parallel tp=2 --parallel sequence_parallel=true
check qwen_edit_plus_by_ranks by_ranks qwen_edit_plus "" --parallel cp=2
for axis in tp cp fsdp cfg; do check "motif_i2v_by_ranks_of_$axis" by_ranks motif i2v --parallel $axis=2; done
check motif_i2v_by_ranks_of_sp by_ranks motif i2v --parallel tp=2 --parallel sequence_parallel=true
check motif_i2v_by_ranks_of_ring by_ranks motif i2v --parallel cp=2 --parallel context=ring
for axis in tp cp; do check "kandinsky5_nabla_by_ranks_of_$axis" by_ranks kandinsky5_nabla "" --parallel $axis=2; done
check kandinsky5_nabla_by_ranks_of_sp by_ranks kandinsky5_nabla "" --parallel tp=2 --parallel sequence_parallel=true
check kandinsky5_nabla_by_ranks_of_ring by_ranks kandinsky5_nabla "" --parallel cp=2 --parallel context=ring
for axis in tp cp fsdp cfg; do check "osp15_by_ranks_of_$axis" by_ranks osp15 "" --parallel $axis=2; done
check osp15_by_ranks_of_sp by_ranks osp15 "" --parallel tp=2 --parallel sequence_parallel=true
check osp15_by_ranks_of_ring by_ranks osp15 "" --parallel cp=2 --parallel context=ring
for axis in tp cp fsdp cfg; do check "opensora_by_ranks_of_$axis" by_ranks opensora "" --parallel $axis=2; done
check opensora_by_ranks_of_ring by_ranks opensora "" --parallel cp=2 --parallel context=ring
for axis in tp cp; do check "opensora_image_by_ranks_of_$axis" by_ranks opensora image --parallel $axis=2; done
for axis in tp cp fsdp cfg; do check "osp13_by_ranks_of_$axis" by_ranks osp13 "" --parallel $axis=2; done
for axis in tp cp fsdp cfg; do check "helios_mid_by_ranks_of_$axis" by_ranks helios_mid "" --parallel $axis=2; done
check helios_mid_by_ranks_of_sp by_ranks helios_mid "" --parallel tp=2 --parallel sequence_parallel=true
check helios_mid_by_ranks_of_ring by_ranks helios_mid "" --parallel cp=2 --parallel context=ring
for axis in tp cp fsdp; do check "helios_distilled_by_ranks_of_$axis" by_ranks helios_distilled video --parallel $axis=2; done
for axis in tp cp fsdp; do check "wan_animate_by_ranks_of_$axis" by_ranks wan_animate "" --parallel $axis=2; done
check wan_animate_by_ranks_of_ring by_ranks wan_animate "" --parallel cp=2 --parallel context=ring
check wan_animate_long5_by_ranks by_ranks wan_animate long5 --parallel cp=2
# Given frames have a cache of keys and values, except in a ring; without one they are tokens like the others.
for axis in tp cp fsdp cfg; do
    check "longcat_by_ranks_of_$axis" by_ranks longcat "" --parallel $axis=2
    check "longcat_image_by_ranks_of_$axis" by_ranks longcat image --parallel $axis=2
    check "longcat_video_by_ranks_of_$axis" by_ranks longcat video --parallel $axis=2
    check "longcat_kept_by_ranks_of_$axis" by_ranks longcat kept --parallel $axis=2
done
for variant in "" video kept; do
    for axis in tp cp; do check "longcat_blocks_${variant}_by_ranks_of_$axis" by_ranks longcat_blocks "$variant" --parallel $axis=2; done
    check "longcat_blocks_${variant}_by_ranks_of_sp" by_ranks longcat_blocks "$variant" --parallel tp=2 --parallel sequence_parallel=true
    check "longcat_blocks_${variant}_by_ranks_of_ring" by_ranks longcat_blocks "$variant" --parallel cp=2 --parallel context=ring
done
for variant in image video kept; do
    check "longcat_${variant}_by_ranks_of_sp" by_ranks longcat $variant --parallel tp=2 --parallel sequence_parallel=true
    check "longcat_${variant}_by_ranks_of_ring" by_ranks longcat $variant --parallel cp=2 --parallel context=ring
done
# Refinement, also after given frames, which are whole groups of latent frames.
for axis in tp cp fsdp cfg; do check "longcat_refine_same_by_ranks_of_$axis" by_ranks longcat refine_same --parallel $axis=2; done
for axis in tp cp; do check "longcat_refine_image_by_ranks_of_$axis" by_ranks longcat refine_image --parallel $axis=2; done
check longcat_refine_video_by_ranks_of_ring by_ranks longcat refine_video --parallel cp=2 --parallel context=ring
check longcat_blocks_refine_image_by_ranks_of_cp by_ranks longcat_blocks refine_image --parallel cp=2
# Without guidance there is one row, and the second rank has none. It computes a part of the position tables.
for axis in dp fsdp; do
    check "causal_wan_one_row_by_ranks_of_$axis" by_ranks causal_wan "" --parallel $axis=2
    check "longcat_alone_video_by_ranks_of_$axis" by_ranks longcat alone_video --parallel $axis=2
    check "longcat_refine_video_by_ranks_of_$axis" by_ranks longcat refine_video --parallel $axis=2
done
check causal_wan_guided_by_ranks_of_cfg by_ranks causal_wan guided --parallel cfg=2
# A reference image is a latent frame before the video, of the control and of the noise.
for axis in tp cp fsdp cfg; do check "wan_vace_reference_by_ranks_of_$axis" by_ranks wan_vace reference --parallel $axis=2; done
# Families whose generation has no test of ranks of its own.
for name in wan_vace hunyuan15 framepack skyreels chronoedit cosmos25 cosmos25_transfer kandinsky5 sana latte qwen_image flux2 chroma z_image; do
    for axis in tp cp; do check "${name}_by_ranks_of_$axis" by_ranks $name "" --parallel $axis=2; done
    [ $name != sana ] || continue # linear attention has no keys
    check "${name}_by_ranks_of_ring" by_ranks $name "" --parallel cp=2 --parallel context=ring
done
finish
