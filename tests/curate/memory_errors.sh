#!/bin/bash
# A file that requests more memory than its worker may use is an error of that file: rejects.jsonl
# names it, and the other files of the folder become clips.
set -e
. "$SRC/tests/check.sh"
curate() { "$WEFT" curate --set stall_seconds=86400 "$@"; } # no worker counts as hung on a busy machine
fail_run() { fail_with log "$*"; }
encode() { ffmpeg -v error -nostdin -y "$@"; }
mkdir raw large
encode -f lavfi -i mandelbrot=size=320x192:rate=24 -t 3 -c:v libx264 -bf 2 -g 24 -preset veryfast -pix_fmt yuv420p raw/good.mp4
python3 -S - <<'PY'
good = open('raw/good.mp4', 'rb').read()
def craft(name, box, offset, value):  # offset from the end of the box's name
    data = bytearray(good)
    at = data.index(box) + 4 + offset
    data[at:at + 4] = value.to_bytes(4, 'big')
    open(f'raw/{name}.mp4', 'wb').write(data)
for box in (b'stts', b'ctts', b'stss', b'stsc', b'stco'):
    for value in (0x7fffffff, 0x0fffffff):
        craft(f'{box.decode()}-{value:x}', box, 4, value)
for value in (0x7fffffff, 0x0fffffff):
    craft(f'stsz-count-{value:x}', b'stsz', 8, value)
    craft(f'stsz-size-{value:x}', b'stsz', 4, value)
craft('size-of-the-picture', b'avc1', 24, 0x7fff7fff)
PY
a_crafted_file_affects_itself_only() {
    curate --in raw --out out --set duplicates.on=false >log 2>&1 || fail_run "a crafted file ends the run"
    python3 -S - <<'PY'
import json, os
clips = [json.loads(x) for x in open('out/manifest.jsonl')]
rejects = [json.loads(x) for x in open('out/rejects.jsonl')]
assert any(c['source_video'] == 'good.mp4' for c in clips), clips
assert {c['source_video'] for c in clips} | {r['source'] for r in rejects} == set(os.listdir('raw'))
memory = {r['source']: r for r in rejects if r['operator'] == 'memory'}
assert 'stts-7fffffff.mp4' in memory, sorted(memory)
for r in memory.values():
    assert r['threshold'] > 0 and 'worker_memory' in r['reason'], r
PY
}
check a_crafted_file_affects_itself_only

# ---- the limit of a worker: frames of 96 MiB, which need more than 280 MiB ----------------------
encode -f lavfi -i color=size=8192x8192:rate=24 -frames:v 6 -c:v libx264 -preset ultrafast -threads 2 large/large.mp4
cp raw/good.mp4 large
the_limit_of_a_worker_holds() { # LIMIT
    local limit=$1
    curate --in large --out "out.$limit" --set worker_memory=$limit --set video.min_seconds=0.1 >log 2>&1 || fail_run "the limit ends the run"
    grep -q '"source":"large.mp4","operator":"memory"' "out.$limit/rejects.jsonl" || { cat "out.$limit/rejects.jsonl"; fail_run "large.mp4 is not rejected with $limit"; }
    grep -q '"source_video":"good.mp4"' "out.$limit/manifest.jsonl" || fail_run "good.mp4 has no clip with $limit"
}
for limit in 60MiB 200MiB 250MiB; do check "the_limit_of_a_worker_holds_$limit" the_limit_of_a_worker_holds "$limit"; done
# With more memory, the next run in the same folder processes the video again.
more_memory_is_tried_again() {
    needs the_limit_of_a_worker_holds_250MiB
    curate --in large --out out.250MiB --set video.min_seconds=0.1 >log 2>&1 || fail_run "the second run"
    grep -q '"source":"large.mp4","frame_span":\[0,5\]' out.250MiB/rejects.jsonl || { cat out.250MiB/rejects.jsonl; fail_run "large.mp4 was not processed again"; }
}
check more_memory_is_tried_again
# An encoder without memory affects its clip only.
an_encoder_without_memory_affects_its_clip_only() {
    curate --in large --out out.20MiB --set worker_memory=20MiB >log 2>&1 || fail_run "the encoder ends the run"
    grep -q '"source":"good.mp4","operator":"memory"' out.20MiB/rejects.jsonl || { cat out.20MiB/rejects.jsonl; fail_run "good.mp4 is not rejected with 20MiB"; }
}
check an_encoder_without_memory_affects_its_clip_only
finish
