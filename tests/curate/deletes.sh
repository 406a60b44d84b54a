#!/bin/bash
# What a run removes of earlier ones: clips that this folder's runs wrote and whose source was removed; nothing else.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
ff() { ffmpeg -v error -nostdin -y "$@"; }
curate() { "$WEFT" curate --in raw --out out --set quality.max_motion=99 --set quality.min_motion=0 "$@" >log 2>&1 || { cat log; exit 1; }; }
clips() { grep -o '"source_video":"[^"]*"' out/manifest.jsonl | cut -d'"' -f4 | sort | tr '\n' ' '; }
is() { [ "$2" = "$3" ] || { echo "$1: '$2', not '$3'"; cat log; exit 1; }; }
mkdir -p raw/disk raw/here
ff -f lavfi -i testsrc2=size=160x90:rate=24 -t 1 -pix_fmt yuv420p raw/top.mp4
ff -f lavfi -i mandelbrot=size=160x90:rate=24 -t 1 -pix_fmt yuv420p raw/disk/b.mp4
ff -f lavfi -i testsrc=size=176x96:rate=24 -t 1 -pix_fmt yuv420p raw/here/c.mp4
ff -f lavfi -i life=size=160x90:rate=24:mold=10:ratio=0.3:death_color=0x3060a0:life_color=0xf0e020 -t 1 -pix_fmt yuv420p raw/here/d.mp4
all_clips_are_written() {
    curate
    is "all clips" "$(clips)" "disk/b.mp4 here/c.mp4 here/d.mp4 top.mp4 "
}
check all_clips_are_written
# what others put there
echo mine >out/clips/precious.mp4
echo mine >out/clips/notes.txt
mkdir out/clips/folder
echo '{"id": "precious"}' >out/metas/precious.json
# a disk that is not mounted, a source that was removed
mv raw/disk away && mkdir raw/disk
rm raw/here/d.mp4
clips_of_a_missing_disk_stay() {
    curate
    has_message log clip-kept file=out 'text~=1 clips' text~=disk/b.mp4 || { cat log; exit 1; }
    has_message log clip-kept file=out text~=files || { cat log; exit 1; }
    is "without the disk" "$(clips)" "disk/b.mp4 here/c.mp4 top.mp4 "
    is "clips of weft" "$(ls out/clips/*-??????.mp4 | wc -l)" 3
    for f in clips/precious.mp4 clips/notes.txt clips/folder metas/precious.json; do [ -e out/$f ] || { echo "out/$f is gone"; exit 1; }; done
}
check clips_of_a_missing_disk_stay
# it comes back: nothing is written anew
nothing_is_written_anew() {
    stat -c '%n %Y %i' out/clips/*-??????.mp4 >before
    rmdir raw/disk && mv away raw/disk
    curate
    is "with the disk" "$(clips)" "disk/b.mp4 here/c.mp4 top.mp4 "
    stat -c '%n %Y %i' out/clips/*-??????.mp4 | diff before -
}
check nothing_is_written_anew
# gone for good
prune_missing_removes_clips() {
    rm -r raw/disk
    curate
    is "its folder is gone" "$(clips)" "disk/b.mp4 here/c.mp4 top.mp4 "
    curate --prune-missing
    is "forgotten" "$(clips)" "here/c.mp4 top.mp4 "
    is "clips in the end" "$(ls out/clips/*-??????.mp4 | wc -l)" 2
}
check prune_missing_removes_clips
# a clip that cannot be removed is an error, not silence
an_undeletable_clip_is_an_error() {
    if [ "$(id -u)" != 0 ]; then
        rm raw/here/c.mp4
        chmod 500 out/clips
        ! "$WEFT" curate --in raw --out out --set quality.max_motion=99 --set quality.min_motion=0 >log 2>&1
        has_message log permission-denied text~=out/clips/ || { cat log; exit 1; }
        chmod 700 out/clips
    fi
}
check an_undeletable_clip_is_an_error
finish
