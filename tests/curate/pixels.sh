#!/bin/bash
# What a clip shows is what a player shows: rotation and pixel aspect are applied. And what may not be read costs itself only.
set -u
fail() { echo "FAILED: $*"; exit 1; }
ff() { ffmpeg -v error -nostdin -y "$@"; }
psnr() { # psnr CLIP SOURCE FILTER: of the clip against the filtered source
    ffmpeg -v info -nostdin -i "$1" -i "$2" -lavfi "[1:v]$3[b];[0:v][b]psnr" -f null - 2>&1 | sed -n 's/.*average:\([0-9.]*\|inf\).*/\1/p'
}
above() { awk "BEGIN { exit !($1 > $2) }" || fail "$3: $1 dB, more than $2 expected"; }
curate() { "$WEFT" curate --in "$1" --out "$2" --set quality.max_motion=99 --set quality.min_motion=0 --set duplicates.on=false --set clips.min_frames=5 --set clips.crf=4 >"$2.log" 2>&1 || { cat "$2.log"; fail "curate $1"; }; }

mkdir aspect
ff -f lavfi -i testsrc2=size=96x96:rate=24 -t 2 -vf setsar=2 -pix_fmt yuv420p -c:v libx264 -crf 4 aspect/wide.mp4
curate aspect out
[ "$(ffprobe -v error -show_entries stream=width,height,sample_aspect_ratio -of csv=p=0 out/clips/wide-*.mp4)" = 192,96,1:1 ] || fail "pixel aspect"
above "$(psnr out/clips/wide-*.mp4 aspect/wide.mp4 scale=192:96,setsar=1)" 22 "pixel aspect"

# a folder and a file that may not be read, next to one that may; as somebody who is not root
mkdir -p locked/in/shut locked/in/open
cp aspect/wide.mp4 locked/in/open/a.mp4
cp aspect/wide.mp4 locked/in/open/b.mp4
cp aspect/wide.mp4 locked/in/shut/c.mp4
cp "$WEFT" locked/weft
chmod 0 locked/in/shut locked/in/open/b.mp4
chmod a+rwx . locked
command="cd '$PWD/locked' && ./weft curate --in in --out out --set quality.max_motion=99 >log 2>&1"
if [ "$(id -u)" = 0 ]; then
    setpriv --reuid=65534 --regid=65534 --clear-groups bash -c "$command" || { cat locked/log; fail "curate with unreadable files"; }
else
    bash -c "$command" || { cat locked/log; fail "curate with unreadable files"; }
fi
grep -q '"source":"shut".*Permission denied' locked/out/rejects.jsonl || fail "the folder is not listed: $(cat locked/out/rejects.jsonl)"
grep -q '"source":"open/b.mp4".*Permission denied' locked/out/rejects.jsonl || fail "the file is not listed"
[ "$(wc -l <locked/out/manifest.jsonl)" = 1 ] || fail "the readable file gave no clip"

turned=$WEFT_SHARED/videos/odd/fire2_rot180_10fps.mp4
[ -f "$turned" ] || { echo "no shared footage: the turned video was not tried"; exit 77; }
mkdir turned
cp "$turned" turned/fire.mp4
curate turned turned_out
for clip in turned_out/clips/fire-*.mp4; do
    first=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["frame_span"][0])' "turned_out/metas/$(basename "$clip" .mp4).json")
    right=$(psnr "$clip" turned/fire.mp4 "trim=start_frame=$first,setpts=PTS-STARTPTS") # ffmpeg turns it
    above "$right" 28 "turned"
    wrong=$(psnr "$clip" turned/fire.mp4 "trim=start_frame=$first,setpts=PTS-STARTPTS,hflip,vflip")
    above "$right" "$wrong + 6" "turned against not turned"
done
