#!/bin/bash
# Choices of `weft curate`: the better of two copies is kept, bars of dark shots are those of the
# source video, captions are read in every file name and encoding, and changed limits do not decode
# the source videos again.
set -e
. "$SRC/tests/check.sh"
encode() { ffmpeg -v error -nostdin -y "$@"; }
mkdir src raw
encode -f lavfi -i mandelbrot=size=640x360:rate=24 -t 3 -c:v libx264 -crf 14 -preset veryfast -pix_fmt yuv420p src/a.mp4
encode -f lavfi -i testsrc2=size=640x360:rate=24 -t 3 -vf "hue=H=t/3,crop=600:320:20*sin(t):20" -c:v libx264 -crf 14 -preset veryfast -pix_fmt yuv420p src/b.mp4

# ---- copies: the name of the worse copy is first, so that the order of names does not decide ----
copy() { # NAME ARGS...
    local name=$1
    shift
    for v in $sources; do
        mkdir -p "raw/$name-$v"
        cp src/$v.mp4 "raw/$name-$v/original.mp4"
        encode -i src/$v.mp4 "$@" -preset veryfast -pix_fmt yuv420p "raw/$name-$v/copy.mp4"
    done
}
sources="a b"
copy doubled -vf fps=48 -c:v libx264 -crf 34
copy padded -vf scale=512:288,pad=512:512:0:112 -c:v libx264 -crf 14
copy slowed -vf scale=512:-2,setpts=1.06*PTS -r 24 -c:v libx264 -crf 16
copy starved -c:v libx264 -crf 40
sources=a # copies of b in another size have cuts at other frames
for colour in white red 0x3060a0; do
    copy "bars-$colour" -vf "scale=600:-2,pad=600:600:0:(oh-ih)/2:color=$colour" -c:v libx264 -crf 14
