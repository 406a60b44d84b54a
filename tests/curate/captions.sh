#!/bin/bash
# Captions on their way from files beside the footage into shards: how many clips have none is printed, files that are
# not read are listed with the reason.
set -eu
fail() { echo "$*"; cat log; exit 1; }
mkdir raw
for n in 1 2 3; do
    ffmpeg -v error -nostdin -y -f lavfi -i "mandelbrot=size=320x192:rate=24:start_scale=$n" -t 1 -c:v libx264 -preset veryfast -pix_fmt yuv420p raw/v$n.mp4
done
echo "a fractal" >raw/v1.txt
echo "WEBVTT" >raw/v2.vtt
echo "file,caption" >raw/captions.csv
$WEFT curate --in raw --out curated --set duplicates.on=false >log 2>&1 || fail "curate"
grep -qE "without caption +2 " log || fail "curate does not count clips without a caption"
grep -q '"clips_without_caption": 2' curated/summary.json || fail "nor does summary.json"
grep -qE "^rejects.jsonl +type 2$" log || fail "the rejects are not counted"
[ "$(grep -c 'VIDEO.txt or VIDEO.json' curated/rejects.jsonl)" = 2 ] || fail "caption files that are not read"
for run in first again; do
    $WEFT shard --in curated --out shards >log 2>&1 || fail "shard"
    grep -q "without a caption: 2 of 3 clips" log || fail "shard, $run: no count of clips without a caption"
done
# a folder without a video, and a preset that is none, are reported
mkdir none && echo x >none/notes.md
$WEFT curate --in none --out nothing >log 2>&1 || fail "a folder without videos"
grep -q "no video in it" log || fail "no warning of a folder without videos"
$WEFT curate --in raw --out other --set clips.preset=quick >log 2>&1 && fail "a preset that does not exist"
grep -q "clips.preset: 'quick'.*veryfast" log || fail "the presets are not listed"
exit 0
