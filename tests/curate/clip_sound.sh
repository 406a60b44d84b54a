#!/bin/bash
# clips.sound: the sound of a clip is the part of its source's that is heard with its frames, encoded
# and copied clips alike. Sources without sound give clips without sound.
set -e
. "$SRC/tests/check.sh"
command -v ffmpeg >/dev/null || skip "ffmpeg is not installed"
mkdir raw
# Two shots of 60 and 70 frames. The tones rise, so that each time is heard once.
sound='0.4*sin(2*PI*(200*t+150*t*t))'
source() { # NAME OPTION...
    ffmpeg -v error -nostdin -y -f lavfi -i "mandelbrot=size=192x112:rate=24:start_scale=3" -f lavfi -i "testsrc2=size=192x112:rate=24" \
        -f lavfi -t 7 -i "aevalsrc=$sound|0.5*$sound:sample_rate=44100" \
        -filter_complex "[0]trim=end_frame=60[a];[1]trim=end_frame=70,setpts=PTS-STARTPTS[b];[a][b]concat=n=2:v=1,setpts=PTS+${late-0}/TB[v]" \
        -map '[v]' -map 2 -pix_fmt yuv420p -c:v libx264 -preset veryfast -g 24 -sc_threshold 0 "${@:2}" "raw/$1"
}
source stereo.mp4 -c:a aac
late=0.5 source late.mkv -c:a flac -ac 1                    # the first frame is shown 0.5 s after the sound begins
source short.mkv -c:a pcm_s16le -af atrim=end=4             # the sound ends in the second shot
source silent.mp4 -an
curate() { # OUT OPTION...
    "$WEFT" curate --in raw --out "$1" --set duplicates.on=false --set quality.min_motion=0 --set clips.preset=ultrafast "${@:2}" >"$1.out" 2>log || fail_with log "curate"
}
sounds() { # FOLDER CUT
    python3 -S - "$@" <<'PY'
import array, json, subprocess, sys
RATE = 8000
def run(*command):
    return subprocess.run(command, capture_output=True, check=True).stdout
def sound(path):
    filters = f"aresample={RATE}:async=1:first_pts=0"
    return array.array("h", run("ffmpeg", "-v", "error", "-nostdin", "-i", path, "-vn", "-af", filters, "-ac", "1", "-f", "s16le", "-"))
def streams(path):
    return json.loads(run("ffprobe", "-v", "error", "-show_streams", "-of", "json", path))["streams"]
def apart(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b)) / max(1, sum(x * x for x in a))
folder, copied = sys.argv[1], sys.argv[2] == "key_frames"
whole = {name: sound("raw/" + name) for name in ("stereo.mp4", "late.mkv", "short.mkv")}
clips = [json.loads(line) for line in open(folder + "/manifest.jsonl")]
assert len(clips) == 8, len(clips)
for c in clips:
    name, path = c["source_video"], folder + "/" + c["clip"]
    own = [s for s in streams(path) if s["codec_type"] == "audio"]
    assert not copied or c["lossless"], c
    assert c["sound"] == (name != "silent.mp4") == bool(own), c
    if not own:
        continue
    channels = 1 if name == "late.mkv" else 2
    assert (own[0]["codec_name"], own[0]["sample_rate"], own[0]["channels"]) == ("aac", "44100", channels), own
    start = c["duration_span"][0] + (0.5 if name == "late.mkv" else 0)
    begin, count = round(start * RATE), round(c["seconds"] * RATE)
    part = whole[name][begin:begin + count]
    part.extend([0] * (count - len(part)))
    made = sound(path)
    assert abs(len(made) - count) < 0.03 * RATE, (name, len(made), count)
    made.extend([0] * (count - len(made)))
    error = {k: apart(part[50:-50], made[50 + k:len(part) - 50 + k]) for k in range(-6, 7)}
    shift = min(error, key=error.get)
    # Matroska has times in milliseconds: sound that is not read from its beginning is within half of one
    rounded = name.endswith("mkv") and c["frame_span"][0] > 0
    assert abs(shift) <= (4 if rounded else 0) and error[shift] < (0.25 if rounded else 0.01), (name, c["frame_span"], error)
    print(name, c["frame_span"], f"{error[shift]:.2g} of the power, {shift / 8:g} ms")
PY
}
cut_exactly() {
    curate exact --set clips.sound=true
    sounds exact exact
}
check cut_exactly
cut_at_key_frames() {
    curate copies --set clips.sound=true --set clips.cut=key_frames
    sounds copies key_frames
}
check cut_at_key_frames
clips_are_written_again() {
    needs cut_exactly
    local clip sum
    clip=$(ls exact/clips/*stereo*.mp4 | head -1)
    [ "$(ffprobe -v error -show_entries stream=codec_type -of csv=p=0 "$clip" | wc -l)" = 2 ] || fail "no sound"
    curate exact
    [ "$(ffprobe -v error -show_entries stream=codec_type -of csv=p=0 "$clip" | wc -l)" = 1 ] || fail "a clip keeps the sound that the config does not ask for"
    curate plain
    sum=$(md5sum <"$clip")
    [ "$sum" = "$(md5sum <"plain/clips/$(basename "$clip")")" ] || fail "without sound, the bytes differ"
}
check clips_are_written_again
finish
