#include "serve/event_stream.h"

#include "serve/job_json.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 4096 };

struct weft_event_stream {
    weft_server *server;
    struct MHD_Connection *connection;
    char id[WEFT_QUEUE_ID];
    weft_buf text;      /* the event that is being sent */
    int64_t sent;       /* bytes of `text` */
    char *last;         /* the last event's data; NULL: none */
    int64_t heartbeats; /* sent */
    bool asleep, ended;
    weft_event_stream *next;
};

static void set_text(weft_event_stream *e, const char *text)
{
    weft_buf_free(&e->text);
    weft_buf_printf(&e->text, "%s", text);
    e->sent = 0;
}

/* The job as one line; NULL: it was removed. */
static char *describe(const weft_event_stream *e, bool *final)
{
    weft_queue_job job;
    weft_queue_entry *entries;
    int64_t count;
    bool found;
    char *line = NULL;
    *final = true;
    if (weft_queue_store_find(e->server->store, e->id, &job, &found) != WEFT_OK || !found)
        return NULL;
    *final = weft_queue_is_final(job.state);
    if (weft_queue_store_waiting(e->server->store, &entries, &count) == WEFT_OK) {
        json_t *json = weft_job_json_job(e->server, &job, entries, count);
        json_object_del(json, "expected_start"); /* they change with the clock */
        json_object_del(json, "expected_end");
        line = weft_json_line(json);
        json_decref(json);
        weft_free(entries);
    }
    weft_queue_job_free(&job);
    return line;
}

/* Prepares the next bytes. Returns false if nothing has changed. */
static bool next_event(weft_event_stream *e)
{
    bool final;
    const bool heartbeat = e->heartbeats != e->server->heartbeats;
    char *line = describe(e, &final);
    e->ended = final;
    e->heartbeats = e->server->heartbeats;
    if (!line) {
        e->ended = true;
        set_text(e, "event: removed\ndata: {}\n\n");
        return true;
    }
    if (e->last && !strcmp(line, e->last)) {
        weft_free(line);
        if (heartbeat)
            set_text(e, ": \n\n");
        return heartbeat;
    }
    weft_free(e->last);
    e->last = line;
    weft_buf_free(&e->text);
    weft_buf_printf(&e->text, "event: %s\ndata: %s\n\n", final ? "final" : "job", line);
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
                             .heartbeats = r->server->heartbeats,
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

void weft_event_streams_wake(weft_server *s)
{
    for (weft_event_stream *e = s->streams; e; e = e->next)
        if (e->asleep) {
            e->asleep = false;
            MHD_resume_connection(e->connection);
        }
}
