/* Writes one self-contained page with pairs of videos that play together, their settings and
 * scores, and buttons for preferences. The page loads no other file. */
#ifndef WEFT_REPORT_PAIR_PAGE_H
#define WEFT_REPORT_PAIR_PAGE_H

#include "evaluate/video_pairs.h"

typedef struct weft_pair_page {
    const char *name[2];           /* of the models */
    const weft_video_pairs *pairs; /* borrowed */
    const json_t *scores[2];       /* results of weft_evaluate_videos for the pairs, in order */
    /* true: the page hides names, settings and scores until the reader clicks a button, and a draw
     * with `seed` places either model on the left */
    bool blind;
    uint64_t seed;
} weft_pair_page;

weft_status weft_pair_page_write(const weft_pair_page *page, const char *path);

#endif
