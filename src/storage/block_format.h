/* The file of a cached block: its bytes, then the XXH3-64 of each 16 KiB.
 *
 *     | bytes of the block | sum of bytes 0-16383 | sum of bytes 16384-32767 | ...
 *
 * A block is written in one pass, and a read verifies only the 16 KiB that it touches, once per
 * process. */
#ifndef WEFT_STORAGE_BLOCK_FORMAT_H
#define WEFT_STORAGE_BLOCK_FORMAT_H

#include "base/hash.h"
#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_BLOCK_BYTES = 8 << 20,
    WEFT_BLOCK_PIECE = 16 << 10,
    WEFT_BLOCK_PIECES = WEFT_BLOCK_BYTES / WEFT_BLOCK_PIECE
};

/* Bytes of the file of a block of `bytes`. */
int64_t weft_block_file_bytes(int64_t bytes);

/* A block that is being written. */
typedef struct weft_block_writer {
    int fd; /* borrowed */
    int64_t bytes, done;
    XXH3_state_t state;
    uint64_t sum[WEFT_BLOCK_PIECES];
} weft_block_writer;

/* Starts at the beginning of the file `fd`, also again. */
void weft_block_writer_begin(weft_block_writer *writer, int fd, int64_t bytes);
weft_status weft_block_writer_add(weft_block_writer *writer, const void *data, int64_t bytes);
/* Adds the sums. */
weft_status weft_block_writer_end(weft_block_writer *writer);

/* The sums of a block, and which pieces this process has verified. */
typedef struct weft_block_sums {
    int64_t bytes;
    uint64_t sum[WEFT_BLOCK_PIECES];
    atomic_ullong verified[WEFT_BLOCK_PIECES / 64];
} weft_block_sums;

/* Reads the sums of a file. False: the file is not one of a block of `bytes`. */
bool weft_block_sums_read(int fd, int64_t bytes, uint64_t sum[WEFT_BLOCK_PIECES]);
/* `verified`: this process has written the block. */
void weft_block_sums_set(weft_block_sums *sums, int64_t bytes,
                         const uint64_t sum[WEFT_BLOCK_PIECES], bool verified);
/* Reads a range of the block, from any thread. False: the file is damaged. */
bool weft_block_read(weft_block_sums *sums, int fd, int64_t at, int64_t bytes, char *to);

#endif
