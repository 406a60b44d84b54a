#include "plan/queue/elastic_trace_file.h"

#include "base/config.h"
#include "base/json.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const weft_elastic_table *table;
    weft_elastic_job *jobs;
    int64_t count, capacity;
} reader;

static weft_status find_size(const weft_elastic_table *t, const char *name,
                             const weft_elastic_size **size)
{
    for (int i = 0; i < t->count; i++)
        if (!strcmp(t->sizes[i].name, name)) {
            *size = &t->sizes[i];
            return WEFT_OK;
        }
    return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.key = "size", .value = name),
                      "the table of --degrees has no size '%.80s'", name);
}

static weft_status check_time(const char *key, double value, double least)
{
    return value >= least && value <= 1e12
               ? WEFT_OK
               : weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.key = key, WEFT_NUMBER(value)),
                            "%g is not a time of %g to 1e12 seconds", value, least);
}

static weft_status read_job(void *user, json_t *line)
{
    static const char *const known[] = {"arrival", "size", "deadline", "priority", "end"};
    reader *r = user;
    weft_elastic_job j = {0};
    const char *name;
    WEFT_TRY(weft_json_only(line, "a job", known, WEFT_COUNT(known)));
    WEFT_TRY(weft_json_get_f64(line, "arrival", "a job", &j.arrival));
    WEFT_TRY(weft_json_get_string_or(line, "size", "a job", "", &name));
    WEFT_TRY(weft_json_get_f64_or(line, "deadline", "a job", 0, &j.deadline));
    WEFT_TRY(weft_json_get_i64_or(line, "priority", "a job", 0, &j.priority));
    WEFT_TRY(weft_json_get_f64_or(line, "end", "a job", 0, &j.measured));
    WEFT_TRY(check_time("arrival", j.arrival, 0));
    WEFT_TRY(check_time("deadline", j.deadline, 0));
    if (j.measured != 0)
        WEFT_TRY(check_time("end", j.measured, j.arrival));
    WEFT_TRY(find_size(r->table, name, &j.size));
    WEFT_TRY(weft_grow((void **)&r->jobs, r->count, &r->capacity, sizeof *r->jobs));
    r->jobs[r->count++] = j;
    return WEFT_OK;
}

static int compare(const void *a, const void *b)
{
    const weft_elastic_job *x = a, *y = b;
    return x->arrival < y->arrival ? -1 : x->arrival > y->arrival;
}

weft_status weft_elastic_trace_read(const char *path, const weft_elastic_table *table,
                                    weft_elastic_job **jobs, int64_t *count)
{
    reader r = {.table = table};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_json_lines(path, read_job, &r));
    if (r.count == 0)
        WEFT_GO(weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path), "the trace has no job"));
    qsort(r.jobs, (size_t)r.count, sizeof *r.jobs, compare);
out:
    if (status != WEFT_OK)
        weft_free(r.jobs);
    *jobs = status == WEFT_OK ? r.jobs : NULL;
    *count = r.count;
    return status;
}

/* Values that the reader would assume anyway are omitted. */
static json_t *job_json(const void *jobs, int64_t i)
{
    const weft_elastic_job *job = (const weft_elastic_job *)jobs + i;
    json_t *json = json_pack("{s:f, s:s}", "arrival", job->arrival, "size", job->size->name);
    if (json && job->deadline > 0)
        json_object_set_new(json, "deadline", json_real(job->deadline));
    if (json && job->priority)
        json_object_set_new(json, "priority", json_integer(job->priority));
    return json;
}

weft_status weft_elastic_trace_write(const char *path, const weft_elastic_job *jobs, int64_t count)
{
    return weft_json_save_lines(path, job_json, jobs, count);
}
