#!/bin/bash
# The disk of rank 0 is slower than comm_timeout. The other rank waits for it before the run, during
# the run and after the last step, because rank 0 reports that it is busy.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
command -v gcc >/dev/null || skip "no gcc to make a slow disk with"
case $WEFT_BUILD in */asan | */tsan) skip "a preloaded library and sanitizers do not mix" ;; esac
cat >slow.c <<'C'
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static int is_first(void) /* the process with rank 0 */
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return rank && *rank == '0';
}
int fsync(int fd)
{
    if (is_first())
        usleep(400 * 1000);
    return (int)syscall(SYS_fsync, fd);
}
int stat(const char *path, struct stat *st)
{
    const char *name = strrchr(path, '/');
    if (is_first() && name && !strcmp(name, "/profile.json"))
        sleep(5);
    return fstatat(AT_FDCWD, path, st, 0);
}
C
gcc -shared -fPIC -o slow.so slow.c || fail "slow.so"
make_shards
write_configs
a_slow_disk_is_waited_for() {
    begin=$(date +%s)
    "$MPIRUN" --oversubscribe -n 2 env LD_PRELOAD="$PWD/slow.so" "$WEFT" train vae.yaml --set comm_timeout=2 --set checkpoint.interval=4 >vae.log 2>&1 ||
        { cat vae.log; fail "a slow disk ended the run"; }
    took=$(($(date +%s) - begin))
    [ $took -ge 4 ] || fail "the disk was not slow, the test is void: $took s"
    [ -f runs/vae/model/vae/config.json ] && [ -f runs/vae/checkpoints/step-00000008/state.json ] || fail "no model or checkpoint"
}
check a_slow_disk_is_waited_for
# The other rank also waits while rank 0 reads a profile for the layout search.
a_slow_choice_is_waited_for() {
    needs a_slow_disk_is_waited_for
    begin=$(date +%s)
    "$MPIRUN" --oversubscribe -n 2 env LD_PRELOAD="$PWD/slow.so" "$WEFT" train dit.yaml --set comm_timeout=2 --set parallel.cp=2 --set parallel.context=auto --set stages.0.steps=1 --set stages.1.steps=1 >dit.log 2>&1 ||
        { cat dit.log; fail "a slow layout search ended the run"; }
    took=$(($(date +%s) - begin))
    [ $took -ge 5 ] || fail "the layout search was not slow, the test is void: $took s"
    has_message dit.log layout-chosen "text~=context: auto" || fail "the chosen layout is not reported"
}
check a_slow_choice_is_waited_for
finish
