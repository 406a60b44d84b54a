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
printf 'weft' >raw/.weft-videos.index # of an earlier training on these videos
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
assert why['notes.md'][0][0] == why['.weft-videos.index'][0][0] == 'type'
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

# Two shards, one of which is killed, as jobs of Slurm: the folder of one run. Records are kept, and
# no run works on a shard or a folder that another one has. A stand-in for sbatch runs the tasks of
# an array at the same time, and a job after the one before. Words of the shell stay words.
shards_give_the_same_folder() {
    out="it's e"
    status=0
    SIGNAL_ON=rename SIGNAL_COUNT=2 SIGNAL_TO=pid.0 signal_at KILL "*$out/state/*.json" bash "$with_pid" "" $WEFT curate --in raw --out "$out" --shard 1/2 --set workers=2 >/dev/null 2>&1 || status=$?
    [ $status = 137 ] || { echo "not killed: status $status"; exit 1; }
    stat -c '%n %Y %i' "$out"/state/*.json | sort >kept
    refused curation-unfinished "file=$out" -- $WEFT curate --in raw --out "$out" --finish
    exec 8>"$out/state/shard-0-of-2.lock" && flock 8
    refused folder-locked "file=$out" -- env SLURM_ARRAY_TASK_ID=0 $WEFT curate --in raw --out "$out" --shard auto/2
    exec 8>"$out/state/lock" && flock -s 8 # as a shard has it
    refused folder-locked "file=$out" -- $WEFT curate --in raw --out "$out" --finish
    flock -u 8 && flock 8
    refused folder-locked "file=$out" -- $WEFT curate --in raw --out "$out" --shard 0/2
    exec 8>&-
    mkdir bin
    cat >bin/sbatch <<'EOF'
#!/bin/bash
echo "$*" >>submitted
[[ "$*" =~ --array=0-([0-9]+) ]] && last=${BASH_REMATCH[1]}
while [[ $1 = --* ]]; do shift; done
grep -q '^#SBATCH --time=1:00:00$' "$1" || exit 1
export SLURM_CPUS_ON_NODE=2
for i in ${last:+$(seq 0 "$last")}; do SLURM_ARRAY_TASK_ID=$i bash "$@" >"task.$i" 2>&1 & done
wait
[ -n "${last-}" ] || bash "$@" >task.last 2>&1 || { cat task.* >&2; exit 1; }
echo "$((100 + $(wc -l <submitted)));cluster"
EOF
    chmod +x bin/sbatch
    PATH=$PWD/bin:$PATH $WEFT curate --in raw --out "$out" --set clips.preset=veryfast --engine slurm \
        --shards 2 --sbatch=--time=1:00:00 --submit >e.txt 2>&1 || { cat e.txt; exit 1; }
    grep -q '^submitted 101 .* 102 .* 103' e.txt
    sed -n 2p submitted | grep -q -- '--array=0-1 --dependency=afterany:101 '
    sed -n 3p submitted | grep -v -- --array | grep -q -- '--dependency=afterany:102 '
    diff -r -x state -x slurm a "$out"
    stat -c '%n %Y %i' "$out"/state/*.json | sort | comm -13 - kept >again
    cmp again /dev/null
    no_temporaries "$out"
    refused option-conflict -- $WEFT curate --in raw --out g --engine slurm --finish
    refused option-invalid -- $WEFT curate --in raw --out g --engine ray
    refused worker-failed -- env PATH=$PWD/bin:$PATH $WEFT curate --in raw --out g --engine slurm --submit
}
check shards_give_the_same_folder

# Workers under tools/ray_curate.py: the folder of one run. A stand-in for Ray runs one task at a
# time, and its first actor dies in a task.
workers_give_the_same_folder() {
    mkdir -p h stand-in
    cp -r a/state h/state
    rm h/state/big-*.json h/state/bars-*.json h/state/ends-*.parts
    cat >stand-in/ray.py <<'EOF'
import sys, types
class RayActorError(Exception): pass
class RayTaskError(Exception): pass
exceptions = sys.modules["ray.exceptions"] = types.ModuleType("ray.exceptions")
exceptions.RayActorError, exceptions.RayTaskError = RayActorError, RayTaskError
deaths = [True]
class Future:
    def __init__(self, result): self.result = result
class Actor:
    def __init__(self, cls, *arguments):
        self.cls, self.arguments, self.object, self.run = cls, arguments, cls(*arguments), self
        self.stop = types.SimpleNamespace(remote=lambda: Future(self.object.stop()))
        self.ready = types.SimpleNamespace(remote=lambda: Future(self.object.ready()))
    def remote(self, task):
        if task["task"] == "analyse" and deaths:
            deaths.pop()
            self.object.stop() # as its pipe closes
            self.object = self.cls(*self.arguments)
            return RayActorError("the actor died")
        return Future(self.object.run(task))
def remote(**options):
    assert options == {"num_cpus": 1, "max_restarts": -1, "max_task_retries": 0}, options
    return lambda cls: types.SimpleNamespace(remote=lambda *a: Actor(cls, *a))
def wait(futures, num_returns): return futures[:1], futures[1:]
def get(future):
    if isinstance(future, Exception): raise future
    return future.result
def init(**options): pass
def cluster_resources(): return {"CPU": 2.0}
def shutdown(): pass
EOF
    PYTHONPATH=stand-in python3 -S "$SRC/tools/ray_curate.py" --weft $WEFT --in raw --out h >h.txt 2>&1 || { cat h.txt; exit 1; }
    grep -q 'the actor died' h.txt
    [ "$(grep -c '^analyse ' h.txt)" = 3 ] || { cat h.txt; exit 1; }
    diff -r -x state a h
    printf '%s\n' 'no JSON' '{"task": "dance"}' '{"task": "write", "video": "none.mp4"}' '[]' |
        $WEFT curate --in raw --out h --worker >answers 2>/dev/null
    printf '%s\n' task-invalid task-invalid footage-not-found task-invalid >expected
    python3 -S -c 'import json; [print(json.loads(l)["error"]) for l in open("answers")]' | cmp - expected
}
check workers_give_the_same_folder

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
