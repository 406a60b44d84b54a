#!/bin/bash
# Black and coloured bars are cropped from encoded videos, although encoding and the analysis size
# blur their inner edges.
set -e
. "$SRC/tests/check.sh"
encode() { ffmpeg -v error -nostdin -y "$@"; }
source="mandelbrot=rate=24:start_x=-1.25:start_y=0.05:start_scale=0.5:end_scale=0.4:end_pts=60:size"
kept() { sed 's/.*"source_video":"\([^"]*\)".*/\1/' "$1/manifest.jsonl" | sort -u | tr '\n' ' '; }

# width and height of the content, size of the video, position of the content. A line of the
# analysis is 1/144 of the video's height; most of these edges are inside a line.
sizes="320 180 320 260 0 40
400 224 400 260 0 18
400 224 400 264 0 20
400 180 400 256 0 38
320 240 426 240 52 0
640 360 640 470 0 56"
bars_are_cropped() {
    mkdir raw
    while read -r width height full_width full_height x y; do
        for colour in red blue gray; do
            encode -f lavfi -i "$source=${width}x$height" -t 1 -vf "pad=$full_width:$full_height:$x:$y:color=$colour" \
                -c:v libx264 -b:v 300k -preset veryfast -pix_fmt yuv420p \
                "raw/$colour-$width-$height-$full_width-$full_height-$x-$y.mp4"
        done
    done <<<"$sizes"
    "$WEFT" curate --in raw --out out --set duplicates.on=false --set quality.max_motion=99 --set quality.min_motion=0 \
        --set quality.min_sharpness=0 --set clips.min_frames=5 >log 2>&1 || fail_with log curate
    python3 -S - <<'PY' || fail "the crop of a clip keeps bars or removes content"
import json, glob
wrong, seen = [], set()
for path in glob.glob("out/metas/*.json"):
    meta = json.load(open(path))
    name = meta["source_video"]
    width, height, full_width, full_height, x, y = map(int, name[:-4].split("-")[1:])
    left, top, w, h = meta.get("crop_source") or (0, 0, full_width, full_height)
    seen.add(name)
    # In each direction no bar is left, and at most two lines of the analysis and 2 pixels of the
    # content are cropped.
    for at, size, begin, length, full, lines in ((left, w, x, width, full_width, 256), (top, h, y, height, full_height, 144)):
        most = 2 * full / lines + 2
        if not (begin <= at <= begin + most and begin + length - most <= at + size <= begin + length):
            wrong.append((name, (left, top, w, h)))
assert len(seen) == 18, sorted(seen)
assert not wrong, "\n".join(map(str, sorted(wrong)))
PY
}
check bars_are_cropped

footage=$WEFT_SHARED/videos/clips/basketball.mp4
# The better copy is only a little larger: with bars counted as pixels, the other one would be kept.
the_copy_without_bars_is_kept() {
    [ -f "$footage" ] || skip "no shared footage"
    for colour in red blue gray; do
        rm -rf copies copies_out
        mkdir copies
        encode -ss 1 -i "$footage" -t 2 -vf scale=340:192,setsar=1 -c:v libx264 -b:v 300k -an copies/clean.mp4
        encode -ss 1 -i "$footage" -t 2 -vf "scale=320:180,setsar=1,pad=320:260:0:40:color=$colour" -c:v libx264 -b:v 300k -an copies/barred.mp4
        "$WEFT" curate --in copies --out copies_out >log 2>&1 || fail_with log curate
        [ "$(kept copies_out)" = "clean.mp4 " ] || fail "$colour bars: kept $(kept copies_out)"
    done
}
check the_copy_without_bars_is_kept
finish
