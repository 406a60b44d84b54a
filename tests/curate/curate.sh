#!/bin/bash
# `weft curate`: accounting of all files, captions, duplicates, black bars, damaged files, changed
# settings, and resuming after a kill.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
source "$SRC/tests/signal_at.sh"
ff() { ffmpeg -v error -nostdin -y "$@"; }
refused() { # ID [FIELD=VALUE...] -- COMMAND...: the command fails with this message
    take_message "$@"
    set -- "${rest[@]}"
    ! "$@" >/dev/null 2>error || fail "not refused: $*"
    has_message error "${wanted[@]}" || fail "$*: another message than expected"
}
no_temporaries() { [ -z "$(find "$1" -name '*.tmp.*')" ] || { find "$1" -name '*.tmp.*'; exit 1; }; }
$WEFT synth --out set --shots 24 --seed 3 --held-out-clips 0 >/dev/null 2>&1
mkdir -p raw/deep
cp set/train/* raw/
# Two copies, a rescaled one, one with black bars, a frozen one, damaged videos, and other files.
cp raw/v0000.mp4 raw/deep/copy.bin
ff -f lavfi -i testsrc2=size=320x180:rate=24 -t 2 -pix_fmt yuv420p -crf 12 raw/big.mp4
ff -i raw/big.mp4 -vf scale=160:90 -crf 24 raw/small.mp4
ff -f lavfi -i mandelbrot=size=320x136:rate=24:start_x=-1.25:start_y=0.05:start_scale=0.5 -t 2 -vf pad=320:180:0:22:black -pix_fmt yuv420p -crf 14 raw/bars.mp4
ff -f lavfi -i smptebars=size=320x180:rate=24 -t 2 -pix_fmt yuv420p raw/frozen.mp4
: >raw/zero.mp4
head -c 3000 raw/big.mp4 >raw/cut.mp4
echo "not a video" >raw/text.mp4
echo "# notes" >raw/notes.md
ff -f lavfi -i sine=duration=1 raw/sound.mp4
# Names that are not UTF-8: of a video, and of a file that is not a video.
ff -i set/train/s0001.mp4 -vf hue=h=150 raw/$'\xe9t\xe9.mp4'
echo "an odd name" >raw/$'\xe9t\xe9.txt'
echo "no video either" >raw/$'no\xff.mp4'
# Captions without a clip, a second video stream, and a truncated file.
echo "a lost caption" >raw/frozne.txt
echo '{"caption": "unfinished' >raw/small.json
printf 'caf\xe9' >raw/bars.txt
ff -f lavfi -i cellauto=size=320x180:rate=24:rule=110:seed=5 -i raw/big.mp4 -t 2 -map 0 -map 1 -pix_fmt yuv420p raw/two.mkv
ff -f lavfi -i mandelbrot=size=320x180:rate=24 -t 6 -c:v libvpx-vp9 -b:v 300k -deadline realtime -cpu-used 8 -g 12 ends.webm
head -c $(($(stat -c %s ends.webm) / 2)) ends.webm >raw/ends.webm

$WEFT curate --in raw --out a --set workers=2 >a.txt 2>a.log || { cat a.log; exit 1; }
cat a.txt
every_file_is_accounted_for() {
    python3 -S - <<'EOF'
import json, os
lines = lambda n: [json.loads(l) for l in open(n)]
s, m, r = json.load(open('a/summary.json')), lines('a/manifest.jsonl'), lines('a/rejects.jsonl')
files = sum(len(f) for _, _, f in os.walk('raw'))
assert s['files'] == files == s['videos'] + s['sidecars'] + s['other_files'], (s, files)
assert s['shots'] == len(m) + s['shots_rejected'] and len(m) == s['clips']
gaps = [x for x in r if x['operator'] == 'transition']
notes = [x for x in r if x['operator'] in ('truncated', 'stream', 'sidecar')]
assert len(r) == s['videos_rejected'] + s['other_files'] + s['shots_rejected'] + len(gaps) + len(notes), s
assert all({'operator', 'value', 'threshold', 'reason', 'source'} <= set(x) for x in r)
why = {}
for x in r:
    why.setdefault(x['source'], []).append((x['operator'], x['reason']))
assert 'empty' in why['zero.mp4'][0][1] and why['zero.mp4'][0][0] == 'decode'
for name in ('cut.mp4', 'text.mp4', 'sound.mp4'):
    assert why[name][0][0] == 'decode' and 'raw/' not in why[name][0][1], (name, why[name])
assert why['notes.md'][0][0] == 'type'
assert why['deep/copy.bin'] == [('duplicate', 'the same bytes as v0000.mp4')], why
assert why['small.mp4'][0][0] == 'duplicate' and 'big.mp4' in why['small.mp4'][0][1], why['small.mp4']
assert why['frozen.mp4'][0][0] == 'motion', why['frozen.mp4']
assert [x['source'] for x in notes if x['operator'] == 'sidecar'] == ['bars.txt', 'frozne.txt', 'small.json'], notes
assert s['sidecars_unused'] == 3 and why['frozne.txt'] == [('sidecar', 'no video of this name next to it')] and 'UTF-8' in why['bars.txt'][0][1]
assert [x['source'] for x in notes if x['operator'] == 'stream'] == ['two.mkv'], notes
assert '%E9t%E9.mp4' in {x['source_video'] for x in m} and why['no%FF.mp4'][0][0] == 'decode', why
cut_off, = [x for x in notes if x['operator'] == 'truncated']
assert cut_off['source'] == 'ends.webm' and 1 < cut_off['duration_span'][0] < 5 and abs(cut_off['duration_span'][1] - 6) < 0.1, cut_off
by = {}
for x in m:
    by.setdefault(x['source_video'], []).append(x)
    assert os.path.exists('a/' + x['clip']) and json.load(open('a/metas/%s.json' % x['id']))['id'] == x['id']
    assert x['frame_span'][1] - x['frame_span'][0] + 1 == x['num_frames'] == x['frames'] and x['seconds'] > 0 and x['fps'] > 0
    assert x['span_uuid'] and x['duration_span'][1] > x['duration_span'][0] and x['windows'][0]['end_frame'] == x['num_frames']
bars = by['bars.mp4'][0]
assert bars['width'] == 320 and 126 <= bars['height'] <= 136, bars
assert not any(x['operator'] == 'duplicate' for x in r if x['source'][0] in 'vs' and x['source'][1].isdigit() and 'frame_span' in x), 'different scenes taken for one'
# The captions of shots are those of the set for these frames.
for name, clips in by.items():
    side = 'raw/' + name[:-4]
    if name == 'bars.mp4':
        assert 'caption' not in clips[0]
    elif os.path.exists(side + '.txt'):
        assert clips[0]['caption'] == open(side + '.txt').read()
    elif name == '%E9t%E9.mp4':
        assert clips[0]['caption'] == 'an odd name', clips
    elif name.startswith('v'):
        shots = json.load(open(side + '.json'))['shots']
        for c in clips:
            a, b = c['frame_span']
            best = max(shots, key=lambda s: min(b, s['end']) - max(a, s['start']))
            assert c['caption'] == best['caption'], (c, best)
assert sum('caption' in x for x in m) >= 18
EOF
    [ "$(ls a/clips | wc -l)" = "$(wc -l <a/manifest.jsonl)" ]
    no_temporaries a
}
check every_file_is_accounted_for

# Killed at records, in the middle of clips and after clips, then run to the end: the same folder as
# that of an uninterrupted run.
a_killed_run_is_completed() {
    for at in 'rename 1 *b/state/*.json' 'rename 3 *b/state/*.json' 'rename 6 *b/state/*.json' 'write 2 *b/clips/*.tmp.*' 'rename 2 *b/clips/*.mp4' 'rename 5 *b/clips/*.mp4'; do
        read -r event count pattern <<<"$at"
        status=0
        SIGNAL_ON=$event SIGNAL_COUNT=$count SIGNAL_TO=pid.0 signal_at KILL "$pattern" bash "$with_pid" "" $WEFT curate --in raw --out b --set workers=2 >/dev/null 2>&1 || status=$?
        [ $status = 137 ] || { echo "not killed at $at: status $status"; exit 1; }
        ls b/state/*.json >/dev/null 2>&1 && stat -c '%n %Y %i' b/state/*.json | sort >>states
    done
    $WEFT curate --in raw --out b --set workers=2 >b.txt 2>&1
    diff -r -x state a b
    # Finished work is not repeated: each record was written once.
    stat -c '%n %Y %i' b/state/*.json | sort >>states
    [ "$(sort -u states | cut -d' ' -f1 | sort | uniq -d | wc -l)" = 0 ] || { echo "records were written twice"; sort -u states; exit 1; }
    stat -c '%n %Y %i' b/clips/* >before
    $WEFT curate --in raw --out b --set workers=1 >/dev/null 2>&1
    stat -c '%n %Y %i' b/clips/* | diff before -
}
check a_killed_run_is_completed

# If a worker is ended by a signal or crashes, its video is rejected with the reason. The next run
# processes the video again, unless the worker crashed.
a_worker_that_ends_costs_its_video() {
    signal_worker() { # SIGNAL OUT
        rm -rf $2
        SIGNAL_ON=write signal_at $1 'pipe:*' $WEFT curate --in raw --out $2 --set workers=1 >worker.txt 2>&1 # the first worker, when it first writes to its pipe
    }
    signal_worker TERM d
    grep -q 'its process was ended from outside (signal 15)' d/rejects.jsonl || { cat d/rejects.jsonl; exit 1; }
    $WEFT curate --in raw --out d --set workers=2 >/dev/null 2>&1
    diff -r -x state a d
    signal_worker SEGV d
    grep -q 'the decoder crashed (signal 11)' d/rejects.jsonl || { cat d/rejects.jsonl; exit 1; }
    cp d/rejects.jsonl crashed
    $WEFT curate --in raw --out d --set workers=2 >/dev/null 2>&1
    cmp d/rejects.jsonl crashed
}
check a_worker_that_ends_costs_its_video

# Errors name the remedy.
refusals() {
    exec 8>b/state/lock && flock 8 # as a first run would hold the lock
    touch b/state/x.json.tmp.1
    refused folder-locked file=b -- $WEFT curate --in raw --out b
    [ -e b/state/x.json.tmp.1 ] || { echo "the second run removed a temporary file of the first"; exit 1; }
    exec 8>&-
    refused config-changed file=b text~=shots.trim -- $WEFT curate --in raw --out b --set shots.trim=3
    refused footage-not-found file=nowhere -- $WEFT curate --in nowhere --out c
    refused '*' text~=crf -- $WEFT curate --in raw --out c --set clips.crff=30
    if [ "$(id -u)" != 0 ]; then
        mkdir locked && chmod 500 locked
        refused '*' text~=locked -- $WEFT curate --in raw --out locked/x
    fi
}
check refusals
# A full disk ends the run with an error that names the file, and leaves no partly written clip.
a_full_disk_stops_the_run() {
    if [ "$(id -u)" = 0 ] && mkdir tiny && mount -t tmpfs -o size=300k tmpfs tiny 2>/dev/null; then
        trap 'umount tiny' EXIT
        refused disk-full -- $WEFT curate --in raw --out tiny/x
        no_temporaries tiny
        for clip in tiny/x/clips/*.mp4; do
            [ ! -e "$clip" ] || ffprobe -v error "$clip"
        done
    fi
}
check a_full_disk_stops_the_run
finish
