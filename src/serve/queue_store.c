#include "serve/queue_store.h"

#include "serve/queue_tables.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

/* ---- rows ----------------------------------------------------------------------------------- */

#define COLUMNS WEFT_QUEUE_COLUMNS

static char *copy_column(sqlite3_stmt *row, int at, bool *ok)
{
    const char *text = (const char *)sqlite3_column_text(row, at);
    char *copy = text ? weft_strdup(text) : NULL;
    *ok = *ok && (copy || !text);
    return copy;
}

static weft_status read_row(const weft_queue_store *s, sqlite3_stmt *row, weft_queue_job *job)
{
    bool ok = true;
    const char *id = (const char *)sqlite3_column_text(row, 1),
               *state = (const char *)sqlite3_column_text(row, 2);
    *job = (weft_queue_job){.number = sqlite3_column_int64(row, 0),
                            .state = weft_queue_state_find(state ? state : ""),
                            .priority = sqlite3_column_int64(row, 3),
                            .crashes = sqlite3_column_int64(row, 4),
                            .created = sqlite3_column_double(row, 5),
                            .started = sqlite3_column_double(row, 6),
                            .finished = sqlite3_column_double(row, 7),
                            .deadline = sqlite3_column_double(row, 8),
                            .seconds = sqlite3_column_double(row, 9),
                            .bytes = sqlite3_column_int64(row, 10),
                            .spent = sqlite3_column_double(row, 11),
                            .rank = sqlite3_column_int64(row, 18),
                            .remaining = sqlite3_column_double(row, 21)};
    snprintf(job->id, sizeof job->id, "%s", id ? id : "");
    job->request = copy_column(row, 12, &ok);
    job->request_id = copy_column(row, 13, &ok);
    job->fingerprint = copy_column(row, 14, &ok);
    job->remix_of = copy_column(row, 15, &ok);
    job->error_code = copy_column(row, 16, &ok);
    job->error_text = copy_column(row, 17, &ok);
    job->webhook = copy_column(row, 19, &ok);
    job->owner = copy_column(row, 20, &ok);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(ok, "a job"));
    if (job->state == WEFT_QUEUE_STATES)
        WEFT_GO(weft_error(WEFT_MSG_QUEUE_VERSION, WEFT_AT(.file = s->path, .key = job->id),
                           "the job has an unknown state"));
out:
    if (status != WEFT_OK)
        weft_queue_job_free(job);
    return status;
}

void weft_queue_job_free(weft_queue_job *job)
{
    weft_free(job->request);
    weft_free(job->request_id);
    weft_free(job->fingerprint);
    weft_free(job->remix_of);
    weft_free(job->webhook);
    weft_free(job->owner);
    weft_free(job->error_code);
    weft_free(job->error_text);
    *job = (weft_queue_job){0};
}

void weft_queue_jobs_free(weft_queue_job *jobs, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        weft_queue_job_free(&jobs[i]);
    weft_free(jobs);
}

/* Reads the first row of a statement, and finalizes it. */
static weft_status read_one(weft_queue_store *s, sqlite3_stmt *statement, weft_queue_job *job,
                            bool *found)
{
    const int code = sqlite3_step(statement);
    weft_status_code status = WEFT_OK;
    *found = code == SQLITE_ROW;
    if (code == SQLITE_ROW)
        status = read_row(s, statement, job);
    else if (code != SQLITE_DONE)
        status = weft_queue_store_error(s);
    sqlite3_finalize(statement);
    return status;
}

weft_status weft_queue_store_find(weft_queue_store *s, const char *id, weft_queue_job *job,
                                  bool *found)
{
    sqlite3_stmt *row;
    WEFT_TRY(weft_queue_store_prepare(s, "SELECT " COLUMNS " FROM job WHERE id=?1", &row));
    weft_queue_store_bind(row, 1, id);
    return read_one(s, row, job, found);
}

weft_status weft_queue_store_find_request(weft_queue_store *s, const char *owner,
                                          const char *request_id, weft_queue_job *job, bool *found)
{
    sqlite3_stmt *row;
    WEFT_TRY(weft_queue_store_prepare(
        s, "SELECT " COLUMNS " FROM job WHERE ifnull(owner, '')=?1 AND request_id=?2", &row));
    weft_queue_store_bind(row, 1, owner ? owner : "");
    weft_queue_store_bind(row, 2, request_id);
    return read_one(s, row, job, found);
}

