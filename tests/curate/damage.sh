#!/bin/bash
# Damaged frames and frames predicted from them are in no clip; the rest of the source video is. A
# timestamp that goes back splits a shot.
set -e
. "$SRC/tests/check.sh"
mkdir raw joined
ffmpeg -v error -nostdin -f lavfi -i "testsrc2=s=320x240:r=24" -t 10 -colorspace bt709 -color_primaries bt709 -color_trc bt709 -c:v libx264 -preset veryfast -crf 18 \
    -g 24 -pix_fmt yuv420p whole.mp4
# A few bytes of noise may decode to a valid frame, which no decoder can detect. Encoders differ
# between processors, so the seed is the first one whose noise the decoder reports.
python3 -S - <<'PY'
import random, subprocess
data = bytearray(open('whole.mp4', 'rb').read())
first = data.index(b'mdat') + 4000
for k, count in enumerate((60, 1000, 20000)):
    for seed in range(k, 300, 3):
        r, copy = random.Random(seed), bytearray(data)
        at = r.randrange(first, len(data) // 2)
        copy[at:at + count] = r.randbytes(count)
        open(f'raw/noise{k}.mp4', 'wb').write(copy[:len(data)])
        if subprocess.run(['ffmpeg', '-v', 'error', '-nostdin', '-i', f'raw/noise{k}.mp4', '-f', 'null', '-'], capture_output=True).stderr:
            break
    else:
        raise SystemExit(f'no noise of {count} bytes is reported')
PY
# HEVC in Matroska: only a line of the demuxer's log reports the missing data.
ffmpeg -v error -nostdin -i whole.mp4 -c:v libx265 -x265-params log-level=none:keyint=24 -crf 18 raw/hole.mkv
python3 -S - <<'PY'
data = bytearray(open('raw/hole.mkv', 'rb').read())
at = data.index(b'\x1f\x43\xb6\x75', len(data) // 3) - 2000  # before the start of a cluster
data[at:at + 4000] = bytes(4000)
open('raw/hole.mkv', 'wb').write(data)
PY
damaged_frames_are_in_no_clip() {
    $WEFT curate --in raw --out out --set workers=2 --set duplicates.on=false --set clips.min_seconds=0.5 --set clips.min_frames=8 \
        --set quality.max_motion=9 --set quality.min_motion=0 --set quality.min_sharpness=0 >/dev/null 2>log
    ffmpeg -v error -nostdin -i whole.mp4 -f rawvideo -pix_fmt gray whole.gray
    python3 -S - <<'PY'
import json, math, subprocess
whole, size = open('whole.gray', 'rb').read(), 320 * 240
lines = [json.loads(l) for l in open('out/manifest.jsonl')]
rejects = [json.loads(l) for l in open('out/rejects.jsonl')]
kept, bad = {}, []
for line in lines:
    clip = subprocess.run(['ffmpeg', '-v', 'error', '-nostdin', '-i', 'out/' + line['clip'], '-f', 'rawvideo', '-pix_fmt', 'gray', '-'],
                          capture_output=True).stdout
    start = round(line['duration_span'][0] * 24)  # missing frames are not counted
    kept[line['source_video']] = kept.get(line['source_video'], 0) + len(clip) // size
    for i in range(len(clip) // size):
        now, then = clip[i * size:(i + 1) * size:7], whole[(start + i) * size:(start + i + 1) * size:7]
        error = sum((a - b) ** 2 for a, b in zip(now, then)) / len(now)
        if error > 255 ** 2 / 1000:
            bad.append((line['source_video'], start + i, 10 * math.log10(255 ** 2 / error)))
print(kept, 'bad', bad[:3], bad[-3:], len(bad))
assert len(kept) == 4 and all(n > 150 for n in kept.values()), kept
assert not bad
assert any(r.get('operator') == 'damaged' and 'frame_span' in r for r in rejects)
# a hole that ends before a keyframe, after which nothing is damaged, has its own line
missing = [r for r in rejects if r.get('operator') == 'missing']
print(missing)
assert any(r['source'] == 'hole.mkv' and 0 < r['duration_span'][0] <= r['duration_span'][1] for r in missing)
PY
}
check damaged_frames_are_in_no_clip
# A frame that the decoder conceals is reported with any number of threads, in every run.
mkdir patched
ffmpeg -v error -nostdin -f lavfi -i "testsrc2=s=320x240:r=10" -t 4 -colorspace bt709 -color_primaries bt709 -color_trc bt709 -c:v libx264 -preset medium \
    -crf 12 -g 250 -pix_fmt yuv420p patched.mp4
python3 -S - <<'PY'
import random
data, r = open('patched.mp4', 'rb').read(), random.Random(6)
copy = bytearray(data)
at = r.randrange(data.index(b'mdat') + len(data) // 3, len(data) * 3 // 4)
count = r.choice([60, 300, 800])
copy[at:at + count] = bytes(count) if r.random() < .5 else r.randbytes(count)
open('patched/one.mp4', 'wb').write(copy[:len(data)])
PY
damage_does_not_depend_on_threads() {
    for run in 1 2 3 4; do
        $WEFT curate --in patched --out patched.$run --set workers=$((run > 1 ? 3 : 1)) --set duplicates.on=false --set quality.max_motion=9 >/dev/null 2>>log
        cmp patched.1/rejects.jsonl patched.$run/rejects.jsonl
    done
    grep -q '"operator":"damaged"' patched.1/rejects.jsonl || { cat patched.1/rejects.jsonl; exit 1; }
}
check damage_does_not_depend_on_threads
# two transport streams of five seconds, concatenated as files
time_that_goes_back_splits_a_shot() {
    ffmpeg -v error -nostdin -i whole.mp4 -t 5 -c copy -bsf:v h264_mp4toannexb a.ts
    cat a.ts a.ts >joined/twice.ts
    $WEFT curate --in joined --out two --set workers=1 --set duplicates.on=false --set quality.max_motion=9 --set quality.min_sharpness=0 >/dev/null 2>>log
    python3 -S - <<'PY'
import json
lines = [json.loads(l) for l in open('two/manifest.jsonl')]
spans = [(l['duration_span'], l['frame_span'], l['fps']) for l in lines]
print(spans)
assert len(lines) >= 2 and all(abs(fps - 24) < 0.5 for _, _, fps in spans), spans
assert 9 < sum(b - a for (a, b), _, _ in spans) < 11, spans
PY
}
check time_that_goes_back_splits_a_shot
finish
