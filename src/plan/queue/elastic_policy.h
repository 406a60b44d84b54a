/* Policies that share equal devices among videos: at the end of a step, a policy chooses how many
 * devices a job has for its next step. Pure functions of numbers.
 *
 *   fixed-K      groups of K devices; each has one job at a time, in order of arrival
 *   ddit         after DDiT: order of arrival; a job gets its efficient degree, or fewer devices
 *                until more are free; decoding releases the other devices
 *   tetriserve   after TetriServe: rounds; the least degree that meets the deadline, jobs with the
 *                least slack first, then idle devices to the jobs that gain the most
 *   genserve     after GenServe: at every step, the set of jobs and degrees that is worth most, by
 *                dynamic programming; jobs can be stopped
 *   weft         the largest set of jobs that can meet their deadlines together (Moore and Hodgson,
 *                with the device seconds of the least sufficient degree), by deadline; then jobs
 *                without a chance, shortest first; then idle devices to the efficient jobs
 *   weft-start   as weft, once per job: a job keeps its devices until its end
 *
 * weft and weft-start decide by priority first: jobs of a lower priority get what the others leave.
 * A job that cannot have one device, and arrived longer ago than its own seconds, gets the next
 * devices of its priority: they stay idle until they suffice. It keeps them, except for such a job
 * that arrived earlier.
 * The three papers' policies are written from their descriptions, not from their code: predictions
 * are exact, and batching of images is not simulated. */
#ifndef WEFT_PLAN_ELASTIC_POLICY_H
#define WEFT_PLAN_ELASTIC_POLICY_H

#include "plan/queue/elastic_sizes.h"

typedef enum weft_elastic_policy {
    WEFT_ELASTIC_FIXED_1,
    WEFT_ELASTIC_FIXED_2,
    WEFT_ELASTIC_FIXED_4,
    WEFT_ELASTIC_FIXED_8,
    WEFT_ELASTIC_DDIT,
    WEFT_ELASTIC_TETRISERVE,
    WEFT_ELASTIC_GENSERVE,
    WEFT_ELASTIC_WEFT,
    WEFT_ELASTIC_START,
    WEFT_ELASTIC_POLICIES
} weft_elastic_policy;

/* "fixed-1" */
const char *weft_elastic_policy_name(weft_elastic_policy policy);

/* A job that has arrived and has not ended. */
typedef struct weft_elastic_entry {
    const weft_elastic_size *size;
    double arrival, deadline; /* deadline 0: none */
    int64_t priority;         /* a higher one comes first */
    int64_t steps;            /* that remain; 0: decoding remains; -1: decodes */
    int64_t degree;           /* devices of the last step; 0: not started or stopped */
    bool busy;                /* in a step until `until`; its degree stays until then */
    double until;
} weft_elastic_entry;

typedef struct weft_elastic_question {
    const weft_elastic_entry *entries; /* by arrival */
    int64_t count;
    int64_t devices, idle; /* idle: devices that no busy job has */
    double now;
    double change; /* seconds of a change of the degree, or of a start */
} weft_elastic_question;

/* Memory of decisions about up to a given number of jobs. */
typedef struct weft_elastic_work {
    int64_t *order, *heap, *best;
    double *need, *value;
    bool *chosen;
} weft_elastic_work;
weft_status weft_elastic_work_create(int64_t jobs, weft_elastic_work *work);
void weft_elastic_work_free(weft_elastic_work *work);

/* Whether a job keeps its devices from its start to its end. */
bool weft_elastic_policy_keeps(weft_elastic_policy policy);
/* degrees: [count] devices of each job that is not busy; 0: waits. Their sum is at most `idle`. */
void weft_elastic_choose(weft_elastic_policy policy, const weft_elastic_question *question,
                         weft_elastic_work *work, int64_t *degrees);

/* Seconds until the job ends if it has `1 << degree` devices from its next step on. */
double weft_elastic_seconds_left(const weft_elastic_question *question, int64_t job, int degree);

#endif
