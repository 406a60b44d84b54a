#!/bin/bash
# Captions of `transformers serve` with a tiny vision-language model of random weights: the real
# protocol, chat template and image decoding. The words are noise. WEFT_TRANSFORMERS_PYTHON is a Python
# with transformers[serving], torch and torchvision. `make test-long`.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
[ "${WEFT_TEST_LONG-}" ] || skip "make test-long runs it"
[ -e "${WEFT_TRANSFORMERS_PYTHON:-}" ] || skip "no Python with transformers[serving] (WEFT_TRANSFORMERS_PYTHON)"
export HF_HUB_OFFLINE=1 HF_HOME=$PWD/home PYTHONWARNINGS=ignore
"$WEFT_TRANSFORMERS_PYTHON" "$SRC/tests/curate/tiny_vision_model.py" model >model.log 2>&1 || fail_with model.log "the model"
port=$(python3 -IS -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$WEFT_TRANSFORMERS_PYTHON" -m transformers.cli.transformers serve "$PWD/model" --device cpu --host 127.0.0.1 --port "$port" --log-level info >server.log 2>&1 &
server=$!
trap 'kill $server 2>/dev/null' EXIT
mkdir raw
for n in 1 2; do
    ffmpeg -v error -nostdin -y -f lavfi -i "mandelbrot=size=160x96:rate=24:start_scale=$n" -t 1 -c:v libx264 -preset ultrafast -pix_fmt yuv420p raw/v$n.mp4
done
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || ! kill -0 $server 2>/dev/null; do sleep 0.2; done
curate() { # OUT OPTION...
    $WEFT curate --in raw --out "$1" --set clips.preset=ultrafast --set duplicates.on=false --set captions.url=http://127.0.0.1:$port/v1 \
        --set "captions.model=$PWD/model" --set captions.side=64 --set captions.timeout_seconds=600 "${@:2}" >"$1.out" 2>log || fail_with log "curate"
}
tokens_of() { sed -n 's/^captions .* \([0-9]*\) tokens).*/\1/p' "$1.out"; }
# The prompt has image tokens for every frame, so more frames are more tokens: the server decoded the
# JPEG data. The server ignores response_format and prints a warning.
images_are_captioned() {
    curate three --set captions.format=text --set captions.frames=3 --set 'captions.append=["Motion {motion_score:3}."]'
    python3 -S - <<'PY'
import json, re
clips = [json.loads(line) for line in open('three/manifest.jsonl')]
assert len(clips) == 2
for c in clips:
    raw = json.load(open('three/captions/%s.json' % c['id']))['windows'][0]['raw']
    assert len(raw) == 1 and len(raw[0].strip()) >= 8, raw
    assert re.fullmatch(r'.{8,} Motion 0\.\d{3}\.', c['caption'], re.S), c['caption']
PY
    curate six --set captions.format=text --set captions.frames=6
    [ "$(tokens_of six)" -gt "$(($(tokens_of three) + 2 * 2 * 4))" ] || fail "$(tokens_of three) tokens with 3 frames, $(tokens_of six) with 6"
}
check images_are_captioned
# Noise is not the JSON object of a structured caption: it is requested once more, with the reason.
noise_is_refused_with_a_reason() {
    curate structured --set captions.frames=2
    has_message log results-missing failed=2
    python3 -S - <<'PY'
import glob, json
records = [json.load(open(p)) for p in glob.glob('structured/captions/*.json')]
assert len(records) == 2
for r in records:
    assert 'two replies are not valid captions' in r['failed'] and r['error'] == 'caption-reply', r
    assert len(r['windows'][0]['raw']) == 2, r
PY
}
check noise_is_refused_with_a_reason
long_replies_are_cut_off() {
    curate long --set captions.format=text --set captions.frames=1 --set captions.max_tokens=4
    has_message log results-missing failed=2
    grep -rq "longer than captions.max_tokens" long/captions || fail "no reason: $(cat long/captions/*)"
}
check long_replies_are_cut_off
another_model_is_refused() {
    curate other --set captions.format=text --set captions.frames=1 --set captions.model=another
    has_message log results-missing failed=2
    grep -rq "status 400" other/captions || fail "no reason: $(cat other/captions/*)"
}
check another_model_is_refused
finish
