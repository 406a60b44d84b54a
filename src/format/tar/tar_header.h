/* The header block that reading and writing share. Internal to tar_read.c and tar_write.c. */
#ifndef WEFT_FORMAT_TAR_TAR_HEADER_H
#define WEFT_FORMAT_TAR_TAR_HEADER_H

#include <stdint.h>

enum { TAR_BLOCK = 512 };

/* POSIX.1-1988 ustar. */
typedef struct tar_header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8];
    char type;
    char link[100], magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155];
    char padding[12];
} tar_header;
_Static_assert(sizeof(tar_header) == TAR_BLOCK, "a tar header is one block");

/* The sum of all bytes with the checksum field as blanks. */
static inline int64_t tar_block_sum(const unsigned char *block)
{
    int64_t sum = 8 * ' ';
    for (int i = 0; i < TAR_BLOCK; i++)
        sum += i >= 148 && i < 156 ? 0 : block[i];
    return sum;
}

/* Bytes that a member's data takes: whole blocks. */
static inline int64_t tar_padded(int64_t bytes)
{
    return bytes / TAR_BLOCK * TAR_BLOCK + (bytes % TAR_BLOCK ? TAR_BLOCK : 0);
}

#endif
