#include "cli/worker_ranks.h"

#include "base/launcher.h"
#include "comm/comm_mpi.h"
#include "comm/comm_world.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>

/* The leader's side of weft_worker_receive_job. `job` NULL: the end. */
weft_status weft_worker_send_job(const weft_worker_state *w, const json_t *job)
{
    char *line = job ? weft_json_line(job) : NULL;
    int64_t bytes = line ? (int64_t)strlen(line) : 0;
    weft_status_code status = WEFT_OK;
    if (job)
        WEFT_TRY(WEFT_ALLOCATED(line, "a job"));
    WEFT_GO(weft_comm_broadcast(w->comm, &bytes, sizeof bytes, w->leader));
    if (bytes)
        WEFT_GO(weft_comm_broadcast(w->comm, line, bytes, w->leader));
out:
    weft_free(line);
    return status;
}

static void unload_idle(void *user)
{
    (void)weft_resident_unload_idle(user);
}

/* *job: NULL at the end. */
weft_status weft_worker_receive_job(const weft_worker_state *w, json_t **job)
{
    int64_t bytes;
    char *line;
    weft_status_code status = WEFT_OK;
    *job = NULL;
    WEFT_TRY(weft_comm_await_broadcast(w->comm, &bytes, sizeof bytes, w->leader, unload_idle,
                                       w->resident));
    if (!bytes)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(line, bytes, "a job"));
    WEFT_GO(weft_comm_broadcast(w->comm, line, bytes, w->leader));
    *job = json_loadb(line, (size_t)bytes, 0, NULL);
    WEFT_GO(WEFT_ALLOCATED(*job, "a job"));
out:
    weft_free(line);
    return status;
}

/* A launcher that was killed leaves no rank, and a later server starts its worker after the end of
 * every rank: each has the lock of the worker. The working folder is the server's state. */
static weft_status bind_to_launcher(const char *path)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int lock = open(path, O_RDWR | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_SH) != 0)
        return weft_error_errno(WEFT_AT(.file = path), "cannot lock");
    return WEFT_OK; /* locked until the process ends */
}

weft_status weft_worker_open_ranks(weft_worker_state *w, int64_t ranks, const char *lock)
{
    if (ranks > 1)
        WEFT_TRY(bind_to_launcher(lock));
    WEFT_TRY(weft_comm_open_mpi(&w->comm));
    if (weft_comm_ranks(w->comm) != ranks)
        return weft_error(WEFT_MSG_COMM_UNSUPPORTED, WEFT_AT(WEFT_NUMBER(ranks)),
                          "%" PRId64 " processes were started and %d ranks found each other; use "
                          "the mpirun of the MPI library with which weft was built",
                          ranks, weft_comm_ranks(w->comm));
    double leader = weft_launcher_rank() <= 0 ? weft_comm_rank(w->comm) : 0;
    WEFT_TRY(weft_comm_sum(w->comm, &leader, 1));
    w->leader = (int)leader;
    w->leads = w->leader == weft_comm_rank(w->comm);
    return WEFT_OK;
}
