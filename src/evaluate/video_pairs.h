/* Pairs of videos of two models: the same prompt and seed in two output folders. */
#ifndef WEFT_EVALUATE_VIDEO_PAIRS_H
#define WEFT_EVALUATE_VIDEO_PAIRS_H

#include "base/json.h"
#include "generate/generator/generator.h"

/* Member [0] is of the first model, [1] of the second. */
typedef struct weft_video_pair {
    /* line of prompts.jsonl, or {"file"} of a folder without this list; owned */
    json_t *line[2];
    char *path[2]; /* of the file; owned */
} weft_video_pair;

typedef struct weft_video_pairs {
    weft_video_pair *pair; /* [count], in the order of the first folder */
    int64_t count;
    int64_t without_partner; /* videos of both folders without a pair */
} weft_video_pairs;          /* zero-initialise */

/* Pairs videos with the same prompt and seed, by prompts.jsonl of `weft generate`. If a folder has
 * no such list, videos with the same file name are pairs. No pair is an error. */
weft_status weft_video_pairs_find(const char *const folder[2], weft_video_pairs *pairs);
void weft_video_pairs_free(weft_video_pairs *pairs);

/* Prompt of a pair, from either line; NULL: none. Borrowed. */
const char *weft_video_pair_prompt(const weft_video_pair *pair);

/* Generates the video of each prompt into `folder`, which gets 0000.mp4, 0001.mp4, ... and
 * prompts.jsonl. Video i has seed `seed` + i. One rank. */
weft_status weft_video_pairs_generate(const char *model, const weft_generator_options *options,
                                      const char *const *prompt, int64_t count, int64_t seed,
                                      const char *folder);

#endif
