/* The server's state, shared by the HTTP thread and the main thread. */
#ifndef WEFT_SERVE_SERVER_PARTS_H
#define WEFT_SERVE_SERVER_PARTS_H

#include "serve/access_tokens.h"
#include "serve/batch_choice.h"
#include "serve/child_starter.h"
#include "serve/connections.h"
#include "serve/job_seconds.h"
#include "serve/learned_seconds.h"
#include "serve/loaded_weights.h"
#include "serve/prices.h"
#include "serve/queue_view.h"
#include "serve/served_lora.h"
#include "serve/served_model.h"
#include "serve/server.h"
#include "serve/video_images.h"

#include <pthread.h>

typedef struct weft_serve_request weft_serve_request;
typedef struct weft_event_stream weft_event_stream;
typedef struct weft_webhook_sender weft_webhook_sender;
typedef struct weft_supervisor weft_supervisor;

/* Most workers at the same time. */
enum { WEFT_SERVE_GROUPS = 8 };

/* A worker with its jobs. The ranks of a worker are a group. */
typedef struct weft_served_group {
    char running[WEFT_QUEUE_ID]; /* job of the worker, the first one of a batch; "": none */
    int64_t number;              /* of this job */
    weft_job_set batch;          /* the jobs of the worker, if there is one */
    pid_t worker;                /* process of the worker; 0: none */
    int64_t ranks;               /* of the worker, or of the last one */
    unsigned places;             /* bit i: the worker has rank i of the server (shared ranks) */
    weft_loaded_weights weights; /* of the worker */
    weft_worker_progress progress;
    double decode; /* predicted seconds of the running job's decoding; 0: unknown */
    double start;  /* expected seconds of the running job's start */
    double since;  /* weft_now() of the start of the running job */
    double told;   /* weft_now() of the last progress */
    double scale;  /* seconds of the price per predicted second on these ranks; 0: 1 */
    /* expected seconds of the running job's steps, and of its end, on shared ranks */
    double stepping, ending;
    double step_price;    /* seconds of a step by the price */
    double crowd;         /* share of the other ranks that run jobs */
    double crowd_seconds; /* the sum of crowd over time, until `crowd_at` */
    double crowd_at;      /* weft_now() of the last change of `crowd` */
} weft_served_group;

typedef struct weft_server {
    const weft_serve_options *options;
    char program[4096]; /* path of weft */
    char mpirun[4096];  /* path, for several ranks */
    char *state;        /* absolute path */
    char *cluster;      /* --on for a child in another folder: absolute if it is a file; or NULL */
    weft_served_model *models;
    int model_count;
    weft_served_loras loras;
    weft_access_tokens tokens; /* count 0: no authentication */
    int wake[2];               /* a pipe that ends the main thread's wait */
    struct MHD_Daemon *daemon;
    char *certificate, *key;       /* texts in PEM; NULL: plain HTTP */
    weft_webhook_sender *webhooks; /* NULL: none are sent */
    weft_connections connections;  /* of the HTTP thread */

    pthread_mutex_t lock;     /* of the members below and the store */
    pthread_cond_t job_ended; /* a webhook may be due, or the server stops */
    weft_queue_store *store;
    weft_queue_view view;         /* read by weft_server_queue */
    weft_queue_rules rules;       /* policy, and measured seconds of starts and stops */
    weft_learned_seconds learned; /* from its jobs, stored for the next start */
    uint64_t conditions;          /* hash of the conditions of `learned` */
    bool unsaved;                 /* `learned` differs from the stored seconds */
    weft_prices prices;
    weft_child_starter starter; /* of all children but launchers of ranks */
    weft_video_images images;
    /* one per group; NULL: the main thread does not run jobs yet, or any more */
    weft_supervisor *supervisor;
    bool stopping;
    weft_served_group groups[WEFT_SERVE_GROUPS];
    int group_count;
    bool shares;             /* several jobs run at the same time, on ranks of their own */
    weft_share_moment share; /* written by weft_server_queue */
    /* jobs up to this number are not batched: one of their batches was refused */
    int64_t unbatched;
    weft_serve_request *waiting; /* suspended requests */
    weft_event_stream *streams;
    char *event_line;              /* the last line of an event stream; NULL: none */
    char event_job[WEFT_QUEUE_ID]; /* its job */
    int64_t event_versions[2];     /* of the store and of the progress */
    int64_t progress_version;      /* grows with each progress of the worker */
    int64_t responses[6];          /* by the first digit of the status */
    int64_t workers, crashes, estimates;
    double freed;  /* seconds from the last request to stop until the worker had stopped */
    int64_t stops; /* of running jobs, for other jobs or to change their ranks */
} weft_server;

/* File of a job's last preview, in its folder. */
#define WEFT_JOB_PREVIEW "video.preview.png"

/* Seconds since 1970. */
double weft_server_time(void);
/* Ends the wait of the main thread; any thread. */
void weft_server_wake(weft_server *server);
/* Lock held: the job `id` has changed; NULL: any. Waiting requests look again, as do the event
 * streams of the job and of all jobs whose place in the queue differs. */
void weft_server_changed(weft_server *server, const char *id);
/* Lock held: the unfinished jobs in their order, with the seconds that remain. Borrowed, until the
 * next change. */
weft_status weft_server_queue(weft_server *server, const weft_queue_view **view);
/* Whether each job has the layout of the ranks that is predicted to be the fastest. */
bool weft_server_chooses_layouts(const weft_server *server);
/* Lock held: the group whose worker has this job; NULL: none. */
const weft_served_group *weft_server_group(const weft_server *server, const char *id);
/* "STATE/jobs/ID" (heap, weft_free; NULL: out of memory). */
char *weft_server_job_folder(const weft_server *server, const char *id);

#endif
