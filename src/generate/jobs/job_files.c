#include "generate/jobs/job_files.h"

#include "base/fs.h"
#include "base/log.h"
#include "generate/generator/generator_save.h"
#include "generate/generator/saved_latents.h"

#include <stdio.h>
#include <unistd.h>

enum { ENDING = 64 };
static const char *const state_ending = "sampling.safetensors";
/* earlier name, also read and removed */
static const char *const earlier_state_ending = "walk.safetensors";

weft_job_row weft_job_files_row(const weft_job_files *f, weft_job_state state, weft_job_form form)
{
    return (weft_job_row){state, form, f->saves};
}

weft_status weft_job_files_path(const weft_job_files *f, int64_t job, const char *ending,
                                weft_buf *path)
{
    return weft_video_outputs_sibling(f->out, &f->items[job], job, ending, path);
}

weft_status weft_job_files_new_path(const weft_job_files *f, int64_t job, const char *ending,
                                    weft_buf *path)
{
    WEFT_TRY(weft_job_files_path(f, job, ending, path));
    return weft_make_parent(path->data);
}

static const char *ending_of(weft_job_file file, int64_t window, char ending[ENDING])
{
    if (file == WEFT_JOB_SAMPLER_STATE)
        return state_ending;
    if (file == WEFT_JOB_LATENTS)
        return "latents.safetensors";
    snprintf(ending, ENDING, "window%04" PRId64 ".latents.safetensors", window);
    return ending;
}

weft_status weft_job_files_saved_path(const weft_job_files *f, int64_t job, weft_job_file file,
                                      int64_t window, weft_buf *path)
{
    char own[ENDING];
    const char *ending = ending_of(file, window, own);
    return file == WEFT_JOB_LATENTS ? weft_job_files_new_path(f, job, ending, path)
                                    : weft_job_files_path(f, job, ending, path);
}

/* ---- search --------------------------------------------------------------------------------- */

static weft_status exists(const weft_job_files *f, int64_t job, const char *ending, weft_buf *path,
                          bool *is)
{
    WEFT_TRY(weft_job_files_path(f, job, ending, path));
    *is = weft_path_exists(path->data);
    return WEFT_OK;
}

weft_status_code weft_job_files_exist(void *lookup, weft_job_file file, weft_job_found *found)
{
    weft_job_lookup *l = lookup;
    char own[ENDING];
    bool is;
    WEFT_TRY(exists(l->files, l->job, ending_of(file, l->window, own), &l->path, &is));
    if (!is && file == WEFT_JOB_SAMPLER_STATE)
        WEFT_TRY(exists(l->files, l->job, earlier_state_ending, &l->path, &is));
    *found = is ? WEFT_JOB_WHOLE : WEFT_JOB_MISSING;
    return WEFT_OK;
}

weft_status_code weft_job_files_verify(void *lookup, weft_job_file file, weft_job_found *found)
{
    weft_job_lookup *l = lookup;
    bool whole;
    WEFT_TRY(weft_job_files_exist(l, file, found));
    if (*found == WEFT_JOB_MISSING)
        return WEFT_OK;
    WEFT_TRY(weft_saved_latents_verify(l->path.data, &whole));
    *found = whole ? WEFT_JOB_WHOLE : WEFT_JOB_DAMAGED;
    if (!whole && l->files->warns)
        weft_warn_error(WEFT_MSG_LATENTS_REBUILT, "its content is generated again");
    return WEFT_OK;
}

weft_status weft_job_files_saved_step(const weft_job_files *f, int64_t job, int64_t *step)
{
    weft_job_lookup l = {.files = f, .job = job};
    weft_job_found found;
    weft_saved_latents k = {0};
    weft_status_code status = WEFT_OK;
    *step = 0;
    WEFT_GO(weft_job_files_verify(&l, WEFT_JOB_SAMPLER_STATE, &found));
    if (found == WEFT_JOB_WHOLE) {
        WEFT_GO(weft_saved_latents_open(l.path.data, &k));
        *step = k.cursor.step;
    }
out:
    weft_saved_latents_close(&k);
    weft_buf_free(&l.path);
    return status;
}

/* ---- removal -------------------------------------------------------------------------------- */

static void remove_file(const weft_job_files *f, int64_t job, const char *ending)
{
    weft_buf path = {0};
    if (weft_job_files_path(f, job, ending, &path) == WEFT_OK)
        (void)unlink(path.data);
    weft_buf_free(&path);
}

/* Removes a sampler state with the caches of all ranks. */
static void remove_state(const weft_job_files *f, int64_t job, const char *ending)
{
    weft_buf path = {0};
    bool is;
    if (exists(f, job, ending, &path, &is) == WEFT_OK && is)
        weft_generator_remove_saved(path.data);
    weft_buf_free(&path);
}

void weft_job_files_remove_earlier(const weft_job_files *f, int64_t job)
{
    remove_state(f, job, earlier_state_ending);
}

/* Removes the last window first: if the run is killed, the remaining windows have all earlier
 * ones. */
static void remove_windows(const weft_job_files *f, int64_t job)
{
    weft_job_lookup l = {.files = f, .job = job};
    weft_job_found found;
    char ending[ENDING];
    while (weft_job_files_exist(&l, WEFT_JOB_WINDOWS, &found) == WEFT_OK &&
           found != WEFT_JOB_MISSING)
        l.window++;
    while (l.window-- > 0)
        remove_file(f, job, ending_of(WEFT_JOB_WINDOWS, l.window, ending));
    weft_buf_free(&l.path);
}

void weft_job_files_remove(const weft_job_files *f, int64_t job, weft_job_row row)
{
    char own[ENDING];
    if (weft_job_rule(row, WEFT_JOB_SAMPLER_STATE) == WEFT_RULE_REMOVE) {
        remove_state(f, job, state_ending);
        weft_job_files_remove_earlier(f, job);
    }
    if (weft_job_rule(row, WEFT_JOB_LATENTS) == WEFT_RULE_REMOVE)
        remove_file(f, job, ending_of(WEFT_JOB_LATENTS, 0, own));
    if (weft_job_rule(row, WEFT_JOB_WINDOWS) == WEFT_RULE_REMOVE)
        remove_windows(f, job);
}
