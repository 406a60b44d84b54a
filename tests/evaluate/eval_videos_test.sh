#!/bin/bash
# weft eval videos: the scores of tools/golden_videos.py, whose networks compute in f64, and its errors.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
golden=$SRC/tests/golden/videos
evaluate() { "$WEFT" eval videos "$@" >eval.txt 2>eval.log; }

scores_are_those_of_the_references() {
    evaluate --videos "$golden/in" --prompts "$golden/prompts.txt" --clip "$golden/clip" --dino "$golden/dino" --json scores.json ||
        fail_with eval.log "weft eval videos"
    python3 -S - "$golden/expected.json" scores.json <<'PY' || fail "other scores than the references"
import json, sys

expected, scores = (json.load(open(f)) for f in sys.argv[1:])
assert scores["videos"] == 7 and scores["without_prompt"] == 1, scores
for one in scores["each"]:
    for key, value in expected["videos"][one["file"]].items():
        own = one[key]
        assert (own is None) == (value is None), (one["file"], key, own, value)
        tolerance = 2e-6 if key == "clip_score" else 2e-7
        assert value is None or abs(own - value) < tolerance * abs(value), (one["file"], key, own, value)
pairs = [one["frames"] - 1 for one in scores["each"]]
for key in ("background_consistency", "subject_consistency"):
    mean = sum(p * one[key] for p, one in zip(pairs, scores["each"]) if p) / sum(pairs)
    assert abs(scores[key] - mean) < 1e-12, (key, scores[key], mean)
PY
    grep -q "^CLIP score  *35.37" eval.txt || fail_with eval.txt "the mean is not printed"
}
check scores_are_those_of_the_references

# Networks whose files have bf16; the scores of f32 weights are close.
weights_may_be_bf16() {
    cp -r "$golden/clip" "$golden/dino" .
    python3 -S - clip/model.safetensors dino/model.safetensors <<'PY' || fail "weights"
import json, struct, sys
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    old, new, body = json.loads(data[8:8 + n]), {}, b""
    for name, t in old.items():
        if name == "__metadata__" or t["dtype"] != "F32":
            continue
        begin, end = (8 + n + x for x in t["data_offsets"])
        half = b"".join(data[i + 2:i + 4] for i in range(begin, end, 4))
        new[name] = {"dtype": "BF16", "shape": t["shape"], "data_offsets": [len(body), len(body) + len(half)]}
        body += half
    text = json.dumps(new).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)
PY
    evaluate --videos "$golden/in" --prompts "$golden/prompts.txt" --clip clip --dino dino --json half.json || fail_with eval.log "weights in bf16"
    python3 -S - "$golden/expected.json" half.json <<'PY' || fail "other scores"
import json, sys
expected, scores = (json.load(open(f)) for f in sys.argv[1:])
for one in scores["each"]:
    for key in "background_consistency", "subject_consistency":
        value = expected["videos"][one["file"]][key]
        assert value is None or 0 < abs(one[key] - value) < 5e-3, (one["file"], key, one[key], value)
PY
}
check weights_may_be_bf16

# The reference takes roots of eigenvalues that are zero up to rounding, 1e-16 of the others.
frechet_distances_are_those_of_numpy() {
    for set in tall wide; do
        evaluate --features "$golden/${set}_a.npy" --reference-features "$golden/${set}_b.npy" --json $set.json || fail_with eval.log "$set"
        python3 -S -c '
import json, sys
expected, own = json.load(open(sys.argv[1]))["frechet"][sys.argv[2]], json.load(open(sys.argv[2] + ".json"))["frechet_distance"]
assert abs(own - expected) < 1e-8 * expected, (own, expected)' "$golden/expected.json" $set || fail "$set: another distance than the reference"
    done
    evaluate --features "$golden/tall_a.npy" --reference-features "$golden/tall_a.npy" --json same.json || fail_with eval.log "same"
    python3 -S -c 'import json; assert abs(json.load(open("same.json"))["frechet_distance"]) < 1e-9' || fail "a set has a distance from itself"
}
check frechet_distances_are_those_of_numpy