weft_status weft_queue_store_next(weft_queue_store *s, weft_queue_state state, int64_t after,
                                  weft_queue_job *job, bool *found)
{
    sqlite3_stmt *row;
    WEFT_TRY(weft_queue_store_prepare(
        s, "SELECT " COLUMNS " FROM job WHERE state=?1 AND number>?2 ORDER BY number LIMIT 1",
        &row));
    weft_queue_store_bind(row, 1, weft_queue_state_name(state));
    sqlite3_bind_int64(row, 2, after);
    return read_one(s, row, job, found);
}

weft_status weft_queue_store_at(weft_queue_store *s, int64_t number, weft_queue_job *job,
                                bool *found)
{
    sqlite3_stmt *row;
    WEFT_TRY(weft_queue_store_prepare(s, "SELECT " COLUMNS " FROM job WHERE number=?1", &row));
    sqlite3_bind_int64(row, 1, number);
    return read_one(s, row, job, found);
}

/* ---- changes -------------------------------------------------------------------------------- */

static weft_status insert(weft_queue_store *s, weft_queue_job *job)
{
    sqlite3_stmt *row;
    WEFT_TRY(weft_queue_store_prepare(
        s,
        "INSERT INTO job(id, state, priority, crashes, created, started, finished, "
        "deadline, seconds, bytes, spent, request, request_id, fingerprint, remix_of, "
        "webhook, owner, remaining, rank) VALUES(?1, ?2, ?3, 0, ?4, 0, 0, ?5, ?6, ?7, 0, ?8, ?9, "
        "?10, ?11, ?12, ?13, 0, (SELECT coalesce(max(max(number), max(rank)), 0) + 1 FROM job))",
        &row));
    weft_queue_store_bind(row, 1, job->id);
    weft_queue_store_bind(row, 2, weft_queue_state_name(WEFT_QUEUE_QUEUED));
    sqlite3_bind_int64(row, 3, job->priority);
    sqlite3_bind_double(row, 4, job->created);
    sqlite3_bind_double(row, 5, job->deadline);
    sqlite3_bind_double(row, 6, job->seconds);
    sqlite3_bind_int64(row, 7, job->bytes);
    weft_queue_store_bind(row, 8, job->request);
    weft_queue_store_bind(row, 9, job->request_id);
    weft_queue_store_bind(row, 10, job->fingerprint);
    weft_queue_store_bind(row, 11, job->remix_of);
    weft_queue_store_bind(row, 12, job->webhook);
    weft_queue_store_bind(row, 13, job->owner);
    WEFT_TRY(weft_queue_store_finish(s, row));
    job->number = sqlite3_last_insert_rowid(s->db);
    job->state = WEFT_QUEUE_QUEUED;
    return WEFT_OK;
}

weft_status weft_queue_store_add(weft_queue_store *s, weft_queue_job *job, bool *existing)
{
    weft_queue_job found;
    *existing = false;
    if (job->request_id)
        WEFT_TRY(weft_queue_store_find_request(s, job->owner, job->request_id, &found, existing));
    if (!*existing)
        return insert(s, job);
    weft_queue_job_free(job);
    *job = found;
    return WEFT_OK;
}

static weft_status add_delivery(weft_queue_store *s, const weft_queue_job *job, double now)
{
    sqlite3_stmt *row;
    char event[64];
    snprintf(event, sizeof event, "job.%s", weft_queue_state_name(job->state));
    WEFT_TRY(weft_queue_store_prepare(
        s,
        "INSERT INTO delivery(job, url, event, created, due, state, attempts, reply, error) "
        "VALUES(?1, ?2, ?3, ?4, ?4, 0, 0, 0, '')",
        &row));
    weft_queue_store_bind(row, 1, job->id);
    weft_queue_store_bind(row, 2, job->webhook);
    weft_queue_store_bind(row, 3, event);
    sqlite3_bind_double(row, 4, now);
    return weft_queue_store_finish(s, row);
}

