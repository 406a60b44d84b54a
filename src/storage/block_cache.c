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

enum { STRIPES = 256, NAME_BYTES = 64, SPARE_BLOCKS = 4, MOST_LOADING = 64 };

/* A block that is open for reading. */
typedef struct open_block {
    XXH128_hash_t key; /* the block's */
    bool taken;        /* false: a free slot */
    bool alone;        /* not a slot: freed by its only user */
    bool damaged;      /* found by no later read */
    int fd, users;
    int64_t used; /* time of the last use, on the cache's clock */
    weft_block_sums sums;
} open_block;

struct weft_block_cache {
    char *folder; /* owned */
    int64_t limit;
    mode_t mode;          /* of its files */
    pthread_mutex_t lock; /* of all below */
    open_block open[WEFT_BLOCK_OPEN_FILES];
    int64_t clock;
    pid_t writer;                        /* process of `loading` */
    XXH128_hash_t loading[MOST_LOADING]; /* blocks that threads of this process write */
    int loads;
    pthread_cond_t loaded;     /* a block left `loading` */
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
        if (c->open[i].taken)
            close(c->open[i].fd);
    for (int i = 0; i < c->spares; i++)
        weft_free(c->spare[i]);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->loaded);
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
    XXH128_hash_t key; /* hash of the file, its version and `at` */
    char name[NAME_BYTES];
    int stripe;
} block;

static block block_at(const weft_block_file *f, int64_t at)
{
    block b = {.at = at / WEFT_BLOCK_BYTES * WEFT_BLOCK_BYTES};
    const int64_t left = f->facts.bytes - b.at;
    const int64_t numbers[] = {f->facts.bytes, (int64_t)f->facts.stamp, b.at, WEFT_BLOCK_PIECE};
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, f->origin, strlen(f->origin) + 1);
    XXH3_128bits_update(&state, f->name, strlen(f->name) + 1);
    XXH3_128bits_update(&state, numbers, sizeof numbers);
    const XXH128_hash_t hash = XXH3_128bits_digest(&state);
    b.key = hash;
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

/* Locks a file of the folder until unlock_file, or the death of the process. -1: it cannot be
 * locked, the wait was stopped, or with `now` another process or thread has the lock. A blocking
 * flock would sleep through Ctrl-C, so the lock is asked for again and again. */
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

/* A close alone would leave the lock to a forked child. */
static void unlock_file(int fd)
{
    flock(fd, LOCK_UN);
    close(fd);
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
    unlock_file(fd);
    return true;
}

/* Lists the blocks, and removes files of killed writers. *total: bytes of all blocks, also of
 * unfinished ones. The caller has the lock of the file `total`, under which blocks are begun, named
 * and given up, so that each is counted once. */
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
        *total += st.st_size;
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

/* Opens a new temporary file of the block as *fd and adds its bytes to *total, if the cache has
 * room. The file of a killed writer is not truncated but replaced: ext4 writes a truncated file to
 * the disk when it is closed. */
static weft_status make_part(weft_block_cache *c, const block *b, int64_t *total, int *fd)
{
    const int64_t bytes = weft_block_file_bytes(b->bytes);
    char part[NAME_BYTES];
    if (*total + bytes > c->limit && bytes <= c->limit) /* else no eviction makes room */
        WEFT_TRY(evict(c, bytes, total));
    if (*total + bytes > c->limit)
        return WEFT_OK;
    remove_in(c, part_name(b, part));
    *fd = open_in(c, part, O_RDWR | O_CREAT | O_EXCL);
    if (*fd < 0)
        return weft_error_errno(WEFT_AT(.file = c->folder), "cannot write the cache");
    *total += bytes;
    return ftruncate(*fd, bytes) == 0 /* listings count its size */
               ? WEFT_OK
               : weft_error_errno(WEFT_AT(.file = c->folder), "cannot write the cache");
}

/* Reserves room for a block, and opens its temporary file, so that listings count it. *fd is -1 if
 * the block cannot be cached. A process that dies before it writes leaves the total too large; the
 * next listing corrects it. The caller has the block's lock. */
