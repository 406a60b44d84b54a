/* Jobs of a generation: a list of videos, from the command line and from files of prompts.
 *
 *     prompts.txt      a red circle moving left          one prompt a line, # begins a comment
 *     prompts.jsonl    {"prompt": "a red circle", "seed": 7, "frames": 33, "out": "circles/7.mp4"}
 *
 * Jobs with the same size, steps and guidance form batches, in the order of the list. States that
 * are saved per video are of one step in a batch. Batches are
 * assigned to teams of ranks, the most expensive first, each to the team with the lowest load.
 * Both depend on the list alone, so that a resumed run forms the same batches. */
#ifndef WEFT_GENERATE_JOBS_JOBS_H
#define WEFT_GENERATE_JOBS_JOBS_H

#include "base/memory.h"

/* 0 or NULL: the value of the whole run. Strings are owned. */
typedef struct weft_job {
    const char *from; /* origin for messages: option and number, or file and line */
    int64_t number;
    char *prompt, *negative, *out; /* out: below the run's folder */
    uint64_t seed;
    bool seeded; /* seed is set; false: from --seed and the job's number */
    int64_t frames, height, width, steps;
    double guidance;  /* < 0: the run's */
    bool own;         /* size, steps or guidance is set by the job itself */
    int64_t begun_at; /* step of a saved state with which only equal ones form a batch; 0: none */
    int64_t batch;    /* index of its batch, set by weft_jobs_cut */
} weft_job;

typedef struct weft_jobs {
    weft_job *at;
    int64_t count, capacity;
} weft_jobs;

/* Adds a prompt. `from` and `number`: option and number, or file and line; `from` is borrowed. */
weft_status weft_jobs_add(weft_jobs *jobs, const char *prompt, int64_t length, const char *from,
                          int64_t number);
/* Reads prompts from a file. Lines are JSON if the name ends in .jsonl, or if the first line that
 * is neither empty nor a comment begins with '{'. WEFT_E_FORMAT names file and line; unknown keys
 * are errors. */
weft_status weft_jobs_read(weft_jobs *jobs, const char *path);
void weft_jobs_free(weft_jobs *jobs);
/* Checks that each video has its own output name. WEFT_E_FORMAT names two jobs with the same
 * one. */
weft_status weft_jobs_check_names(const weft_jobs *jobs);

/* A batch: `count` jobs from position `first` of the order below. */
typedef struct weft_job_batch {
    int64_t first, count;
    double cost; /* relative cost: pixels x steps x CFG branches */
    int team;
} weft_job_batch;
typedef struct weft_job_batches {
    int64_t *order; /* [jobs] job numbers; jobs of a batch are contiguous */
    weft_job_batch *at;
    int64_t count;
} weft_job_batches;
/* Forms batches of at most `most` jobs and assigns them to teams. Each job must have its size,
 * steps and guidance set. */
weft_status weft_jobs_cut(weft_jobs *jobs, int64_t most, int teams, weft_job_batches *batches);
void weft_job_batches_free(weft_job_batches *batches);
/* Whether two jobs can use the same generator. */
bool weft_jobs_alike(const weft_job *a, const weft_job *b);

#endif