static weft_status update(weft_queue_store *s, const weft_queue_job *job)
{
    sqlite3_stmt *row;
    WEFT_TRY(weft_queue_store_prepare(
        s,
        "UPDATE job SET state=?2, crashes=?3, started=?4, finished=?5, spent=?6, "
        "error_code=?7, error_text=?8, remaining=?9 WHERE number=?1",
        &row));
    sqlite3_bind_int64(row, 1, job->number);
    weft_queue_store_bind(row, 2, weft_queue_state_name(job->state));
    sqlite3_bind_int64(row, 3, job->crashes);
    sqlite3_bind_double(row, 4, job->started);
    sqlite3_bind_double(row, 5, job->finished);
    sqlite3_bind_double(row, 6, job->spent);
    weft_queue_store_bind(row, 7, job->error_code);
    weft_queue_store_bind(row, 8, job->error_text);
    sqlite3_bind_double(row, 9, job->remaining);
    return weft_queue_store_finish(s, row);
}

static weft_status add_end(weft_queue_store *s, const weft_queue_job *job, double now)
{
    WEFT_TRY(update(s, job));
    return add_delivery(s, job, now);
}

static bool needs_delivery(const weft_queue_job *job, weft_queue_state before)
{
    return job->webhook && weft_queue_is_final(job->state) && !weft_queue_is_final(before);
}

/* Stores the end of a job together with its webhook: a kill loses both or none. */
static weft_status update_with_delivery(weft_queue_store *s, const weft_queue_job *job, double now)
{
    WEFT_TRY(weft_queue_store_run(s, "BEGIN IMMEDIATE"));
    return weft_queue_store_end(s, add_end(s, job, now));
}

/* Replaces the error of a job by the error of the change. */
static weft_status set_error(weft_queue_job *job, const weft_queue_change *change)
{
    weft_free(job->error_code);
    weft_free(job->error_text);
    job->error_code = change->error_code ? weft_strdup(change->error_code) : NULL;
    job->error_text = change->error ? weft_strdup(change->error) : NULL;
    return WEFT_ALLOCATED((job->error_code || !change->error_code) &&
                              (job->error_text || !change->error),
                          "an error");
}

static bool has_ended(weft_queue_state state)
{
    return weft_queue_is_final(state) || state == WEFT_QUEUE_DELETING;
}

static weft_status change_job(weft_queue_job *job, weft_queue_event event,
                              const weft_queue_change *change)
{
    const weft_queue_state before = job->state;
    job->crashes += event == WEFT_QUEUE_CRASHED;
    job->spent += change->spent;
    job->remaining = change->remaining > 0 ? change->remaining : job->remaining;
    job->state = weft_queue_next(before, event, job->crashes);
    if (event == WEFT_QUEUE_RESUME)
        job->crashes = 0;
    if (event == WEFT_QUEUE_START && job->started == 0)
        job->started = change->now;
    job->finished = !has_ended(job->state) ? 0 : has_ended(before) ? job->finished : change->now;
    return event == WEFT_QUEUE_RESUME || event == WEFT_QUEUE_REFUSED ||
                   event == WEFT_QUEUE_CRASHED || event == WEFT_QUEUE_FINISHED
               ? set_error(job, change)
               : WEFT_OK;
}

static weft_status write_change(weft_queue_store *s, const weft_queue_job *job,
                                weft_queue_state before, weft_queue_event event,
                                const weft_queue_change *change)
{
    if (needs_delivery(job, before))
        return update_with_delivery(s, job, change->now);
    /* a worker of a deleted job has spent seconds, and changes no state */
    const bool changed = job->state != before || event == WEFT_QUEUE_RESUME || change->spent > 0;
    return changed ? update(s, job) : WEFT_OK;
}

static bool is_stopping(weft_queue_state state)
{
    return state == WEFT_QUEUE_PAUSING || state == WEFT_QUEUE_CANCELLING;
}

/* Whether the transition may be lost: the recovery repeats it, or it asks a running job to stop,
 * which is acknowledged at the end of the stop. */
static bool may_be_lost(weft_queue_state before, weft_queue_event event, weft_queue_state next)
{
    if (next == before)
        return event != WEFT_QUEUE_RESUME;
    return is_stopping(next) ||
           (!is_stopping(before) && weft_queue_may_be_lost(before, event, next));
}

