#include "plan/queue/queue_trace_file.h"

#include "base/config.h"
#include "base/json.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    weft_queue_run *jobs;
    int64_t count, capacity;
    json_t *owners; /* name: index */
} reader;

static weft_status refuse(const char *key, double value, const char *rule)
{
    return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.key = key, WEFT_NUMBER(value)),
                      "%g is not %s", value, rule);
}

static weft_status read_owner(reader *r, const json_t *line, int64_t *owner)
{
    const char *name;
    WEFT_TRY(weft_json_get_string_or(line, "owner", "a job", "", &name));
    const json_t *known = json_object_get(r->owners, name);
    *owner = known ? json_integer_value(known) : (int64_t)json_object_size(r->owners);
    if (!known && json_object_set_new(r->owners, name, json_integer(*owner)) != 0)
        return weft_no_memory("a trace");
    return WEFT_OK;
}

static weft_status check_job(const weft_queue_run *j)
{
    const weft_queue_entry *e = &j->entry;
    if (!(e->arrival >= 0 && e->arrival <= 1e12))
        return refuse("arrival", e->arrival, "a time of 0 to 1e12 seconds");
    if (!(e->seconds > 0 && e->seconds <= 1e9))
        return refuse("seconds", e->seconds, "above 0 and at most 1e9");
    if (!(j->actual > 0 && j->actual <= 1e9))
        return refuse("actual", j->actual, "above 0 and at most 1e9");
    if (!(e->deadline >= 0 && e->deadline <= 1e12))
        return refuse("deadline", e->deadline, "a time of 0 to 1e12 seconds");
    return j->steps >= 1 && j->steps <= 100000 ? WEFT_OK
                                               : refuse("steps", (double)j->steps, "1 to 100000");
}

static weft_status read_job(void *user, json_t *line)
{
    static const char *const known[] = {"arrival",  "seconds", "deadline", "owner",
                                        "priority", "steps",   "actual"};
    reader *r = user;
    weft_queue_run j = {0};
    weft_queue_entry *e = &j.entry;
    WEFT_TRY(weft_json_only(line, "a job", known, WEFT_COUNT(known)));
    WEFT_TRY(weft_json_get_f64(line, "arrival", "a job", &e->arrival));
    WEFT_TRY(weft_json_get_f64(line, "seconds", "a job", &e->seconds));
    WEFT_TRY(weft_json_get_f64_or(line, "deadline", "a job", 0, &e->deadline));
    WEFT_TRY(weft_json_get_f64_or(line, "actual", "a job", e->seconds, &j.actual));
    WEFT_TRY(weft_json_get_i64_or(line, "priority", "a job", 0, &e->priority));
    WEFT_TRY(weft_json_get_i64_or(line, "steps", "a job", 30, &j.steps));
    WEFT_TRY(check_job(&j));
    WEFT_TRY(read_owner(r, line, &e->owner));
    WEFT_TRY(weft_grow((void **)&r->jobs, r->count, &r->capacity, sizeof *r->jobs));
    e->number = e->rank = r->count + 1;
    r->jobs[r->count++] = j;
    return WEFT_OK;
}

weft_status weft_queue_trace_read(const char *path, weft_queue_run **jobs, int64_t *count,
                                  int64_t *owners)
{
    reader r = {.owners = json_object()};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(r.owners, "a trace"));
    WEFT_GO(weft_json_lines(path, read_job, &r));
    if (r.count == 0)
        WEFT_GO(weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path), "the trace has no job"));
out:
    *owners = (int64_t)json_object_size(r.owners);
    json_decref(r.owners);
    if (status != WEFT_OK)
        weft_free(r.jobs);
    *jobs = status == WEFT_OK ? r.jobs : NULL;
    *count = r.count;
    return status;
}

static json_t *job_json(const void *jobs, int64_t i)
{
    const weft_queue_run *j = (const weft_queue_run *)jobs + i;
    char owner[32];
    snprintf(owner, sizeof owner, "owner %" PRId64, j->entry.owner + 1);
    json_t *line = json_pack("{s:f, s:f, s:f, s:I, s:s}", "arrival", j->entry.arrival, "seconds",
                             j->entry.seconds, "actual", j->actual, "steps", (json_int_t)j->steps,
                             "owner", owner);
    if (line && j->entry.deadline > 0)
        json_object_set_new(line, "deadline", json_real(j->entry.deadline));
    if (line && j->entry.priority)
        json_object_set_new(line, "priority", json_integer(j->entry.priority));
    return line;
}

weft_status weft_queue_trace_write(const char *path, const weft_queue_run *jobs, int64_t count)
{
    return weft_json_save_lines(path, job_json, jobs, count);
}
