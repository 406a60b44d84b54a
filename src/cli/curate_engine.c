#include "cli/curate_engine.h"

#include "base/fs.h"
#include "base/location.h"
#include "curate/curate_worker.h"
#include "curate/shard_option.h"
#include "curate/slurm_job.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The absolute path of a folder or file that exists, or the location of a bucket; `key` is its
 * option. */
static weft_status real_path(const char *path, const char *key, char real[PATH_MAX])
{
    if (weft_location_is_remote(path)) {
        snprintf(real, PATH_MAX, "%s", path);
        return WEFT_OK;
    }
    if (!realpath(path, real))
        return weft_error_errno(WEFT_AT(.file = path, .key = key), "cannot find this path");
    return WEFT_OK;
}

static weft_status check_options(const weft_args *args)
{
    const char *engine = weft_args_string(args, "--engine");
    if (strcmp(engine, "slurm") != 0)
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--engine", .value = engine),
                          "'%s' is not an engine; use slurm", engine);
    if (weft_args_string(args, "--shard") || weft_args_flag(args, "--finish"))
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--engine"),
                          "the jobs of the engine have --shard and --finish themselves");
    return WEFT_OK;
}

static weft_status submit(const weft_slurm_job *job)
{
    char id[WEFT_SLURM_STEPS][WEFT_SLURM_ID];
    WEFT_TRY(weft_slurm_job_submit(job, id));
    printf("submitted %s (shards), %s (their clips) and %s (last pass)\n", id[0], id[1], id[2]);
    return WEFT_OK;
}

static weft_status print_command(const weft_slurm_job *job, int step, const char *after,
                                 const char *name)
{
    weft_buf command = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_slurm_job_command(job, step, after, &command));
    printf("%s=$(%s)\n", name, command.data);
out:
    weft_buf_free(&command);
    return status;
}

/* The commands that --submit would run. */
static weft_status print_commands(const weft_slurm_job *job)
{
    static const char *const after[] = {NULL, "$shards", "$clips"}, *const name[] = {
                                                                        "shards", "clips", "last"};
    for (int step = 0; step < WEFT_SLURM_STEPS; step++)
        WEFT_TRY(print_command(job, step, after[step], name[step]));
    return WEFT_OK;
}

static weft_status run_slurm(const weft_args *args, const char *config)
{
    char weft[PATH_MAX], in[PATH_MAX], out[PATH_MAX], file[PATH_MAX];
    weft_slurm_job job = {.weft = weft, .in = in, .out = out, .config = config ? file : NULL};
    job.set = weft_args_list(args, "--set", &job.set_count);
    job.sbatch = weft_args_list(args, "--sbatch", &job.sbatch_count);
    WEFT_TRY(check_options(args));
    if (weft_location_is_remote(weft_args_string(args, "--out")))
        return weft_error(WEFT_MSG_STORAGE_LOCATION, WEFT_AT(.key = "--out"),
                          "the script of the jobs is written to this folder, so it cannot be a "
                          "bucket. Submit `weft curate --shard auto` with a script of your own.");
    WEFT_TRY(weft_args_i64(args, "--shards", 1, WEFT_MOST_SHARDS, &job.shards));
    WEFT_TRY(real_path("/proc/self/exe", NULL, weft));
    WEFT_TRY(real_path(weft_args_string(args, "--in"), "--in", in));
    WEFT_TRY(weft_make_dirs(weft_args_string(args, "--out")));
    WEFT_TRY(real_path(weft_args_string(args, "--out"), "--out", out));
    if (config)
        WEFT_TRY(real_path(config, NULL, file));
    WEFT_TRY(weft_slurm_job_write(&job));
    printf("wrote %s/slurm/curate.sh\n", out);
    return weft_args_flag(args, "--submit") ? submit(&job) : print_commands(&job);
}

static weft_status run_worker(const weft_args *args, const weft_curate_config *config)
{
    weft_curate_session *session;
    if (config->finish || config->shards || config->forget)
        return weft_error(
            WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--worker"),
            "a worker does only what its tasks name. Use it without --shard, --finish "
            "and --prune-missing.");
    WEFT_TRY(weft_curate_session_open(weft_args_string(args, "--in"),
                                      weft_args_string(args, "--out"), config, &session));
    const weft_status_code status = weft_curate_worker_run(session, STDIN_FILENO, stdout);
    weft_curate_session_close(session);
    return status;
}

weft_status weft_curate_engine_run(const weft_args *args, const char *path,
                                   const weft_curate_config *config)
{
    const bool worker = weft_args_flag(args, "--worker");
    if (worker && weft_args_string(args, "--engine"))
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--engine"),
                          "a worker is started by an engine and is none. Use one of --worker and "
                          "--engine.");
    if (config->metrics)
        return weft_error(
            WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--metrics"),
            "the figures are of one run. Use --metrics without --worker and --engine.");
    return worker ? run_worker(args, config) : run_slurm(args, path);
}
