#!/bin/bash
# A rank whose disk is slower than the deadline: the others wait for it, during a run and after its last step.
source "$SRC/tests/train/common.sh"
command -v gcc >/dev/null || { echo "no gcc to make a slow disk with"; exit 77; }
case $WEFT_BUILD in */asan | */tsan) echo "a preloaded library and sanitizers do not mix"; exit 77 ;; esac
cat >slow.c <<'C'
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd) /* of the process with rank 0 */
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (rank && *rank == '0')
        usleep(400 * 1000);
    return (int)syscall(SYS_fsync, fd);
}
C
gcc -shared -fPIC -o slow.so slow.c || fail "slow.so"
make_shards
write_configs
begin=$(date +%s)
"$MPIRUN" --oversubscribe -n 2 env LD_PRELOAD="$PWD/slow.so" "$WEFT" train vae.yaml --set deadline=2 --set checkpoint.every=4 >vae.log 2>&1 ||
    { cat vae.log; fail "a slow disk ended a healthy run"; }
took=$(($(date +%s) - begin))
[ $took -ge 4 ] || fail "the disk was not slow: $took s"
[ -f runs/vae/model/vae/config.json ] && [ -f runs/vae/checkpoints/step-00000008/state.json ] || fail "no model or checkpoint"
exit 0
