#include "storage/block_cache.h"

#include "base/config.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/log.h"
#include "storage/stoppable_wait.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STRIPES = 256, NAME_BYTES = 64, SUM_BYTES = 8, SPARE_BLOCKS = 4 };

/* A block that is open for reading. */
typedef struct open_block {
    char name[NAME_BYTES]; /* "": a free slot */
    int fd, users;
    int64_t used; /* time of the last use, on the cache's clock */
} open_block;

struct weft_block_cache {
    char *folder; /* owned */
    int64_t limit;
    mode_t mode;          /* of its files */
    pthread_mutex_t lock; /* of all below */
    open_block open[WEFT_BLOCK_OPEN_FILES];
    int64_t clock;
    char *spare[SPARE_BLOCKS]; /* owned; room for a block each */
    int spares;
    bool warned;
};

/* ---- settings ------------------------------------------------------------------------------ */

weft_status weft_block_cache_settings(char **folder, int64_t *limit)
{
    const char *named = getenv("WEFT_CACHE"), *bytes = getenv("WEFT_CACHE_BYTES"),
               *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    weft_buf path = {0};
    *limit = (int64_t)20 << 30;
    *folder = NULL;
    if (bytes && *bytes && (!weft_parse_i64(bytes, limit) || *limit < 0))
        return weft_error(WEFT_MSG_STORAGE_SETTINGS,
                          WEFT_AT(.key = "WEFT_CACHE_BYTES", .value = bytes),
                          "\"%s\" is not a number of bytes; write 20GiB, or 0 for no cache", bytes);
    if (*limit == 0)
        return WEFT_OK;
    if (named && *named)
        weft_buf_printf(&path, "%s", named);
    else if (base && *base)
        weft_buf_printf(&path, "%s/weft/blocks", base);
    else
        weft_buf_printf(&path, "%s/.cache/weft/blocks", home ? home : "");
    WEFT_TRY(weft_buf_check(&path));
    *folder = path.data;
    return WEFT_OK;
}

void weft_block_cache_close(weft_block_cache *c)
{
    if (!c)
        return;
    for (int i = 0; i < WEFT_BLOCK_OPEN_FILES; i++)
        if (*c->open[i].name)
            close(c->open[i].fd);
    for (int i = 0; i < c->spares; i++)
        weft_free(c->spare[i]);
    pthread_mutex_destroy(&c->lock);
    weft_free(c->folder);
    weft_free(c);
}

/* Room for a block. New memory costs the kernel as much as a copy of the block. */
static weft_status take_room(weft_block_cache *c, const char *name, char **data)
{
    pthread_mutex_lock(&c->lock);
    *data = c->spares > 0 ? c->spare[--c->spares] : NULL;
    pthread_mutex_unlock(&c->lock);
    if (!*data)
        *data = weft_alloc(WEFT_BLOCK_BYTES);
    return WEFT_ALLOCATED(*data, "a block of %s", name);
}

/* `data` NULL: none was taken. */
static void give_room(weft_block_cache *c, char *data)
{
    pthread_mutex_lock(&c->lock);
    if (data && c->spares < SPARE_BLOCKS) {
        c->spare[c->spares++] = data;
        data = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    weft_free(data);
}

/* ---- names and locks ----------------------------------------------------------------------- */

/* A block's range in its file, and its name in the folder. */
typedef struct block {
    int64_t at, bytes;
    char name[NAME_BYTES];
    int stripe;
} block;

static block block_at(const weft_block_file *f, int64_t at)
{
    block b = {.at = at / WEFT_BLOCK_BYTES * WEFT_BLOCK_BYTES};
    const int64_t left = f->facts.bytes - b.at;
    const int64_t numbers[] = {f->facts.bytes, (int64_t)f->facts.stamp, b.at};
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, f->origin, strlen(f->origin) + 1);
    XXH3_128bits_update(&state, f->name, strlen(f->name) + 1);
    XXH3_128bits_update(&state, numbers, sizeof numbers);
    const XXH128_hash_t hash = XXH3_128bits_digest(&state);
    b.bytes = left < WEFT_BLOCK_BYTES ? left : WEFT_BLOCK_BYTES;
    b.stripe = (int)(hash.low64 % STRIPES);
    snprintf(b.name, sizeof b.name, "%016" PRIx64 "%016" PRIx64 ".block", hash.high64, hash.low64);
    return b;
}

