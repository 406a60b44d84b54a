#!/bin/bash
# Operators of the config: expressions, measures and processes. Which shots pass does not depend on
# the order; a process that fails leaves a reason for each shot, and the next run repairs it.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
mkdir raw
encode() { ffmpeg -v error -nostdin -y -f lavfi -i "$1" -t 1 -c:v libx264 -preset ultrafast -pix_fmt yuv420p "raw/$2.mp4"; }
encode "mandelbrot=size=160x96:rate=24" a
encode "testsrc2=size=160x96:rate=24,eq=brightness=0.3" b
encode "mandelbrot=size=320x192:rate=24:start_scale=2" c
encode "testsrc2=size=320x192:rate=24,eq=brightness=-0.3" d
cat >scorer.py <<'PY'
# Mean of all samples as the score. FAIL: what to do with the shots of b.mp4.
import json, os, sys, time
with open(os.environ["SEEN"] + ".starts", "a") as starts:
    starts.write("%d\n" % os.getpid())
while line := sys.stdin.buffer.readline():
    request = json.loads(line)
    bytes = sys.stdin.buffer.read(request["frames"] * request["width"] * request["height"] * 3)
    assert len(request["times"]) == request["frames"] and len(bytes) > 0
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(request["source"] + "\n")
    fail = os.environ.get("FAIL") if request["source"] == "b.mp4" else None
    while "HOLD" in os.environ and not os.path.exists(os.environ["HOLD"]):
        time.sleep(0.02)
    if fail == "crash":
        sys.exit("no memory on the device")
    print("oops" if fail == "garbage" else json.dumps({"request": request["request"], "score": sum(bytes) / len(bytes)}), flush=True)
PY
cat >config.yaml <<YAML
clips: {preset: ultrafast}
duplicates: {on: false}
workers: 2
operators:
  - {name: bright, process: [python3, -S, $PWD/scorer.py], frames: 2, side: 48, max: 150}
  - {name: blur, measure: blur, frames: 1, max: 60}
  - {name: large, expression: "height >= 150 or bright < 0"}
