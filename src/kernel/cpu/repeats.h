#ifndef WEFT_KERNEL_CPU_REPEATS_H
#define WEFT_KERNEL_CPU_REPEATS_H

/* Rows that repeat. Prompts end with many equal rows of padding: 495 of 512 are usual in Wan. Both
 * halves of guidance are equal up to the first layer that reads the text. Kernels compute equal
 * rows once. Equal rows have equal bits, so that NaN and -0 need no care. A search ends at the
 * first difference. */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Fewer repeated rows are not worth a case of their own. */
enum { CPU_FEWEST_REPEATS = 32 };

/* Returns how many of `rows` rows at the end are equal to the last one, at least 1. A row has
 * `bytes` bytes, and begins `stride` bytes after the row before it. */
static inline int64_t cpu_equal_rows(const void *x, int64_t rows, int64_t bytes, int64_t stride)
{
    const char *last = (const char *)x + (rows - 1) * stride;
    int64_t equal = 1;
    while (equal < rows && memcmp(last - equal * stride, last, (size_t)bytes) == 0)
        equal++;
    return equal;
}

/* Returns true if item `n` of a tensor, of `bytes` bytes, is equal to the item before it. */
static inline bool cpu_repeats_item(const void *x, int64_t n, int64_t bytes)
{
    const char *item = (const char *)x + n * bytes;
    return n > 0 && memcmp(item - bytes, item, (size_t)bytes) == 0;
}

#endif
