#include "generate/jobs/finished_jobs.h"

#include "base/fs.h"
#include "base/log.h"
#include "comm/comm_world.h"
#include "generate/generator/saved_latents.h"

/* Lines of prompts.jsonl before a resumed run: the last line of each file. */
static weft_status_code on_line(void *user, json_t *line)
{
    json_t *by_file = user;
    const char *file = json_string_value(json_object_get(line, "file"));
    if (file)
        json_object_set(by_file, file, line);
    return WEFT_OK;
}

static weft_status check_line(const weft_video_outputs_item *item, const json_t *line,
                              const char *file)
{
    static const char *const all[] = {"prompt", "negative", "seed",  "frames",
                                      "height", "width",    "steps", "guidance"};
    json_t *was = json_object(),
           *is = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f}", "prompt", item->prompt,
                           "negative", item->negative ? item->negative : "", "seed",
                           (json_int_t)item->seed, "frames", (json_int_t)item->frames, "height",
                           (json_int_t)item->height, "width", (json_int_t)item->width, "steps",
                           (json_int_t)item->steps, "guidance", item->guidance);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(was && is, "the generation"));
    for (int i = 0; i < WEFT_COUNT(all); i++)
        json_object_set(was, all[i], json_object_get(line, all[i]));
    WEFT_GO(weft_saved_latents_compare(file, was, is, NULL));
out:
    json_decref(was);
    json_decref(is);
    return status;
}

/* Removes an incomplete last line left by a killed run. */
static weft_status mend_list(const char *path)
{
    char *data;
    int64_t bytes;
    WEFT_TRY(weft_file_read(path, 1 << 30, &data, &bytes));
    int64_t whole = bytes;
    while (whole && data[whole - 1] != '\n')
        whole--;
    const weft_status_code status =
        whole < bytes ? weft_file_write_atomic(path, data, whole) : WEFT_OK;
    weft_free(data);
    return status;
}

/* A search for the video of a job and its saved files. */
typedef struct search {
    weft_generation_context *context;
    weft_job_lookup saved;
    const json_t *by_file; /* lines of the list; NULL: the output is a file */
} search;

/* Whether the output file is the job's video. The file contains neither sheet frames nor arrays, so
 * their options generate again. */
static bool has_file(const weft_generation_context *c)
{
    const weft_generation_run *o = c->run;
    return !o->sheet && !o->raw && !o->latents && weft_video_outputs_exists(o->out, c->items);
}

/* Whether the list has a line for the video, whose file exists. Checks the settings in the line. */
static weft_status find_listed(search *s, bool *is)
{
    const int64_t job = s->saved.job;
    char own[32];
    const char *name = weft_video_outputs_name(s->context->items[job].file, job, own);
    const json_t *line = json_object_get(s->by_file, name);
    WEFT_TRY(
        weft_job_files_path(&s->context->files, job, weft_path_extension(name), &s->saved.path));
    *is = line && weft_path_exists(s->saved.path.data);
    return *is ? check_line(&s->context->items[job], line, s->saved.path.data) : WEFT_OK;
}

static weft_status_code find(void *user, weft_job_file file, weft_job_found *found)
{
    search *s = user;
    bool is = false;
    if (file != WEFT_JOB_VIDEO)
        return weft_job_files_exist(&s->saved, file, found);
    if (s->by_file)
        WEFT_TRY(find_listed(s, &is));
    else
        is = has_file(s->context);
    *found = is ? WEFT_JOB_WHOLE : WEFT_JOB_MISSING;
    return WEFT_OK;
}

static weft_status check_job(weft_generation_context *c, weft_job_row row, int64_t job,
                             const json_t *by_file)
{
    search s = {c, {.files = &c->files, .job = job}, by_file};
    const weft_status_code status = weft_job_check(row, find, &s, &c->done[job]);
    weft_buf_free(&s.saved.path);
    return status;
}

static weft_status check_file(weft_generation_context *c)
{
    const weft_job_row row = weft_job_files_row(&c->files, WEFT_JOB_CHECKED, WEFT_JOB_ANY_FORM);
    WEFT_TRY(check_job(c, row, 0, NULL));
    if (c->done[0])
        weft_notice(WEFT_MSG_RUN_FINISHED, WEFT_AT(.file = c->run->out),
                    "the video exists already, with this prompt, seed, size, steps and guidance. "
                    "Remove it to generate it again.");
    return WEFT_OK;
}

