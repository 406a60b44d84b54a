/* Scores of the shots of videos: the operators of a set, with their processes and models, which
 * stay open from video to video. */
#ifndef WEFT_CURATE_OPERATORS_SHOT_SCORER_H
#define WEFT_CURATE_OPERATORS_SHOT_SCORER_H

#include "curate/operators/operator_set.h"

typedef struct weft_shot_scorer weft_shot_scorer;

typedef struct weft_shot_scorer_options {
    double stall_seconds; /* of a decoder */
    bool all;             /* every operator scores every shot, also after a rejection */
    void (*beat)(void *); /* called during the work; NULL: never */
    void *user;
    /* Called when the first frame of a video is needed: *path is where the file can be read, and at
     * first the path of the video. An error of the machine or a server ends the job. NULL: not
     * called. */
    weft_status_code (*locate)(void *user, const char **path);
    /* The embedding of a shot of the current video; NULL: none. Required by aesthetics. */
    const float *(*embedding)(void *user, const json_t *shot, int64_t *width);
} weft_shot_scorer_options;

/* The set is borrowed. Processes and models start when they are first needed. */
weft_status weft_shot_scorer_open(const weft_operator_set *set,
                                  const weft_shot_scorer_options *options,
                                  weft_shot_scorer **scorer);
void weft_shot_scorer_close(weft_shot_scorer *scorer); /* accepts NULL */
/* Every operator scores every shot, also after a rejection, from the next video. */
void weft_shot_scorer_set_all(weft_shot_scorer *scorer, bool all);
/* Models and processes that were opened so far. */
int64_t weft_shot_scorer_loads(const weft_shot_scorer *scorer);
/* Adds the missing scores of the accepted shots of a video's record to `scores`:
 *
 *     {"operators": {NAME: definition}, "shots": {START: {NAME: score or {"failed": reason}}},
 *      "seconds": {NAME: s, "decode": s}, "scored": {NAME: shots}}
 *
 * A text detector adds its boxes as "NAME.boxes" of a shot, and with `crop` the rows that remain
 * as "NAME.rows" (text_scorer.h).
 *
 * Of a shot, operators are asked in the order of the set, until one rejects it. */
weft_status weft_shot_scorer_video(weft_shot_scorer *scorer, const char *path, const char *name,
                                   const json_t *record, json_t *scores);
/* Makes `scores` fit the set: drops scores of other definitions, and with `failures` also failed
 * scores. */
void weft_shot_scores_prepare(const weft_operator_set *set, bool failures, json_t *scores);
/* The record of a shot, added if it is missing; borrowed. A joined shot ("merged") has the key
 * START-END. */
json_t *weft_shot_scores_of(json_t *scores, const json_t *shot);

#endif