done
copy side -vf "scale=480:-2,pad=800:ih:160:0:color=green" -c:v libx264 -crf 14
copy mirrored -vf "hflip,scale=600:-2,pad=600:600:0:(oh-ih)/2:color=white" -c:v libx264 -crf 14
the_better_copy_is_kept() {
local set kept
for set in raw/*; do
    $WEFT curate --set clips.preset=ultrafast --in "$set" --out out >log 2>&1 || { cat log; exit 1; }
    kept=$(sed 's/.*"source_video":"\([^"]*\)".*/\1/' out/manifest.jsonl | sort -u | tr '\n' ' ')
    case $set in *slowed*) kept=${kept#copy.mp4 } ;; esac # this copy may count as another take, but never replaces the original
    [ "$kept" = "original.mp4 " ] || fail "$set: kept $kept"
    rm -rf out
done
}
check the_better_copy_is_kept
# mirrored copies are duplicates only with duplicates.mirrored
mirrored_copies_are_an_option() {
    $WEFT curate --set clips.preset=ultrafast --in raw/mirrored-a --out out --set duplicates.mirrored=false >log 2>&1 || { cat log; exit 1; }
    [ "$(sed 's/.*"source_video":"\([^"]*\)".*/\1/' out/manifest.jsonl | sort -u | tr '\n' ' ')" = "copy.mp4 original.mp4 " ] || fail "a mirrored copy was rejected without duplicates.mirrored"
python3 -S - <<'PY'
import json
for clip in map(json.loads, open('out/manifest.jsonl')):
    if clip['source_video'] == 'copy.mp4':
        assert clip['width'] == 600 and 320 <= clip['height'] <= 338, (clip['width'], clip['height'])
PY
}
check mirrored_copies_are_an_option

# ---- bars: a dark shot between two bright ones of one letterboxed video ------------------------
bars_of_a_dark_shot_are_those_of_the_video() {
mkdir film
encode -i src/a.mp4 -i src/b.mp4 -filter_complex "[0:v]split[p][q];[p]scale=640:272,setsar=1[x];[q]scale=640:272,setsar=1,negate[z];[1:v]scale=640:272,setsar=1,fps=24,lutyuv=y=16+(val-16)/8:u=128+(val-128)/8:v=128+(val-128)/8[y];[x][y][z]concat=n=3:v=1,pad=640:360:0:44" -c:v libx264 -crf 14 -pix_fmt yuv420p film/film.mp4
$WEFT curate --set clips.preset=ultrafast --in film --out bars --set quality.min_brightness=0 --set quality.min_sharpness=0 --set quality.min_motion=0 --set duplicates.on=false >log 2>&1
python3 -S - <<'PY'
import json
clips = [json.loads(x) for x in open('bars/manifest.jsonl')]
assert len(clips) >= 3, clips
dark = [c for c in clips if c['brightness_score'] < 32]
assert dark, [c['brightness_score'] for c in clips]
for c in clips:
    assert 256 <= c['height'] <= 272 and c['width'] == 640, (c['frame_span'], c['brightness_score'], c['width'], c['height'])
PY
}
check bars_of_a_dark_shot_are_those_of_the_video

# ---- captions ----------------------------------------------------------------------------------
mkdir said
for n in upper mixed number mark zero utf16 nothing; do cp src/a.mp4 said/$n.mp4; done
printf 'capital letters' >said/upper.TXT
printf '{"caption": "mixed letters"}' >said/mixed.Json
printf '{"caption": 42}' >said/number.json
printf '\xef\xbb\xbfa mark before it\r\n' >said/mark.txt
printf 'one\0two' >said/zero.txt
printf '\xff\xfeo\0n\0e\0' >said/utf16.txt
printf '{"title": "no caption"}' >said/nothing.json
captions_in_every_encoding() {
$WEFT curate --set clips.preset=ultrafast --in said --out told --set duplicates.on=false >log 2>&1
python3 -S - <<'PY'
import json
clips = [json.loads(x) for x in open('told/manifest.jsonl')]
said = {c['source_video']: c.get('caption') for c in clips}
assert said['upper.mp4'] == 'capital letters' and said['mixed.mp4'] == 'mixed letters' and said['mark.mp4'] == 'a mark before it', said
why = {r['source']: r['reason'] for r in map(json.loads, open('told/rejects.jsonl')) if r['operator'] == 'sidecar'}
assert sorted(why) == ['nothing.json', 'number.json', 'utf16.txt', 'zero.txt'], why
assert '42' in why['number.json'] and 'NUL' in why['zero.txt'] and 'UTF-16' in why['utf16.txt'] and 'neither' in why['nothing.json'], why
assert all(said[n + '.mp4'] is None for n in ('number', 'zero', 'utf16', 'nothing')), said
PY
}
check captions_in_every_encoding

# ---- changed limits give other clips from the records of the first run -------------------------
changed_limits_do_not_decode_again() {
    needs captions_in_every_encoding
stat -c '%n %Y %i' told/state/*.json >before
$WEFT curate --set clips.preset=ultrafast --in said --out told --set duplicates.on=false --set clips.crf=34 --set clips.max_side=160 >log 2>&1
[ "$(python3 -S -c "import json; print({json.loads(x)['width'] for x in open('told/manifest.jsonl')})")" = "{160}" ] || fail "clips are not encoded again after clips.max_side changed"
$WEFT curate --set clips.preset=ultrafast --in said --out told --set duplicates.on=false --set clips.crf=34 --set clips.max_side=160 --set quality.max_brightness=1 >log 2>&1
[ ! -s told/manifest.jsonl ] && [ -z "$(ls told/clips)" ] || fail "the changed limit has no effect"
$WEFT curate --set clips.preset=ultrafast --in said --out told --set duplicates.on=false >log 2>&1
stat -c '%n %Y %i' told/state/*.json | diff before - || fail "the source videos were decoded again"
$WEFT curate --set clips.preset=ultrafast --in said --out fresh --set duplicates.on=false >log 2>&1
diff -r -x state told fresh || fail "the folder differs after the settings were changed back"
}
check changed_limits_do_not_decode_again
finish