# VBench's own code computed the scores (tools/golden_motion.py). The reference rounds values of frames down to 8 bits.
# Sums in another order change a few of 49,000 values by one.
motion_smoothness_is_that_of_vbench() {
    python3 -S -c 'import json, sys
sys.path.insert(0, sys.argv[1] + "/tools")
import amt_weights
amt_weights.write("amt.safetensors", json.load(open(sys.argv[1] + "/tests/golden/motion/shapes.json")))' "$SRC" || fail "weights"
    evaluate --videos "$SRC/tests/golden/motion/in" --amt amt.safetensors --json motion.json || fail_with eval.log "weft eval videos"
    python3 -S - "$SRC/tests/golden/motion/expected.json" motion.json <<'PY' || fail "other scores than the reference"
import json, sys
expected, scores = (json.load(open(f)) for f in sys.argv[1:])
own = {one["file"]: one["motion_smoothness"] for one in scores["each"]}
assert len(own) == 3 and own.pop("c.mkv") is None, own  # below 113 pixels
for file, value in expected.items():
    assert abs(own[file] - value) < 1e-6, (file, own, value)
PY
    evaluate --videos "$SRC/tests/golden/motion/in" --amt "$golden/dino/model.safetensors" && fail "other weights are accepted"
    has_message eval.log tensor-missing "file=$golden/dino/model.safetensors" || fail "the file is not named"
}
check motion_smoothness_is_that_of_vbench

# The prompt that weft stores in a file is used if no file of prompts is given.
prompts_are_read_from_the_videos() {
    mkdir -p tagged
    ffmpeg -v error -i "$golden/in/a_wide.mkv" -c copy -metadata prompt="a red circle moving left" -y tagged/a.mkv || fail "ffmpeg"
    cp "$golden/in/b_tall.mkv" tagged/b.mkv
    evaluate --videos tagged --clip "$golden/clip" --json tagged.json || fail_with eval.log "weft eval videos"
    python3 -S -c '
import json, sys
expected, own = json.load(open(sys.argv[1]))["videos"]["a_wide.mkv"]["clip_score"], json.load(open("tagged.json"))
assert abs(own["each"][0]["clip_score"] - expected) < 2e-6 * expected, own
assert own["each"][1]["clip_score"] is None and own["without_prompt"] == 1, own' "$golden/expected.json" || fail "the stored prompt is not used"
    grep -q "1 videos have no prompt" eval.txt || fail_with eval.txt "a video without a prompt is not reported"
}
check prompts_are_read_from_the_videos

errors_name_their_cause() {
    head -2 "$golden/prompts.txt" >short.txt
    evaluate --videos "$golden/in" --prompts short.txt && fail "two prompts for seven videos are accepted"
    has_message eval.log prompt-invalid file=short.txt 'text~=2 lines for 7 videos' || fail "the number of prompts is not named"
    evaluate --features "$golden/tall_a.npy" --reference-features "$golden/wide_b.npy" && fail "features of two networks are compared"
    has_message eval.log tensor-shape "file=$golden/wide_b.npy" 'text~=12 features here, and 6' || fail "the widths are not named"
    evaluate --features "$golden/tall_a.npy" && fail "a distance from nothing is accepted"
    has_message eval.log option-required key=--reference-features || fail "the missing option is not named"
    evaluate && fail "no video is accepted"
    has_message eval.log option-required key=--videos || fail "--videos is not named"
    mkdir -p empty
    evaluate --videos empty && fail "a folder without videos is accepted"
    has_message eval.log '*' level=error "text~=no videos" || fail "the empty folder is not named"
    evaluate --videos "$golden/in" --clip "$golden/dino" && fail "a model without a text encoder is accepted as CLIP"
    has_message eval.log model-unknown "file=$golden/dino" 'text~=text encoder is needed' || fail "the missing text encoder is not named"
}
check errors_name_their_cause
finish