static const char *part_name(const block *b, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%.32s.part", b->name);
    return name;
}

static int open_in(const weft_block_cache *c, const char *name, int flags)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", c->folder, name);
    const int fd = open(path, flags | O_CLOEXEC, c->mode);
    if (fd >= 0 && flags & O_CREAT)
        (void)!fchmod(fd, c->mode); /* whatever the umask is; fails for files of other users */
    return fd;
}

static int remove_in(const weft_block_cache *c, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", c->folder, name);
    return unlink(path);
}

/* Locks a file of the folder until its descriptor is closed, also by the death of the process. -1:
 * it cannot be locked, the wait was stopped, or with `now` another process or thread has the lock.
 * A blocking flock would sleep through Ctrl-C, so the lock is asked for again and again. */
static int lock_file(const weft_block_cache *c, const char *name, bool now)
{
    enum { LONGEST_MS = 20 };
    const int fd = open_in(c, name, O_RDWR | O_CREAT);
    for (int64_t ms = 1; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;) {
        const bool held = errno == EWOULDBLOCK || errno == EINTR;
        if (!held || now || weft_stoppable_wait(ms) != WEFT_OK) {
            close(fd);
            return -1;
        }
        ms = ms < LONGEST_MS ? 2 * ms : LONGEST_MS;
    }
    return fd;
}

/* The error after a lock that was not taken; WEFT_E_CANCELLED if the wait was stopped. */
static weft_status cannot_lock(const weft_block_cache *c)
{
    const int error = errno;
    WEFT_TRY(weft_stop_check());
    errno = error;
    return weft_error_errno(WEFT_AT(.file = c->folder), "cannot lock the cache");
}

static int lock_stripe(const weft_block_cache *c, int stripe, bool now)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "lock-%03d", stripe);
    return lock_file(c, name, now);
}

/* ---- room ---------------------------------------------------------------------------------- */

typedef struct entry {
    char name[NAME_BYTES];
    int64_t bytes;
    struct timespec used;
} entry;

static int compare_age(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec)
        return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);
    return length >= tail && !strcmp(name + length - tail, end);
}

/* Whether it is the name of a block that is being written: 32 hex digits and ".part". */
static bool is_part(const char *name)
{
    return weft_hex_starts(name, 32) && !strcmp(name + 32, ".part");
}

/* Removes `name`, a part of a killed writer: the lock of its block is free. The lock is held
 * meanwhile, as the next writer uses the same name. */
static bool remove_left_over(const weft_block_cache *c, const char *name)
{
    char digits[WEFT_HEX_BYTES];
    uint64_t low;
    snprintf(digits, sizeof digits, "%.16s", name + 16);
    if (!weft_hex_parse(digits, &low))
        return false;
    const int fd = lock_stripe(c, (int)(low % STRIPES), true);
    if (fd < 0)
        return false;
    remove_in(c, name);
    close(fd);
    return true;
}

/* Lists the blocks, and removes what killed writers left. *total: their bytes, and room for the
 * blocks that are being written. */
static weft_status list_blocks(const weft_block_cache *c, entry **list, int64_t *count,
                               int64_t *total)
{
    int64_t capacity = 0;
    DIR *dir = opendir(c->folder);
    weft_status_code status = WEFT_OK;
    *list = NULL;
    *count = *total = 0;
    if (!dir)
        return weft_error_errno(WEFT_AT(.file = c->folder), "cannot list the cache");
    for (struct dirent *d; (d = readdir(dir));) {
        struct stat st;
        const bool is_block = ends_with(d->d_name, ".block");
        if ((!is_block && !is_part(d->d_name)) || strlen(d->d_name) >= NAME_BYTES ||
            fstatat(dirfd(dir), d->d_name, &st, 0) != 0)
            continue;
        if (!is_block && remove_left_over(c, d->d_name))
            continue;
        *total += is_block ? st.st_size : WEFT_BLOCK_BYTES + SUM_BYTES;
        if (!is_block)
            continue;
        WEFT_GO(weft_grow((void **)list, *count, &capacity, sizeof **list));
        entry *e = &(*list)[(*count)++];
        snprintf(e->name, sizeof e->name, "%.63s", d->d_name);
        e->bytes = st.st_size;
        e->used = st.st_mtim;
    }
out:
    closedir(dir);
    return status;
}

