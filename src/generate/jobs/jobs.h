/* What is to be generated: a list of videos, from the command line and from files of prompts.
 *
 *     prompts.txt      a red circle moving left          one prompt a line, # begins a comment
 *     prompts.jsonl    {"prompt": "a red circle", "seed": 7, "frames": 33, "out": "circles/7.mp4"}
 *
 * Jobs of one size, steps and guidance are cut into batches, in their order; batches are dealt to
 * teams of ranks, dear ones first, each to the team that has least to do. Both depend on the list
 * alone, so that a run that goes on cuts and deals as the one before. */
#ifndef WEFT_GENERATE_JOBS_H
#define WEFT_GENERATE_JOBS_H

#include "base/memory.h"

/* 0 or NULL: what the whole run says. Strings are owned. */
typedef struct weft_job {
    const char *from; /* where it was given, for messages: option and number, or file and line */
    int64_t place;
    char *prompt, *negative, *out; /* out: below the run's folder */
    uint64_t seed;
    bool seeded; /* seed is given; else --seed and its number */
    int64_t frames, height, width, steps;
    double guidance; /* < 0: the run's */
    bool own;        /* one of those five is its own, not the run's */
    int64_t batch;   /* that it is in, of weft_jobs_cut */
} weft_job;

typedef struct weft_jobs {
    weft_job *at;
    int64_t count, capacity;
} weft_jobs;

/* `from`, `place`: option and number, or file and line; `from` is borrowed. */
weft_status weft_jobs_add(weft_jobs *jobs, const char *prompt, int64_t length, const char *from,
                          int64_t place);
/* Lines of JSON where the name ends in .jsonl or the first line that is neither empty nor a comment
 * begins with '{', else of text.
 * WEFT_E_FORMAT names file and line; unknown keys are errors. */
weft_status weft_jobs_read(weft_jobs *jobs, const char *path);
void weft_jobs_free(weft_jobs *jobs);
/* Each video has a file of its own. WEFT_E_FORMAT names the two that have not. */
weft_status weft_jobs_check_names(const weft_jobs *jobs);

/* A batch: jobs of the order below from `first` on. */
typedef struct weft_batch {
    int64_t first, count;
    double cost; /* of a step's pixels x steps x halves, to compare */
    int team;
} weft_batch;
typedef struct weft_batches {
    int64_t *order; /* [jobs] numbers of jobs, those of a batch behind each other */
    weft_batch *at;
    int64_t count;
} weft_batches;
/* Each job with its own size, steps and guidance. */
weft_status weft_jobs_cut(weft_jobs *jobs, int64_t most, int teams, weft_batches *batches);
void weft_batches_free(weft_batches *batches);
/* Whether two jobs go through one generator. */
bool weft_jobs_alike(const weft_job *a, const weft_job *b);

#endif
