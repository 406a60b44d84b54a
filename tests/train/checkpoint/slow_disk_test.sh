#!/bin/bash
# The disk of rank 0 is slow. The other rank waits for it before the run, during the run and after
# the last step, because rank 0 reports that it is busy. Here each fsync returns only after such a
# report, so that the test does not depend on time: without a report it would not end.
# tests/comm/channel_test.c proves that a rank waits longer than comm_timeout for a busy rank.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
command -v cc >/dev/null || skip "no cc to make a slow disk with"
case $WEFT_BUILD in */asan | */tsan) skip "a preloaded library and sanitizers do not mix" ;; esac
cat >slow.c <<'C'
#include "slow_clock.c"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
enum { REPORT = 200 }; /* WEFT_COMM_NOTE: bytes of a report, which begins with '*' */
static atomic_long reports;

int MPI_Isend(const void *data, int count, void *type, int to, int tag, void *comm, void *request)
{
    static int (*own)(const void *, int, void *, int, int, void *, void *);
    if (!own)
        own = (int (*)(const void *, int, void *, int, int, void *, void *))dlsym(RTLD_NEXT, "PMPI_Isend");
    const int result = own(data, count, type, to, tag, comm, request);
    if (count == REPORT && *(const char *)data == '*')
        atomic_fetch_add(&reports, 1);
    return result;
}
/* Returns when rank 0 has reported that it is busy. Reports are 5 s apart on its clock, which
 * therefore runs ahead. */
static void take_long(const char *path)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    const long before = atomic_load(&reports);
    if (!rank || *rank != '0')
        return;
    atomic_fetch_add(&added, 6L * SECOND);
    for (int ms = 0; atomic_load(&reports) == before; ms++) {
        usleep(1000);
        if (ms > 100000) { /* a guard against hanging */
            fprintf(stderr, "%s: rank 0 does not report that it is busy\n", path);
            abort();
        }
    }
    FILE *list = fopen("waits", "a");
    fprintf(list, "%s\n", path);
    fclose(list);
}
int fsync(int fd)
{
    char name[64], path[4096] = "";
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (readlink(name, path, sizeof path - 1) > 0)
        take_long(path);
    return (int)syscall(SYS_fsync, fd);
}
int stat(const char *path, struct stat *st)
{
    const char *name = strrchr(path, '/');
    if (name && !strcmp(name, "/profile.json"))
        take_long(path);
    return fstatat(AT_FDCWD, path, st, 0);
}
C
cc -D_GNU_SOURCE -I "$SRC/tests" -shared -fPIC -o slow.so slow.c -ldl || fail "slow.so"
make_shards
write_configs
slowly() { "$MPIRUN" --oversubscribe -n 2 env LD_PRELOAD="$PWD/slow.so" "$WEFT" train "$@"; }
a_slow_disk_is_waited_for() {
    slowly vae.yaml --set checkpoint.interval=4 >vae.log 2>&1 || { cat vae.log; fail "a slow disk ended the run"; }
    for path in runs/vae/checkpoints/ runs/vae/model runs/vae/data-stage-0.json; do
        grep -qF "$path" waits || { cat waits; fail "no wait for $path: the test is void"; }
    done
    [ -f runs/vae/model/vae/config.json ] && [ -f runs/vae/checkpoints/step-00000008/state.json ] || fail "no model or checkpoint"
}
check a_slow_disk_is_waited_for
# The other rank also waits while rank 0 reads a profile for the layout search.
a_slow_choice_is_waited_for() {
    needs a_slow_disk_is_waited_for
    slowly dit.yaml --set parallel.cp=2 --set parallel.context=auto --set stages.0.steps=1 --set stages.1.steps=1 >dit.log 2>&1 ||
        { cat dit.log; fail "a slow layout search ended the run"; }
    for path in latents/ layout-choice.json data-stage-1.json; do
        grep -q "runs/dit/.*$path" waits || { cat waits; fail "no wait for $path: the test is void"; }
    done
    grep -qF /profile.json waits || { cat waits; fail "no wait for the profile: the test is void"; }
    has_message dit.log layout-chosen "text~=context: auto" || fail "the chosen layout is not reported"
}
check a_slow_choice_is_waited_for
finish
