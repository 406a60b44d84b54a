/* Blocks of the cache, written while they arrive: a transfer that is repeated, a failure in the middle,
 * and damage of a part. */
#include "base/fs.h"
#include "storage/block_cache.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 3 * WEFT_BLOCK_BYTES + 12345 };

/* A server of one file. */
typedef struct server {
    unsigned char *data;
    int reads, streams;
    int64_t broken; /* bytes after which the first stream begins again; 0: none */
    int64_t failed; /* bytes after which a stream ends with an error; 0: none */
    void (*meanwhile)(
        struct server *s); /* called once during a read or before a failure; NULL: none */
    weft_block_file file;
    char folder[64];
    weft_block_cache *cache;
} server;

static void call_meanwhile(server *s)
{
    void (*call)(server *) = s->meanwhile;
    s->meanwhile = NULL;
    if (call)
        call(s);
}

static weft_status serve_read(void *self, const char *name, int64_t at, int64_t bytes, void *to)
{
    server *s = self;
    (void)name;
    s->reads++;
    call_meanwhile(s);
    memcpy(to, s->data + at, (size_t)bytes);
    return WEFT_OK;
}

/* Passes bytes on in pieces of an odd length. */
static weft_status pass(const server *s, int64_t at, int64_t bytes, const weft_byte_sink *to)
{
    enum { PIECE = 100003 };
    for (int64_t done = 0; done < bytes; done += PIECE)
        WEFT_TRY(to->take(to->user, done, s->data + at + done,
                          bytes - done < PIECE ? bytes - done : PIECE));
    return WEFT_OK;
}

static weft_status serve_stream(void *self, const char *name, int64_t at, int64_t bytes,
                                const weft_byte_sink *to)
{
    server *s = self;
    (void)name;
    s->streams++;
    if (s->broken && s->streams == 1)
        WEFT_TRY(pass(s, at, s->broken, to));
    if (s->failed) {
        WEFT_TRY(pass(s, at, s->failed, to));
        call_meanwhile(s);
        return weft_no_memory("a test");
    }
    return pass(s, at, bytes, to);
}

static void start(server *s)
{
    strcpy(s->folder, "/tmp/weft-blocks-XXXXXX");
    cr_assert(mkdtemp(s->folder));
    s->data = malloc(BYTES);
    for (int64_t i = 0; i < BYTES; i++)
        s->data[i] = (unsigned char)(i * 2654435761u >> 13);
    s->file = (weft_block_file){"a test", "a", {BYTES, 7}, serve_read, serve_stream, s};
    cr_assert_eq(weft_block_cache_open(s->folder, 1 << 30, &s->cache), WEFT_OK);
}

static void end(server *s)
{
    weft_block_cache_close(s->cache);
    cr_assert_eq(weft_remove_tree(s->folder), WEFT_OK);
    free(s->data);
}

/* Reads pieces that cross the boundaries of the checked parts. */
static void expect_bytes(server *s)
{
    enum { PIECE = 1000001 };
    char *to = malloc(PIECE);
    for (int64_t at = 0; at < BYTES; at += PIECE) {
        const int64_t n = BYTES - at < PIECE ? BYTES - at : PIECE;
        cr_assert_eq(weft_block_cache_read(s->cache, &s->file, at, n, to), WEFT_OK);
        cr_assert_eq(memcmp(to, s->data + at, (size_t)n), 0, "wrong bytes after byte %ld", at);
    }
    free(to);
}

/* The next process. */
static void reopen(server *s)
{
    weft_block_cache_close(s->cache);
    cr_assert_eq(weft_block_cache_open(s->folder, 1 << 30, &s->cache), WEFT_OK);
}

Test(block_cache, one_request_fetches_blocks_that_are_adjacent)
{
    server s = {0};
    start(&s);
    cr_assert_not(weft_block_cache_has(s.cache, &s.file, WEFT_BLOCK_BYTES));
    cr_assert_eq(weft_block_cache_fetch(s.cache, &s.file, 0, 100), WEFT_OK);
    cr_assert_eq(s.streams, 1);
    cr_assert(weft_block_cache_has(s.cache, &s.file, WEFT_BLOCK_BYTES));
    expect_bytes(&s);
    reopen(&s);
    cr_assert_eq(weft_block_cache_fetch(s.cache, &s.file, 0, 100), WEFT_OK);
    expect_bytes(&s);
    cr_assert_eq(s.streams, 1);
    cr_assert_eq(s.reads, 0);
    end(&s);
}

