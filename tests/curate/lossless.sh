#!/bin/bash
# Clips that begin at key frames and are copied without encoding (clips.cut: key_frames). FFmpeg decodes
# each copied clip to the frames of the source, bitwise. Every frame of a video is in exactly one line.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
# Two shots of 60 and 70 frames.
video() { # NAME OPTION...
    ffmpeg -v error -nostdin -y -f lavfi -i "mandelbrot=size=192x112:rate=24:start_scale=3" -f lavfi -i "testsrc2=size=192x112:rate=24" \
        -filter_complex "[0]trim=end_frame=60[a];[1]trim=end_frame=70,setpts=PTS-STARTPTS[b];[a][b]concat=n=2:v=1${filter-}" -pix_fmt yuv420p "${@:2}" "raw/$1"
}
mkdir raw
video closed.mp4 -c:v libx264 -preset veryfast -g 24 -bf 3 -sc_threshold 0
video open.mkv -c:v libx264 -preset veryfast -g 24 -bf 3 -x264-params open-gop=1:scenecut=0
video hevc.mp4 -c:v libx265 -preset ultrafast -x265-params keyint=24:log-level=none:open-gop=1
video vp9.webm -c:v libvpx-vp9 -g 24 -deadline realtime -cpu-used 8 -b:v 300k
video single.mp4 -c:v libx264 -preset veryfast -g 1000 -sc_threshold 0 -x264-params scenecut=0
video refresh.ts -c:v libx264 -preset veryfast -g 24 -bf 0 -x264-params intra-refresh=1:scenecut=0
ffmpeg -v error -nostdin -y -i raw/closed.mp4 -c copy -metadata:s:v:0 rotate=90 raw/rotated.mp4
filter=,pad=192:160:0:24 video bars.mp4 -c:v libx264 -preset veryfast -g 24 -sc_threshold 0
curate() { # OUT OPTION...
    $WEFT curate --in raw --out "$1" --set duplicates.on=false --set quality.min_motion=0 --set clips.preset=ultrafast "${@:2}" >"$1.out" 2>log || fail_with log "curate"
}
# hashes FILE: of all decoded frames, one a line.
hashes() { ffmpeg -v error -nostdin -i "$1" -map 0:v:0 -fps_mode passthrough -f framehash -hash md5 - 2>/dev/null | sed -n 's/^0,.* //p'; }
codec() { ffprobe -v error -show_entries stream=codec_name -of csv=p=0 "$1" | tr -d ,; }
clips_are_copied() {
    local source first last clip codec
    curate cur --set clips.cut=key_frames
    python3 -S - >copied <<'PY'
import json
clips = [json.loads(line) for line in open('cur/manifest.jsonl')]
rejects = [json.loads(line) for line in open('cur/rejects.jsonl')]
for name in ['closed.mp4', 'open.mkv', 'hevc.mp4', 'vp9.webm', 'single.mp4', 'refresh.ts', 'bars.mp4', 'rotated.mp4']:
    own = [c for c in clips if c['source_video'] == name]
    spans = sorted([c['frame_span'] for c in own] + [r['frame_span'] for r in rejects if r['source'] == name])
    assert spans[0][0] == 0 and spans[-1][1] == 129 and all(a[1] + 1 == b[0] for a, b in zip(spans, spans[1:])), (name, spans)
    assert all(c['frames'] == c['frame_span'][1] - c['frame_span'][0] + 1 for c in own), own
    lossless = [c['lossless'] for c in own]
    # single: its second shot has no key frame. refresh: its marked frames refer to earlier ones. bars: clips are cropped.
    expected = {'single.mp4': [True, False], 'bars.mp4': [False, False]}.get(name, [True, True])
    if name == 'refresh.ts':
        assert lossless[0] and not lossless[-1], lossless
    else:
        assert lossless == expected, (name, lossless)
    assert all((c['width'], c['height']) == ((112, 192) if name == 'rotated.mp4' else (192, 112)) for c in own if name != 'bars.mp4'), own
    for c in own:
        a, b = c.get('trimmed_frames', [0, 0])
        lost = [r['frame_span'] for r in rejects if r['source'] == name and r['operator'] == 'key_frame']
        start, end = c['frame_span']
        assert (not a or [start - a, start - 1] in lost) and (not b or [end + 1, end + b] in lost), (c, lost)
        if c['lossless']:
            print(name, start + 1, end + 1, c['clip'], {'hevc': 'hevc', 'vp9': 'vp9'}.get(name.split('.')[0], 'h264'))
PY
    [ "$(wc -l <copied)" -ge 12 ] || fail_with copied "copied clips"
    while read -r source first last clip codec; do
        [ "$(codec "cur/$clip")" = "$codec" ] || fail "$clip is $(codec "cur/$clip")"
        hashes "raw/$source" | sed -n "$first,${last}p" >expected
        hashes "cur/$clip" >actual
        cmp expected actual || fail "$clip has other frames than $source"
    done <copied
}
check clips_are_copied
# A long shot is split at key frames, unless a clip would be longer than clips.max_seconds.
long_shots_are_split() {
    curate long --set clips.cut=key_frames --set clips.max_seconds=1.3
    python3 -S - <<'PY'
import json
clips = [json.loads(line) for line in open('long/manifest.jsonl')]
spans = [(c['source_video'], c['frame_span'], c['seconds']) for c in clips]
assert all(c['seconds'] <= 1.3 + 1e-3 for c in clips), spans
assert any(c['lossless'] for c in clips), spans
PY
}
check long_shots_are_split
# A second run writes nothing, and another crop or size needs an encoder.
settings_decide_about_copies() {
    needs clips_are_copied
    local before
    before=$(cd cur && stat -c '%n %Y %i' clips/* && cat manifest.jsonl)
    curate cur --set clips.cut=key_frames
    [ "$before" = "$(cd cur && stat -c '%n %Y %i' clips/* && cat manifest.jsonl)" ] || fail "the second run wrote clips again"
    curate cur --set clips.cut=key_frames --set clips.max_side=96
    python3 -S -c 'import json; c = [json.loads(x) for x in open("cur/manifest.jsonl")]; assert c and all(x["lossless"] is False and x["width"] <= 96 for x in c), c'
    curate cur --set clips.cut=key_frames --set clips.crop_borders=false
    python3 -S -c 'import json; c = [json.loads(x) for x in open("cur/manifest.jsonl") if "bars" in x]; assert len(c) == 2 and all(x["lossless"] and x["height"] == 160 for x in c), c'
    expect_error config-changed -- $WEFT curate --in raw --out cur --set duplicates.on=false
    expect_error config-conflict key=clips.cut -- $WEFT curate --in raw --out other --set clips.cut=key_frames --set clips.sharpest_within=1
}
check settings_decide_about_copies
# Shards have all copied clips and count all of their frames.
copied_clips_are_shards() {
    needs clips_are_copied
    rm -rf two && curate two --set clips.cut=key_frames
    $WEFT shard --in two --out shards --set heldout=0 >shard.log 2>&1 || fail_with shard.log "shard"
    python3 -S - <<'PY'
import json
clips = [json.loads(line) for line in open('two/manifest.jsonl')]
index = json.load(open('shards/index.json'))
assert index['dropped'] == [] and len(clips) >= 12, index
assert sum(s['frames'] for s in index['shards']) == sum(c['frames'] for c in clips), index
PY
}
check copied_clips_are_shards
# A GPU encoder makes clips of its codec; without the GPU, the error names the key, the encoder and what is missing.
hardware_encoders_work_or_are_refused() {
    local encoder codec
    for encoder in {h264,hevc,av1}_{nvenc,vaapi,qsv}; do
        if "$WEFT" curate --in raw --out "$encoder" --set clips.encoder=$encoder --set quality.min_motion=0 >out.log 2>log; then
            codec=${encoder%_*}
            [ "$(codec "$(find "$encoder/clips" -name '*.mp4' | head -n 1)")" = "$codec" ] || fail "$encoder wrote another codec"
        else
            has_message log video-encoder level=error key=clips.encoder value=$encoder text~=$encoder || fail_with log "$encoder"
            [ ! -e "$encoder/manifest.jsonl" ] || fail "clips without their encoder"
        fi
    done
}
check hardware_encoders_work_or_are_refused
finish