static weft_status check_list(weft_generation_context *c)
{
    const weft_job_row row =
        weft_job_files_row(&c->files, WEFT_JOB_CHECKED_LIST, WEFT_JOB_ANY_FORM);
    char *list = weft_path_join(c->run->out, "prompts.jsonl");
    json_t *by_file = json_object();
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(list && by_file, "the generation"));
    if (weft_path_exists(list)) {
        if (weft_job_rule(row, WEFT_JOB_LIST) == WEFT_RULE_MEND)
            WEFT_GO(mend_list(list));
        WEFT_GO(weft_json_lines(list, on_line, by_file));
    }
    for (int64_t i = 0; i < c->run->jobs->count; i++)
        WEFT_GO(check_job(c, row, i, by_file));
out:
    json_decref(by_file);
    weft_free(list);
    return status;
}

/* Whether job 0 has a saved file that a resumed run reads. */
static weft_status has_saved(weft_generation_context *c, bool *has)
{
    static const weft_job_state reading[] = {WEFT_JOB_UNFINISHED, WEFT_JOB_SAMPLING};
    weft_job_lookup saved = {.files = &c->files};
    weft_status_code status = WEFT_OK;
    *has = false;
    for (int i = 0; i < WEFT_COUNT(reading) && !*has; i++) {
        weft_job_file source = WEFT_JOB_FILES;
        WEFT_GO(weft_job_search(weft_job_files_row(&c->files, reading[i], WEFT_JOB_ANY_FORM),
                                weft_job_files_exist, &saved, &source));
        *has = source != WEFT_JOB_FILES;
    }
out:
    weft_buf_free(&saved.path);
    return status;
}

weft_status weft_finished_jobs_find(weft_generation_context *c)
{
    const weft_generation_run *o = c->run;
    const int64_t count = o->jobs->count;
    const bool file = weft_video_outputs_is_file(o->out);
    int64_t done = 0;
    bool saved = false;
    if (!o->resume)
        return WEFT_OK;
    if (c->team.is_rank0)
        WEFT_TRY(file ? check_file(c) : check_list(c));
    if (o->comm)
        WEFT_TRY(weft_comm_broadcast(o->comm, c->done, count * (int64_t)sizeof *c->done, 0));
    for (int64_t i = 0; i < count; i++)
        done += c->done[i];
    if (c->team.is_rank0 && !file)
        weft_notice(WEFT_MSG_RUN_RESUMED, WEFT_AT(.file = o->out, WEFT_NUMBER(done)),
                    "%" PRId64 " of %" PRId64 " videos exist already", done, count);
    if (!c->team.is_rank0 || count != 1 || done)
        return WEFT_OK;
    WEFT_TRY(has_saved(c, &saved));
    if (!saved)
        weft_notice(WEFT_MSG_RUN_RESUMED, WEFT_AT(.file = o->out, WEFT_NUMBER(0)),
                    "no saved state to resume from; starting from scratch");
    return WEFT_OK;
}

void weft_finished_jobs_clean(const weft_generation_context *c)
{
    const weft_job_row finished =
                           weft_job_files_row(&c->files, WEFT_JOB_FINISHED, WEFT_JOB_ANY_FORM),
                       all = weft_job_files_row(&c->files, WEFT_JOB_BATCH_FINISHED,
                                                WEFT_JOB_ANY_FORM);
    for (int64_t b = 0; b < c->batches.count; b++) {
        const weft_job_batch *batch = &c->batches.at[b];
        if (!c->team.writes || batch->team != c->team.number)
            continue;
        for (int64_t i = 0; i < batch->count; i++) {
            const int64_t job = c->batches.order[batch->first + i];
            if (c->done[job])
                weft_job_files_remove(&c->files, job, finished);
        }
        for (int64_t i = 0; i < batch->count && !weft_generation_context_is_left(c, batch); i++)
            weft_job_files_remove(&c->files, c->batches.order[batch->first + i], all);
    }
}