Test(block_cache, blocks_that_the_folder_has_are_not_fetched_again)
{
    server s = {0};
    char byte;
    start(&s);
    cr_assert_eq(weft_block_cache_read(s.cache, &s.file, WEFT_BLOCK_BYTES, 1, &byte), WEFT_OK);
    cr_assert_eq(weft_block_cache_fetch(s.cache, &s.file, 0, 4), WEFT_OK);
    cr_assert_eq(s.streams, 2, "blocks 0, and 2 to 3");
    expect_bytes(&s);
    cr_assert_eq(s.reads, 1);
    end(&s);
}

Test(block_cache, a_transfer_that_is_repeated_begins_again)
{
    const int64_t places[] = {50000, WEFT_BLOCK_BYTES, WEFT_BLOCK_BYTES + 3000000};
    for (int i = 0; i < 3; i++) {
        server s = {.broken = places[i]};
        start(&s);
        cr_assert_eq(weft_block_cache_fetch(s.cache, &s.file, 0, 4), WEFT_OK);
        expect_bytes(&s);
        reopen(&s);
        expect_bytes(&s);
        cr_assert_eq(s.reads, 0);
        end(&s);
    }
}

Test(block_cache, a_transfer_that_fails_keeps_complete_blocks)
{
    server s = {.failed = 2 * WEFT_BLOCK_BYTES + 5};
    start(&s);
    cr_assert_neq(weft_block_cache_fetch(s.cache, &s.file, 0, 4), WEFT_OK);
    cr_assert(weft_block_cache_has(s.cache, &s.file, WEFT_BLOCK_BYTES));
    cr_assert_not(weft_block_cache_has(s.cache, &s.file, 2 * WEFT_BLOCK_BYTES));
    expect_bytes(&s);
    cr_assert_eq(s.reads, 2);
    end(&s);
}

/* Writes a byte into each block of the folder. */
static void damage(const server *s, int64_t at)
{
    weft_names names;
    cr_assert_eq(weft_list_dir(s->folder, false, &names), WEFT_OK);
    for (int64_t i = 0; i < names.count; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", s->folder, names.name[i]);
        const int fd = strstr(path, ".block") ? open(path, O_WRONLY) : -1;
        if (fd >= 0) {
            cr_assert_eq(pwrite(fd, "\x55", 1, at), 1);
            close(fd);
        }
    }
    weft_names_free(&names);
}

/* A read verifies the 16 KiB around its bytes, and no more. */
Test(block_cache, damage_is_found_where_it_is_read)
{
    server s = {0};
    char to[100];
    start(&s);
    cr_assert_eq(weft_block_cache_fetch(s.cache, &s.file, 0, 3), WEFT_OK);
    damage(&s, 300007);
    reopen(&s);
    cr_assert_eq(weft_block_cache_read(s.cache, &s.file, 5000000, 100, to), WEFT_OK);
    cr_assert_eq(s.reads, 0);
    cr_assert_eq(weft_block_cache_read(s.cache, &s.file, 300007 - 50, 20, to), WEFT_OK);
    cr_assert_eq(memcmp(to, s.data + 300007 - 50, 20), 0);
    cr_assert_eq(s.reads, 1);
    expect_bytes(&s);
    cr_assert_eq(s.reads, 4, "two more damaged blocks, and the one that was not fetched");
    end(&s);
}

/* ---- locks --------------------------------------------------------------------------------- */

/* Locks, in `folder`, the stripes of all blocks that the server's folder has. */
static void lock_stripes(const server *s, const char *folder, int *lock, int *count)
{
    weft_names names;
    cr_assert_eq(weft_list_dir(s->folder, false, &names), WEFT_OK);
    *count = 0;
    for (int64_t i = 0; i < names.count; i++) {
        char path[512];
        if (!strstr(names.name[i], ".block"))
            continue;
        snprintf(path, sizeof path, "%s/lock-%03d", folder,
                 (int)(strtoull(names.name[i] + 16, NULL, 16) % 256)); /* the low 64 bits */
        lock[*count] = open(path, O_RDWR | O_CREAT, 0600);
        cr_assert_eq(flock(lock[(*count)++], LOCK_EX | LOCK_NB), 0, "%s", path);
    }
    weft_names_free(&names);
}

typedef struct held {
    int lock[4], count;
} held;

static void *release(void *user)
{
    const held *h = user;
    for (int i = 0; i < h->count; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        close(h->lock[i]);
    }
    return NULL;
}

