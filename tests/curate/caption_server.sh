#!/bin/bash
# Captions from a server: requests, repeated attempts, validation, budgets, and a reason for each
# failure. The key of the server is in no file and no message.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
curl_exists() { python3 -S -c 'import ctypes; ctypes.CDLL("libcurl.so.4")' 2>/dev/null || python3 -S -c 'import ctypes; ctypes.CDLL("libcurl-gnutls.so.4")' 2>/dev/null; }
curl_exists || skip "no libcurl"
python3 -S "$SRC/tests/curate/caption_server.py" "$PWD" 2>server.log &
server=$!
trap 'kill $server 2>/dev/null' EXIT
mkdir raw
for n in 1 2 3; do
    ffmpeg -v error -nostdin -y -f lavfi -i "mandelbrot=size=160x96:rate=24:start_scale=$n" -t 1 -c:v libx264 -preset ultrafast -pix_fmt yuv420p raw/v$n.mp4
done
echo "by hand" >raw/v1.txt
until [ -e port ] || ! kill -0 $server 2>/dev/null; do sleep 0.05; done
url=http://127.0.0.1:$(cat port)/v1
export OWN_KEY=sk-secret-5f2a
curate() { # OUT OPTION...
    local out=$1
    shift
    $WEFT curate --in raw --out "$out" --set clips.preset=ultrafast --set duplicates.on=false --set "captions.url=$url" --set captions.model=small --set captions.frames=3 --set captions.side=64 --set captions.key_variable=OWN_KEY --set captions.concurrency=1 "$@" >out.log 2>log
}
requests() { [ ! -e seen ] || wc -l <seen; }
without() { ! grep -r -e "$1" "${@:2}" || fail "$1 is in a file or message"; }
no_secret() { without "$OWN_KEY" "$@"; }
clips_get_captions() {
    WEFT_LOG=debug curate a --set captions.window_seconds=0.6 --report page.html || fail_with log "curate"
    python3 -S - "$OWN_KEY" <<'PY'
import json, sys
clips = {c['source_video']: c for c in map(json.loads, open('a/manifest.jsonl'))}
assert len(clips) == 3
assert clips['v1.mp4']['caption'] == 'by hand' and 'caption_model' not in clips['v1.mp4']
for name in 'v2.mp4', 'v3.mp4':
    c = clips[name]
    assert c['caption'] == 'A moving pattern. A moving pattern.' and c['caption_model'] == 'small', c
    assert [(w['start_frame'], w['end_frame']) for w in c['windows']] == [(0, 12), (12, 24)], c
    assert sorted(c['windows'][0]['fields']) == sorted(['scene', 'subject', 'motion', 'background', 'style', 'camera', 'light']), c
    record = json.load(open('a/captions/%s.json' % c['id']))
    assert 'The video shows' in record['windows'][0]['raw'][0], record
seen = [json.loads(x) for x in open('seen')]
assert len(seen) == 4
for s in seen:
    assert s['path'] == '/v1/chat/completions' and s['images'] == 3 and s['jpeg'] and s['schema'], s
    assert s['authorization'] == 'Bearer ' + sys.argv[1]
PY
    no_secret a log out.log page.html
    rm seen
    curate a --set captions.window_seconds=0.6 || fail_with log "curate"
    [ -z "$(requests)" ] || fail "captions were requested twice"
}
check clips_get_captions
# A URL with a password is refused, and the password is in no message and no file.
passwords_in_urls_are_refused() {
    local key
    for key in captions embeddings; do
        expect_error config-value "key=$key.url" -- $WEFT curate --in raw --out refused --set "$key.url=http://me:hunter77@127.0.0.1:1/v1" --set captions.model=small --set embeddings.server_model=small
    done
    for key in captions,http embeddings,http captions,ftp embeddings,ftp; do
        $WEFT curate --in raw --out refused --set "${key%,*}.url=${key#*,}://me:hunter77@127.0.0.1:1/v1" --set captions.model=small --set embeddings.server_model=small >>refused.log 2>&1 && fail "a URL with a password is accepted"
    done
    without hunter77 refused.log $([ ! -e refused ] || echo refused)
}
check passwords_in_urls_are_refused
# A worker writes no clip twice, names the clips without a caption, and captions these.
a_worker_captions_clips() {
    needs clips_get_captions
    cp -r a w
    rm w/captions/*
    printf '%s\n' '{"task": "list-clips"}' '{"task": "write", "video": "v1.mp4"}' '{"task": "write", "video": "v2.mp4"}' |
        curate w --set captions.window_seconds=0.6 --worker || fail_with log "worker"
    python3 -S - >task <<'PY'
import json
listed, first, second = map(json.loads, open("out.log"))
assert listed["stages"] == ["write", "caption"] and sorted(listed["videos"]) == ["v2.mp4", "v3.mp4"], listed
assert first["clips"] == second["clips"] == 1 and first["uncaptioned"] == [], (first, second)
print(json.dumps({"task": "caption", "clips": second["uncaptioned"]}))
PY
    curate w --set captions.window_seconds=0.6 --worker <task || fail_with log "worker"
    python3 -S -c 'import json; r = json.load(open("out.log")); assert (r["captions"], r["failed"]) == (1, 0), r'
    [ "$(requests)" = 2 ] && [ "$(ls w/captions | wc -l)" = 1 ] || fail_with out.log "one clip of two windows"
    curate w --set captions.window_seconds=0.6 --finish || fail_with log "finish"
    [ "$(requests)" = 4 ] && diff a/manifest.jsonl w/manifest.jsonl && diff -r a/metas w/metas
    rm seen
}
check a_worker_captions_clips
lasting_failures_have_reasons() {
    rm -rf c seen
    printf '%s\n' words missing blocked >faults
    curate c --set clips.require_caption=true || fail_with log "curate"
    has_message log results-missing failed=2
    python3 -S - <<'PY'
import json, glob
records = [json.load(open(p)) for p in glob.glob('c/captions/*.json')]
reasons = sorted(r['failed'] for r in records)
assert len(records) == 2 and 'blocked' in ' '.join(reasons) and 'camera, light' in ' '.join(reasons), reasons
twice = [r for r in records if 'camera' in r['failed']][0]
assert len(twice['windows'][0]['raw']) == 2 and twice['windows'][0]['raw'][0] == 'I cannot help.', twice
rejects = [json.loads(x) for x in open('c/rejects.jsonl')]
assert sorted(r['source'] for r in rejects if r['operator'] == 'caption') == ['v2.mp4', 'v3.mp4'], rejects
PY
    curate c --set clips.require_caption=true || fail_with log "curate"
    [ "$(wc -l <c/manifest.jsonl)" = 3 ] || fail "the next run did not repair the captions"
}
check lasting_failures_have_reasons
budgets_end_requests() {
    rm -rf d seen
    curate d --set captions.budget_requests=1 || fail_with log "curate"
    [ "$(requests)" = 1 ] && grep -rq "the budget of 1 requests is used" d/captions || fail "the budget of requests"
    curate d --set captions.budget_tokens=50 || fail_with log "curate"
    [ "$(requests)" = 2 ] && [ "$(grep -c '"caption":' d/manifest.jsonl)" = 3 ] || fail "the next run does not continue"
}
check budgets_end_requests
transient_faults_are_repeated() {
    rm -rf b seen
    printf '%s\n' '429 1' 500 cut words >faults
    curate b || fail_with log "curate"
    python3 -S - <<'PY'
import json
seen = [json.loads(x) for x in open('seen')]
# the first clip: three failed attempts, a reply of another form, the same with the reason
assert [s['fault'] for s in seen] == ['429 1', '500', 'cut', 'words', '', ''], seen
assert [s['messages'] for s in seen] == [1, 1, 1, 1, 3, 1], seen
assert all('caption' in json.loads(x) for x in open('b/manifest.jsonl'))
PY
    rm -rf b seen
    printf '%s\n' 500 500 html >faults
    curate b --set captions.attempts=2 || fail_with log "curate"
    has_message log results-missing failed=2
    grep -rq "status 500" b/captions && grep -rq "is not JSON" b/captions || fail "no reason: $(cat b/captions/*)"
    no_secret b log out.log
}
check transient_faults_are_repeated
# The frames of a window are a video of their own rate; no temporary file remains.
windows_are_sent_as_a_video() {
    rm -rf v seen video-*.mp4
    mkdir -p temporary
    TMPDIR=$PWD/temporary curate v --set captions.request=video --set captions.frames=6 || fail_with log "curate"
    python3 -S -c 'import json; s = [json.loads(x) for x in open("seen")]; assert len(s) == 2 and all(x["videos"] == 1 and x["images"] == 0 for x in s), s'
    [ "$(ffprobe -v error -count_frames -show_entries stream=width,height,nb_read_frames -of csv=p=0 video-0.mp4)" = 106,64,6 ] || fail "the video: $(ffprobe -v error -count_frames -show_entries stream=width,height,nb_read_frames -of csv=p=0 video-0.mp4)"
    # six frames of 1 s of 24 frames, evenly spread: 4 frames apart
    [ "$(ffprobe -v error -show_entries stream=avg_frame_rate -of csv=p=0 video-0.mp4)" = 6/1 ] || fail "rate $(ffprobe -v error -show_entries stream=avg_frame_rate -of csv=p=0 video-0.mp4)"
    [ -z "$(ls temporary)" ] || fail "$(ls temporary) remains"
}
check windows_are_sent_as_a_video
# Fields and scores follow the caption, without a further request if the texts change.
texts_are_appended() {
    rm -rf t seen
    curate t --set operators.0.name=sharp --set operators.0.expression=sharpness/2 || fail_with log "curate"
    curate t --set operators.0.name=sharp --set operators.0.expression=sharpness/2 \
        --set 'captions.append=["Camera: {camera}.", "Sharpness {sharpness_score:1}, half {sharp:3}."]' || fail_with log "curate"
    [ "$(requests)" = 2 ] || fail "changed texts need no request"
    python3 -S - <<'PY'
import json
clips = {c['source_video']: c for c in map(json.loads, open('t/manifest.jsonl'))}
for name in 'v2.mp4', 'v3.mp4':
    c = clips[name]
    s = c['sharpness_score']
    want = 'A moving pattern. Camera: camera of the clip. Sharpness %.1f, half %.3f.' % (s, s / 2)
    assert c['caption'] == want == c['windows'][0]['caption'], c['caption']
    assert json.load(open('t/captions/%s.json' % c['id']))['caption'] == 'A moving pattern.'
    assert json.load(open('t/metas/%s.json' % c['id']))['caption'] == want
assert clips['v1.mp4']['caption'] == 'by hand'
PY
    expect_error config-value key=captions.append.1 value=beauty -- curate_failing 'captions.append=["{sharpness_score}", "{beauty}"]'
    expect_error config-value key=captions.append.0 value=camera -- curate_failing 'captions.append=["{camera:2}"]'
    expect_error config-value key=captions.append.0 value={camera -- curate_failing 'captions.append=["{camera"]'
    expect_error config-value key=captions.append.0 value=camera -- curate_failing 'captions.append=["{camera}"]' --set captions.format=text
}
curate_failing() { $WEFT curate --in raw --out t2 --set "captions.url=$url" --set captions.model=m --set "$@"; }
check texts_are_appended
refusals_end_the_run() {
    echo 401 >faults
    ! curate e || fail "a refused key is accepted"
    has_message log model-server value=small "text~=status 401: wrong key Bearer ****"
    no_secret e log out.log
    run() { $WEFT curate --in raw --out f --set captions.url=$1 "${@:2}"; }
    expect_error config-value key=captions.key_variable value=UNSET_KEY -- run "$url" --set captions.model=m --set captions.key_variable=UNSET_KEY
    expect_error config-value key=captions.url -- run http://user:password@host/v1 --set captions.model=m
    without password error.log
    expect_error config-conflict key=captions.model -- run "$url"
}
check refusals_end_the_run
finish
