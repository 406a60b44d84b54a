#include "curate/slurm_job.h"

#include "base/fs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Appends a word of a shell command. */
static void put_word(weft_buf *to, const char *word)
{
    weft_buf_printf(to, " '");
    for (const char *c = word; *c; c++) {
        if (*c == '\'')
            weft_buf_printf(to, "'\\'");
        weft_buf_append(to, c, 1);
    }
    weft_buf_printf(to, "'");
}

static void put_curate(const weft_slurm_job *job, const char *last, weft_buf *to)
{
    weft_buf_printf(to, "    exec");
    put_word(to, job->weft);
    weft_buf_printf(to, " curate");
    if (job->config)
        put_word(to, job->config);
    weft_buf_printf(to, " --in");
    put_word(to, job->in);
    weft_buf_printf(to, " --out");
    put_word(to, job->out);
    weft_buf_printf(to, " \\\n        --set \"workers=${SLURM_CPUS_ON_NODE:-0}\"");
    for (int i = 0; i < job->set_count; i++) {
        weft_buf_printf(to, " --set");
        put_word(to, job->set[i]);
    }
    weft_buf_printf(to, " %s\n", last);
}

weft_status weft_slurm_job_print(const weft_slurm_job *job, weft_buf *to)
{
    char shard[64];
    /* After a lost node, a copy of the task can be running still. */
    snprintf(shard, sizeof shard, "--wait --shard auto/%" PRId64, job->shards);
    weft_buf_printf(to, "#!/bin/bash\n"
                        "# Written by `weft curate --engine slurm`. Slurm's signals reach weft, as "
                        "exec replaces the script.\n"
                        "# A task that is preempted or whose node fails is queued again and "
                        "continues.\n"
                        "#SBATCH --job-name=weft-curate\n"
                        "#SBATCH --requeue\n"
                        "#SBATCH --open-mode=append\n"
                        "#SBATCH --signal=B:TERM@60\n");
    weft_buf_printf(to, "#SBATCH --output=\"%s/slurm/%%x-%%j.log\"\n", job->out);
    for (int i = 0; i < job->sbatch_count; i++)
        weft_buf_printf(to, "#SBATCH %s\n", job->sbatch[i]);
    weft_buf_printf(to, "case ${1-} in\nshard)\n");
    put_curate(job, shard, to);
    weft_buf_printf(to, "    ;;\nfinish)\n");
    put_curate(job, "--wait --finish", to);
    weft_buf_printf(to, "    ;;\nesac\necho \"usage: $0 shard | finish\" >&2\nexit 2\n");
    return weft_buf_check(to);
}

weft_status weft_slurm_job_command(const weft_slurm_job *job, int step, const char *after,
                                   weft_buf *to)
{
    weft_buf path = {0};
    weft_buf_printf(to, "sbatch --parsable");
    if (step < 2)
        weft_buf_printf(to, " --array=0-%" PRId64, job->shards - 1);
    if (after) /* also after a failure: the next step repeats what is missing, or reports it */
        weft_buf_printf(to, " --dependency=afterany:%s", after);
    weft_buf_printf(&path, "%s/slurm/curate.sh", job->out);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&path));
    put_word(to, path.data);
    weft_buf_printf(to, " %s", step < 2 ? "shard" : "finish");
    WEFT_GO(weft_buf_check(to));
out:
    weft_buf_free(&path);
    return status;
}

weft_status weft_slurm_job_write(const weft_slurm_job *job)
{
    weft_buf script = {0}, path = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_slurm_job_print(job, &script));
    weft_buf_printf(&path, "%s/slurm/curate.sh", job->out);
    WEFT_GO(weft_buf_check(&path));
    WEFT_GO(weft_make_parent(path.data));
    WEFT_GO(weft_file_write_atomic(path.data, script.data, script.len));
    if (chmod(path.data, 0755) != 0)
        status = weft_error_errno(WEFT_AT(.file = path.data), "cannot make the script executable");
out:
    weft_buf_free(&script);
    weft_buf_free(&path);
    return status;
}

/* Runs sbatch and reads the id of the job: "123", or "123;cluster". */
static weft_status submit(const char *command, char id[WEFT_SLURM_ID])
{
    fflush(NULL);
    FILE *pipe = popen(command, "re");
    if (!pipe)
        return weft_error_errno(WEFT_AT(.key = "sbatch"), "cannot run the command");
    const bool read = fgets(id, WEFT_SLURM_ID, pipe) != NULL;
    const int result = pclose(pipe);
    if (read)
        id[strcspn(id, ";\n")] = 0;
    if (result == 0 && read && *id && !id[strspn(id, "0123456789_")])
        return WEFT_OK;
    return weft_error(WEFT_MSG_WORKER_FAILED, WEFT_AT(.key = "sbatch", .value = command),
                      "sbatch %s. Its message is above; correct --sbatch, or submit the script by "
                      "hand.",
                      result == 0 ? "printed no job id" : "failed");
}

/* Submits one step, which runs after the job `after`; NULL: at once. */
static weft_status submit_step(const weft_slurm_job *job, int step, const char *after,
                               char id[WEFT_SLURM_ID])
{
    weft_buf command = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_slurm_job_command(job, step, after, &command));
    WEFT_GO(submit(command.data, id));
out:
    weft_buf_free(&command);
    return status;
}

weft_status weft_slurm_job_submit(const weft_slurm_job *job,
                                  char id[WEFT_SLURM_STEPS][WEFT_SLURM_ID])
{
    for (int step = 0; step < WEFT_SLURM_STEPS; step++)
        WEFT_TRY(submit_step(job, step, step ? id[step - 1] : NULL, id[step]));
    return WEFT_OK;
}
