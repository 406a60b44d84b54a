/* The jobs of a server in STATE/queue.sqlite (queue_file.h). The server is the only writer. Every
 * function that changes a job returns after the change is on the disk, with one exception: a
 * transition that the recovery repeats (weft_queue_may_be_lost) survives a kill of the server, and
 * is on the disk after the next other change. If the machine fails before, the job has the right
 * state, and the times and seconds of the transition are lost. Not thread-safe. */
#ifndef WEFT_SERVE_QUEUE_STORE_H
#define WEFT_SERVE_QUEUE_STORE_H

#include "serve/queue_file.h"
#include "serve/queue_rules.h"

enum { WEFT_QUEUE_ID = 40 };
/* Seconds of a day: the past in which owners have used workers, and jobs were accepted. */
#define WEFT_QUEUE_DAY 86400.0

/* A job as it is stored. Strings are owned; NULL: none. Times are seconds since 1970; 0: none. */
typedef struct weft_queue_job {
    int64_t number; /* order of acceptance */
    int64_t rank;   /* order within the priority */
    char id[WEFT_QUEUE_ID];
    weft_queue_state state;
    int64_t priority, crashes;
    double created, started, finished, deadline;
    double seconds;   /* predicted seconds */
    int64_t bytes;    /* predicted peak bytes of the worker */
    double spent;     /* seconds that workers ran */
    double remaining; /* predicted seconds after the finished steps; 0: not known, all seconds */
    char *request;    /* JSON of the video */
    char *request_id, *fingerprint, *remix_of;
    char *owner;   /* name of the token of the request; NULL: none */
    char *webhook; /* URL that receives the end of the job */
    char *error_code, *error_text;
} weft_queue_job;
void weft_queue_job_free(weft_queue_job *job); /* frees the members */

/* Owners of jobs; the index of an owner is `owner` of a weft_queue_entry. */
typedef struct weft_queue_owners {
    char **name;  /* [count]; "": without a token */
    double *used; /* [count] seconds */
    int64_t count;
} weft_queue_owners;
void weft_queue_owners_free(weft_queue_owners *owners); /* frees the members */

/* Values of a transition that the state alone does not determine. */
typedef struct weft_queue_change {
    double now, spent;              /* spent: seconds that the worker ran */
    double remaining;               /* of the job; 0: not known */
    const char *error_code, *error; /* of REFUSED and CRASHED */
    bool unsynced;                  /* does not wait for the disk: weft_queue_store_sync does */
} weft_queue_change;

/* Adds a queued job and sets its number. If its owner has a job with the same request_id, sets
 * *existing, and `job` receives that job; nothing is added. */
weft_status weft_queue_store_add(weft_queue_store *store, weft_queue_job *job, bool *existing);
/* Sets *found and fills `job`, which weft_queue_job_free frees. */
weft_status weft_queue_store_find(weft_queue_store *store, const char *id, weft_queue_job *job,
                                  bool *found);
/* The job of an owner (NULL: none) with a request id. */
weft_status weft_queue_store_find_request(weft_queue_store *store, const char *owner,
                                          const char *request_id, weft_queue_job *job, bool *found);
typedef enum weft_queue_part {
    WEFT_QUEUE_ALL,
    WEFT_QUEUE_UNFINISHED,
    WEFT_QUEUE_FINAL
} weft_queue_part;
typedef struct weft_queue_page {
    const char *after; /* id of a job; "": from the first one */
    int64_t limit;     /* jobs */
    bool descending;   /* by number */
    weft_queue_part part;
    const char *owner; /* its jobs and jobs without an owner; NULL: all jobs */
} weft_queue_page;
/* Reads a page of jobs by number. Jobs in DELETING are skipped. *more: further jobs follow. */
weft_status weft_queue_store_list(weft_queue_store *store, const weft_queue_page *page,
                                  weft_queue_job **jobs, int64_t *count, bool *more);
void weft_queue_jobs_free(weft_queue_job *jobs, int64_t count);
/* Applies an event by the rules of the queue. *next: the new state. WEFT_E_ARG: the state does not
 * allow the event; *next is the unchanged state. */
weft_status weft_queue_store_apply(weft_queue_store *store, const char *id, weft_queue_event event,
                                   const weft_queue_change *change, weft_queue_state *next);
/* Stores priority, deadline, prediction, request and webhook of a job. WEFT_E_ARG: the job is
 * neither queued nor paused. */
weft_status weft_queue_store_edit(weft_queue_store *store, const weft_queue_job *job);
/* Moves the queued job `id` directly before or after the queued job `other`, whose priority it
 * gets. WEFT_E_ARG: one of the two is not queued, or both are the same. */
weft_status weft_queue_store_move(weft_queue_store *store, const char *id, const char *other,
                                  bool after);
/* Applies LOST to all jobs: the server has started, so no job has a worker. `now`: seconds since
 * 1970. */
weft_status weft_queue_store_recover(weft_queue_store *store, double now);
/* The jobs that are queued or have a worker, sorted (weft_queue_sort). Heap, weft_free. */
weft_status weft_queue_store_waiting(weft_queue_store *store, weft_queue_entry **entries,
                                     int64_t *count);
/* The last jobs that were accepted after `since`, at most `most`, of any state, the newest first:
 * their predicted seconds, steps, priorities, deadlines and owners. jobs: [most]. */
weft_status weft_queue_store_past(weft_queue_store *store, double since, int64_t most,
                                  weft_queue_entry *jobs, int64_t *count);
/* The job with a number. */
weft_status weft_queue_store_at(weft_queue_store *store, int64_t number, weft_queue_job *job,
                                bool *found);
/* The owners of all jobs in the order of their indices. `used` has the seconds of jobs that are
 * unfinished or ended after `since`, also of removed ones. Free with weft_queue_owners_free. */
weft_status weft_queue_store_owners(weft_queue_store *store, double since,
                                    weft_queue_owners *owners);
/* The number of jobs by state. */
weft_status weft_queue_store_count(weft_queue_store *store, int64_t counts[WEFT_QUEUE_STATES]);
/* The first job in a state with a number above `after`. */
weft_status weft_queue_store_next(weft_queue_store *store, weft_queue_state state, int64_t after,
                                  weft_queue_job *job, bool *found);
/* Removes the row of a job in DELETING whose files were removed. The seconds of removed jobs that
 * ended after `since` are kept. */
weft_status weft_queue_store_remove(weft_queue_store *store, const char *id, double since);

#endif