/* Removes the blocks that were used longest ago, until `bytes` fit. */
static weft_status evict(const weft_block_cache *c, int64_t bytes, int64_t *total)
{
    entry *list;
    int64_t count;
    /* some more than needed, so that a full cache is not listed for every block */
    const int64_t target = c->limit - c->limit / 16 - bytes;
    weft_status_code status = WEFT_OK;
    WEFT_GO(list_blocks(c, &list, &count, total));
    if (*total + bytes > c->limit) {
        qsort(list, (size_t)count, sizeof *list, compare_age);
        for (int64_t i = 0; i<count && * total> target; i++)
            if (remove_in(c, list[i].name) == 0 || errno == ENOENT)
                *total -= list[i].bytes;
    }
out:
    weft_free(list);
    return status;
}

/* Bytes of the folder; more than any limit if unknown. The caller has the lock of the file. */
static int64_t read_total(int fd)
{
    int64_t total;
    const bool known =
        pread(fd, &total, sizeof total, 0) == sizeof total && total >= 0 && total < INT64_MAX / 2;
    return known ? total : INT64_MAX / 2;
}

/* Makes the block's temporary file and adds its bytes to *total, if the cache has room. */
static weft_status make_part(weft_block_cache *c, const block *b, int64_t *total, bool *reserved)
{
    const int64_t bytes = b->bytes + SUM_BYTES;
    char part[NAME_BYTES];
    if (*total + bytes > c->limit && bytes <= c->limit) /* else no eviction makes room */
        WEFT_TRY(evict(c, bytes, total));
    if (*total + bytes > c->limit)
        return WEFT_OK;
    const int made = open_in(c, part_name(b, part), O_WRONLY | O_CREAT | O_TRUNC);
    if (made < 0)
        return weft_error_errno(WEFT_AT(.file = c->folder), "cannot write the cache");
    close(made);
    *total += bytes;
    *reserved = true;
    return WEFT_OK;
}

/* Reserves room for a block, and makes its temporary file, so that listings count it. *reserved is
 * false if the block cannot be cached. A process that dies before it writes leaves the total too
 * large; the next listing corrects it. */
static weft_status reserve(weft_block_cache *c, const block *b, bool *reserved)
{
    const int fd = lock_file(c, "total", false);
    *reserved = false;
    if (fd < 0)
        return cannot_lock(c);
    int64_t total = read_total(fd);
    weft_status_code status = WEFT_OK;
    WEFT_GO(make_part(c, b, &total, reserved));
    if (pwrite(fd, &total, sizeof total, 0) != sizeof total)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = c->folder), "cannot write the cache"));
out:
    close(fd);
    return status;
}

static void unreserve(weft_block_cache *c, int64_t bytes)
{
    const int fd = lock_file(c, "total", false);
    if (fd < 0)
        return;
    const int64_t total = read_total(fd) - bytes;
    (void)!pwrite(fd, &total, sizeof total, 0);
    close(fd);
}

/* ---- opening ------------------------------------------------------------------------------- */

static void remove_left_overs(const weft_block_cache *c)
{
    DIR *dir = opendir(c->folder);
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (is_part(d->d_name))
            remove_left_over(c, d->d_name);
    if (dir)
        closedir(dir);
}

/* Files have the access that writing into the folder needs: in a private one, the owner's. */
static mode_t mode_of(mode_t folder)
{
    return 0600 | (folder & 0020 ? 0060 : 0) | (folder & 0002 ? 0006 : 0);
}

