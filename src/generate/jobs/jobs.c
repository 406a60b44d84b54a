#include "generate/jobs/jobs.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/utf8.h"
#include "generate/jobs/video_outputs.h"
#include "video/writer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

weft_status weft_jobs_add(weft_jobs *jobs, const char *text, int64_t length, const char *from,
                          int64_t number)
{
    WEFT_TRY(weft_grow((void **)&jobs->at, jobs->count, &jobs->capacity, sizeof *jobs->at));
    char *copy;
    WEFT_TRY(WEFT_NEW(copy, length + 1, "a prompt"));
    memcpy(copy, text, (size_t)length);
    jobs->at[jobs->count++] =
        (weft_job){.from = from, .number = number, .prompt = copy, .guidance = -1};
    if (memchr(text, '\0', (size_t)length) || !weft_utf8_valid(copy))
        return weft_error(WEFT_MSG_PROMPT_INVALID, WEFT_AT(.file = from, .line = number),
                          "the prompt is not UTF-8");
    return WEFT_OK;
}

/* ---- lines of JSON -------------------------------------------------------------------------- */

static weft_status copy_text(const json_t *line, const char *key, const char *where, char **to)
{
    const char *text;
    WEFT_TRY(weft_json_get_string_or(line, key, where, NULL, &text));
    *to = text ? weft_strdup(text) : NULL;
    return text && !*to ? weft_no_memory("a prompt") : WEFT_OK;
}

/* Checks that `out` is a video name below the run's folder. */
static weft_status check_out(const char *out, const char *where)
{
    if (!out)
        return WEFT_OK;
    const weft_status_code status = weft_video_writer_check(out, 0, 0);
    if (status != WEFT_OK)
        return weft_error_at(status, WEFT_AT(.file = where, .key = "out"));
    if (*out == '/' || !strncmp(out, "../", 3) || strstr(out, "/../"))
        return weft_error(
            WEFT_MSG_JSON_VALUE, WEFT_AT(.file = where, .key = "out", .value = out),
            "%s is not below the folder of --out. Give a relative name without \"..\".", out);
    return WEFT_OK;
}

static weft_status get_size(const json_t *line, const char *key, const char *where, int64_t most,
                            int64_t *to)
{
    WEFT_TRY(weft_json_get_i64_or(line, key, where, 0, to));
    if (json_object_get(line, key) && (*to < 1 || *to > most))
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = where, .key = key, WEFT_NUMBER(*to)),
                          "%" PRId64 " is not 1 to %" PRId64, *to, most);
    return WEFT_OK;
}

static weft_status read_line(weft_jobs *jobs, const json_t *line, const char *path, int64_t number)
{
    static const char *const known[] = {"prompt", "negative", "seed",     "frames", "height",
                                        "width",  "steps",    "guidance", "out"};
    char where[1100];
    const char *prompt;
    int64_t seed;
    snprintf(where, sizeof where, "%.1000s:%" PRId64, path, number);
    if (!json_is_object(line))
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = where),
                          "the line is not an object such as {\"prompt\": \"a dog\"}");
    WEFT_TRY(weft_json_only(line, where, known, WEFT_COUNT(known)));
    WEFT_TRY(weft_json_get_string(line, "prompt", where, &prompt));
    WEFT_TRY(weft_jobs_add(jobs, prompt, (int64_t)strlen(prompt), path, number));
    weft_job *j = &jobs->at[jobs->count - 1];
    WEFT_TRY(copy_text(line, "negative", where, &j->negative));
    WEFT_TRY(copy_text(line, "out", where, &j->out));
    WEFT_TRY(check_out(j->out, where));
    WEFT_TRY(weft_json_get_i64_or(line, "seed", where, 0, &seed));
    if (seed < 0)
        return weft_error(WEFT_MSG_JSON_VALUE,
                          WEFT_AT(.file = where, .key = "seed", WEFT_NUMBER(seed)),
                          "%" PRId64 " is negative; use at least 0", seed);
    j->seed = (uint64_t)seed;
    j->seeded = json_object_get(line, "seed") != NULL;
    WEFT_TRY(get_size(line, "frames", where, 100000, &j->frames));
    WEFT_TRY(get_size(line, "height", where, 16384, &j->height));
    WEFT_TRY(get_size(line, "width", where, 16384, &j->width));
    WEFT_TRY(get_size(line, "steps", where, 10000, &j->steps));
    WEFT_TRY(weft_json_get_f64_or(line, "guidance", where, -1, &j->guidance));
    if (json_object_get(line, "guidance") && !(j->guidance >= 0 && j->guidance <= 100))
        return weft_error(WEFT_MSG_JSON_VALUE,
                          WEFT_AT(.file = where, .key = "guidance", WEFT_NUMBER(j->guidance)),
                          "%g is not 0 to 100", j->guidance);
    return WEFT_OK;
}

