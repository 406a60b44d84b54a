/* Near-duplicates among many shots, without comparing all pairs. */
#ifndef WEFT_CURATE_NEAR_H
#define WEFT_CURATE_NEAR_H

#include "base/status.h"
#include "curate/parts.h"
#include "curate/phash.h"

typedef struct weft_near_shot {
    const weft_phash *hash; /* borrowed */
    int64_t hashes;
    const weft_parts *parts; /* borrowed, without looks, whose number is told; NULL: none */
} weft_near_shot;

typedef struct weft_near_limits {
    weft_phash_limits frames;
    double share;
    bool mirrored; /* mirrored shots show the same */
    double parts;  /* of the smaller picture that the other shows; 0: only whole pictures count */
    /* The looks of a shot into `to`, which has room for all; needed where `parts` is not 0. */
    weft_status_code (*looks)(void *user, int64_t shot, weft_look *to);
    void *user;
} weft_near_limits;

typedef struct weft_near_result {
    int64_t of;             /* the kept shot before it that shows most of it; -1: it is kept */
    double share;           /* of its frames that kept ones show */
    bool in_parts;          /* `of` is not the same picture, but one lies over the other */
    weft_parts_match match; /* if so, of it as a over `of` as b */
} weft_near_result;

/* Goes through the shots in order and keeps each of which those kept before show less than `share`.
 * One shot shows a part of another when they overlap by `share` or more of the shorter one
 * (weft_phash_overlap), as it is or, with limits->mirrored, mirrored; a long shot is thus not
 * given up for an excerpt of it, but is for all its excerpts. The result is that of comparing all
 * pairs; the work is not: shots that overlap have a pair of frames within limits.bits of each other
 * among few that are known, and of the bands into which the bits are split one must then differ in
 * so few bits that all its neighbours can be looked up (Norouzi, Punjani and Fleet 2012,
 * multi-index hashing).
 * Shots that do not overlap so, but have points in common (near_parts.h), are compared by their
 * looks: crops, things laid over the picture, grades. Of these not every pair is found.
 * `result` is the caller's, of `count`. `pairs` (may be NULL): how many pairs of shots were
 * compared. */
weft_status weft_near_find(const weft_near_shot *shots, int64_t count,
                           const weft_near_limits *limits, weft_near_result *result,
                           int64_t *pairs);

#endif