static weft_status reserve(weft_block_cache *c, const block *b, int *fd)
{
    const int file = lock_file(c, "total", false);
    *fd = -1;
    if (file < 0)
        return cannot_lock(c);
    int64_t total = read_total(file);
    weft_status_code status = WEFT_OK;
    WEFT_GO(make_part(c, b, &total, fd));
    if (pwrite(file, &total, sizeof total, 0) != sizeof total)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = c->folder), "cannot write the cache"));
out:
    if (status != WEFT_OK && *fd >= 0) {
        char part[NAME_BYTES];
        remove_in(c, part_name(b, part));
        close(*fd);
        *fd = -1;
    }
    unlock_file(file);
    return status;
}

/* Removes the temporary file of a block, and its bytes from the total. */
static void unreserve(weft_block_cache *c, const block *b)
{
    char part[NAME_BYTES];
    const int fd = lock_file(c, "total", false);
    const bool removed = remove_in(c, part_name(b, part)) == 0;
    if (fd < 0)
        return;
    const int64_t total = read_total(fd) - (removed ? weft_block_file_bytes(b->bytes) : 0);
    (void)!pwrite(fd, &total, sizeof total, 0);
    unlock_file(fd);
}

/* Gives the temporary file of a block its name. */
static weft_status name_block(weft_block_cache *c, const block *b)
{
    char part[NAME_BYTES], from[4096], to[4096];
    const int fd = lock_file(c, "total", false);
    if (fd < 0)
        return cannot_lock(c);
    snprintf(from, sizeof from, "%s/%s", c->folder, part_name(b, part));
    snprintf(to, sizeof to, "%s/%s", c->folder, b->name);
    const weft_status_code status =
        rename(from, to) == 0 ? WEFT_OK
                              : weft_error_errno(WEFT_AT(.file = to), "cannot write the cache");
    unlock_file(fd);
    return status;
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
    c->writer = getpid();
    if (!c->folder) {
        weft_free(c);
        return weft_no_memory("the cache");
    }
    c->mode = mode_of(stat(folder, &st) == 0 ? st.st_mode : 0);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->loaded, NULL);
    remove_left_overs(c);
    *cache = c;
    return WEFT_OK;
}

/* ---- open blocks --------------------------------------------------------------------------- */

/* The caller has the lock. NULL: not open. */
static open_block *find_open(weft_block_cache *c, const block *b)
{
    for (int i = 0; i < WEFT_BLOCK_OPEN_FILES; i++) {
        open_block *o = &c->open[i];
        if (o->taken && !o->damaged && XXH128_isEqual(o->key, b->key))
            return o;
    }
    return NULL;
}

/* Takes a block that this process has open; NULL: none. */
static open_block *take_open(weft_block_cache *c, const block *b)
{
    pthread_mutex_lock(&c->lock);
    open_block *o = find_open(c, b);
    if (o) {
        o->users++;
        o->used = ++c->clock;
    }
    pthread_mutex_unlock(&c->lock);
    return o;
}

static void give_open(weft_block_cache *c, open_block *o)
{
    pthread_mutex_lock(&c->lock);
    const bool last = --o->users == 0 && (o->alone || o->damaged);
    const int fd = o->fd;
    const bool alone = o->alone;
    if (last)
        o->taken = false;
    pthread_mutex_unlock(&c->lock);
    if (last)
        close(fd);
    if (last && alone)
        weft_free(o);
}

/* Later reads do not find the block, neither open nor in the folder. */
static void drop_damaged(weft_block_cache *c, open_block *o, const block *b)
{
    pthread_mutex_lock(&c->lock);
    const bool first = !o->damaged;
    o->damaged = true;
    pthread_mutex_unlock(&c->lock);
    if (first)
        remove_in(c, b->name);
}

/* A free slot, or the one that was used longest ago, closed; NULL: all are in use. The caller has
 * the lock. */