static weft_status parse_line(weft_jobs *jobs, const char *text, int64_t length, const char *path,
                              int64_t number)
{
    json_t *line = NULL;
    WEFT_TRY(weft_json_parse_at(text, length, path, number, &line));
    const weft_status_code status = read_line(jobs, line, path, number);
    json_decref(line);
    return status;
}

static bool has_words(const char *line, int64_t length)
{
    for (int64_t i = 0; i < length; i++)
        if (line[i] != ' ' && line[i] != '\t')
            return true;
    return false;
}

weft_status weft_jobs_read(weft_jobs *jobs, const char *path)
{
    char *data;
    int64_t bytes;
    WEFT_TRY(weft_file_read(path, 1 << 28, &data, &bytes));
    weft_status_code status = WEFT_OK;
    const int64_t before = jobs->count;
    char *line = data;
    if (bytes >= 3 && !memcmp(data, "\xef\xbb\xbf", 3)) /* skip an editor's byte order mark */
        line += 3;
    bool is_json = !strcmp(weft_path_extension(path), "jsonl"), begun = is_json;
    for (int64_t number = 1; line < data + bytes; number++) {
        int64_t len = 0; /* not strcspn: a NUL byte must not end the line */
        while (line + len < data + bytes && line[len] != '\r' && line[len] != '\n')
            len++;
        if (has_words(line, len) && *line != '#') {
            is_json = is_json || (!begun && line[strspn(line, " \t")] == '{');
            begun = true; /* all lines have the format of the first one that is not a comment */
            WEFT_GO(is_json ? parse_line(jobs, line, len, path, number)
                            : weft_jobs_add(jobs, line, len, path, number));
        }
        line += len;
        line += line < data + bytes && *line == '\r' && line[1] == '\n' ? 2 : 1;
    }
    if (jobs->count == before)
        WEFT_GO(weft_error(WEFT_MSG_JOB_INVALID, WEFT_AT(.file = path),
                           "the file has no prompt. It is empty, or has only comments."));
out:
    weft_free(data);
    return status;
}

void weft_jobs_free(weft_jobs *jobs)
{
    for (int64_t i = 0; i < jobs->count; i++) {
        weft_free(jobs->at[i].prompt);
        weft_free(jobs->at[i].negative);
        weft_free(jobs->at[i].out);
    }
    weft_free(jobs->at);
    *jobs = (weft_jobs){0};
}

/* ---- names ---------------------------------------------------------------------------------- */

/* Files of two videos must differ without their extension: NAME.latents.safetensors and others are
 * named after it. */
weft_status weft_jobs_check_names(const weft_jobs *jobs)
{
    json_t *taken = json_object();
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(taken, "the jobs"));
    for (int64_t i = 0; i < jobs->count; i++) {
        const weft_job *j = &jobs->at[i];
        char own[32];
        const char *name = weft_video_outputs_name(j->out, i, own);
        while (!strncmp(name, "./", 2)) /* ./a.mp4 is a.mp4 */
            name += 2;
        const size_t stem = strlen(name) - strlen(weft_path_extension(name));
        const json_t *before = json_object_getn(taken, name, stem);
        if (before) {
            const weft_job *b = &jobs->at[json_integer_value(before)];
            WEFT_GO(weft_error(
                WEFT_MSG_JOB_INVALID,
                WEFT_AT(.file = j->from, .line = j->number, .key = "out", .value = name),
                "the video would be written to %s, and that of %s:%" PRId64 " to %s. Give each "
                "its own \"out\"; names must differ before the extension.",
                name, b->from, b->number,
                weft_video_outputs_name(b->out, json_integer_value(before), own)));
        } else if (json_object_setn_new(taken, name, stem, json_integer(i))) {
            WEFT_GO(weft_no_memory("the jobs"));
        }
    }
