#!/bin/bash
# Captions go from files next to the source videos into data shards. The number of clips without a
# caption is printed, and files that are not read are listed with the reason.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
fail_run() { fail_with log "$*"; }
mkdir raw
for n in 1 2 3; do
    ffmpeg -v error -nostdin -y -f lavfi -i "mandelbrot=size=320x192:rate=24:start_scale=$n" -t 1 -c:v libx264 -preset veryfast -pix_fmt yuv420p raw/v$n.mp4
done
echo "a fractal" >raw/v1.txt
echo "WEBVTT" >raw/v2.vtt
echo "file,caption" >raw/captions.csv
captions_are_counted() {
    $WEFT curate --in raw --out curated --set duplicates.on=false >log 2>&1 || fail_run "curate"
    grep -q '"clips_without_caption": 2' curated/summary.json || fail_run "summary.json does not count clips without a caption"
    [ "$(grep -cE '"operator": ?"type"' curated/rejects.jsonl)" = 2 ] || fail_run "the rejects are not counted"
    [ "$(grep -c 'VIDEO.txt or VIDEO.json' curated/rejects.jsonl)" = 2 ] || fail_run "caption files that are not read have no reason"
}
check captions_are_counted
shards_count_captions() {
    needs captions_are_counted
    for run in first again; do
        $WEFT shard --in curated --out shards >summary.txt 2>log || fail_run "shard"
        grep -q "without a caption: 2 of 3 clips" summary.txt || fail_run "shard, $run: no count of clips without a caption"
    done
}
check shards_count_captions
# A folder without a video and an unknown preset are reported.
bad_input_is_reported() {
    mkdir none && echo x >none/notes.md
    $WEFT curate --in none --out nothing >log 2>&1 || fail_run "a folder without videos"
    has_message log footage-skipped || fail_run "a folder without videos is not reported"
    $WEFT curate --in raw --out other --set clips.preset=quick >log 2>&1 && fail_run "an unknown preset is accepted"
    has_message log config-choice key=*clips.preset "text~='quick'" text~=veryfast || fail_run "the presets are not listed"
}
check bad_input_is_reported
finish