/* Another process holds the stripes of all four blocks when the fetch begins, and releases them in
 * sequence. */
Test(block_cache, blocks_whose_stripe_is_busy_are_fetched_later)
{
    server twin = {0}, s = {0};
    held h;
    pthread_t thread;
    start(&twin);
    cr_assert_eq(weft_block_cache_fetch(twin.cache, &twin.file, 0, 4), WEFT_OK);
    start(&s);
    lock_stripes(&twin, s.folder, h.lock, &h.count);
    cr_assert_eq(h.count, 4);
    cr_assert_eq(pthread_create(&thread, NULL, release, &h), 0);
    cr_assert_eq(weft_block_cache_fetch(s.cache, &s.file, 0, 4), WEFT_OK);
    pthread_join(thread, NULL);
    expect_bytes(&s);
    cr_assert_eq(s.reads, 0, "%d blocks were not fetched", s.reads);
    end(&s);
    end(&twin);
}

static pid_t child;

/* Reads, in a child, the block that the parent is downloading. */
static void fork_reader(server *s)
{
    child = fork();
    if (child == 0) {
        char byte;
        alarm(20);
        _exit(weft_block_cache_read(s->cache, &s->file, 7, 1, &byte) == WEFT_OK &&
                      (unsigned char)byte == s->data[7]
                  ? 0
                  : 1);
    }
}

/* The child waits for the parent's block. The parent's lock ends although the child has a copy of its
 * descriptor. */
Test(block_cache, a_fork_during_a_download_blocks_nobody)
{
    server s = {.meanwhile = fork_reader};
    char byte;
    int status;
    start(&s);
    cr_assert_eq(weft_block_cache_read(s.cache, &s.file, 7, 1, &byte), WEFT_OK);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child's status is %#x", status);
    end(&s);
}

/* ---- room ---------------------------------------------------------------------------------- */

/* Bytes of the folder's blocks, and bytes that its file `total` names. */
static void read_totals(const server *s, int64_t *blocks, int64_t *total)
{
    weft_names names;
    char path[512];
    struct stat st;
    cr_assert_eq(weft_list_dir(s->folder, false, &names), WEFT_OK);
    *blocks = 0;
    for (int64_t i = 0; i < names.count; i++) {
        snprintf(path, sizeof path, "%s/%s", s->folder, names.name[i]);
        if ((strstr(path, ".block") || strstr(path, ".part")) && stat(path, &st) == 0)
            *blocks += st.st_size;
    }
    weft_names_free(&names);
    snprintf(path, sizeof path, "%s/total", s->folder);
    const int fd = open(path, O_RDONLY);
    cr_assert_eq(read(fd, total, sizeof *total), (ssize_t)sizeof *total);
    close(fd);
}

enum { LIMIT = 5 * (WEFT_BLOCK_BYTES / 2) };

/* Another process reads a block of another version, which removes one of this file. */
static void evict_by_another(server *s)
{
    weft_block_cache *other;
    weft_block_file file = s->file;
    int64_t blocks, total;
    char byte;
    file.facts.stamp = 8;
    cr_assert_eq(weft_block_cache_open(s->folder, LIMIT, &other), WEFT_OK);
    cr_assert_eq(weft_block_cache_read(other, &file, 0, 1, &byte), WEFT_OK);
    weft_block_cache_close(other);
    read_totals(s, &blocks, &total);
    cr_expect_eq(total, blocks, "with a block being written: %ld, and the folder has %ld", total,
                 blocks);
}

/* The total stays exact while a process evicts and another one gives up a short block. */
Test(block_cache, the_total_is_that_of_the_folder)
{
    server s = {0};
    int64_t blocks, total;
    char byte;
    start(&s);
    weft_block_cache_close(s.cache);
    cr_assert_eq(weft_block_cache_open(s.folder, LIMIT, &s.cache), WEFT_OK);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(weft_block_cache_read(s.cache, &s.file, i * WEFT_BLOCK_BYTES, 1, &byte),
                     WEFT_OK);
    s.failed = 5;
    s.meanwhile = evict_by_another;
    cr_assert_neq(weft_block_cache_fetch(s.cache, &s.file, 3 * WEFT_BLOCK_BYTES, 1), WEFT_OK);
    cr_assert_null(s.meanwhile);
    read_totals(&s, &blocks, &total);
    cr_expect_eq(total, blocks, "%ld, and the folder has %ld", total, blocks);
    cr_expect_leq(total, LIMIT);
    end(&s);
}
