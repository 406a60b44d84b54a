#!/bin/bash
# A run of `weft curate` removes only clips that earlier runs wrote into this folder and whose
# source was removed. Clips of a missing folder and files of other programs stay.
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
# files of other programs
echo mine >out/clips/precious.mp4
echo mine >out/clips/notes.txt
mkdir out/clips/folder
echo '{"id": "precious"}' >out/metas/precious.json
# a disk that is not mounted, and a source video that was removed
mv raw/disk away && mkdir raw/disk
rm raw/here/d.mp4
clips_of_a_missing_disk_are_kept() {
    curate
    has_message log files-left file=out 'text~=1 clips' text~=disk/b.mp4 || { cat log; exit 1; }
    has_message log files-left file=out text~=files || { cat log; exit 1; }
    is "without the disk" "$(clips)" "disk/b.mp4 here/c.mp4 top.mp4 "
    is "clips of weft" "$(ls out/clips/*-??????.mp4 | wc -l)" 3
    for f in clips/precious.mp4 clips/notes.txt clips/folder metas/precious.json; do [ -e out/$f ] || { echo "out/$f was removed"; exit 1; }; done
}
check clips_of_a_missing_disk_are_kept
# The disk is mounted again: no clip is encoded again.
no_clip_is_encoded_again() {
    stat -c '%n %Y %i' out/clips/*-??????.mp4 >before
    rmdir raw/disk && mv away raw/disk
    curate
    is "with the disk" "$(clips)" "disk/b.mp4 here/c.mp4 top.mp4 "
    stat -c '%n %Y %i' out/clips/*-??????.mp4 | diff before -
}
check no_clip_is_encoded_again
# the folder is removed for good
prune_missing_removes_clips() {
    rm -r raw/disk
    curate
    is "without the folder of disk/b.mp4" "$(clips)" "disk/b.mp4 here/c.mp4 top.mp4 "
    curate --prune-missing
    is "with --prune-missing" "$(clips)" "here/c.mp4 top.mp4 "
    is "clips in the end" "$(ls out/clips/*-??????.mp4 | wc -l)" 2
}
check prune_missing_removes_clips
# a clip that cannot be removed is an error
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
