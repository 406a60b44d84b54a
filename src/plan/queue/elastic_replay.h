/* Runs videos on shared devices: jobs arrive, steps end, and a policy chooses the devices of the
 * next steps. */
#ifndef WEFT_PLAN_ELASTIC_REPLAY_H
#define WEFT_PLAN_ELASTIC_REPLAY_H

#include "plan/queue/elastic_policy.h"
#include "plan/queue/queue_outlook.h"

/* Seconds of starts, by the degree. A job that starts on as many devices as an idle worker has
 * takes this worker, in `warm` seconds. Another start takes `cold` seconds for a new worker, after
 * idle workers whose devices it needs have ended, which takes `retire` seconds. */
typedef struct weft_elastic_starts {
    int64_t idle[WEFT_ELASTIC_DEGREES]; /* workers without a job at the begin */
    double warm[WEFT_ELASTIC_DEGREES], cold[WEFT_ELASTIC_DEGREES], retire;
} weft_elastic_starts;

/* Zeros are the simplest rules. */
typedef struct weft_elastic_rules {
    weft_elastic_policy policy;
    int64_t devices;
    double change;                     /* seconds of a change of the degree, or of a start */
    double round;                      /* seconds of a round of tetriserve */
    const weft_elastic_starts *starts; /* NULL: every start takes `change` seconds */
    /* [WEFT_ELASTIC_DEGREES] seconds of a job while all other devices run jobs, per second of the
     * job alone; NULL: jobs do not slow each other. In proportion if a part of the others runs. */
    const double *crowded;
    double interval; /* least seconds of steps between two decisions about a job; 0: one step */
    bool whole;      /* a job keeps its devices while it decodes */
} weft_elastic_rules;

/* Called when a job arrives, before the decision. jobs: [count] that have not ended, with
 * their remaining steps; jobs[newest] arrives. */
typedef struct weft_elastic_watch {
    weft_status (*arrived)(void *context, const weft_elastic_job *jobs, int64_t count,
                           int64_t newest, double now);
    void *context;
} weft_elastic_watch;

typedef struct weft_elastic_score {
    weft_elastic_policy policy;
    int64_t jobs, deadlines, met, resizes;
    double mean, p95, p99; /* seconds from arrival to end */
    double error;          /* median of |end - measured| / (measured - arrival); negative: none */
    double used;           /* share of the device seconds until the last end that ran steps */
    weft_queue_prediction prediction; /* jobs 0: none */
} weft_elastic_score;

/* Runs all jobs, sorted by arrival. `jobs` receives the results. Jobs that are held at the begin
 * arrive first, and at one time. `score`: NULL: no figures. */
weft_status weft_elastic_replay(const weft_elastic_rules *rules, weft_elastic_job *jobs,
                                int64_t count, weft_elastic_score *score);
/* Runs jobs until the first `wanted` ones have ended. Only their results are valid. `watch`: NULL:
 * none. */
weft_status weft_elastic_replay_first(const weft_elastic_rules *rules, weft_elastic_job *jobs,
                                      int64_t count, int64_t wanted,
                                      const weft_elastic_watch *watch);
#endif
