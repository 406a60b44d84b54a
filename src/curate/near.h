/* Near-duplicates among many shots, without comparing all pairs. */
#ifndef WEFT_CURATE_NEAR_H
#define WEFT_CURATE_NEAR_H

#include "base/status.h"
#include "curate/phash.h"

typedef struct weft_near_shot {
    const weft_phash *hash; /* borrowed */
    int64_t hashes;
} weft_near_shot;

typedef struct weft_near_result {
    int64_t of;   /* the first kept shot before it that shows the same; -1: none, it is kept */
    double share; /* weft_phash_overlap with that one */
} weft_near_result;

/* Goes through the shots in order and keeps each of which no shot kept before overlaps, as it is or mirrored, by `share` or
 * more. The result is that of comparing all pairs; the work is not: shots that overlap have a pair of frames within
 * limits.bits of each other among few that are known, and of the bands into which the bits are split one must then differ in
 * so few bits that all its neighbours can be looked up (Norouzi, Punjani and Fleet 2012, multi-index hashing).
 * `result` is the caller's, of `count`. `pairs` (may be NULL): how many pairs of shots were compared. */
weft_status weft_near_find(const weft_near_shot *shots, int64_t count, weft_phash_limits limits, double share,
                           weft_near_result *result, int64_t *pairs);

#endif
