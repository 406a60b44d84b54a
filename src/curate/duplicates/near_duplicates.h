/* Near-duplicate detection among many shots, without comparing all pairs. */
#ifndef WEFT_CURATE_DUPLICATES_NEAR_DUPLICATES_H
#define WEFT_CURATE_DUPLICATES_NEAR_DUPLICATES_H

#include "base/status.h"
#include "curate/duplicates/keypoints.h"
#include "curate/duplicates/phash.h"

typedef struct weft_near_shot {
    const weft_phash *hash; /* borrowed */
    int64_t hashes;
    const weft_parts *parts; /* borrowed; thumbnail count without data; NULL: none */
} weft_near_shot;

typedef struct weft_near_limits {
    weft_phash_limits frames;
    double share;
    bool mirrored; /* mirrored shots count as duplicates */
    double parts;  /* common share of the smaller frame; 0: complete frames only */
    /* Reads all thumbnails of a shot into `to`, which has capacity for all. Required if `parts` is
     * not 0. */
    weft_status_code (*read_thumbnails)(void *user, int64_t shot, weft_thumbnail *to);
    void *user;
} weft_near_limits;

typedef struct weft_near_result {
    int64_t of;             /* earlier selected shot with the largest share; -1: selected */
    double share;           /* share of its frames that selected shots show */
    bool in_parts;          /* partial duplicate: `of` shows another crop or version */
    weft_parts_match match; /* with in_parts: the shot as a, `of` as b */
} weft_near_result;

/* Processes the shots in order and selects each shot of which earlier selected shots show less than
 * `share`. One shot shows a part of another if they overlap by `share` or more of the shorter one
 * (weft_phash_overlap), directly or, with limits->mirrored, mirrored. A long shot is thus not
 * rejected for one excerpt, but is for all its excerpts.
 *
 * The result equals that of comparing all pairs, with less work. Overlapping shots have a pair of
 * frames within limits.bits of each other. Hash bits are split into bands; one band then differs in
 * few enough bits that all its neighbours can be looked up (Norouzi, Punjani and Fleet 2012,
 * multi-index hashing).
 *
 * Shots without this overlap but with common keypoints (partial_candidates.h) are compared by their
 * thumbnails: crops, overlays, grades. Not every partial duplicate is found. `result` has `count`
 * entries, owned by the caller. `pairs` (may be NULL): number of compared pairs. */
weft_status weft_near_duplicates_find(const weft_near_shot *shots, int64_t count,
                                      const weft_near_limits *limits, weft_near_result *result,
                                      int64_t *pairs);

#endif
