#!/bin/bash
# Embeddings of shots by a small CLIP encoder and by a server: joined shots, near-duplicates by
# meaning, clusters with a limit, aesthetic scores. The key of the server is in no file.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
mkdir raw
encode() { ffmpeg -v error -nostdin -y -f lavfi -i "$1" -t 1 -c:v libx264 -preset ultrafast -crf "$3" -pix_fmt yuv420p "$2"; }
encode "mandelbrot=size=160x96:rate=24" raw/a.mp4 20
encode "mandelbrot=size=160x96:rate=24" raw/b.mp4 30
encode "testsrc2=size=160x96:rate=24" raw/c.mp4 20
for n in a c; do echo "file raw/$n.mp4"; done >list.txt
ffmpeg -v error -nostdin -f concat -i list.txt -c copy raw/d.mp4
cat >tensors.py <<'PY'
import array, json, struct
def read(path):
    data = open(path, 'rb').read()
    size = struct.unpack('<Q', data[:8])[0]
    head = json.loads(data[8:8 + size])
    meta = head.pop('__metadata__', {})
    out = {}
    for name, t in head.items():
        numbers = array.array({'F32': 'f', 'I64': 'q'}[t['dtype']], data[8 + size + t['data_offsets'][0]:8 + size + t['data_offsets'][1]])
        out[name] = (t['shape'], list(numbers))
    return meta, out
def write(path, tensors):
    head, body = {}, b''
    for name, (shape, numbers) in tensors.items():
        data = array.array('f', numbers).tobytes()
        head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(head).encode()
    open(path, 'wb').write(struct.pack('<Q', len(head)) + head + body)
PY
run() { $WEFT curate --in raw --set clips.preset=ultrafast --set duplicates.on=false "$@"; }
curate() { run "$@" >out 2>log; }
clip="$SRC/tests/golden/pipelines/wan_i2v/image_encoder"
python3 -S - <<'PY'
import random, tensors
random.seed(3)
numbers = lambda n: [random.uniform(-1, 1) for _ in range(n)]
tensors.write('linear.safetensors', {'weight': ([1, 8], numbers(8)), 'bias': ([1], numbers(1))})
sizes = [(0, 8, 12), (2, 12, 10), (4, 10, 6), (6, 6, 4), (7, 4, 1)]
tensors.write('mlp.safetensors', {f'layers.{i}.{n}': v for i, a, b in sizes
                                  for n, v in (('weight', ([b, a], numbers(a * b))), ('bias', ([b], numbers(b))))})
