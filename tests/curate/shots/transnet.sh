#!/bin/bash
# TransNetV2 as shot detector. The test writes the weights of a network that reports a boundary
# where the colour histogram changes. Known cuts are found in videos of any length by weft shots and
# weft curate, the golden file of the reference agrees, and missing weights are refused.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
python3 -S - <<'EOF2'
import json, struct
F, D, L = 1, 1, 101
tensors = {}
def add(name, *shape, at=()):
    count = 1
    for n in shape:
        count *= n
    values = [0.0] * count
    for i, v in at:
        values[i] = v
    tensors[name] = (shape, struct.pack(f"<{count}f", *values))
wide = 3
for stack in range(3):
    f = F << stack
    for block in range(2):
        p = f"SDDCNN.{stack}.DDCNN.{block}."
        for d in 1, 2, 4, 8:
            add(f"{p}Conv3D_{d}.layers.0.weight", 2 * f, wide, 1, 3, 3)
            add(f"{p}Conv3D_{d}.layers.1.weight", f, 2 * f, 3, 1, 1)
        for n in "weight", "bias", "running_mean", "running_var":
            add(f"{p}bn.{n}", 4 * f, at=[(i, 1.0) for i in range(4 * f)] if n == "running_var" else [])
        wide = 4 * f
add("frame_sim_layer.projection.weight", 1, 4 * (F + 2 * F + 4 * F))
add("frame_sim_layer.projection.bias", 1)
add("frame_sim_layer.fc.weight", 1, L)
add("frame_sim_layer.fc.bias", 1)
add("color_hist_layer.fc.weight", 1, L, at=[(51, -1.0)])  # 1 - similarity to the next frame
add("color_hist_layer.fc.bias", 1, at=[(0, 1.0)])
add("fc1.weight", D, 2 + 18 * 4 * 4 * F, at=[(0, 1.0)])
add("fc1.bias", D)
for head in "cls_layer1", "cls_layer2":
    add(f"{head}.weight", 1, D, at=[(0, 20.0)])
    add(f"{head}.bias", 1, at=[(0, -10.0)])
head, at = {}, 0
for name, (shape, data) in tensors.items():
    head[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + len(data)]}
    at += len(data)
text = json.dumps(head).encode()
open("net.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + b"".join(d for _, d in tensors.values()))
text = json.dumps(head).replace("fc1.bias", "fc1.vias").encode()
open("short.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + b"".join(d for _, d in tensors.values()))
EOF2
make_video() { # NAME FRAMES...: makes a video with shots of these lengths, each of one colour
    local name=$1 inputs=() n=0 colours=(red blue green white black yellow)
    shift
    for frames in "$@"; do
        inputs+=(-f lavfi -i "color=${colours[n % 6]}:s=128x72:r=25:d=$(python3 -S -c "print($frames / 25)")")
        n=$((n + 1))
    done
    ffmpeg -v error -nostdin -y "${inputs[@]}" -filter_complex "concat=n=$n" -c:v libx264 -pix_fmt yuv420p "$name.mp4"
}
mkdir raw
make_video raw/short 3 4 20
make_video raw/step 50 50 25 26
make_video raw/long 24 1 74 151 49 2 300
cut() { "$WEFT" shots --method transnetv2 --weights net.safetensors "$@"; }
known_cuts_are_found() {
    cut raw/*.mp4 >found.jsonl
    python3 -S - <<'EOF2'
import json
found = {}
for line in open("found.jsonl"):
    b = json.loads(line)
    assert b["type"] == "cut" or b["start"] == b["end"] == 24, b  # two consecutive frames that end a shot
    found.setdefault(b["file"], []).append(b["frame"] if b["type"] == "cut" else b["end"] + 1)
want = {"raw/short.mp4": [3, 7], "raw/step.mp4": [50, 100, 125], "raw/long.mp4": [25, 99, 250, 299, 301]}
assert found == want, found
EOF2
}
check known_cuts_are_found
# `weft curate` cuts at the boundaries of `weft shots`.
curate_cuts_at_the_same_frames() {
    "$WEFT" curate --in raw --out curated --set workers=1 --set duplicates.on=false --set shots.method=transnetv2 --set shots.weights=net.safetensors \
        >curate.log 2>&1 || { cat curate.log; fail "weft curate"; }
    python3 -S - <<'EOF2'
import json
load = lambda name: [json.loads(line) for line in open(name)]
begins = {(x.get("source_video") or x["source"], x["frame_span"][0])
          for x in load("curated/manifest.jsonl") + load("curated/rejects.jsonl")
          if "frame_span" in x and x.get("operator") != "transition"}
got = {b for b in begins if b[1] > 0}
assert got == {("short.mp4", 3), ("short.mp4", 7), ("step.mp4", 50), ("step.mp4", 100), ("step.mp4", 125), ("long.mp4", 25), ("long.mp4", 99),
               ("long.mp4", 250), ("long.mp4", 299), ("long.mp4", 301)}, got
EOF2
}
check curate_cuts_at_the_same_frames
# Memory does not grow with the length of the video.
memory_does_not_grow_with_length() {
    make_video short_film 120
    make_video long_film 460
    peak() { python3 -S -c '
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)' "$WEFT" shots --method transnetv2 --weights net.safetensors "$1"; }
    # Decoder threads that wait for each other may hold more memory in one run. Growth with the
    # length
# shows in every run.
    for _ in 1 2 3; do
        small=$(peak short_film.mp4) large=$(peak long_film.mp4)
        [ "$large" -ge $((small + 4096)) ] || return 0
    done
    fail "memory grows with length: $small KiB for 120 frames, $large KiB for 460"
}
check memory_does_not_grow_with_length
refused() { # ID [FIELD=VALUE...] -- COMMAND...
    take_message "$@"
    set -- "${rest[@]}"
    if "$@" >out 2>&1; then fail "not refused: $*"; fi
    has_message out "${wanted[@]}" || fail "$*: another message than expected"
}
refusals() {
    refused option-required key=--weights text~=transnetv2 -- "$WEFT" shots --method transnetv2 raw/short.mp4
    refused option-no-effect key=--weights text~=transnetv2 -- "$WEFT" shots --weights net.safetensors raw/short.mp4
    refused tensor-missing file=*short.safetensors key=fc1.bias -- "$WEFT" shots --method transnetv2 --weights short.safetensors raw/short.mp4
    refused argument-invalid key=*threshold text~=27 -- cut --threshold 27 raw/short.mp4
    refused argument-invalid text~=transnetv2 -- "$WEFT" curate --in raw --out other --set shots.method=transnetv2
}
check refusals
the_golden_file_agrees() {
    golden=${WEFT_SHARED:-/nonexistent}/golden
    [ -f "$golden/transnetv2_a.json" ] || skip "no golden files"
    "$WEFT" parity "$golden/transnetv2_a.json"
    refused file-not-found file=*transnetv2_real_a.json key=weights 'text~=--weights FILE' -- "$WEFT" parity "$golden/transnetv2_real_a.json"
    refused format-damaged file=*transnetv2_real_a.json 'text~=weights, which have 1' -- "$WEFT" parity --weights net.safetensors "$golden/transnetv2_real_a.json"
}
check the_golden_file_agrees
finish
