#include "storage/block_format.h"

#include "base/fs.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t pieces_of(int64_t bytes)
{
    return (bytes + WEFT_BLOCK_PIECE - 1) / WEFT_BLOCK_PIECE;
}

int64_t weft_block_file_bytes(int64_t bytes)
{
    return bytes + pieces_of(bytes) * (int64_t)sizeof(uint64_t);
}

/* ---- writing ------------------------------------------------------------------------------- */

static weft_status write_at(int fd, const void *data, int64_t bytes, int64_t at)
{
    return weft_write_at(fd, data, bytes, at) == bytes
               ? WEFT_OK
               : weft_error_errno(WEFT_NOWHERE, "cannot write the cache");
}

void weft_block_writer_begin(weft_block_writer *w, int fd, int64_t bytes)
{
    w->fd = fd;
    w->bytes = bytes;
    w->done = 0;
    XXH3_64bits_reset(&w->state);
}

/* Hashes the next bytes. */
static void add_sums(weft_block_writer *w, const char *data, int64_t bytes)
{
    for (int64_t done = 0; done < bytes;) {
        const int64_t at = w->done + done, space = WEFT_BLOCK_PIECE - at % WEFT_BLOCK_PIECE,
                      n = bytes - done < space ? bytes - done : space;
        XXH3_64bits_update(&w->state, data + done, (size_t)n);
        done += n;
        if (n == space || at + n == w->bytes) {
            w->sum[at / WEFT_BLOCK_PIECE] = XXH3_64bits_digest(&w->state);
            XXH3_64bits_reset(&w->state);
        }
    }
}

weft_status weft_block_writer_add(weft_block_writer *w, const void *data, int64_t bytes)
{
    add_sums(w, data, bytes);
    WEFT_TRY(write_at(w->fd, data, bytes, w->done));
    w->done += bytes;
    return WEFT_OK;
}

weft_status weft_block_writer_end(weft_block_writer *w)
{
    return write_at(w->fd, w->sum, pieces_of(w->bytes) * (int64_t)sizeof *w->sum, w->bytes);
}

/* ---- reading ------------------------------------------------------------------------------- */

static bool read_all(int fd, void *to, int64_t bytes, int64_t at)
{
    return weft_read_at(fd, to, bytes, at) == bytes;
}

bool weft_block_sums_read(int fd, int64_t bytes, uint64_t sum[WEFT_BLOCK_PIECES])
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_size == weft_block_file_bytes(bytes) &&
           read_all(fd, sum, pieces_of(bytes) * (int64_t)sizeof *sum, bytes);
}

void weft_block_sums_set(weft_block_sums *s, int64_t bytes, const uint64_t sum[WEFT_BLOCK_PIECES],
                         bool verified)
{
    s->bytes = bytes;
    memcpy(s->sum, sum, (size_t)pieces_of(bytes) * sizeof *sum);
    for (int i = 0; i < WEFT_BLOCK_PIECES / 64; i++)
        atomic_store(&s->verified[i], verified ? ~0ull : 0);
}

static bool is_verified(const weft_block_sums *s, int64_t piece)
{
    return atomic_load_explicit(&s->verified[piece / 64], memory_order_relaxed) >> (piece % 64) & 1;
}

static bool verify(weft_block_sums *s, int64_t piece, const char *data)
{
    const int64_t left = s->bytes - piece * WEFT_BLOCK_PIECE;
    if (XXH3_64bits(data, (size_t)(left < WEFT_BLOCK_PIECE ? left : WEFT_BLOCK_PIECE)) !=
        s->sum[piece])
        return false;
    atomic_fetch_or_explicit(&s->verified[piece / 64], 1ull << (piece % 64), memory_order_relaxed);
    return true;
}

/* Verifies a piece of which a read needs only a part. */
static bool verify_apart(weft_block_sums *s, int fd, int64_t piece)
{
    char data[WEFT_BLOCK_PIECE];
    const int64_t at = piece * WEFT_BLOCK_PIECE, left = s->bytes - at;
    return read_all(fd, data, left < WEFT_BLOCK_PIECE ? left : WEFT_BLOCK_PIECE, at) &&
           verify(s, piece, data);
}

/* Reads up to some hundred KiB, which are still in the processor's cache when they are verified. */
static bool read_hot(weft_block_sums *s, int fd, int64_t at, int64_t bytes, char *to)
{
    if (!read_all(fd, to, bytes, at))
        return false;
    for (int64_t piece = at / WEFT_BLOCK_PIECE; piece * WEFT_BLOCK_PIECE < at + bytes; piece++) {
        const int64_t from = piece * WEFT_BLOCK_PIECE, end = from + WEFT_BLOCK_PIECE;
        if (is_verified(s, piece))
            continue;
        const bool whole = from >= at && (end < s->bytes ? end : s->bytes) <= at + bytes;
        if (whole ? !verify(s, piece, to + (from - at)) : !verify_apart(s, fd, piece))
            return false;
    }
    return true;
}

bool weft_block_read(weft_block_sums *s, int fd, int64_t at, int64_t bytes, char *to)
{
    enum { HOT_BYTES = 256 << 10 };
    for (int64_t done = 0; done < bytes;) {
        const int64_t n = bytes - done < HOT_BYTES ? bytes - done : HOT_BYTES;
        if (!read_hot(s, fd, at + done, n, to + done))
            return false;
        done += n;
    }
    return true;
}