tensors.write('wide.safetensors', {'weight': ([1, 9], numbers(9)), 'bias': ([1], numbers(1))})
PY
heads="--set operators.0.name=linear --set operators.0.aesthetics=$PWD/linear.safetensors --set operators.1.name=mlp --set operators.1.aesthetics=$PWD/mlp.safetensors"
# Scores of both heads, computed again from the stored embeddings.
shots_have_embeddings_and_aesthetics() {
    curate --out plain --set "embeddings.model=$clip" --set embeddings.frames=2 $heads || fail_with log "curate"
    python3 -S - <<'PY'
import glob, json, math, tensors
def apply(head, x):
    layers = [''] if 'weight' in head else [f'layers.{i}.' for i in (0, 2, 4, 6, 7)]
    for l in layers:
        (rows, cols), w = head[l + 'weight']
        x = [sum(w[r * cols + c] * x[c] for c in range(cols)) + head[l + 'bias'][1][r] for r in range(rows)]
    return x[0]
heads = {n: tensors.read(n + '.safetensors')[1] for n in ('linear', 'mlp')}
clips = [json.loads(x) for x in open('plain/manifest.jsonl')]
assert len(clips) == 5, clips
for c in clips:
    meta, t = tensors.read('plain/state/%s.embeddings.safetensors' % c['id'].rsplit('-', 1)[0])
    (rows, width), v = t['embeddings']
    spans = t['spans'][1]
    at = [i for i in range(rows) if spans[2 * i:2 * i + 2] == c['frame_span']]
    assert len(at) == 1 and width == 8, (spans, c)
    x = v[at[0] * width:(at[0] + 1) * width]
    assert 0.5 < math.sqrt(sum(i * i for i in x)) <= 1 + 1e-6, x
    for name in heads:
        assert abs(apply(heads[name], x) - c['operator_scores'][name]) < 1e-5, (c, name)
PY
    stat -c '%n %y' plain/state/*.safetensors >before
    curate --out plain --set "embeddings.model=$clip" --set embeddings.frames=2 $heads || fail_with log "curate"
    stat -c '%n %y' plain/state/*.safetensors | diff before - || fail "embeddings were computed again"
    expect_error format-unknown -- run --out wide --set "embeddings.model=$clip" --set operators.0.name=x --set "operators.0.aesthetics=$PWD/wide.safetensors"
    expect_error config-conflict key=embeddings -- run --out none --set operators.0.name=x --set "operators.0.aesthetics=$PWD/mlp.safetensors"
}
check shots_have_embeddings_and_aesthetics
# A worker opens the encoder and the heads once. It has the embeddings and scores of one run.
models_stay_open_in_workers() {
    needs shots_have_embeddings_and_aesthetics
    { for v in a b c d; do echo "{\"task\": \"analyse\", \"video\": \"$v.mp4\"}"; done
      for v in a c d b; do echo "{\"task\": \"score\", \"videos\": [\"$v.mp4\"]}"; done; } |
        run --out worker --worker --set workers=1 --set "embeddings.model=$clip" --set embeddings.frames=2 $heads >answers 2>log || fail_with log "worker"
    python3 -S - <<'PY'
import json
loaded = [a["loaded"] for a in map(json.loads, open("answers")) if a["task"] == "score"]
assert loaded == [3, 0, 0, 0], loaded
PY
    run --out worker --finish --set "embeddings.model=$clip" --set embeddings.frames=2 $heads >out 2>log || fail_with log "finish"
    diff plain/manifest.jsonl worker/manifest.jsonl && diff -r plain/clips worker/clips && diff -r plain/metas worker/metas
    for f in plain/state/*.embeddings.safetensors; do cmp "$f" "worker/state/${f##*/}"; done
}
check models_stay_open_in_workers
# d.mp4 has two shots. Any two neighbours are joined above a low limit, none above cosine 1.
neighbours_are_joined() {
    needs shots_have_embeddings_and_aesthetics
    cp -r plain joined
    curate --out joined --set "embeddings.model=$clip" --set embeddings.frames=2 --set embeddings.merge=0.001 $heads || fail_with log "curate"
    python3 -S - <<'PY'
import json
plain, joined = ([json.loads(x) for x in open(d + '/manifest.jsonl')] for d in ('plain', 'joined'))
d = [c for c in joined if c['source_video'] == 'd.mp4']
parts = [c for c in plain if c['source_video'] == 'd.mp4']
assert len(parts) == 2 and len(d) == 1 and len(joined) == 4, joined
assert d[0]['frame_span'] == [0, 47] and d[0]['merged_shots'] == 2 and d[0]['frames'] == 48, d
for name in 'linear', 'mlp':  # of the mean embedding of both parts, which are equally long
    assert abs(d[0]['operator_scores'][name] - sum(p['operator_scores'][name] for p in parts) / 2) < 1e-5
PY
    curate --out joined --set "embeddings.model=$clip" --set embeddings.frames=2 --set embeddings.merge=1 $heads || fail_with log "curate"
    diff plain/manifest.jsonl joined/manifest.jsonl
    curate --out joined --set "embeddings.model=$clip" --set embeddings.frames=2 --set embeddings.merge=0.001 --set clips.max_side=0 --set clips.min_seconds=1.5 $heads || fail_with log "curate"
    [ "$(grep -c '"id"' joined/manifest.jsonl)" = 1 ] || fail "short shots are not joined to a long one"
}
check neighbours_are_joined
# b.mp4 is a.mp4 with other quality, and the shots of d.mp4 are both others.
similar_shots_and_full_clusters_are_rejected() {
    needs shots_have_embeddings_and_aesthetics
    cp -r plain similar
    curate --out similar --set "embeddings.model=$clip" --set embeddings.frames=2 --set embeddings.duplicate=0.9999 --report page.html || fail_with log "curate"
    cp -r plain limited
    curate --out limited --set "embeddings.model=$clip" --set embeddings.frames=2 --set embeddings.clusters=2 --set embeddings.max_per_cluster=1 || fail_with log "curate"
    python3 -S - <<'PY'
import json
def read(d, f): return [json.loads(x) for x in open(f'{d}/{f}.jsonl')]
clips, rejects = read('similar', 'manifest'), read('similar', 'rejects')
assert len(clips) == 2 and {r['operator'] for r in rejects} == {'similar'} and len(rejects) == 3, rejects
assert all(r['value'] >= r['threshold'] == 0.9999 and r['duplicate_of'] in {c['source_video'] for c in clips} for r in rejects)
table = json.load(open('similar/clusters.json'))
assert table['shots'] == 5 and [(r['shots'], r['similar'], r['accepted']) for r in table['clusters']] == [(5, 3, 2)], table
clips, rejects = read('limited', 'manifest'), read('limited', 'rejects')
table = json.load(open('limited/clusters.json'))['clusters']
assert len(clips) == 2 and sorted(c['cluster'] for c in clips) == [0, 1], clips
assert len(rejects) == 3 and all(r['operator'] == 'cluster' and r['threshold'] == 1 for r in rejects), rejects
assert sum(r['over_limit'] for r in table) == 3 and all(r['accepted'] == 1 for r in table), table
PY
    grep -q Clusters page.html || fail "the page has no clusters"
}
check similar_shots_and_full_clusters_are_rejected
# An encoder of a convolution with random weights in OpenVINO, compared with sums in Python over the
# same frames, which a process operator stores. Close: the order of the sums differs.
onnx_encoders_embed_shots() {
    [ -e "${WEFT_OPENVINO:-}" ] || skip "no OpenVINO (WEFT_OPENVINO)"
    mkdir square
    for v in mandelbrot testsrc2; do ffmpeg -v error -nostdin -y -f lavfi -i "$v=size=96x96:rate=24" -t 1 -c:v libx264 -preset ultrafast -pix_fmt yuv420p square/$v.mp4; done
    cat >frames.py <<'PY'
import json, sys
while line := sys.stdin.buffer.readline():
    r = json.loads(line)
    data = sys.stdin.buffer.read(r["frames"] * r["width"] * r["height"] * 3)
    with open(r["source"] + ".rgb", "ab") as file:
        file.write(data)
    print(json.dumps({"request": r["request"], "score": 1}), flush=True)
PY
    cat >encoder.py <<'PY'
import array, random
OUT, SIDE, STEP = 5, 32, 4
random.seed(4)
weight = array.array("f", (random.uniform(-1, 1) for _ in range(OUT * 3 * STEP * STEP)))
bias = array.array("f", (random.uniform(-1, 1) for _ in range(OUT)))
def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)
def field(number, data):  # protobuf: a number, or bytes with their length
    if isinstance(data, int):
        return varint(number << 3) + varint(data)
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data
def value(name, dims):
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, b"".join(field(1, field(1, d)) for d in dims))))
def tensor(name, dims, numbers):
    return b"".join(field(1, d) for d in dims) + field(2, 1) + field(8, name) + field(9, numbers.tobytes())