out:
    json_decref(taken);
    return status;
}

/* ---- batches -------------------------------------------------------------------------------- */

bool weft_jobs_alike(const weft_job *a, const weft_job *b)
{
    return a->frames == b->frames && a->height == b->height && a->width == b->width &&
           a->steps == b->steps && a->guidance == b->guidance;
}

/* Whether two jobs can be in one batch. */
static bool fit_together(const weft_job *a, const weft_job *b)
{
    return weft_jobs_alike(a, b) && a->begun_at == b->begun_at;
}

static double cost_of(const weft_job *j)
{
    return (double)j->frames * (double)j->height * (double)j->width * (double)j->steps *
           (j->guidance == 1 ? 1 : 2);
}

/* Groups jobs that are alike; groups are in the order of their first job. */
static void put_in_order(const weft_jobs *jobs, int64_t *order)
{
    int64_t placed = 0;
    for (int64_t i = 0; i < jobs->count; i++)
        jobs->at[i].batch = -1;
    for (int64_t i = 0; i < jobs->count; i++)
        for (int64_t k = i; jobs->at[i].batch < 0 && k < jobs->count; k++)
            if (k > i && jobs->at[k].batch < 0 && fit_together(&jobs->at[i], &jobs->at[k])) {
                jobs->at[k].batch = 0;
                order[placed++] = k;
            } else if (k == i) {
                order[placed++] = k;
            }
}

/* Assigns batches, the most expensive first, each to the team with the lowest load. No team exceeds
 * the mean load by more than one batch. */
static void deal(weft_job_batches *b, int teams, double *load)
{
    for (int64_t i = 0; i < b->count; i++)
        b->at[i].team = -1;
    for (int64_t n = 0; n < b->count; n++) {
        int64_t dear = -1;
        int least = 0;
        for (int64_t i = 0; i < b->count; i++)
            if (b->at[i].team < 0 && (dear < 0 || b->at[i].cost > b->at[dear].cost))
                dear = i;
        for (int t = 1; t < teams; t++)
            least = load[t] < load[least] ? t : least;
        b->at[dear].team = least;
        load[least] += b->at[dear].cost;
    }
}

weft_status weft_jobs_cut(weft_jobs *jobs, int64_t most, int teams, weft_job_batches *b)
{
    double *load = weft_calloc(teams, sizeof *load);
    *b = (weft_job_batches){.order = weft_calloc(jobs->count, sizeof *b->order),
                            .at = weft_calloc(jobs->count, sizeof *b->at)};
    if (!load || !b->order || !b->at) {
        weft_free(load);
        weft_job_batches_free(b);
        return weft_no_memory("%" PRId64 " prompts", jobs->count);
    }
    put_in_order(jobs, b->order);
    for (int64_t i = 0; i < jobs->count; i++) {
        weft_job *j = &jobs->at[b->order[i]];
        weft_job_batch *last = b->count ? &b->at[b->count - 1] : NULL;
        if (!last || last->count == most || !fit_together(&jobs->at[b->order[last->first]], j)) {
            last = &b->at[b->count++];
            *last = (weft_job_batch){.first = i};
        }
        last->count++;
        last->cost += cost_of(j);
        j->batch = b->count - 1;
    }
    deal(b, teams, load);
    weft_free(load);
    return WEFT_OK;
}

void weft_job_batches_free(weft_job_batches *b)
{
    weft_free(b->order);
    weft_free(b->at);
    *b = (weft_job_batches){0};
}
