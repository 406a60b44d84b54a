/* weft serve: a queue of videos over HTTP. The server owns the queue; a child process, the worker,
 * generates one video at a time as `weft generate` does. It keeps the weights in memory between
 * jobs, and may crash. With the policy share, several workers run, each on ranks of its own.
 *
 *     HTTP thread (http_server.c)                       main thread (supervisor.c)
 *       routes: videos_api, jobs_api, status_api          gives the next job to the worker
 *       store, prices, progress  <──── one lock ────>     applies how the job ended
 *       waiting requests are suspended <── wake_all ──    runs `weft estimate` for prices
 *
 * With several ranks, the child process is mpirun, whose first rank reads the commands. The other
 * children are forked by a process that does nothing else (child_starter.h).
 *
 *     STATE/queue.sqlite   jobs (queue_store.h)       STATE/jobs/ID/   files of a job
 *     STATE/lock           one server per folder      STATE/worker.lock   held by the worker
 *     STATE/tokens         hashes of bearer tokens    STATE/webhook-secret   key of signatures */
#ifndef WEFT_SERVE_SERVER_H
#define WEFT_SERVE_SERVER_H

#include "serve/access_tokens.h"
#include "serve/compute_fields.h"

enum { WEFT_SERVE_RANKS = 1024 };

typedef struct weft_serve_options {
    const char *const *models; /* [model_count], DIR or NAME=DIR */
    int model_count;
    const char *listen;  /* ADDRESS:PORT; port 0: any free port */
    const char *state;   /* folder */
    const char *cluster; /* of the predictions, as of `weft estimate --on`; NULL: this machine */
    const char *const *webhooks; /* [webhook_count], URLs below which webhooks are sent */
    int webhook_count;
    const char *const *loras; /* [lora_count], NAME=FILE */
    int lora_count;
    const char *certificate, *key; /* PEM files of TLS; NULL: plain HTTP */
    const char *policy;            /* name of a weft_queue_policy, or "share" */
    const char *backend;           /* of the workers, as of `weft generate` */
    /* defaults of requests; NULL: as of `weft generate` */
    const char *compute[WEFT_COMPUTE_FIELDS];
    const char *memory; /* memory limit of the worker, as of `weft generate`; NULL: free memory */
    int64_t ranks;      /* of the worker, 1 to WEFT_SERVE_RANKS; several are started by mpirun */
    /* [parallel_count], layout of the ranks, as of `weft generate`; auto: chosen for each job */
    const char *const *parallel;
    int parallel_count;
    bool elastic;       /* with "share": the ranks of a running job can change */
    int64_t batch;      /* most jobs that are generated together, up to WEFT_BATCH_JOBS */
    double idle_unload; /* seconds without a use after which weights are unloaded; 0: never */
} weft_serve_options;

/* Serves until SIGTERM or Ctrl-C, then saves the running job. WEFT_E_CANCELLED: was stopped. */
weft_status weft_serve_run(const weft_serve_options *options);
/* Prints the secret of a state folder's webhooks, which is created if it is missing. */
weft_status weft_serve_webhook_secret(const char *state);
/* Creates a token with limits (access_tokens.h) in a state folder, and prints it. */
weft_status weft_serve_new_token(const char *state, const char *name,
                                 const weft_token_limits *limits);

#endif