weft_status weft_block_cache_open(const char *folder, int64_t limit, weft_block_cache **cache)
{
    weft_block_cache *c;
    const bool own = !weft_path_is_dir(folder);
    struct stat st;
    WEFT_TRY(weft_make_dirs(folder));
    if (own)
        (void)!chmod(folder, 0700);
    WEFT_TRY(WEFT_NEW(c, 1, "the cache"));
    c->folder = weft_strdup(folder);
    c->limit = limit;
    if (!c->folder) {
        weft_free(c);
        return weft_no_memory("the cache");
    }
    c->mode = mode_of(stat(folder, &st) == 0 ? st.st_mode : 0);
    pthread_mutex_init(&c->lock, NULL);
    remove_left_overs(c);
    *cache = c;
    return WEFT_OK;
}

/* ---- blocks -------------------------------------------------------------------------------- */

static weft_status write_all(int fd, const void *data, int64_t bytes)
{
    for (int64_t done = 0; done < bytes;) {
        const ssize_t n = write(fd, (const char *)data + done, (size_t)(bytes - done));
        if (n < 0 && errno != EINTR)
            return weft_error_errno(WEFT_NOWHERE, "cannot write the cache");
        done += n > 0 ? n : 0;
    }
    return WEFT_OK;
}

static weft_status write_with_sum(int fd, const char *data, int64_t bytes)
{
    const uint64_t sum = XXH3_64bits(data, (size_t)bytes);
    WEFT_TRY(write_all(fd, data, bytes));
    return write_all(fd, &sum, SUM_BYTES);
}

/* Writes the block and gives it its name. The caller has its lock. */
static weft_status write_block(const weft_block_cache *c, const block *b, const char *data)
{
    char part[NAME_BYTES], from[4096], to[4096];
    snprintf(from, sizeof from, "%s/%s", c->folder, part_name(b, part));
    snprintf(to, sizeof to, "%s/%s", c->folder, b->name);
    const int fd = open_in(c, part, O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0)
        return weft_error_errno(WEFT_AT(.file = from), "cannot write the cache");
    weft_status_code status = write_with_sum(fd, data, b->bytes);
    close(fd);
    WEFT_GO(status);
    if (rename(from, to) != 0)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = to), "cannot write the cache"));
out:
    if (status != WEFT_OK)
        unlink(from);
    return status;
}

/* Warns of a failure of the cache's disk; the read proceeds without the cache. */
static void warn_once(weft_block_cache *c)
{
    pthread_mutex_lock(&c->lock);
    const bool first = !c->warned;
    c->warned = true;
    pthread_mutex_unlock(&c->lock);
    if (first)
        weft_warn_error(WEFT_MSG_STORAGE_CACHE, "the file is read without the cache; WEFT_CACHE "
                                                "names another folder");
}

static weft_status keep(weft_block_cache *c, const block *b, const char *data)
{
    bool reserved;
    WEFT_TRY(reserve(c, b, &reserved));
    if (!reserved)
        return WEFT_OK;
    const weft_status_code status = write_block(c, b, data);
    if (status != WEFT_OK)
        unreserve(c, b->bytes + SUM_BYTES);
    return status;
}

/* Downloads the block into `data` and keeps it. */
static weft_status download(weft_block_cache *c, const weft_block_file *f, const block *b,
                            char *data)
{
    WEFT_TRY(f->read(f->self, f->name, b->at, b->bytes, data));
    const weft_status_code status = keep(c, b, data);
    if (status == WEFT_E_CANCELLED)
        return status;
    if (status != WEFT_OK)
        warn_once(c);
    return WEFT_OK;
}

/* Opens the block and verifies its checksum; -1: it is not there, or damaged and now removed. */
static int open_verified(const weft_block_cache *c, const block *b, char *data)
{
    uint64_t sum;
    const int fd = open_in(c, b->name, O_RDONLY);
    if (fd < 0)
        return -1;
    const bool whole = pread(fd, data, (size_t)b->bytes, 0) == b->bytes &&
                       pread(fd, &sum, sizeof sum, b->bytes) == sizeof sum &&
                       XXH3_64bits(data, (size_t)b->bytes) == sum;
    if (whole) {
        futimens(fd, (const struct timespec[]){{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}});
        return fd;
    }
    close(fd);
    remove_in(c, b->name);
    return -1;
}