static weft_status store_change(weft_queue_store *s, const weft_queue_job *job,
                                weft_queue_state before, weft_queue_event event,
                                const weft_queue_change *change)
{
    const bool lasts = !may_be_lost(before, event, job->state) || needs_delivery(job, before);
    if (lasts && !change->unsynced)
        return write_change(s, job, before, event, change);
    WEFT_TRY(weft_queue_store_set_waits(s, false));
    const weft_status_code status = write_change(s, job, before, event, change);
    s->unsynced = s->unsynced || lasts;
    WEFT_TRY(weft_queue_store_set_waits(s, true));
    return status;
}

weft_status weft_queue_store_apply(weft_queue_store *s, const char *id, weft_queue_event event,
                                   const weft_queue_change *change, weft_queue_state *next)
{
    weft_queue_job job;
    bool found;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_queue_store_find(s, id, &job, &found));
    if (!found)
        return weft_error(WEFT_MSG_QUEUE_TRANSITION, WEFT_AT(.value = id), "no such job");
    *next = job.state;
    if (weft_queue_next(job.state, event, job.crashes) == WEFT_QUEUE_STATES)
        WEFT_GO(weft_error(
            WEFT_MSG_QUEUE_TRANSITION, WEFT_AT(.value = weft_queue_state_name(job.state)),
            "the job is %s, which does not allow this request", weft_queue_state_name(job.state)));
    const weft_queue_state before = job.state;
    WEFT_GO(change_job(&job, event, change));
    WEFT_GO(store_change(s, &job, before, event, change));
    *next = job.state;
out:
    weft_queue_job_free(&job);
    return status;
}

static weft_status lose_worker(weft_queue_store *s, weft_queue_job *job, double now)
{
    const weft_queue_state before = job->state;
    const weft_queue_change change = {.now = now};
    WEFT_TRY(change_job(job, WEFT_QUEUE_LOST, &change));
    return needs_delivery(job, before) ? add_end(s, job, now) : update(s, job);
}

