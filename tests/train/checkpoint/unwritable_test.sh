#!/bin/bash
# An out that cannot be written, read-only or with a file in the way, is named by train, generate, curate and shard before the work,
# on one rank and on two; a disk that is full when the finished model is written leaves no half of one, and the same command ends well
# when there is room.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 && "$WEFT" train dit.yaml >dit.log 2>&1 || { cat vae.log dit.log; fail "weft train"; }

# refuse PATTERN COMMAND...: it fails and says so before the work
refuse() {
    take_message "$@"
    set -- "${rest[@]}"
    local status
    "$@" >refused.log 2>&1
    status=$?
    [ $status = 1 ] && has_message refused.log "${wanted[@]}" || fail "$*: not as expected"
    ! is_progress refused.log || { cat refused.log; fail "$*: refused after the work"; }
}
# try_all FOLDER PATTERN: every verb with an out below it
try_all() {
    refuse '*' "text~=$1" "text~=$2" -- "$WEFT" train dit.yaml --set out=$1/run
    refuse '*' "text~=$1" "text~=$2" -- "$MPIRUN" --oversubscribe -n 2 "$WEFT" train dit.yaml --set out=$1/run
    refuse '*' "text~=$1" "text~=$2" -- "$WEFT" curate --in raw/train --out $1/cur
    refuse '*' "text~=$1" "text~=$2" -- "$WEFT" shard --in cur --out $1/sh
    refuse '*' "text~=$1" "text~=$2" -- "$WEFT" generate --model runs/dit/model --prompt x --out $1/x.mp4
    refuse '*' "text~=$1" "text~=$2" -- "$MPIRUN" --oversubscribe -n 2 "$WEFT" generate --model runs/dit/model --prompt x --out $1/x.mp4
    refuse '*' "text~=$1" "text~=$2" -- "$WEFT" generate --model runs/dit/model --prompt x --out $1/videos
    refuse '*' "text~=$1" "text~=$2" -- "$WEFT" generate --model runs/dit/model --prompt x --out y.mp4 --sheet $1/x.png
    [ ! -e y.mp4 ] || fail "a video although its sheet was refused"
}
touch file
check a_file_in_the_way try_all file 'is a file'
the_file_in_the_way_is_kept() { [ ! -s file ] || fail "the file in the way was written"; }
check the_file_in_the_way_is_kept

if [ "$(id -u)" != 0 ] || ! { mkdir full && mount -t tmpfs -o size=8m tmpfs full; } 2>/dev/null; then
    check read_only_and_full_disks skip "no tmpfs can be mounted"
    finish
fi
trap 'umount full' EXIT
mount -o remount,ro full
check a_read_only_disk try_all full 'Read-only'
mount -o remount,rw full
nothing_is_left() { [ -z "$(ls full)" ] || fail "left on a read-only disk: $(ls full)"; }
check nothing_is_left

# all steps are done, the model does not fit
cp -r runs/dit full/run
rm -r full/run/model
bytes=$(du -sb runs/dit/model/transformer | cut -f1)
a_model_that_does_not_fit() { # RANKS
    local n=$1
    head -c 8m /dev/zero >full/filler 2>/dev/null
    truncate -s $(($(stat -c %s full/filler) - bytes / 2)) full/filler
    ranks $n "$WEFT" train dit.yaml --set out=full/run >full.log 2>&1 && { cat full.log; fail "a full disk, and exit code 0"; }
    has_message full.log disk-full 'file=full/run/model/transformer/*' || fail "the full disk is not named"
    [ -z "$(find full/run/model -type f)" ] || fail "left of a model: $(find full/run/model -type f)"
    rm full/filler
    ranks $n "$WEFT" train dit.yaml --set out=full/run >room.log 2>&1 || { cat room.log; fail "when there is room again"; }
    diff -r runs/dit/model full/run/model || fail "another model when there is room again"
    rm -r full/run/model
}
for n in 1 2; do check "a_model_that_does_not_fit_on_${n}_ranks" a_model_that_does_not_fit $n; done
finish
