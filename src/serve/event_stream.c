#include "serve/event_stream.h"

#include "serve/job_json.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 4096 };

struct weft_event_stream {
    weft_server *server;
    struct MHD_Connection *connection;
    char id[WEFT_QUEUE_ID];
    weft_buf text;  /* the event that is being sent */
    int64_t sent;   /* bytes of `text` */
    char *last;     /* the last event's data; NULL: none */
    int64_t number; /* of the job, as the next three of the last event */
    double deadline;
    int64_t position; /* -1: not in the queue */
    bool late;
    bool changed, beats; /* the job may have changed; a heartbeat is due */
    bool asleep, ended;
    weft_event_stream *next;
};

static void set_text(weft_event_stream *e, const char *text)
{
    weft_buf_free(&e->text);
    weft_buf_printf(&e->text, "%s", text);
    e->sent = 0;
}

/* Whether the place in the queue differs from the last event's; sets it. */
static bool has_moved(weft_event_stream *e, const weft_queue_view *queue)
{
    const weft_queue_forecast *f = weft_queue_view_find(queue, e->number);
    const int64_t position = f ? f->position : -1;
    const bool late = f && e->deadline > 0 && f->likely.end > e->deadline,
               moved = position != e->position || late != e->late;
    e->position = position;
    e->late = late;
    return moved;
}

static char *job_line(const weft_server *s, const weft_queue_job *job, const weft_queue_view *queue)
{
    json_t *json = weft_job_json_job(s, job, queue);
    json_object_del(json, "expected_start"); /* they change with the clock */
    json_object_del(json, "expected_end");
    json_object_del(json, "expected_end_range");
    char *line = weft_json_line(json);
    json_decref(json);
    return line;
}

/* The job as one line, which the server keeps for the other streams of the job. NULL: it was
 * removed. */
static const char *describe(weft_event_stream *e)
{
    weft_server *s = e->server;
    weft_queue_job job;
    const weft_queue_view *queue;
    const char *line = NULL;
    bool found;
    const int64_t versions[2] = {weft_queue_store_version(s->store), s->progress_version};
    if (weft_queue_store_find(s->store, e->id, &job, &found) != WEFT_OK || !found)
        return NULL;
    e->ended = weft_queue_is_final(job.state);
    e->number = job.number;
    e->deadline = job.deadline;
    if (weft_server_queue(s, &queue) == WEFT_OK) {
        const bool moved = has_moved(e, queue);
        if (moved || !s->event_line || strcmp(s->event_job, e->id) != 0 ||
            memcmp(s->event_versions, versions, sizeof versions) != 0) {
            weft_free(s->event_line);
            s->event_line = job_line(s, &job, queue);
            memcpy(s->event_job, e->id, sizeof s->event_job);
            memcpy(s->event_versions, versions, sizeof versions);
        }
        line = s->event_line;
    }
    weft_queue_job_free(&job);
    return line;
}

/* Prepares the next bytes. Returns false if nothing has changed. */
static bool next_event(weft_event_stream *e)
{
    const bool beats = e->beats;
    const char *line = e->changed ? describe(e) : e->last;
    e->beats = e->changed = false;
    if (!line) {
        e->ended = true;
        set_text(e, "event: removed\ndata: {}\n\n");
        return true;
    }
    if (e->last && !strcmp(line, e->last)) {
        if (beats)
            set_text(e, ": \n\n");
        return beats;
    }
    weft_free(e->last);
    e->last = weft_strdup(line);
    weft_buf_free(&e->text);
    weft_buf_printf(&e->text, "event: %s\ndata: %s\n\n", e->ended ? "final" : "job", line);
    e->sent = 0;
    return !e->text.failed;
}

static ssize_t read_events(void *cls, uint64_t position, char *buffer, size_t most)
{
    weft_event_stream *e = cls;
    ssize_t count = 0;
    (void)position;
    pthread_mutex_lock(&e->server->lock);
    if (e->sent == e->text.len) {
        if (e->ended || e->server->stopping) {
            count = MHD_CONTENT_READER_END_OF_STREAM;
        } else if (!next_event(e)) {
            e->asleep = true;
            MHD_suspend_connection(e->connection);
        }
    }
    if (count == 0 && !e->asleep) {
        count = e->text.len - e->sent;
        count = count < (ssize_t)most ? count : (ssize_t)most;
        memcpy(buffer, e->text.data + e->sent, (size_t)count);
        e->sent += count;
    }
    pthread_mutex_unlock(&e->server->lock);
    return count;
}

static void free_stream(void *cls)
{
    weft_event_stream *e = cls, **at = &e->server->streams;
    pthread_mutex_lock(&e->server->lock);
    while (*at && *at != e)
        at = &(*at)->next;
    if (*at)
        *at = e->next;
    pthread_mutex_unlock(&e->server->lock);
    weft_buf_free(&e->text);
    weft_free(e->last);
    weft_free(e);
}

struct MHD_Response *weft_event_stream_open(weft_serve_request *r, const char *id)
{
    weft_event_stream *e = weft_calloc(1, sizeof *e);
    if (!e)
        return NULL;
    *e = (weft_event_stream){.server = r->server,
                             .connection = r->connection,
                             .position = -1,
                             .changed = true,
                             .next = r->server->streams};
    snprintf(e->id, sizeof e->id, "%s", id);
    set_text(e, "retry: 1000\n\n"); /* headers are sent with the first bytes */
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_events, e, free_stream);
    if (!response) {
        weft_buf_free(&e->text);
        weft_free(e);
        return NULL;
    }
    r->server->streams = e;
    return response;
}

static void wake(weft_event_stream *e)
{
    if (!e->asleep)
        return;
    e->asleep = false;
    MHD_resume_connection(e->connection);
}

void weft_event_streams_changed(weft_server *s, const char *id)
{
    const weft_queue_view *queue = NULL;
    if (!s->streams || (!s->stopping && weft_server_queue(s, &queue) != WEFT_OK))
        return;
    for (weft_event_stream *e = s->streams; e; e = e->next) {
        const bool moved = queue && has_moved(e, queue);
        e->changed = e->changed || moved || !id || !strcmp(e->id, id);
        if (moved)
            s->event_versions[0] = -1; /* the line has the place */
        if (e->changed)
            wake(e);
    }
}

void weft_event_streams_beat(weft_server *s)
{
    for (weft_event_stream *e = s->streams; e; e = e->next) {
        e->beats = true;
        wake(e);
    }
}