def node(op, inputs, output, attributes=b""):
    return b"".join(field(1, i) for i in inputs) + field(2, output) + field(4, op) + attributes
def write(path):
    strides = field(5, field(1, "strides") + field(8, STEP) * 2 + field(20, 7))
    nodes = [node("Conv", ["x", "w", "b"], "c", strides), node("Relu", ["c"], "r"), node("GlobalAveragePool", ["r"], "p"), node("Flatten", ["p"], "y")]
    graph = b"".join(field(1, n) for n in nodes) + field(2, "g") + field(5, tensor("w", [OUT, 3, STEP, STEP], weight)) + field(5, tensor("b", [OUT], bias))
    graph += field(11, value("x", [1, 3, SIDE, SIDE])) + field(12, value("y", [1, OUT]))
    open(path, "wb").write(field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 13)))
def run(rgb, mean, std):
    n, result = SIDE // STEP, []
    for o in range(OUT):
        total = 0.0
        for at in range(n * n):
            s = bias[o]
            for k in range(3 * STEP * STEP):
                c, y, x = k // STEP ** 2, at // n * STEP + k % STEP ** 2 // STEP, at % n * STEP + k % STEP
                s += weight[o * 3 * STEP * STEP + k] * (rgb[(y * SIDE + x) * 3 + c] / 255 - mean[c]) / std[c]
            total += max(s, 0)
        result.append(total / (n * n))
    return result
