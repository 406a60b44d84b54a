#!/bin/bash
# The same motion in other colours is not a duplicate: generated sets have many such videos.
# Transcodes of each are still found.
set -e
. "$SRC/tests/check.sh"
ff() { ffmpeg -v error -nostdin -y "$@"; }
"$WEFT" synth --out set --shots 24 --seed 4 --size 128 --held-out-clips 0 >/dev/null 2>&1
mkdir raw
for i in 0 1 2 3; do
    source=set/train/s000$i.mp4
    cp "$source" raw/s$i.mp4
    ff -i "$source" -vf hue=h=60 raw/s$i-hue60.mp4 # the same luma, another hue
    ff -i "$source" -vf hue=h=180 raw/s$i-hue180.mp4
    ff -i "$source" -crf 28 raw/s$i-crf28.mp4
    ff -i "$source" -vf scale=96:96 -crf 20 raw/s$i-small.mp4
    ff -i "$source" -c:v libvpx-vp9 -b:v 200k raw/s$i-vp9.webm
    ff -i raw/s$i-hue60.mp4 -crf 28 raw/s$i-hue60-crf28.mp4
done
# A small spot (a hundredth of the frame) on a detailed background, in a red and a green of equal
# luma, with a transcode of each. Also a copy without colour.
busy="mandelbrot=size=256x144:rate=24:start_scale=0.5:end_scale=0.45"
ff -f lavfi -i $busy -t 2 -vf "format=yuv420p,drawbox=x=40+30*0:y=50:w=20:h=18:color=0xC80000:t=fill" -crf 14 raw/red.mp4
ff -i raw/red.mp4 -vf "split[a][b];[b]crop=20:18:40:50,hue=h=120[c];[a][c]overlay=40:50" -crf 14 raw/green.mp4
ff -i raw/red.mp4 -crf 30 -vf scale=192:108 raw/red-low.mp4
ff -i raw/green.mp4 -crf 30 -vf scale=192:108 raw/green-low.mp4
ff -i raw/red.mp4 -vf hue=s=0 raw/gray.mp4
# A shape with the luma of the background: its edges and its motion are visible in colour only.
mkdir iso
for end in "h264.mp4 -c:v libx264" "vp9.webm -c:v libvpx-vp9 -b:v 300k -deadline realtime"; do
    set -- $end
    ff -f lavfi -i color=0x545454:size=128x128:rate=24 -f lavfi -i color=0x2850E0:size=24x24:rate=24 -t 2 -filter_complex "[0][1]overlay=x=10+35*t:y=50" "${@:2}" -pix_fmt yuv420p "iso/$1"
    ff -f lavfi -i color=0x545454:size=128x128:rate=24 -f lavfi -i color=0x2850E0:size=24x24:rate=24 -t 2 -filter_complex "[0][1]overlay=x=40:y=50" "${@:2}" -pix_fmt yuv420p "iso/rest-$1"
done
motion_of_a_shape_of_equal_luma_is_detected() {
    "$WEFT" curate --in iso --out iso_out --set duplicates.on=false >log 2>&1 || { cat log; exit 1; }
    [ "$(sed 's/.*"source_video":"\([^"]*\)".*/\1/' iso_out/manifest.jsonl | tr '\n' ' ')" = "h264.mp4 vp9.webm " ] || { cat iso_out/rejects.jsonl; exit 1; }
[ "$(grep -c '"operator":"motion"' iso_out/rejects.jsonl)" = 2 ] || { cat iso_out/rejects.jsonl; exit 1; }
}
check motion_of_a_shape_of_equal_luma_is_detected
colours_are_compared() {
run() { "$WEFT" curate --in raw --out "$1" --set quality.max_motion=99 --set quality.min_motion=0 "${@:2}" >log 2>&1 || { cat log; exit 1; }; }
run out
run blind --set duplicates.colour=255
python3 -S - <<'EOF'
import json
def look(folder):
    kept = {json.loads(l)["source_video"] for l in open(folder + "/manifest.jsonl")}
    twin = {r["source"]: r["reason"].split(",")[0].split()[-1] for r in map(json.loads, open(folder + "/rejects.jsonl")) if r["operator"] == "duplicate"}
    return kept, twin
kept, twin = look("out")
base = lambda name: name.split(".")[0]
hue = lambda name: "hue60" if "hue60" in name else "hue180" if "hue180" in name else ""
for i in range(4):
    family = [n for n in kept if n.startswith(f"s{i}")]
    assert sorted(map(hue, family)) == ["", "hue180", "hue60"], family  # one video of each hue
for name, other in twin.items():
    assert name == "gray.mp4" or (name[:2] == other[:2] and hue(name) == hue(other)), (name, other)
assert len([n for n in twin if n[0] == "s" and n[1].isdigit()]) == 4 * 4, twin
assert {"red.mp4", "green.mp4"} <= kept and base(twin["gray.mp4"]) in ("red", "green") and base(twin["red-low.mp4"]) == "red" and base(twin["green-low.mp4"]) == "green", (kept, twin)
kept, twin = look("blind")  # without comparing colours, all hues of a video are duplicates
assert len([n for n in kept if n[0] == "s" and n[1].isdigit()]) == 4 and "gray.mp4" in twin, kept
EOF
}
check colours_are_compared
finish
