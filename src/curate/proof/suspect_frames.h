/* Pictures that leap: frames in which some place shows what the frame before does not, at once, as
 * damage does that a decoder makes something of. Most are no damage (flashes, cuts, what comes in
 * fast): this only says where it is worth to look into the data (video/proof.h). */
#ifndef WEFT_CURATE_DOUBTS_H
#define WEFT_CURATE_DOUBTS_H

#include "curate/shots.h"
#include "video/proof.h"
#include "video/reader.h"

enum {
    WEFT_LEAP_BLOCK = 4,
    WEFT_LEAP_BLOCKS = WEFT_SHOT_WIDTH / WEFT_LEAP_BLOCK * (WEFT_SHOT_HEIGHT / WEFT_LEAP_BLOCK),
    WEFT_LEAP_PAST = 4, /* frames that tell what is usual here */
    WEFT_LEAP_REACH = 2
};

typedef struct weft_leap {
    double seconds;
    float leap;     /* levels, a mean over the picture */
    bool key, told; /* told: mixed, or known to be damaged already */
} weft_leap;

typedef struct weft_doubts {
    weft_leap *frame; /* 16 bytes for each */
    int64_t frames, capacity;
    uint8_t last[WEFT_SHOT_HEIGHT + 2 * WEFT_LEAP_REACH][WEFT_SHOT_WIDTH + 2 * WEFT_LEAP_REACH];
    uint16_t change[WEFT_LEAP_PAST][WEFT_LEAP_BLOCKS]; /* of the last frames, in turn */
} weft_doubts;

/* The next frame, of WEFT_SHOT_WIDTH x WEFT_SHOT_HEIGHT. */
weft_status weft_doubts_push(weft_doubts *doubts, const weft_video_frame *frame);
/* The times of the frames in doubt, ascending: key pictures that begin the film or leap, others
 * that leap by more than frames usually do, and the one that leaps most before a key picture that
 * leaps, since there damage ends. The caller owns *list. */
weft_status weft_doubts_list(const weft_doubts *doubts, weft_doubt **list, int64_t *count);
/* Begins anew. */
void weft_doubts_clear(weft_doubts *doubts);

#endif
