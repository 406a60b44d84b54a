/* A curation as jobs of Slurm: an array of shards, the array again for their clips, and the last
 * pass. */
#ifndef WEFT_CURATE_SLURM_JOB_H
#define WEFT_CURATE_SLURM_JOB_H

#include "base/memory.h"

/* Paths are absolute. Strings are borrowed. */
typedef struct weft_slurm_job {
    const char *weft, *in, *out;
    const char *config;        /* NULL: none */
    const char *const *set;    /* "KEY=VALUE" */
    const char *const *sbatch; /* further options of sbatch, "--partition=long" */
    int set_count, sbatch_count;
    int64_t shards;
} weft_slurm_job;

/* Appends the script. It runs `shard` as a task of an array and `finish` as a job, and is replaced
 * by weft, so that weft gets Slurm's signals. */
weft_status weft_slurm_job_print(const weft_slurm_job *job, weft_buf *script);
/* Appends the command that submits a step: 0 the shards, 1 their clips, 2 the last pass.
 * `after`: id of the job before; NULL: none. */
weft_status weft_slurm_job_command(const weft_slurm_job *job, int step, const char *after,
                                   weft_buf *command);
/* Writes OUT/slurm/curate.sh. */
weft_status weft_slurm_job_write(const weft_slurm_job *job);
enum { WEFT_SLURM_STEPS = 3, WEFT_SLURM_ID = 64 };
/* Submits all steps, each after the one before. WEFT_E_IO: sbatch failed; the jobs that were
 * submitted before stay. */
weft_status weft_slurm_job_submit(const weft_slurm_job *job,
                                  char id[WEFT_SLURM_STEPS][WEFT_SLURM_ID]);

#endif
