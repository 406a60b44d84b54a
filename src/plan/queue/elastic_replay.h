/* Runs videos on shared devices: jobs arrive, steps end, and a policy chooses the devices of the
 * next steps. */
#ifndef WEFT_PLAN_ELASTIC_REPLAY_H
#define WEFT_PLAN_ELASTIC_REPLAY_H

#include "plan/queue/elastic_policy.h"

typedef struct weft_elastic_rules {
    weft_elastic_policy policy;
    int64_t devices;
    double change; /* seconds of a change of the degree, or of a start */
    double round;  /* seconds of a round of tetriserve */
    /* Idle workers at the begin, by degree. A job that starts on as many devices as an idle worker
     * has takes this worker, in `warm` seconds. Another start takes `change` seconds, and ends idle
     * workers whose devices it needs. NULL: every start takes `change` seconds. */
    const int64_t *workers;
    double warm;
} weft_elastic_rules;

typedef struct weft_elastic_score {
    weft_elastic_policy policy;
    int64_t jobs, deadlines, met, resizes;
    double mean, p95, p99; /* seconds from arrival to end */
    double error;          /* median of |end - measured| / (measured - arrival); negative: none */
    double used;           /* share of the device seconds until the last end that ran steps */
} weft_elastic_score;

/* Runs all jobs, sorted by arrival. `jobs` receives the results. Jobs that are held at the begin
 * arrive first, and at one time. `score`: NULL: no figures. */
weft_status weft_elastic_replay(const weft_elastic_rules *rules, weft_elastic_job *jobs,
                                int64_t count, weft_elastic_score *score);
#endif
