#!/bin/bash
# An `out` that cannot be written (read-only disk, or a file in the way) is named by train,
# generate, curate and shard before the work, on one rank and on two. A disk that is full when the
# finished model is written leaves no part of a model, and the same command succeeds when the disk
# has space.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 && "$WEFT" train dit.yaml >dit.log 2>&1 || { cat vae.log dit.log; fail "weft train"; }

# refuse ID [FIELD=VALUE...] -- COMMAND...: the command fails with this message before the work
refuse() {
    take_message "$@"
    set -- "${rest[@]}"
    local status
    "$@" >refused.log 2>&1
    status=$?
    [ $status = 1 ] && has_message refused.log "${wanted[@]}" || fail "$*: another status or message than expected"
    ! is_progress refused.log || { cat refused.log; fail "$*: refused after the work"; }
}
# try_all FOLDER PATTERN: every verb with an output below FOLDER
try_all() {
    refuse '*' "text~=$1" "text~=$2" -- "$WEFT" train dit.yaml --set out=$1/run
    refuse '*' "text~=$1" "text~=$2" -- "$MPIRUN" --oversubscribe -n 2 "$WEFT" train dit.yaml --set out=$1/run
    refuse '*' "text~=$1" "text~=$2" -- "$WEFT" curate --in raw/train --out $1/cur
    refuse '*' "text~=$1" "text~=$2" -- "$WEFT" shard --in cur --out $1/sh
    refuse '*' "text~=$1" "text~=$2" -- "$WEFT" generate --model runs/dit/model --prompt x --out $1/x.mp4
    refuse '*' "text~=$1" "text~=$2" -- "$MPIRUN" --oversubscribe -n 2 "$WEFT" generate --model runs/dit/model --prompt x --out $1/x.mp4
    refuse '*' "text~=$1" "text~=$2" -- "$WEFT" generate --model runs/dit/model --prompt x --out $1/videos
    refuse '*' "text~=$1" "text~=$2" -- "$WEFT" generate --model runs/dit/model --prompt x --out y.mp4 --sheet $1/x.png
    [ ! -e y.mp4 ] || fail "a video was written although its sheet was refused"
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
nothing_is_left() { [ -z "$(ls full)" ] || fail "files were left on the read-only disk: $(ls full)"; }
check nothing_is_left

# All steps are done, and the finished model does not fit on the disk.
cp -r runs/dit full/run
rm -r full/run/model
bytes=$(du -sb runs/dit/model/transformer | cut -f1)
a_model_that_does_not_fit() { # RANKS
    local n=$1
    head -c 8m /dev/zero >full/filler 2>/dev/null
    truncate -s $(($(stat -c %s full/filler) - bytes / 2)) full/filler
    ranks $n "$WEFT" train dit.yaml --set out=full/run >full.log 2>&1 && { cat full.log; fail "exit code 0 with a full disk"; }
    has_message full.log disk-full 'file=full/run/model/transformer/*' || fail "the full disk is not named"
    [ -z "$(find full/run/model -type f)" ] || fail "parts of a model are left: $(find full/run/model -type f)"
    rm full/filler
    ranks $n "$WEFT" train dit.yaml --set out=full/run >room.log 2>&1 || { cat room.log; fail "the same command with free space failed"; }
    diff -r runs/dit/model full/run/model || fail "the same command with free space wrote another model"
    rm -r full/run/model
}
for n in 1 2; do check "a_model_that_does_not_fit_on_${n}_ranks" a_model_that_does_not_fit $n; done
finish
