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
printf 'WEBVTT\n\n00:00.000 --> 00:00.600\n<i>two</i>\n\n00:00.400 --> 00:04.000\nlate\n\n00:09.000 --> 00:10.000\nnever\n' >raw/v2.vtt
printf 'caption,file\r\n"a ""quoted"" name, twice",v3.mp4\r\nnobody,gone.mp4\r\n' >raw/captions.csv
echo "WEBVTT" >raw/v9.vtt
echo x >raw/v1.srt
captions_are_counted() {
    $WEFT curate --in raw --out curated --set duplicates.on=false >log 2>&1 || fail_run "curate"
    grep -q '"clips_without_caption": 0' curated/summary.json || fail_run "summary.json does not count clips without a caption"
    [ "$(grep -cE '"operator": ?"type"' curated/rejects.jsonl)" = 1 ] || fail_run "the rejects are not counted"
    [ "$(grep -c 'VIDEO.vtt or VIDEO.json' curated/rejects.jsonl)" = 1 ] || fail_run "caption files that are not read have no reason"
    [ "$(grep -cE '"operator": ?"sidecar"' curated/rejects.jsonl)" = 2 ] || fail_run "caption files without a video are not listed"
    grep -q '1 of 2 rows name no video, the first in line 3: gone.mp4' curated/rejects.jsonl || fail_run "a row without a video is not named"
    grep -q '"caption": "two late"' curated/metas/v2-*.json || fail_run "the cues of a clip are not joined"
    grep -q '"caption": "a \\"quoted\\" name, twice"' curated/metas/v3-*.json || fail_run "the caption of a row is not read"
}
check captions_are_counted
shards_count_captions() {
    needs captions_are_counted
    for run in first again; do
        $WEFT shard --in curated --out shards >summary.txt 2>log || fail_run "shard"
        ! grep -q "without a caption" summary.txt || fail_run "shard, $run: clips with a caption are counted"
    done
    rm raw/v2.vtt raw/captions.csv
    $WEFT curate --in raw --out curated --set duplicates.on=false >log 2>&1 || fail_run "curate without captions"
    for run in first again; do
        $WEFT shard --in curated --out shards >summary.txt 2>log || fail_run "shard"
        grep -q "without a caption: 2 of 3 clips" summary.txt || fail_run "shard, $run: no count of clips without a caption"
    done
    printf 'file,caption\nclips/%s,of the table\n' "$(basename curated/clips/v2-*.mp4)" >curated/captions.csv
    $WEFT shard --in curated --out shards >summary.txt 2>log || fail_run "shard with a table"
    grep -q "without a caption: 1 of 3 clips" summary.txt || fail_run "the captions of a table are not used"
    [ "$(for tar in shards/*.tar; do tar xOf "$tar" --wildcards 'v2-*.txt' 2>/dev/null; done)" = "of the table" ] || fail_run "the caption of a row is not in the shard"
}
check shards_count_captions
# A folder without a video and an unknown preset are reported.
bad_input_is_reported() {
    mkdir none && echo x >none/notes.md
    $WEFT curate --in none --out nothing >log 2>&1 || fail_run "a folder without videos"
    has_message log footage-skipped || fail_run "a folder without videos is not reported"
    $WEFT curate --in raw --out other --set clips.preset=quick >log 2>&1 && fail_run "an unknown preset is accepted"
    has_message log config-value key=*clips.preset "text~='quick'" text~=veryfast || fail_run "the presets are not listed"
}
check bad_input_is_reported
finish
