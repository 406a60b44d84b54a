#include "curate/curate_folder.h"

#include "base/fs.h"
#include "base/hex.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

bool weft_curate_is_own(const weft_curate_config *config, uint64_t hash)
{
    return config->shards == 0 || hash % (uint64_t)config->shards == (uint64_t)config->shard;
}

/* ---- leftovers ----------------------------------------------------------------------------- */

/* A temporary file of this run's videos. Files of a video are "STEM-HASH.json" or
 * "STEM-HASH-FRAME.mp4", and a stem has no '-'. */
static bool is_own_temporary(const char *name, void *user)
{
    const weft_curate_config *config = user;
    const char *dash = strchr(name, '-');
    char hex[WEFT_HEX_BYTES];
    uint64_t hash;
    if (!weft_is_temporary(name) || config->worker)
        return false;
    if (config->shards == 0)
        return true;
    snprintf(hex, sizeof hex, "%s", dash ? dash + 1 : "");
    return weft_hex_parse(hex, &hash) && weft_curate_is_own(config, hash);
}

static weft_status clean_folder(const char *dir, const weft_curate_config *config)
{
    WEFT_TRY(weft_make_dirs(dir));
    return weft_remove_files(dir, is_own_temporary, (void *)config);
}

weft_status weft_curate_remove_temporaries(const char *out, const weft_curate_config *config)
{
    static const char *const folders[] = {"state", "clips", "metas"};
    for (int i = 0; i < WEFT_COUNT(folders); i++) {
        char *dir = weft_path_join(out, folders[i]);
        WEFT_TRY(WEFT_ALLOCATED(dir, "the curation"));
        const weft_status_code status = clean_folder(dir, config);
        weft_free(dir);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

/* ---- locks --------------------------------------------------------------------------------- */

/* Opens OUT/state/NAME and locks it. *fd is -1 if another process has the lock. */
static weft_status lock_file(const char *out, const char *name, int how, int *fd)
{
    char *folder = weft_path_join(out, "state"),
         *path = folder ? weft_path_join(folder, name) : NULL;
    int file = -1;
    *fd = -1;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(path, "the curation"));
    WEFT_GO(weft_make_dirs(folder));
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = path), "cannot open the lock of this folder"));
    int failed;
    do
        failed = flock(file, how);
    while (failed && errno == EINTR);
    if (!failed)
        *fd = file;
    else if (errno != EWOULDBLOCK)
        status = weft_error_errno(WEFT_AT(.file = path), "cannot lock this folder");
out:
    if (*fd < 0 && file >= 0)
        close(file);
    weft_free(folder);
    weft_free(path);
    return status;
}

weft_status weft_curate_lock_settings(const char *out, int *fd)
{
    return lock_file(out, "settings.lock", LOCK_EX, fd);
}

void weft_curate_locks_release(const weft_curate_locks *locks)
{
    if (locks->shard >= 0)
        close(locks->shard);
    if (locks->folder >= 0)
        close(locks->folder);
}

/* Like lock_file, but with config->wait it polls until the lock is free: a lock on a network file
 * system cannot be waited for and be interrupted. */
static weft_status take(const char *out, const char *name, int how, const weft_curate_config *c,
                        int *fd)
{
    WEFT_TRY(lock_file(out, name, how | LOCK_NB, fd));
    if (*fd < 0 && c->wait)
        weft_notice(WEFT_MSG_FOLDER_LOCKED, WEFT_AT(.file = out, .value = name),
                    "waiting for another run that is working on this folder");
    while (*fd < 0 && c->wait) {
        WEFT_TRY(weft_interrupt_check());
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        WEFT_TRY(lock_file(out, name, how | LOCK_NB, fd));
    }
    return WEFT_OK;
}

/* A run of shard 1 of 4 and one of shard 1 of 8 analyse the same videos: harmless, as both write
 * the same records. */
static weft_status lock_shard(const char *out, const weft_curate_config *c, int *fd)
{
    char name[64];
    snprintf(name, sizeof name, "shard-%" PRId64 "-of-%" PRId64 ".lock", c->shard, c->shards);
    WEFT_TRY(take(out, name, LOCK_EX, c, fd));
    if (*fd >= 0)
        return WEFT_OK;
    return weft_error(WEFT_MSG_FOLDER_LOCKED, WEFT_AT(.file = out, WEFT_NUMBER(c->shard)),
                      "another run is working on shard %" PRId64 " of %" PRId64
                      " of this folder. Wait for that run, or end it",
                      c->shard, c->shards);
}

weft_status weft_curate_locks_take(const char *out, const weft_curate_config *c,
                                   weft_curate_locks *locks)
{
    *locks = (weft_curate_locks){-1, -1};
    const bool shared = c->shards > 0 || c->worker;
    WEFT_TRY(take(out, "lock", shared ? LOCK_SH : LOCK_EX, c, &locks->folder));
    if (locks->folder < 0)
        return weft_error(WEFT_MSG_FOLDER_LOCKED, WEFT_AT(.file = out),
                          "another curation is working on this folder%s",
                          shared ? ", and not on a shard of it" : "");
    const weft_status_code status = c->shards ? lock_shard(out, c, &locks->shard) : WEFT_OK;
    if (status != WEFT_OK) {
        weft_curate_locks_release(locks);
        *locks = (weft_curate_locks){-1, -1};
    }
    return status;
}
