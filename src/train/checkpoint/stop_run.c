#include "train/checkpoint/stop_run.h"

#include "base/log.h"
#include "comm/comm_world.h"

#include <math.h>
#include <stdlib.h>

weft_status weft_stop_between_steps(weft_comm *comm, const char *what, bool *together)
{
    WEFT_TRY(weft_comm_barrier(comm));
    *together = true;
    if (weft_comm_rank(comm) == 0)
        weft_notice(WEFT_MSG_INTERRUPTED, WEFT_AT(.value = what),
                    "stopped while %s; the same command resumes the run", what);
    weft_error_clear(); /* rank 0 has printed the message */
    return WEFT_E_CANCELLED;
}

weft_status weft_stop_after_step(const weft_run_checkpoints *c, int64_t done, bool *together)
{
    const bool is_rank0 = weft_comm_rank(c->comm) == 0;
    const weft_status_code saved = weft_checkpoints_wait(c->files);
    weft_error_copy *why = saved != WEFT_OK ? weft_error_save() : NULL;
    const weft_status_code met = weft_comm_barrier(c->comm);
    if (met == WEFT_OK && saved != WEFT_OK)
        weft_error_restore(why);
    weft_free(why);
    WEFT_TRY(met);
    *together = true;
    if (is_rank0 && saved != WEFT_OK)
        return weft_error_add(saved, "Stopped at step %" PRId64, done);
    if (is_rank0)
        weft_notice(WEFT_MSG_INTERRUPTED, WEFT_AT(WEFT_NUMBER(done)),
                    "stopped at step %" PRId64 "; the same command resumes the run", done);
    weft_error_clear(); /* rank 0 has printed the message */
    return WEFT_E_CANCELLED;
}

/* Step of the last checkpoint. Waits for the write in progress. */
static int64_t last_checkpoint(const weft_run_checkpoints *c)
{
    if (weft_checkpoints_wait(c->files) != WEFT_OK)
        weft_warn_error(WEFT_MSG_SAVE_FAILED, "an earlier checkpoint is the last one");
    return weft_checkpoints_last(c->files);
}

weft_status weft_stop_outliers(const weft_run_checkpoints *c, int64_t done, weft_status_code status)
{
    weft_error_copy *why = weft_error_save();
    double last = weft_comm_rank(c->comm) == 0
                      ? (double)last_checkpoint(c)
                      : 0; /* only rank 0 has the step; all ranks stop at the same step */
    const weft_status_code met = weft_comm_sum(c->comm, &last, 1);
    if (met == WEFT_OK)
        weft_error_restore(why);
    weft_free(why);
    WEFT_TRY(met);
    if (last < 0)
        return weft_error_add(status, "This was step %" PRId64 "; no checkpoint exists yet", done);
    return weft_error_add(status,
                          "This was step %" PRId64
                          "; the last good checkpoint is %s/checkpoints/step-%08" PRId64,
                          done, c->run->out, (int64_t)last);
}

void weft_kill_timeout_check(weft_kill_timeout *t, const weft_run_checkpoints *c)
{
    const double save = c->files ? weft_checkpoints_seconds(c->files) : 0;
    const char *set = getenv("OMPI_MCA_odls_base_sigkill_timeout");
    const double patience = set ? atof(set) : 1; /* seconds: Open MPI's default */
    char text[3][32];
    if (t->warned || save <= 0 || weft_comm_rank(c->comm) != 0 || weft_comm_ranks(c->comm) == 1)
        return;
    t->warned = true;
    if (t->longest + save > patience)
        weft_warning(
            WEFT_MSG_CONFIG_UNUSUAL, WEFT_AT(.key = "checkpoint.interval", WEFT_NUMBER(patience)),
            "a step takes %s and a checkpoint %s, but mpirun kills ranks %s after Ctrl-C. The "
            "steps since the last checkpoint would be lost. Start the run as `mpirun --mca "
            "odls_base_sigkill_timeout %.0f ...`, or lower checkpoint.interval",
            weft_format_seconds(t->longest, text[0]), weft_format_seconds(save, text[1]),
            weft_format_seconds(patience, text[2]), ceil(2 * (t->longest + save)) + 1);
}