static open_block *find_slot(weft_block_cache *c)
{
    open_block *best = NULL;
    for (int i = 0; i < WEFT_BLOCK_OPEN_FILES; i++) {
        open_block *o = &c->open[i];
        if (!o->taken)
            return o;
        if (o->users == 0 && (!best || o->used < best->used))
            best = o;
    }
    if (best)
        close(best->fd);
    return best;
}

/* Keeps the block open for later reads, in use. `fd` becomes the cache's. NULL: it is closed,
 * as memory is missing. */
static open_block *keep_open(weft_block_cache *c, const block *b, int fd, const uint64_t *sum,
                             bool verified)
{
    pthread_mutex_lock(&c->lock);
    open_block *o = find_open(c, b);
    const bool had = o != NULL;
    if (!o)
        o = find_slot(c);
    const bool alone = !o;
    if (alone)
        o = weft_alloc(sizeof *o);
    if (o && !had) {
        o->key = b->key;
        o->taken = true;
        o->alone = alone;
        o->damaged = false;
        o->fd = fd;
        o->users = 0;
        weft_block_sums_set(&o->sums, b->bytes, sum, verified);
    }
    if (o) {
        o->users++;
        o->used = ++c->clock;
    }
    pthread_mutex_unlock(&c->lock);
    if (had || !o)
        close(fd);
    return o;
}

/* Opens a block of the folder, in use. NULL: the folder does not have the block, or it was damaged
 * and is now removed. */
static open_block *open_in_folder(weft_block_cache *c, const block *b)
{
    uint64_t sum[WEFT_BLOCK_PIECES];
    const int fd = open_in(c, b->name, O_RDONLY);
    if (fd < 0)
        return NULL;
    if (!weft_block_sums_read(fd, b->bytes, sum)) {
        close(fd);
        remove_in(c, b->name);
        return NULL;
    }
    futimens(fd, (const struct timespec[]){{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}});
    return keep_open(c, b, fd, sum, false);
}

/* Takes a block that this process or the folder has. NULL: neither. */
static open_block *take(weft_block_cache *c, const block *b)
{
    open_block *o = take_open(c, b);
    return o ? o : open_in_folder(c, b);
}

/* ---- blocks that are being written --------------------------------------------------------- */

/* The caller has the lock. -1: no thread of this process writes it. A forked child has none of the
 * threads whose blocks the parent listed. */
static int find_loading(weft_block_cache *c, const block *b)
{
    if (c->writer != getpid()) {
        c->writer = getpid();
        c->loads = 0;
    }
    int i = c->loads - 1;
    while (i >= 0 && !XXH128_isEqual(c->loading[i], b->key))
        i--;
    return i;
}

/* Makes this thread the one of the process that writes the block. False: another one is, and with
 * `wait` it has ended its work now; or the wait was stopped. */
static bool begin_loading(weft_block_cache *c, const block *b, bool wait)
{
    enum { LOOK_NS = 50000000 }; /* interval of looks for Ctrl-C */
    pthread_mutex_lock(&c->lock);
    bool mine = find_loading(c, b) < 0;
    for (bool busy = !mine; busy && wait && !weft_stop_requested();
         busy = find_loading(c, b) >= 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&c->loaded, &c->lock, &until);
    }
    if (mine && c->loads < MOST_LOADING)
        c->loading[c->loads++] = b->key;
    pthread_mutex_unlock(&c->lock);
    return mine;
}

static void end_loading(weft_block_cache *c, const block *b)
{
    pthread_mutex_lock(&c->lock);
    const int i = find_loading(c, b);
    if (i >= 0)
        c->loading[i] = c->loading[--c->loads];
    pthread_cond_broadcast(&c->loaded);
    pthread_mutex_unlock(&c->lock);
}