/* Gives each job of `state` the state that it has after the loss of its worker. */
static weft_status lose_workers_of(weft_queue_store *s, weft_queue_state state, double now)
{
    weft_queue_job job;
    bool found = true;
    while (weft_queue_next(state, WEFT_QUEUE_LOST, 0) != state) {
        WEFT_TRY(weft_queue_store_next(s, state, 0, &job, &found));
        if (!found)
            return WEFT_OK;
        const weft_status_code status = lose_worker(s, &job, now);
        weft_queue_job_free(&job);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

static weft_status lose_workers(weft_queue_store *s, double now)
{
    for (int i = 0; i < WEFT_QUEUE_STATES; i++)
        WEFT_TRY(lose_workers_of(s, (weft_queue_state)i, now));
    return WEFT_OK;
}

weft_status weft_queue_store_recover(weft_queue_store *s, double now)
{
    WEFT_TRY(weft_queue_store_run(s, "BEGIN IMMEDIATE"));
    return weft_queue_store_end(s, lose_workers(s, now));
}

static weft_status finish_removal(weft_queue_store *s, const char *sql, const char *id,
                                  double since)
{
    sqlite3_stmt *row;
    WEFT_TRY(weft_queue_store_prepare(s, sql, &row));
    weft_queue_store_bind(row, 1, id);
    sqlite3_bind_double(row, 2, since);
    return weft_queue_store_finish(s, row);
}

/* Replaces the job by its used seconds. */
static weft_status replace_job(weft_queue_store *s, const char *id, double since)
{
    WEFT_TRY(finish_removal(s, "DELETE FROM used WHERE finished<=?2", id, since));
    WEFT_TRY(finish_removal(s,
                            "INSERT INTO used SELECT ifnull(owner, ''), finished, spent FROM job "
                            "WHERE id=?1 AND state='deleting' AND finished>?2 AND spent>0",
                            id, since));
    return finish_removal(s, "DELETE FROM job WHERE id=?1 AND state='deleting'", id, since);
}

weft_status weft_queue_store_remove(weft_queue_store *s, const char *id, double since)
{
    WEFT_TRY(weft_queue_store_set_waits(s, false)); /* a row that stays is removed again */
    weft_status_code status = weft_queue_store_run(s, "BEGIN IMMEDIATE");
    if (status == WEFT_OK)
        status = weft_queue_store_end(s, replace_job(s, id, since));
    WEFT_TRY(weft_queue_store_set_waits(s, true));
    return status;
}

/* ---- lists ---------------------------------------------------------------------------------- */

static weft_status append(const weft_queue_store *s, sqlite3_stmt *row, weft_queue_job **jobs,
                          int64_t *count, int64_t *capacity)
{
    weft_queue_job job;
    WEFT_TRY(read_row(s, row, &job));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_grow((void **)jobs, *count, capacity, sizeof **jobs));
    (*jobs)[(*count)++] = job;
out:
    if (status != WEFT_OK)
        weft_queue_job_free(&job);
    return status;
}

/* The final states, as a list of SQL; parameter 3 is a weft_queue_part, and 4 the owner. */
#define FINAL "('completed', 'failed', 'cancelled', 'parked')"
#define PART                                                                                       \
    " AND CASE ?3 WHEN 1 THEN state NOT IN " FINAL " WHEN 2 THEN state IN " FINAL " ELSE 1 END "   \
    "AND (?4 IS NULL OR owner IS NULL OR owner=?4) "

weft_status weft_queue_store_list(weft_queue_store *s, const weft_queue_page *page,
                                  weft_queue_job **jobs, int64_t *count, bool *more)
{
    sqlite3_stmt *row;
    int64_t capacity = 0;
    int code;
    weft_status_code status = WEFT_OK;
    *jobs = NULL;
    *count = 0;
    WEFT_TRY(weft_queue_store_prepare(
        s,
        page->descending
            ? "SELECT " COLUMNS " FROM job WHERE state<>'deleting'" PART "AND (?1='' OR "
              "number<(SELECT number FROM job WHERE id=?1)) ORDER BY number DESC LIMIT ?2"
            : "SELECT " COLUMNS " FROM job WHERE state<>'deleting'" PART "AND (?1='' OR "
              "number>(SELECT number FROM job WHERE id=?1)) ORDER BY number LIMIT ?2",
        &row));
    weft_queue_store_bind(row, 1, page->after);
    sqlite3_bind_int64(row, 2, page->limit + 1);
    sqlite3_bind_int64(row, 3, page->part);
    weft_queue_store_bind(row, 4, page->owner);
    while ((code = sqlite3_step(row)) != SQLITE_DONE)
        WEFT_GO(code == SQLITE_ROW ? append(s, row, jobs, count, &capacity)
                                   : weft_queue_store_error(s));
out:
    sqlite3_finalize(row);
    if (status != WEFT_OK) {
        weft_queue_jobs_free(*jobs, *count);
        return status;
    }
    *more = *count > page->limit;
    if (*more)
        weft_queue_job_free(&(*jobs)[--*count]);
    return WEFT_OK;
}

/* The owners of all jobs, also of deleted ones, with their indices, for a WITH. */
#define OWNERS                                                                                     \
    "WITH owners AS (SELECT name, row_number() OVER (ORDER BY name) - 1 AS at FROM (SELECT * "     \
    "FROM (SELECT DISTINCT ifnull(owner, '') AS name FROM job) UNION SELECT owner FROM used)) "
#define STEPS "ifnull(json_extract(request, '$.steps'), 0)"

weft_status weft_queue_store_past(weft_queue_store *s, double since, int64_t most,
                                  weft_queue_entry *jobs, int64_t *count)
{
    sqlite3_stmt *row;
    int code;
    weft_status_code status = WEFT_OK;
    *count = 0;
    WEFT_TRY(weft_queue_store_prepare(
        s,
        OWNERS "SELECT number, priority, seconds, created, deadline, at, " STEPS
               " FROM job JOIN owners ON name=ifnull(owner, '') WHERE created>?1 "
               "ORDER BY number DESC LIMIT ?2",
        &row));
    sqlite3_bind_double(row, 1, since);
    sqlite3_bind_int64(row, 2, most);
    while ((code = sqlite3_step(row)) != SQLITE_DONE) {
        if (code != SQLITE_ROW)
            WEFT_GO(weft_queue_store_error(s));
        jobs[(*count)++] = (weft_queue_entry){.number = sqlite3_column_int64(row, 0),
                                              .priority = sqlite3_column_int64(row, 1),
                                              .seconds = sqlite3_column_double(row, 2),
                                              .arrival = sqlite3_column_double(row, 3),
                                              .deadline = sqlite3_column_double(row, 4),
                                              .owner = sqlite3_column_int64(row, 5),
                                              .steps = sqlite3_column_int64(row, 6)};
    }
out:
    sqlite3_finalize(row);
    return status;
}

weft_status weft_queue_store_waiting(weft_queue_store *s, weft_queue_entry **entries,
                                     int64_t *count)
{
    sqlite3_stmt *row;
    int64_t capacity = 0;
    int code;
    weft_status_code status = WEFT_OK;
    *entries = NULL;
    *count = 0;
    WEFT_TRY(weft_queue_store_prepare(
        s,
        OWNERS "SELECT number, state, priority, CASE WHEN remaining>0 THEN remaining ELSE seconds "
               "END, rank, created, deadline, at, CASE WHEN remaining>0 AND seconds>0 THEN "
               "remaining/seconds ELSE 1 END*" STEPS
               " FROM job JOIN owners ON name=ifnull(owner, '') WHERE state IN ('queued', "
               "'running', 'pausing', 'cancelling')",
        &row));
    while ((code = sqlite3_step(row)) != SQLITE_DONE) {
        if (code != SQLITE_ROW)
            WEFT_GO(weft_queue_store_error(s));
        const char *state = (const char *)sqlite3_column_text(row, 1);
        WEFT_GO(weft_grow((void **)entries, *count, &capacity, sizeof **entries));
        (*entries)[(*count)++] =
            (weft_queue_entry){sqlite3_column_int64(row, 0),  state && strcmp(state, "queued") != 0,
                               sqlite3_column_int64(row, 2),  sqlite3_column_double(row, 3),
                               sqlite3_column_int64(row, 4),  sqlite3_column_double(row, 5),
                               sqlite3_column_double(row, 6), sqlite3_column_int64(row, 7),
                               sqlite3_column_int64(row, 8)};
    }
    if (*count)
        weft_queue_sort(*entries, *count);
out:
    sqlite3_finalize(row);
    if (status != WEFT_OK) {
        weft_free(*entries);
        *entries = NULL;
        *count = 0;
    }
    return status;
}

/* ---- owners --------------------------------------------------------------------------------- */

void weft_queue_owners_free(weft_queue_owners *o)
{
    for (int64_t i = 0; i < o->count; i++)
        weft_free(o->name[i]);
    weft_free(o->name);
    weft_free(o->used);
    *o = (weft_queue_owners){0};
}

static weft_status add_owner(weft_queue_owners *o, sqlite3_stmt *row, int64_t capacity[2])
{
    const char *name = (const char *)sqlite3_column_text(row, 0);
    WEFT_TRY(weft_grow((void **)&o->name, o->count, &capacity[0], sizeof *o->name));
    WEFT_TRY(weft_grow((void **)&o->used, o->count, &capacity[1], sizeof *o->used));
    o->name[o->count] = weft_strdup(name ? name : "");
    WEFT_TRY(WEFT_ALLOCATED(o->name[o->count], "an owner"));
    o->used[o->count++] = sqlite3_column_double(row, 1);
    return WEFT_OK;
}

weft_status weft_queue_store_owners(weft_queue_store *s, double since, weft_queue_owners *o)
{
    sqlite3_stmt *row;
    int64_t capacity[2] = {0};
    int code;
    weft_status_code status = WEFT_OK;
    *o = (weft_queue_owners){0};
    WEFT_TRY(weft_queue_store_prepare(
        s,
        "SELECT name, sum(seconds) FROM (SELECT ifnull(owner, '') AS name, sum(CASE WHEN "
        "finished=0 OR finished>?1 THEN spent ELSE 0 END) AS seconds FROM job GROUP BY name "
        "UNION ALL SELECT owner, sum(CASE WHEN finished>?1 THEN seconds ELSE 0 END) FROM used "
        "GROUP BY owner) GROUP BY name ORDER BY name",
        &row));
    sqlite3_bind_double(row, 1, since);
    while ((code = sqlite3_step(row)) != SQLITE_DONE)
        WEFT_GO(code == SQLITE_ROW ? add_owner(o, row, capacity) : weft_queue_store_error(s));
out:
    sqlite3_finalize(row);
    if (status != WEFT_OK)
        weft_queue_owners_free(o);
    return status;
}

/* ---- edits ---------------------------------------------------------------------------------- */

static weft_status refuse_edit(const char *id, const char *why)
{
    return weft_error(WEFT_MSG_QUEUE_TRANSITION, WEFT_AT(.value = id), "%s", why);
}

weft_status weft_queue_store_edit(weft_queue_store *s, const weft_queue_job *job)
{
    sqlite3_stmt *row;
    WEFT_TRY(weft_queue_store_prepare(
        s,
        "UPDATE job SET priority=?2, deadline=?3, seconds=?4, bytes=?5, request=?6, "
        "webhook=?7 WHERE number=?1 AND state IN ('queued', 'paused')",
        &row));
    sqlite3_bind_int64(row, 1, job->number);
    sqlite3_bind_int64(row, 2, job->priority);
    sqlite3_bind_double(row, 3, job->deadline);
    sqlite3_bind_double(row, 4, job->seconds);
    sqlite3_bind_int64(row, 5, job->bytes);
    weft_queue_store_bind(row, 6, job->request);
    weft_queue_store_bind(row, 7, job->webhook);
    WEFT_TRY(weft_queue_store_finish(s, row));
    return sqlite3_changes(s->db) == 1
               ? WEFT_OK
               : refuse_edit(job->id, "the job is neither queued nor paused, so that it cannot be "
                                      "edited; duplicate it");
}

static weft_status set_ranks(weft_queue_store *s, const weft_queue_entry *entries, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        sqlite3_stmt *row;
        WEFT_TRY(weft_queue_store_prepare(
            s,
            "UPDATE job SET priority=?2, rank=?3 WHERE number=?1 AND (priority<>?2 OR "
            "rank<>?3)",
            &row));
        sqlite3_bind_int64(row, 1, entries[i].number);
        sqlite3_bind_int64(row, 2, entries[i].priority);
        sqlite3_bind_int64(row, 3, entries[i].rank);
        WEFT_TRY(weft_queue_store_finish(s, row));
    }
    return WEFT_OK;
}

