#include "serve/webhook_sender.h"

#include "base/log.h"
#include "serve/delivery_store.h"
#include "serve/shown_text.h"
#include "serve/webhook.h"
#include "storage/http.h"
#include "storage/stoppable_wait.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Lives as long as the server. */
struct weft_webhook_sender {
    weft_server *server;
    weft_http *http;
    weft_stop stop;
    pthread_t thread;
    char secret[WEFT_WEBHOOK_SECRET];
};

/* One attempt; freed by its function. */
typedef struct attempt {
    const weft_webhook_sender *sender;
    char id[64];
    char *body;
} attempt;

static weft_status add_headers(const void *user, weft_http_headers *headers)
{
    const attempt *a = user;
    char time[32], signature[WEFT_WEBHOOK_SIGNATURE];
    const weft_webhook_message m = {a->id, (int64_t)weft_server_time(), a->body};
    snprintf(time, sizeof time, "%" PRId64, m.time);
    WEFT_TRY(weft_webhook_sign(a->sender->secret, &m, signature));
    WEFT_TRY(weft_http_headers_add(headers, "Content-Type", "application/json"));
    WEFT_TRY(weft_http_headers_add(headers, "webhook-id", m.id));
    WEFT_TRY(weft_http_headers_add(headers, "webhook-timestamp", time));
    return weft_http_headers_add(headers, "webhook-signature", signature);
}

static weft_status send_message(const weft_webhook_sender *w, const weft_delivery *d, int *status)
{
    attempt a = {.sender = w};
    weft_http_reply reply = {0};
    json_t *json = json_pack("{s:s, s:I, s:{s:s, s:s, s:s}}", "type", d->event, "timestamp",
                             (json_int_t)d->created, "data", "id", d->job, "object", "job",
                             "status", strchr(d->event, '.') + 1);
    snprintf(a.id, sizeof a.id, "msg_%s_%" PRId64, d->job, d->number);
    a.body = json ? weft_json_line(json) : NULL;
    json_decref(json);
    WEFT_TRY(WEFT_ALLOCATED(a.body, "a webhook"));
    const weft_http_request request = {.method = "POST",
                                       .url = d->url,
                                       .location = d->url,
                                       .body = a.body,
                                       .body_bytes = (int64_t)strlen(a.body),
                                       .attempts = 1,
                                       .prepare = add_headers,
                                       .user = &a};
    const weft_status_code code = weft_http_send(w->http, &request, &reply);
    *status = code == WEFT_OK ? reply.status : 0;
    weft_http_reply_free(&reply);
    weft_free(a.body);
    return code;
}

/* Records how an attempt ended. */
static void judge(weft_delivery *d, int status, const char *error)
{
    const bool received = status >= 200 && status < 300;
    d->attempts++;
    d->reply = status;
    weft_shown_text_copy(d->error, sizeof d->error,
                         status                            ? ""
                         : weft_shown_text_has_path(error) ? "the server did not answer"
                                                           : error);
    d->state = received                               ? WEFT_DELIVERY_DELIVERED
               : d->attempts >= WEFT_WEBHOOK_ATTEMPTS ? WEFT_DELIVERY_FAILED
                                                      : WEFT_DELIVERY_PENDING;
    d->due = weft_server_time() + weft_webhook_delay((int)d->attempts);
    if (d->state == WEFT_DELIVERY_FAILED)
        weft_warning(WEFT_MSG_WEBHOOK_FAILED,
                     WEFT_AT(.key = d->job, .value = d->url, WEFT_NUMBER(status)),
                     "the webhook failed %d times, and is not sent again", WEFT_WEBHOOK_ATTEMPTS);
}

/* Sends the next delivery that is due. Returns the time of the following one; INFINITY: none. The
 * lock is held, but not during the request. */
static double send_next(weft_webhook_sender *w)
{
    weft_server *s = w->server;
    weft_delivery d = {0};
    bool found = false;
    int status = 0;
    if (weft_delivery_store_next(s->store, &d, &found) != WEFT_OK) {
        weft_warn_error(WEFT_MSG_QUEUE_DATABASE, "webhooks are sent later");
        return weft_server_time() + 10;
    }
    double due = found ? d.due : INFINITY;
    if (found && due <= weft_server_time()) {
        pthread_mutex_unlock(&s->lock);
        const bool sent = send_message(w, &d, &status) == WEFT_OK;
        pthread_mutex_lock(&s->lock);
        if (!s->stopping || sent) { /* an attempt that the stop ended counts for nothing */
            judge(&d, status, sent ? "" : weft_error_text());
            due = 0;
            if (weft_delivery_store_record(s->store, &d) != WEFT_OK) {
                weft_warn_error(WEFT_MSG_QUEUE_DATABASE, "a webhook may be sent twice");
                due = weft_server_time() + 10;
            }
            weft_server_changed(s, d.job);
        }
    }
    weft_delivery_free(&d);
    return due;
}

static void *run(void *cls)
{
    weft_webhook_sender *w = cls;
    weft_server *s = w->server;
    weft_stop_bind(&w->stop);
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        const double due = send_next(w), now = weft_server_time(),
                     until = due < now + 3600 ? due : now + 3600;
        const struct timespec time = {(time_t)until, (long)(1e9 * (until - floor(until)))};
        if (due > now && !s->stopping)
            (void)pthread_cond_timedwait(&s->job_ended, &s->lock, &time);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

weft_status weft_webhook_sender_start(weft_server *s)
{
    weft_webhook_sender *w;
    weft_status_code status = WEFT_OK;
    if (!s->options->webhook_count)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(w, 1, "the webhooks"));
    *w = (weft_webhook_sender){.server = s};
    weft_stop_init(&w->stop);
    WEFT_GO(weft_webhook_secret(s->state, w->secret));
    WEFT_GO(weft_http_open(&w->http));
    if (pthread_create(&w->thread, NULL, run, w) != 0)
        WEFT_GO(weft_error(WEFT_MSG_WORKER_FAILED, WEFT_NOWHERE, "no thread can be created"));
    s->webhooks = w;
    return WEFT_OK;
out:
    weft_http_close(w->http);
    weft_stop_free(&w->stop);
    weft_free(w);
    return status;
}

void weft_webhook_sender_stop(weft_server *s)
{
    weft_webhook_sender *w = s->webhooks;
    if (!w)
        return;
    weft_stop_set(&w->stop);
    pthread_mutex_lock(&s->lock);
    pthread_cond_broadcast(&s->job_ended);
    pthread_mutex_unlock(&s->lock);
    pthread_join(w->thread, NULL);
    weft_http_close(w->http);
    weft_stop_free(&w->stop);
    weft_free(w);
    s->webhooks = NULL;
}