bool weft_block_cache_has(weft_block_cache *c, const weft_block_file *f, int64_t at)
{
    const block b = block_at(f, at);
    pthread_mutex_lock(&c->lock);
    const bool has = find_open(c, &b) || find_loading(c, &b) >= 0;
    pthread_mutex_unlock(&c->lock);
    return has;
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

/* ---- writing ------------------------------------------------------------------------------- */

/* Ends a block that is not complete. */
static void abort_block(weft_block_cache *c, const block *b, int fd)
{
    close(fd);
    unreserve(c, b);
}

/* Writes the sums, gives the block its name, and keeps it open. Nothing remains after an error. */
static weft_status end_block(weft_block_cache *c, const block *b, weft_block_writer *w)
{
    weft_status_code status = weft_block_writer_end(w);
    if (status == WEFT_OK)
        status = name_block(c, b);
    WEFT_GO(status);
    open_block *o = keep_open(c, b, w->fd, w->sum, true);
    if (o)
        give_open(c, o);
    return WEFT_OK;
out:
    abort_block(c, b, w->fd);
    return status;
}

static weft_status keep(weft_block_cache *c, const block *b, const char *data)
{
    int fd;
    WEFT_TRY(reserve(c, b, &fd));
    if (fd < 0)
        return WEFT_OK;
    weft_block_writer w;
    weft_block_writer_begin(&w, fd, b->bytes);
    const weft_status_code status = weft_block_writer_add(&w, data, b->bytes);
    if (status == WEFT_OK)
        return end_block(c, b, &w);
    abort_block(c, b, fd);
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

/* ---- reading ------------------------------------------------------------------------------- */

/* Reads a part of a block that was taken, and gives it back. False: it was damaged. */
static bool read_open(weft_block_cache *c, open_block *o, const block *b, int64_t at, int64_t bytes,
                      char *to)
{
    const bool whole = weft_block_read(&o->sums, o->fd, at, bytes, to);
    if (!whole)
        drop_damaged(c, o, b);
    give_open(c, o);
    return whole;
}

/* Downloads a block, unless another process has written it meanwhile, and copies a part to `to`. */
static weft_status load(weft_block_cache *c, const weft_block_file *f, const block *b, int64_t at,
                        int64_t bytes, char *to, char **data)
{
    const int lock = lock_stripe(c, b->stripe, false);
    if (lock < 0) {
        if (cannot_lock(c) == WEFT_E_CANCELLED)
            return WEFT_E_CANCELLED;
        warn_once(c);
    }
    weft_status_code status = WEFT_OK;
    open_block *o = take(c, b);
    if (o && read_open(c, o, b, at, bytes, to))
        goto out;
    if (!*data)
        WEFT_GO(take_room(c, f->name, data));
    WEFT_GO(download(c, f, b, *data));
    memcpy(to, *data + at, (size_t)bytes);
out:
    if (lock >= 0)
        unlock_file(lock);
    return status;
}

/* Reads a part of one block. *data: room for a block, made at the first need. */
static weft_status read_piece(weft_block_cache *c, const weft_block_file *f, int64_t at,
                              int64_t bytes, char *to, char **data)
{
    const block b = block_at(f, at);
    for (;;) {
        open_block *o = take(c, &b);
        if (o && read_open(c, o, &b, at - b.at, bytes, to))
            return WEFT_OK;
        if (begin_loading(c, &b, true))
            break;
        WEFT_TRY(weft_stop_check());
    }
    const weft_status_code status = load(c, f, &b, at - b.at, bytes, to, data);
    end_loading(c, &b);
    return status;
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

/* ---- fetching ------------------------------------------------------------------------------ */

/* Adjacent blocks that one request downloads. */
typedef struct run {
    weft_block_cache *cache;
    block block[WEFT_BLOCK_RUN];
    int lock[WEFT_BLOCK_RUN]; /* the block's stripe; -1: unlocked, as the block was written */
    int count, done;          /* blocks; blocks that were written */
    weft_block_writer writer; /* writes block `done` */
} run;

/* Adds the block, unless this process or the folder has it, or a thread of this process writes it.
 * *busy: another block or process has the lock of its stripe. `wait`: waits for the lock; the run
 * must be empty. */
static bool add_block(run *r, const block *b, bool wait, bool *busy)
{
    weft_block_cache *c = r->cache;
    open_block *o = take(c, b);
    *busy = false;
    if (o)
        give_open(c, o);
    if (o || !begin_loading(c, b, false))
        return false;
    const int lock = lock_stripe(c, b->stripe, !wait);
    *busy = lock < 0;
    o = lock >= 0 ? take(c, b) : NULL; /* another process may have had the lock */
    if (o)
        give_open(c, o);
    if (lock < 0 || o) {
        if (lock >= 0)
            unlock_file(lock);
        end_loading(c, b);
        return false;
    }
    r->block[r->count] = *b;
    r->lock[r->count++] = lock;
    return true;
}

static void unlock_block(run *r, int i)
{
    unlock_file(r->lock[i]);
    r->lock[i] = -1;
    end_loading(r->cache, &r->block[i]);
}

/* Starts block `done`, also again. */
static weft_status start_block(run *r)
{
    const block *b = &r->block[r->done];
    int fd = r->writer.fd;
    if (fd < 0)
        WEFT_TRY(reserve(r->cache, b, &fd));
    if (fd < 0) /* no room: the reads do without */
        return WEFT_E_CANCELLED;
    weft_block_writer_begin(&r->writer, fd, b->bytes);
    return WEFT_OK;
}

static weft_status finish_block(run *r)
{
    const int i = r->done++;
    const weft_status_code status = end_block(r->cache, &r->block[i], &r->writer);
    r->writer.fd = -1;
    unlock_block(r, i);
    return status;
}

static weft_status take_bytes(void *user, int64_t at, const void *data, int64_t bytes)
{
    run *r = user;
    for (int64_t taken = 0; taken < bytes;) {
        const int64_t here = at + taken, i = here / WEFT_BLOCK_BYTES, in = here % WEFT_BLOCK_BYTES,
                      space = r->block[i].bytes - in,
                      n = bytes - taken < space ? bytes - taken : space;
        if (i >= r->done) { /* else an earlier attempt has written it */
            if (in == 0)
                WEFT_TRY(start_block(r));
            WEFT_TRY(weft_block_writer_add(&r->writer, (const char *)data + taken, n));
            if (n == space)
                WEFT_TRY(finish_block(r));
        }
        taken += n;
    }
    return WEFT_OK;
}

static weft_status stream_run(run *r, const weft_block_file *f)
{
    const block *last = &r->block[r->count - 1];
    const int64_t at = r->block[0].at;
    const weft_byte_sink sink = {take_bytes, r};
    r->writer.fd = -1;
    const weft_status_code status =
        f->stream(f->self, f->name, at, last->at + last->bytes - at, &sink);
    if (r->writer.fd >= 0)
        abort_block(r->cache, &r->block[r->done], r->writer.fd);
    for (int i = 0; i < r->count; i++)
        if (r->lock[i] >= 0)
            unlock_block(r, i);
    return status;
}

/* Streams the blocks of the run, if there are any, and empties it. */
static weft_status end_run(run *r, const weft_block_file *f)
{
    const weft_status_code status = r->count ? stream_run(r, f) : WEFT_OK;
    r->count = r->done = 0;
    return status;
}

/* A run holds the locks of several stripes, so it must wait for none. Blocks whose stripe is busy
 * follow in runs of one block. */
weft_status weft_block_cache_fetch(weft_block_cache *c, const weft_block_file *f, int64_t at,
                                   int64_t blocks)
{
    run r = {.cache = c};
    block late[WEFT_BLOCK_RUN];
    int lates = 0;
    bool busy;
    for (int64_t i = 0; i < blocks && at < f->facts.bytes; i++, at += WEFT_BLOCK_BYTES) {
        const block b = block_at(f, at);
        const bool added = add_block(&r, &b, false, &busy);
        if (busy && lates < WEFT_BLOCK_RUN)
            late[lates++] = b;
        if (!added || r.count == WEFT_BLOCK_RUN)
            WEFT_TRY(end_run(&r, f));
    }
    WEFT_TRY(end_run(&r, f));
    for (int i = 0; i < lates; i++) {
        add_block(&r, &late[i], true, &busy);
        WEFT_TRY(busy ? weft_stop_check() : end_run(&r, f));
    }
    return WEFT_OK;
}
