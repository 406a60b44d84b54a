#!/bin/bash
# Edited copies of two source videos (tools/near_sets.py): cropped, with a logo, as an inset, and
# without colours. They are found as partial duplicates, and the reason names the edit.
set -e
. "$SRC/tests/check.sh"
clips=${WEFT_SHARED:-}/videos/clips
[ -d "$clips" ] || skip "no shared footage"
mkdir footage
ln -s "$clips/rabbit-watermelon.mp4" "$clips/coffee.mp4" footage/
tool=$(dirname "$WEFT_BUILD")/tools/near_sets.py
python3 "$tool" make footage raw --seconds 2.5 --kinds crop15,logo,gray,inset
# Different people enter through the same door in sequence: similar frames, not duplicates.
ln -s "$clips/one-by-one-person-detection_30s.mp4" raw/people.mp4
run() { "$WEFT" curate --in raw --out "$1" --set clips.max_side=96 --set clips.preset=ultrafast "${@:2}" >log 2>&1 || { cat log; exit 1; }; }
copies_are_found_and_described() {
    run out
    python3 "$tool" score out | tee score
    grep -q '^copies found [78] of 8, false pairs 0$' score
    grep -q 'coffee--crop15.*cropped to [67].* %' out/rejects.jsonl
    grep -q '"source":"[a-z-]*--gray.*without colours' out/rejects.jsonl
    ! grep -q '"source":"people.mp4".*"duplicate"' out/rejects.jsonl || exit 1
}
check copies_are_found_and_described
# Drawn shapes that move over plain backgrounds are similar, but not partial duplicates. Of six seeds
# three have one false pair in 60 shots, such as two circles whose motion is mirrored.
drawn_shapes_are_not_duplicates() {
    "$WEFT" synth --out set --shots 60 --seed 4 --size 128 --held-out-clips 0 >/dev/null 2>&1
    "$WEFT" curate --in set/train --out drawn --set clips.max_side=96 --set clips.preset=ultrafast >log 2>&1
    ! grep -E '"duplicate".*(cropped|something else|without colours|mirrored)' drawn/rejects.jsonl || exit 1
}
check drawn_shapes_are_not_duplicates
# duplicates.partial_share=0 disables the comparison without decoding the videos again. Lost
# keypoint records are computed again.
partial_duplicates_are_disabled_and_recomputed() {
    needs copies_are_found_and_described
    run out --set duplicates.partial_share=0
    ! grep -q 'cropped to' out/rejects.jsonl || exit 1
    : >out/state/"$(ls out/state | grep 'coffee__crop15.*parts$')"
    run out
    python3 "$tool" score out | cmp - score
}
check partial_duplicates_are_disabled_and_recomputed
finish
