#!/bin/bash
# A long shot and its excerpts. An excerpt of the same resolution is rejected. Sharper excerpts are
# kept, and they replace the long shot only if together they contain all of it.
set -e
. "$SRC/tests/check.sh"
ff() { ffmpeg -v error -nostdin -y "$@"; }
source="-f lavfi -i mandelbrot=size=320x180:rate=24:start_scale=2:end_scale=0.2:end_pts=300"
mkdir -p small part whole
ff $source -t 8 -vf scale=160:90 -pix_fmt yuv420p long.mp4
ff $source -t 8 -pix_fmt yuv420p sharp.mp4
ff -i sharp.mp4 -t 1 -vf scale=160:90 -crf 12 small/excerpt.mp4
ff -i sharp.mp4 -t 4 -crf 12 part/first.mp4
ff -i sharp.mp4 -t 4 -crf 12 whole/first.mp4
ff -ss 4 -i sharp.mp4 -t 4 -crf 12 whole/second.mp4
for set in small part whole; do
    cp long.mp4 $set/
    "$WEFT" curate --in $set --out $set.out --set quality.max_motion=99 --set quality.min_motion=0 --set shots.threshold=9 >log 2>&1 || { cat log; exit 1; }
    sed 's/.*"source":"\([^"]*\)".*"reason":"\([^"]*\)".*/\1: \2/' $set.out/rejects.jsonl >$set.txt
    cat $set.txt
done
a_short_excerpt_is_a_copy() {
    # at equal resolution, the longer shot ranks first
    grep -q '^excerpt.mp4: shows the same as long.mp4' small.txt && [ "$(wc -l <small.txt)" = 1 ]
}
check a_short_excerpt_is_a_copy
an_excerpt_of_half_keeps_the_long_shot() {
    [ ! -s part.txt ] # no excerpt contains the other half
}
check an_excerpt_of_half_keeps_the_long_shot
excerpts_of_everything_replace_the_long_shot() {
    grep -q '^long.mp4: shows the same as' whole.txt && [ "$(wc -l <whole.txt)" = 1 ]
}
check excerpts_of_everything_replace_the_long_shot
finish
