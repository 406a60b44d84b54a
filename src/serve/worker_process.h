/* The worker of the server: a process that generates the jobs in sequence (`weft worker`). The
 * main thread's; the caller has the server's lock. */
#ifndef WEFT_SERVE_WORKER_PROCESS_H
#define WEFT_SERVE_WORKER_PROCESS_H

#include "serve/server_parts.h"
#include "serve/worker_messages.h"

/* Zero-initialised: no process. */
typedef struct weft_worker {
    weft_child child; /* pid 0: no process */
    int64_t parsed;   /* bytes of its error stream that were read as reports */
    int64_t job;      /* number of the job that it has, the first of a batch; 0: none */
    int64_t ranks;    /* of the worker; above 1 the process is mpirun */
    bool abandoned;   /* its job was taken from the worker, which does not stop */
} weft_worker;

/* How a job, or the process, has ended. */
typedef struct weft_worker_end {
    weft_queue_event event;              /* FINISHED, STOPPED, REFUSED or CRASHED */
    char code[64], field[32], text[512]; /* REFUSED, CRASHED: the reason */
    int signal;                          /* of a process, or of a rank, that was killed; 0: none */
} weft_worker_end;

/* The file of the lock of a group's worker, in the state folder: "worker.lock", "worker.1.lock". */
enum { WEFT_WORKER_LOCK = 32 };
void weft_worker_lock_name(int64_t group, char name[WEFT_WORKER_LOCK]);
/* Starts the process of a group with group->ranks ranks. `lock`: the lock of the worker; stays the
 * caller's. */
weft_status weft_worker_start(weft_server *server, const weft_served_group *group, int lock,
                              weft_worker *worker);
/* Gives a job, or a batch of equal jobs, to the worker, which has none. *taken: false if the worker
 * has ended. */
weft_status weft_worker_run(weft_server *server, const weft_queue_job *jobs, int count,
                            weft_worker *worker, bool *taken);
/* Removes the files of a batch that belong to no job. */
void weft_worker_remove_lists(const weft_server *server);
/* Asks the worker to stop its job after the current step. `saves`: the job is resumed later. False:
 * the worker has ended. */
bool weft_worker_stop(const weft_worker *worker, bool saves);
/* The next report of the worker. False: no complete one has been read. */
bool weft_worker_next(weft_worker *worker, weft_worker_report *report);
/* The worker has reported the end of its job. */
void weft_worker_end_job(weft_worker *worker, weft_queue_event event, weft_worker_end *end);
/* The streams of the process have ended: waits for its end, and forgets it. */
void weft_worker_end_process(weft_worker *worker, weft_worker_end *end);
/* Takes the job from a worker that does not stop. One process is killed. */
void weft_worker_abandon(weft_worker *worker);
/* Asks a worker that has no job to end. Without a process, nothing happens. */
void weft_worker_retire(weft_worker *worker);
/* Ends a worker that has no job, before the server exits. Several ranks end when their commands
 * end. mpirun kills ranks that still run when the server has exited. */
void weft_worker_kill(weft_worker *worker);

#endif