PY
    python3 -S -c 'import encoder; encoder.write("encoder.onnx")'
    $WEFT curate --in square --out encoded --set clips.preset=ultrafast --set duplicates.on=false --set "embeddings.onnx=$PWD/encoder.onnx" --set embeddings.frames=2 \
        --set 'embeddings.mean=[0.5,0.4,0.3]' --set 'embeddings.std=[0.2,0.3,0.4]' --set operators.0.name=stored --set "operators.0.process=[python3,-S,$PWD/frames.py]" \
        --set operators.0.frames=2 --set operators.0.side=32 >out 2>log || fail_with log "curate"
    python3 -S - <<'PY'
import encoder, glob, math, tensors
files = glob.glob("encoded/state/*.embeddings.safetensors")
assert len(files) == 2, files
for path in files:
    (rows, width), v = tensors.read(path)[1]["embeddings"]
    assert (rows, width) == (1, encoder.OUT), (rows, width)
    rgb = open(path.split("/")[-1].split("-")[0] + ".mp4.rgb", "rb").read()
    mean = [0.0] * width
    for i in range(2):
        out = encoder.run(rgb[i * 3072:(i + 1) * 3072], (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
        length = math.sqrt(sum(x * x for x in out))
        mean = [m + x / length / 2 for m, x in zip(mean, out)]
    assert all(abs(a - b) < 1e-5 for a, b in zip(mean, v)), (mean, v)
PY
    printf broken >broken.onnx
    expect_error model-config -- $WEFT curate --in square --out broken --set "embeddings.onnx=$PWD/broken.onnx"
}
check onnx_encoders_embed_shots
curl_exists() { python3 -S -c 'import ctypes; ctypes.CDLL("libcurl.so.4")' 2>/dev/null || python3 -S -c 'import ctypes; ctypes.CDLL("libcurl-gnutls.so.4")' 2>/dev/null; }
without() { ! grep -r -e "$1" "${@:2}" || fail "$1 is in a file or message"; }
server_embeddings_are_requested_once() {
    curl_exists || skip "no libcurl"
    python3 -S "$SRC/tests/curate/embedding_server.py" "$PWD" 2>server.log &
    server=$!
    trap 'kill $server 2>/dev/null' EXIT
    until [ -e port ] || ! kill -0 $server 2>/dev/null; do sleep 0.05; done
    export OWN_KEY=sk-secret-77aa
    serve() { run --out "$1" --set "embeddings.url=http://127.0.0.1:$(cat port)/v1" --set embeddings.server_model=small --set embeddings.frames=2 --set embeddings.side=32 --set embeddings.key_variable=OWN_KEY --set embeddings.duplicate=0.99999 --set workers=1 --set embeddings.attempts=1 "${@:2}"; }
    embed() { serve "$@" >out 2>log; }
    printf '%s\n' 500 short >faults
    embed served || fail_with log "curate"
    has_message log results-missing
    embed served || fail_with log "curate"
    n=$(wc -l <seen)
    embed served || fail_with log "curate"
    [ "$n" = "$(wc -l <seen)" ] || fail "embeddings were requested again"
    embed messages --set embeddings.request=messages || fail_with log "curate"
    python3 -S - "$OWN_KEY" <<'PY'
import json, sys
seen = [json.loads(x) for x in open('seen')]
assert all(s['path'] == '/v1/embeddings' and s['model'] == 'small' and s['authorization'] == 'Bearer ' + sys.argv[1] for s in seen)
assert [s['images'] for s in seen if not s['messages']] == [2] * 7 and [s['images'] for s in seen if s['messages']] == [1] * 10, seen
served, messages = ([json.loads(x) for x in open(d + '/manifest.jsonl')] for d in ('served', 'messages'))
assert [c['id'] for c in served] == [c['id'] for c in messages]
PY
    echo 401 >faults
    expect_error model-server -- serve refused
    without "$OWN_KEY" served messages refused log out
    unset OWN_KEY
    expect_error config-value key=embeddings.key_variable -- serve refused
}
check server_embeddings_are_requested_once
finish