static weft_status write_ranks(weft_queue_store *s, const weft_queue_entry *entries, int64_t count)
{
    WEFT_TRY(weft_queue_store_run(s, "BEGIN IMMEDIATE"));
    return weft_queue_store_end(s, set_ranks(s, entries, count));
}

/* *number: of the job; 0: no such job. */
static weft_status read_number_of(weft_queue_store *s, const char *id, int64_t *number)
{
    sqlite3_stmt *row;
    WEFT_TRY(weft_queue_store_prepare(s, "SELECT coalesce((SELECT number FROM job WHERE id=?1), 0)",
                                      &row));
    weft_queue_store_bind(row, 1, id);
    const int code = sqlite3_step(row);
    *number = code == SQLITE_ROW ? sqlite3_column_int64(row, 0) : 0;
    const weft_status_code status = code == SQLITE_ROW ? WEFT_OK : weft_queue_store_error(s);
    sqlite3_finalize(row);
    return status;
}

weft_status weft_queue_store_move(weft_queue_store *s, const char *id, const char *other,
                                  bool after)
{
    weft_queue_entry *entries;
    int64_t count, number, anchor;
    WEFT_TRY(read_number_of(s, id, &number));
    WEFT_TRY(read_number_of(s, other, &anchor));
    WEFT_TRY(weft_queue_store_waiting(s, &entries, &count));
    const weft_status_code status =
        weft_queue_move(entries, count, number, anchor, after)
            ? write_ranks(s, entries, count)
            : refuse_edit(id, "a job can be moved before or after another job if both are queued");
    weft_free(entries);
    return status;
}

weft_status weft_queue_store_count(weft_queue_store *s, int64_t counts[WEFT_QUEUE_STATES])
{
    sqlite3_stmt *row;
    int code;
    weft_status_code status = WEFT_OK;
    memset(counts, 0, WEFT_QUEUE_STATES * sizeof *counts);
    WEFT_TRY(weft_queue_store_prepare(s, "SELECT state, count(*) FROM job GROUP BY state", &row));
    while ((code = sqlite3_step(row)) != SQLITE_DONE) {
        const char *name = code == SQLITE_ROW ? (const char *)sqlite3_column_text(row, 0) : NULL;
        const weft_queue_state state = weft_queue_state_find(name ? name : "");
        if (state < WEFT_QUEUE_STATES)
            counts[state] = sqlite3_column_int64(row, 1);
        if (code != SQLITE_ROW)
            WEFT_GO(weft_queue_store_error(s));
    }
out:
    sqlite3_finalize(row);
    return status;
}