YAML
curate() { SEEN=$PWD/seen $WEFT curate config.yaml --in raw "$@"; }
order_does_not_change_the_result() {
    rm -f seen
    curate --out price >out 2>log || fail_with log "curate"
    [ "$(sort -u seen | tr '\n' ' ')" = "a.mp4 b.mp4 c.mp4 d.mp4 " ] || fail "the sample is not complete: $(cat seen)"
    has_message log operator-order value=4
    rm -f seen
    curate --out fixed --report page.html --set operator_order=fixed >>out 2>log || fail_with log "curate"
    python3 -S - config.yaml >reversed.yaml <<'PY'
import sys
lines = open(sys.argv[1]).read().splitlines()
print("\n".join(lines[:-3] + [lines[-2], lines[-3], lines[-1]]))
PY
    SEEN=$PWD/unused $WEFT curate reversed.yaml --in raw --out reversed --set operator_order=fixed >>out 2>log || fail_with log "curate"
    for word in motion sharpness bright blur '<svg' Funnel 'Rejected by bright' 'image/jpeg;base64'; do grep -q -e "$word" page.html || fail "the page has no $word"; done
    for other in fixed reversed; do
        diff -r price/clips $other/clips && diff -r price/metas $other/metas && diff price/manifest.jsonl $other/manifest.jsonl || fail "$other differs"
    done
    python3 -S - <<'PY'
import json
for out in 'price', 'fixed', 'reversed':
    clips = [json.loads(x) for x in open(out + '/manifest.jsonl')]
    rejects = [json.loads(x) for x in open(out + '/rejects.jsonl')]
    table = json.load(open(out + '/operators.json'))
    rows = table['operators']
    assert {c['source_video'] for c in clips} <= {'c.mp4', 'd.mp4'} and clips, clips
    assert all(set(c['operator_scores']) == {'bright', 'blur', 'large'} for c in clips)
    assert rows[0]['input'] == table['shots'] and rows[-1]['output'] == len(clips), table
    for before, after in zip(rows, rows[1:]):
        assert before['output'] == after['input'], rows
    for row in rows:
        named = [r for r in rejects if r['operator'] == row['name']]
        assert row['input'] - row['output'] == len(named), (row, rejects)
        assert row['failed'] == 0
order = json.load(open('price/state/operators.json'))
price = [p['cost'] / (1 - p['pass']) for p in (order['prices'][n] for n in order['order'])]
names = order['order']
assert names.index('bright') < names.index('large'), names  # `large` needs its score
alone = [p for n, p in zip(names, price) if n != 'large']
assert alone == sorted(alone), (names, price)
assert [r['name'] for r in json.load(open('fixed/operators.json'))['operators']] == ['bright', 'blur', 'large']
PY
}
check order_does_not_change_the_result
# A worker scores batches of videos with records, as tasks of their own. Its processes stay from task to
# task; the child process that owns them is replaced when it was killed.
a_worker_scores_batches() {
    needs order_does_not_change_the_result
    cp -r price batch
    rm -f batch/state/*.scores.json batch/state/operators.json seen.starts
    python3 -S - "$WEFT" <<'PY'
import json, os, signal, subprocess, sys, time
worker = subprocess.Popen([sys.argv[1], "curate", "config.yaml", "--in", "raw", "--out", "batch", "--worker", "--set", "workers=1"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open("log", "w"), text=True, env=dict(os.environ, SEEN=os.path.abspath("seen")))
def ask(**task):
    worker.stdin.write(json.dumps(task) + "\n")
    worker.stdin.flush()
    return json.loads(worker.stdout.readline())
def children():
    return [int(x) for x in open(f"/proc/{worker.pid}/task/{worker.pid}/children").read().split()]
answers = [ask(task="list"), ask(task="analyse", video="a.mp4")]
scored = [ask(task="score", videos=v) for v in (["a.mp4"], ["b.mp4", "c.mp4"])]
assert all(s["done"] for s in scored) and [s["loaded"] for s in scored] == [1, 0], scored
child, = children()
os.kill(child, signal.SIGKILL)
while open(f"/proc/{child}/stat").read().split()[2] != "Z":
    time.sleep(0.01)
last = ask(task="score", videos=["d.mp4"])
assert last["done"] and last["loaded"] == 1 and len(open("seen.starts").readlines()) == 2, last
answers += [last, ask(task="list"), ask(task="score"), ask(task="score", videos=["none.mp4"])]
child, = children()
worker.stdin.close()
assert worker.wait() == 0 and not os.path.exists(f"/proc/{child}"), "a child outlives the worker"
with open("answers", "w") as file:
    file.writelines(json.dumps(a) + "\n" for a in answers)
PY
    python3 -S - <<'PY'
import json
first, unscored, scored, second, *wrong = map(json.loads, open("answers"))
assert first["stages"] == ["analyse", "score"] and sorted(first["videos"]) == ["a.mp4", "b.mp4", "c.mp4", "d.mp4"], first
assert unscored["done"] and unscored["unscored"], unscored
assert scored["done"] and second["videos"] == [], (scored, second)
assert [w["error"] for w in wrong] == ["task-invalid", "footage-not-found"], wrong
PY
    curate --out batch --finish >out 2>log || fail_with log "finish"
    diff price/manifest.jsonl batch/manifest.jsonl && diff -r price/clips batch/clips && diff -r price/metas batch/metas
}
check a_worker_scores_batches
# The second run asks no operator, and keeps the measured order. Other limits need no scores.
scores_are_kept() {
    needs order_does_not_change_the_result
    cp price/state/operators.json before.json
    rm -f seen
    curate --out price >out 2>log || fail_with log "curate"
    [ ! -e seen ] || fail "shots were scored again: $(cat seen)"
    diff before.json price/state/operators.json && diff price/manifest.jsonl fixed/manifest.jsonl
    curate --out price --set operators.0.max=1 >out 2>log || fail_with log "curate"
    [ ! -e seen ] && [ ! -s price/manifest.jsonl ] || fail "a changed limit is not applied to the recorded scores"
    $WEFT curate --in raw --out price --set clips.preset=ultrafast --set duplicates.on=false >out 2>log
    [ ! -e price/operators.json ] && ! grep -q operator_scores price/manifest.jsonl || fail "operators of an earlier config have an effect"
}
check scores_are_kept
# Half a record, as after a crash of the machine: the video is analysed and scored again.
damaged_records_are_rebuilt() {
    needs order_does_not_change_the_result
    cp -r fixed torn
    for name in torn/state/a-*.json torn/state/b-*.json torn/state/c-*.scores.json torn/state/operators.json; do
        [ ! -e "$name" ] || truncate -s 60 "$name"
    done
    rm -f seen
    curate --out torn --set operator_order=fixed >out 2>log || fail_with log "curate"
    [ "$(sort -u seen | tr '\n' ' ')" = "a.mp4 b.mp4 c.mp4 " ] || fail "other videos were scored again: $(cat seen)"
    diff -r -x state -x operators.json torn fixed
}
check damaged_records_are_rebuilt
failures_have_reasons_and_are_repaired() {
    needs order_does_not_change_the_result
    for fail in crash garbage; do
        rm -rf failed seen
        FAIL=$fail curate --out failed --set operator_order=fixed >out 2>log || fail_with log "curate"
        has_message log results-missing value=bright 'shots=?*'
        python3 -S - $fail <<'PY'
import json, sys
rejects = [json.loads(x) for x in open('failed/rejects.jsonl')]
failed = [r for r in rejects if r['operator'] == 'bright' and r['reason'].startswith('no score')]
assert failed and {r['source'] for r in failed} == {'b.mp4'}, rejects
word = {'crash': 'exit status 1: no memory on the device', 'garbage': 'oops'}[sys.argv[1]]
assert all(word in r['reason'] for r in failed), failed
assert json.load(open('failed/operators.json'))['operators'][0]['failed'] == len(failed)
PY
    done
    rm -f seen
    curate --out failed --set operator_order=fixed >out 2>log || fail_with log "curate"
    [ "$(sort -u seen)" = b.mp4 ] || fail "other shots than the failed ones were scored again: $(cat seen)"
    diff -r -x state -x operators.json failed fixed
}
check failures_have_reasons_and_are_repaired
# /metrics while two workers hold their videos, and the table on a terminal.
figures_are_shown_while_it_runs() {
    needs order_does_not_change_the_result
    rm -f seen
    cp -r fixed shown
    HOLD=$PWD/release curate --out shown --set operator_order=fixed --set operators.0.frames=1 --metrics 127.0.0.1:0 >out 2>log &
    trap 'kill $! 2>/dev/null || true' EXIT
    until [ "$(cat seen 2>/dev/null | wc -l)" = 2 ] || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
    address=127.0.0.1:$(message_field value log server-ready)
    python3 -S - "$address" <<'PY'
import sys, urllib.request
text = urllib.request.urlopen(f"http://{sys.argv[1]}/metrics", timeout=60).read().decode()
for line in "input 4", "output 0", "queued 2", "running 2", "failed 0":
    name, value = line.split()
    assert f'weft_curate_{name}{{stage="score"}} {value}' in text.splitlines(), text
open("figures", "w").write(text)
PY
    expect_error server-listen key=--metrics "value=$address" -- curate --out other --metrics "$address"
    expect_error option-conflict key=--metrics -- curate --out other --worker --metrics "$address"
    touch release
    wait $! || fail_with log "curate"
    rm release
    ! command -v promtool >/dev/null || promtool check metrics <figures
    python3 -S - "$WEFT" <<'PY'
import os, pty, re, sys
os.environ["SEEN"] = os.path.abspath("seen")
del os.environ["WEFT_LOG_FORMAT"]
shown = b""
def keep(fd):
    global shown
    part = os.read(fd, 65536)
    shown += part
    return part
command = [sys.argv[1], "curate", "config.yaml", "--in", "raw", "--out", "shown", "--set", "operator_order=fixed", "--set", "operators.0.frames=3"]
stdout = os.dup(1)
os.dup2(os.open("terminal", os.O_WRONLY | os.O_CREAT), 1)
assert pty.spawn(command, keep) == 0, shown.decode()
os.dup2(stdout, 1)
screen, row, column = [""], 0, 0
for part in re.split(r"(\r\n|\n|\r|\033\[\d+A|\033\[[JK])", shown.decode()):
    if part in ("\r\n", "\n"):
        row, column = row + 1, 0
        screen += [""] if row == len(screen) else []
    elif part == "\r":
        column = 0
    elif part.endswith("A") and part.startswith("\033"):
        row -= int(part[2:-1])
    elif part in ("\033[J", "\033[K"):
        screen[row] = screen[row][:column]
        if part.endswith("J"):
            del screen[row + 1:]
    else:
        screen[row] = screen[row][:column] + part
        column += len(part)
text = "\n".join(screen)
assert text.count("stage ") == 1, text
row = next(r.split() for r in screen if r.startswith("score"))
assert row[:6] == ["score", "4", "4", "0", "0", "0"], text
PY
}
check figures_are_shown_while_it_runs
# Two shards and the last pass give the result of one run.
shards_score_their_videos() {
    needs order_does_not_change_the_result
    for shard in 0/2 1/2; do curate --out shards --set operator_order=fixed --shard $shard >out 2>log || fail_with log "shard"; done
    curate --out shards --set operator_order=fixed --shard 0/2 >out 2>log
    rm -f seen
    curate --out shards --set operator_order=fixed --finish >out 2>log || fail_with log "finish"
    [ ! -e seen ] || fail "the last pass scored shots"
    diff -r -x state -x operators.json shards fixed
}
check shards_score_their_videos
# The first six frames are blurred: the clip starts after them, and they are in rejects.jsonl.
clips_start_at_the_sharpest_frame() {
    mkdir soft
    ffmpeg -v error -nostdin -y -f lavfi -i "mandelbrot=size=320x192:rate=24" -vf "boxblur=4:enable='lt(n,6)'" -t 1.5 -c:v libx264 -preset ultrafast -crf 12 -pix_fmt yuv420p soft/a.mp4
    $WEFT curate --in soft --out sharp --set clips.preset=ultrafast --set clips.sharpest_within=0.4 --set clips.min_seconds=0.5 >out 2>log || fail_with log "curate"
    python3 -S - <<'PY'
import json
clips = [json.loads(x) for x in open('sharp/manifest.jsonl')]
rejects = [json.loads(x) for x in open('sharp/rejects.jsonl')]
assert len(clips) == 1 and [r['operator'] for r in rejects] == ['start'], (clips, rejects)
assert rejects[0]['frame_span'][0] == 0 and rejects[0]['frame_span'][1] + 1 == clips[0]['frame_span'][0], (clips, rejects)
assert 6 <= clips[0]['frame_span'][0] <= 10 and clips[0]['frame_span'][1] == 35, clips
PY
    $WEFT curate --in soft --out sharp --set clips.preset=ultrafast >out 2>log && fail "another start is accepted in the same folder"
    has_message log config-changed
}
check clips_start_at_the_sharpest_frame
# A model of one node, the mean of each channel, compared with the process that computes the mean.
onnx_models_score_shots() {
    needs order_does_not_change_the_result
    [ -e "${WEFT_OPENVINO:-}" ] || skip "no OpenVINO (WEFT_OPENVINO)"
    python3 -S - <<'PY'
def field(number, data):  # protobuf: a number, or bytes with their length
    if isinstance(data, int):
        return bytes([number << 3, data])
    data = data.encode() if isinstance(data, str) else data
    return bytes([number << 3 | 2, len(data)]) + data
def value(name, dims):
    shape = b"".join(field(1, field(1, d) if isinstance(d, int) else field(2, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))
def write(path, size):
    node = field(1, "x") + field(2, "y") + field(4, "GlobalAveragePool")
    graph = field(1, node) + field(2, "g") + field(11, value("x", ["n", 3, *size])) + field(12, value("y", ["n", 3, 1, 1]))
    open(path, "wb").write(field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 11)))
write("any.onnx", ["h", "w"])
write("fixed.onnx", [32, 32])
PY
    cat >onnx.yaml <<YAML
clips: {preset: ultrafast}
duplicates: {on: false}
operator_order: fixed
operators:
  - {name: bright, process: [python3, -S, $PWD/scorer.py], frames: 2, side: 48}
  - {name: red, onnx: any.onnx, frames: 2, side: 48, mean: [0, 0, 0], std: [1, 1, 1]}
  - {name: green, onnx: any.onnx, frames: 2, side: 48, mean: [0, 0, 0], std: [1, 1, 1], output: 1}
  - {name: blue, onnx: any.onnx, frames: 2, side: 48, mean: [0, 0, 0], std: [1, 1, 1], output: 2}
  - {name: centre, onnx: fixed.onnx, frames: 2, side: 48, mean: [0, 0, 0], std: [1, 1, 1]}
YAML
    SEEN=$PWD/unused $WEFT curate onnx.yaml --in raw --out onnx >out 2>log || fail_with log "curate"
    python3 -S - <<'PY'
import json
for clip in map(json.loads, open('onnx/manifest.jsonl')):
    s = clip['operator_scores']
    assert abs((s['red'] + s['green'] + s['blue']) / 3 - s['bright'] / 255) < 1e-5, s
    assert 0 < s['centre'] < 1, s
PY
    expect_error onnx-model -- $WEFT curate --in raw --out broken --set operators.0.name=x --set "operators.0.onnx=$PWD/scorer.py"
}
check onnx_models_score_shots
# Boxes of text compared with RapidOCR's, of the same frame and model: each has a counterpart.
text_boxes_equal_those_of_rapidocr() {
    needs order_does_not_change_the_result
    [ -e "${WEFT_OPENVINO:-}" ] || skip "no OpenVINO (WEFT_OPENVINO)"
    [ -e "${WEFT_RAPIDOCR_PYTHON:-}" ] || skip "no Python with rapidocr-onnxruntime (WEFT_RAPIDOCR_PYTHON)"
    "$WEFT_RAPIDOCR_PYTHON" "$SRC/tests/curate/rapidocr_boxes.py" draw
    model=$("$WEFT_RAPIDOCR_PYTHON" "$SRC/tests/curate/rapidocr_boxes.py" model)
    $WEFT curate --in text --out found --set clips.preset=ultrafast --set quality.min_motion=0 --set operators.0.name=letters --set "operators.0.text=$model" --set operators.0.frames=1 --set operators.0.side=0 >out 2>log || fail_with log "curate"
    "$WEFT_RAPIDOCR_PYTHON" "$SRC/tests/curate/rapidocr_boxes.py" compare found
    # The title and the subtitles are cropped: the rest has two boxes, and passes a limit that the frame exceeds.
    cut() { $WEFT curate --in text --set clips.preset=ultrafast --set quality.min_motion=0 --set operators.0.name=letters --set "operators.0.text=$model" --set operators.0.frames=2 --set operators.0.side=0 --set operators.0.max=0.045 --set operators.1.name=rest --set operators.1.measure=exposure --set operators.1.frames=1 "$@" >out 2>log || fail_with log "curate"; }
    cut --out kept
    cut --out cut --set operators.0.crop=0.25 --set operators.1.after_crop=true
    python3 -S - <<'PY'
import json
assert [json.loads(x)["operator"] for x in open("kept/rejects.jsonl")] == ["letters"]
clip, = map(json.loads, open("cut/manifest.jsonl"))
x, y, width, height = clip["crop_source"]
assert (x, width) == (0, 1280) and 120 < y < 170 and 630 < y + height < 660, clip
assert clip["text_cropped"] and clip["width"] == 1280 and height - 2 < clip["height"] <= height, clip
assert 0.02 < clip["operator_scores"]["letters"] < 0.045, clip
PY
}
check text_boxes_equal_those_of_rapidocr
errors_name_the_key() {
    run() { $WEFT curate --in raw --out none "$@"; }
    expect_error config-value key=operators.0.expression column=10 -- run --set operators.0.name=x --set "operators.0.expression=motion > motoin"
    expect_error config-conflict key=operators.0.name -- run --set operators.0.name=x
    expect_error config-value key=operators.0.process -- run --set operators.0.name=x --set 'operators.0.process=[no-such-program]'
    WEFT_OPENVINO=/nowhere expect_error library-missing key=WEFT_OPENVINO -- run --set operators.0.name=x --set "operators.0.onnx=$PWD/scorer.py"
    [ ! -e none/clips ] || [ -z "$(ls none/clips)" ]
}
check errors_name_the_key
finish