/* Takes a block that this process has open; -1: none. */
static int take_open(weft_block_cache *c, const block *b, open_block **slot)
{
    int fd = -1;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < WEFT_BLOCK_OPEN_FILES && fd < 0; i++) {
        open_block *o = &c->open[i];
        if (*o->name && !strcmp(o->name, b->name)) {
            o->users++;
            o->used = ++c->clock;
            *slot = o;
            fd = o->fd;
        }
    }
    pthread_mutex_unlock(&c->lock);
    return fd;
}

static void give_open(weft_block_cache *c, open_block *slot)
{
    pthread_mutex_lock(&c->lock);
    slot->users--;
    pthread_mutex_unlock(&c->lock);
}

/* Keeps the verified block open for later reads, in place of the one that was used longest ago. */
static void keep_open(weft_block_cache *c, const block *b, int fd)
{
    open_block *oldest = NULL;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < WEFT_BLOCK_OPEN_FILES; i++) {
        open_block *o = &c->open[i];
        if (o->users == 0 && (!oldest || o->used < oldest->used))
            oldest = o;
    }
    if (oldest && *oldest->name)
        close(oldest->fd);
    if (oldest) {
        *oldest = (open_block){.fd = fd, .used = ++c->clock};
        memcpy(oldest->name, b->name, sizeof oldest->name);
    } else {
        close(fd);
    }
    pthread_mutex_unlock(&c->lock);
}

/* Reads the whole block into `data`: from the disk, or from the server by one process at a time. */
static weft_status load(weft_block_cache *c, const weft_block_file *f, const block *b, char *data)
{
    int fd = open_verified(c, b, data);
    if (fd < 0) {
        const int lock = lock_stripe(c, b->stripe, false);
        if (lock < 0) {
            if (cannot_lock(c) == WEFT_E_CANCELLED)
                return WEFT_E_CANCELLED;
            warn_once(c);
        }
        fd = open_verified(c, b, data); /* another process may have had the lock */
        const bool missing = fd < 0;
        const weft_status_code status = missing ? download(c, f, b, data) : WEFT_OK;
        if (missing && status == WEFT_OK)
            fd = open_in(c, b->name, O_RDONLY); /* this process has written it: no check */
        if (lock >= 0)
            close(lock);
        WEFT_TRY(status);
    }
    if (fd >= 0)
        keep_open(c, b, fd);
    return WEFT_OK;
}

/* Reads a part of one block. *data: room for a block, made at the first need. */
static weft_status read_piece(weft_block_cache *c, const weft_block_file *f, int64_t at,
                              int64_t bytes, char *to, char **data)
{
    const block b = block_at(f, at);
    open_block *slot;
    const int fd = take_open(c, &b, &slot);
    if (fd >= 0) {
        const bool whole = pread(fd, to, (size_t)bytes, at - b.at) == bytes;
        give_open(c, slot);
        if (whole)
            return WEFT_OK;
    }
    if (!*data)
        WEFT_TRY(take_room(c, f->name, data));
    WEFT_TRY(load(c, f, &b, *data));
    memcpy(to, *data + (at - b.at), (size_t)bytes);
    return WEFT_OK;
}

weft_status weft_block_cache_read(weft_block_cache *c, const weft_block_file *f, int64_t at,
                                  int64_t bytes, void *to)
{
    char *data = NULL;
    weft_status_code status = WEFT_OK;
    if (at + bytes > f->facts.bytes) /* the error is the server's */
        return f->read(f->self, f->name, at, bytes, to);
    for (int64_t done = 0; done < bytes;) {
        const int64_t here = at + done, left = bytes - done,
                      space = WEFT_BLOCK_BYTES - here % WEFT_BLOCK_BYTES,
                      n = left < space ? left : space;
        WEFT_GO(read_piece(c, f, here, n, (char *)to + done, &data));
        done += n;
    }
out:
    give_room(c, data);
    return status;
}

weft_status weft_block_cache_fetch(weft_block_cache *c, const weft_block_file *f, int64_t at)
{
    const block b = block_at(f, at);
    open_block *slot;
    char *data;
    if (take_open(c, &b, &slot) >= 0) {
        give_open(c, slot);
        return WEFT_OK;
    }
    WEFT_TRY(take_room(c, f->name, &data));
    const weft_status_code status = load(c, f, &b, data);
    give_room(c, data);
    return status;
}
