/* Which of many shots may show the same in parts, without comparing all pairs. */
#ifndef WEFT_CURATE_NEAR_PARTS_H
#define WEFT_CURATE_NEAR_PARTS_H

#include "base/status.h"
#include "curate/parts.h"

typedef struct weft_near_pair {
    uint32_t later, earlier;
} weft_near_pair;

/* Pairs of shots that have several points in common, sorted by the later shot and then by the
 * earlier one; heap, the caller frees. Points meet where so many low frequencies agree in all their
 * signs that few meet by chance (of n points log2 n + 4 bits; four choices of them, sorted): n log
 * n, and memory for n, since each point meets at most 12 others of its key, those of the first
 * shots and of the last before it. */
weft_status weft_near_parts(const weft_parts *const *shots, int64_t count, weft_near_pair **pairs,
                            int64_t *found);

/* For qsort, of uint64_t. */
int weft_near_ascending(const void *a, const void *b);

#endif
