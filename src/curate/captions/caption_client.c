#include "curate/captions/caption_client.h"

#include "base/fs.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/memory.h"
#include "curate/captions/caption_text.h"
#include "curate/operators/shot_frames.h"
#include "draw/html.h"
#include "storage/http_api.h"
#include "storage/http_retry.h"
#include "storage/stoppable_wait.h"
#include "video/lossy_image.h"
#include "video/writer.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

struct weft_caption_client {
    const weft_captions_config *config;
    weft_http *http;
    char *url;       /* owned; of the requests */
    const char *key; /* of the environment; NULL: none */
    pthread_mutex_t lock;
    weft_caption_counts counts;
    double resume;  /* time before which no request is sent */
    int failures;   /* of clips, in sequence, by the server */
    char last[300]; /* reason of the last one */
    uint32_t random;
};

/* One request until it succeeds, or fails for good. */
typedef struct exchange {
    char *text;       /* owned; of the model; NULL: none */
    char reason[400]; /* without text: why */
    bool by_server;   /* the server failed, not the request */
} exchange;

/* ---- the config ---------------------------------------------------------------------------- */

/* The key, if the config names a variable. */
static weft_status find_key(const weft_captions_config *c, const char **key)
{
    *key = c->key_variable[0] ? getenv(c->key_variable) : NULL;
    const bool missing = c->key_variable[0] && (!*key || !**key);
    const bool broken = *key && strpbrk(*key, "\r\n");
    if (!missing && !broken)
        return WEFT_OK;
    return weft_error(WEFT_MSG_CONFIG_VALUE,
                      WEFT_AT(.key = "captions.key_variable", .value = c->key_variable),
                      "the environment variable %s %s", c->key_variable,
                      missing ? "is not set; set it to the key of the server"
                              : "has a line break; a key has none");
}

weft_status weft_captions_check(const weft_captions_config *c)
{
    const char *key;
    if (!c->url[0])
        return WEFT_OK;
    WEFT_TRY(weft_http_api_check_url(c->url, "captions.url", "captions.key_variable"));
    if (!c->model[0])
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.key = "captions.model"),
                          "captions.url needs captions.model, the name of the model at the server");
    return find_key(c, &key);
}

void weft_captions_define(const weft_captions_config *c, char definition[24])
{
    weft_buf text = {0};
    weft_buf_printf(&text, "%s\n%s\n%d %" PRId64 " %" PRId64 " %a %" PRId64 " %a %d %d", c->model,
                    weft_caption_prompt(c), c->format, c->frames, c->side, c->window_seconds,
                    c->max_tokens, c->temperature, c->json_schema, c->strip_openings);
    if (c->request != WEFT_CAPTION_IMAGES) /* captions of earlier versions stay valid */
        weft_buf_printf(&text, " %d", c->request);
    weft_hex_print(XXH3_64bits(text.data, (size_t)text.len), definition);
    weft_buf_free(&text);
}

weft_status weft_caption_client_open(const weft_captions_config *config,
                                     weft_caption_client **client)
{
    weft_caption_client *c;
    weft_status_code status;
    WEFT_TRY(weft_captions_check(config));
    WEFT_TRY(WEFT_NEW(c, 1, "captions"));
    *c = (weft_caption_client){.config = config, .random = (uint32_t)time(NULL)};
    pthread_mutex_init(&c->lock, NULL);
    WEFT_GO(weft_http_api_url(config->url, "chat/completions", &c->url));
    WEFT_GO(find_key(config, &c->key));
    WEFT_GO(weft_http_open(&c->http));
    *client = c;
    return WEFT_OK;
out:
    weft_caption_client_close(c);
    return status;
}

void weft_caption_client_close(weft_caption_client *c)
{
    if (!c)
        return;
    weft_http_close(c->http);
    pthread_mutex_destroy(&c->lock);
    weft_free(c->url);
    weft_free(c);
}

weft_caption_counts weft_caption_client_counts(weft_caption_client *c)
{
    pthread_mutex_lock(&c->lock);
    const weft_caption_counts counts = c->counts;
    pthread_mutex_unlock(&c->lock);
    return counts;
}

/* ---- requests ------------------------------------------------------------------------------ */

static weft_status add_headers(const void *user, weft_http_headers *headers)
{
    const weft_caption_client *c = user;
    return weft_http_api_headers(headers, c->key);
}

/* Waits for the pause of the server, and counts the request. False: no further request of this run
 * is sent, for `reason`. */
static weft_status admit(weft_caption_client *c, exchange *x, bool *admitted)
{
    *admitted = false;
    for (;;) {
        double wait;
        const weft_captions_config *o = c->config;
        pthread_mutex_lock(&c->lock);
        x->by_server = c->failures >= WEFT_CAPTION_MOST_FAILURES;
        if (x->by_server)
            snprintf(x->reason, sizeof x->reason,
                     "not requested: the server failed for %d clips in sequence: %.250s",
                     c->failures, c->last);
        else if (o->budget_requests > 0 && c->counts.requests >= o->budget_requests)
            snprintf(x->reason, sizeof x->reason,
                     "not requested: the budget of %" PRId64 " requests is used",
                     o->budget_requests);
        else if (o->budget_tokens > 0 && c->counts.tokens >= o->budget_tokens)
            snprintf(x->reason, sizeof x->reason,
                     "not requested: the budget of %" PRId64 " tokens is used", o->budget_tokens);
        else
            *admitted = true;
        wait = *admitted ? c->resume - weft_now() : 0;
        c->counts.requests += *admitted && wait <= 0;
        pthread_mutex_unlock(&c->lock);
        if (!*admitted || wait <= 0)
            return weft_stop_check();
        WEFT_TRY(weft_stoppable_wait((int64_t)(wait * 1000) + 1));
    }
}

/* Takes the model's text from a complete reply. */
static void take_text(weft_caption_client *c, const weft_http_reply *reply, exchange *x)
{
    json_t *json = NULL;
    const bool parsed =
        weft_json_parse(reply->body.data, reply->body.len, "reply", &json) == WEFT_OK;
    const json_t *choice = json_array_get(json_object_get(json, "choices"), 0);
    const char *text =
        json_string_value(json_object_get(json_object_get(choice, "message"), "content"));
    const char *end = json_string_value(json_object_get(choice, "finish_reason"));
    const json_t *tokens = json_object_get(json_object_get(json, "usage"), "total_tokens");
    pthread_mutex_lock(&c->lock);
    c->counts.tokens += json_integer_value(tokens) > 0 ? json_integer_value(tokens) : 0;
    pthread_mutex_unlock(&c->lock);
    if (!parsed)
        snprintf(x->reason, sizeof x->reason, "the reply of the server is not JSON");
    else if (!text)
        snprintf(x->reason, sizeof x->reason,
                 "the reply of the server has no choices[0].message.content");
    else if (end && strcmp(end, "content_filter") == 0)
        snprintf(x->reason, sizeof x->reason, "the server blocked the reply (content_filter)");
    else if (end && strcmp(end, "length") == 0)
        snprintf(x->reason, sizeof x->reason,
                 "the reply is longer than captions.max_tokens and was cut off");
    else if ((x->text = weft_strdup(text)))
        weft_http_api_hide_key(c->key, x->text);
    json_decref(json);
}

/* A delay after a failure. A time that the server asks for holds for all threads. */
static void pause_after(weft_caption_client *c, int failures, const char *retry_after)
{
    pthread_mutex_lock(&c->lock);
    c->random = c->random * 1664525 + 1013904223;
    const double random = (c->random >> 8) / 16777216.0;
    const double until =
        weft_now() +
        (double)weft_http_retry_ms(failures, random, retry_after, (int64_t)time(NULL)) / 1000;
    if (until > c->resume)
        c->resume = until;
    c->counts.repeated++;
    pthread_mutex_unlock(&c->lock);
}

static weft_status refuse(const weft_caption_client *c, const char *why)
{
    return weft_error(WEFT_MSG_MODEL_SERVER, WEFT_AT(.file = c->url, .value = c->config->model),
                      "the server refuses requests: %s", why);
}

/* Sends a body, and again what fails transiently. WEFT_E_IO: the server refuses everything. */
static weft_status send_body(weft_caption_client *c, const char *body, exchange *x)
{
    const weft_http_request request = {.method = "POST",
                                       .url = c->url,
                                       .location = c->url,
                                       .body = body,
                                       .body_bytes = (int64_t)strlen(body),
                                       .attempts = 1,
                                       .seconds = (int64_t)ceil(c->config->timeout_seconds),
                                       .prepare = add_headers,
                                       .user = c};
    for (int failures = 0; failures < c->config->attempts;) {
        weft_http_reply reply;
        bool admitted;
        WEFT_TRY(admit(c, x, &admitted));
        if (!admitted)
            return WEFT_OK;
        weft_status_code status = weft_http_send(c->http, &request, &reply);
        const int code = status == WEFT_OK ? reply.status : 0;
        if (status != WEFT_OK && status != WEFT_E_IO) {
            weft_http_reply_free(&reply);
            return status;
        }
        if (status == WEFT_OK && code != 200)
            weft_http_api_describe(&reply, c->key, x->reason);
        else if (status != WEFT_OK)
            snprintf(x->reason, sizeof x->reason, "%.380s", weft_error_text());
        else
            take_text(c, &reply, x);
        const bool transient = weft_http_is_transient(code);
        const bool refused = code == 401 || code == 403 || code == 404;
        if (transient && ++failures < c->config->attempts)
            pause_after(c, failures, reply.retry_after);
        weft_http_reply_free(&reply);
        if (refused)
            return refuse(c, x->reason);
        x->by_server = transient;
        if (!transient)
            return WEFT_OK;
    }
    return WEFT_OK;
}

/* ---- clips --------------------------------------------------------------------------------- */

/* A window of a clip: its request and its replies. */
typedef struct window {
    int64_t start, end; /* frames of the clip, end exclusive */
    json_t *messages;   /* owned */
    json_t *raw;        /* owned; list of replies */
    json_t *caption;    /* owned; NULL: none */
    exchange last;
} window;

static json_t *text_part(const char *text)
{
    return json_pack("{s:s,s:s}", "type", "text", "text", text);
}

/* Appends a frame: its time and a JPEG. */
static weft_status add_frame(json_t *content, const weft_shot_frames *f, int64_t i)
{
    char time[32];
    weft_buf jpeg = {0}, url = {0};
    snprintf(time, sizeof time, "%.2f s", f->seconds[i]);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_jpeg_encode(f->rgb + i * f->width * f->height * 3, f->width, f->height, &jpeg));
    weft_buf_printf(&url, "data:image/jpeg;base64,");
    weft_base64(&url, jpeg.data, jpeg.len);
    WEFT_GO(weft_buf_check(&url));
    json_array_append_new(content, text_part(time));
    json_array_append_new(
        content, json_pack("{s:s,s:{s:s}}", "type", "image_url", "image_url", "url", url.data));
out:
    weft_buf_free(&jpeg);
    weft_buf_free(&url);
    return status;
}

/* Writes the frames of a window as a video. H.264 has even sizes. */
static weft_status write_frames(const char *path, const weft_shot_frames *f, double fps)
{
    weft_video_writer *writer = NULL;
    const weft_video_writer_options o = {
        .width = f->width / 2 * 2, .height = f->height / 2 * 2, .fps = fps, .preset = "veryfast"};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_video_writer_open(path, &o, &writer));
    for (int64_t i = 0; i < f->count; i++)
        WEFT_GO(weft_video_writer_rgb(writer, f->rgb + i * f->width * f->height * 3, f->width * 3));
    WEFT_GO(weft_video_writer_finish(writer));
out:
    weft_video_writer_close(writer);
    return status;
}

/* Creates an empty file for a video in the folder for temporary files; the caller owns *path. */
static weft_status create_temporary(char **path)
{
    const char *set = getenv("TMPDIR");
    WEFT_TRY(
        WEFT_ALLOCATED(*path = weft_path_join(set && *set ? set : "/tmp", "weft-window-XXXXXX.mp4"),
                       "a request"));
    const int fd = mkstemps(*path, 4);
    if (fd >= 0) {
        close(fd);
        return WEFT_OK;
    }
    const weft_status_code status =
        weft_error_errno(WEFT_AT(.file = *path), "cannot create a temporary video");
    weft_free(*path);
    *path = NULL;
    return status;
}

/* Appends the frames as one video, whose rate gives the frames their distance in the clip. */
static weft_status add_video(json_t *content, const weft_shot_frames *f)
{
    char *path = NULL, *bytes = NULL;
    int64_t size = 0;
    weft_buf url = {0};
    const double span = f->seconds[f->count - 1] - f->seconds[0],
                 fps = f->count > 1 && span > 0 ? (double)(f->count - 1) / span : 1;
    weft_status_code status = WEFT_OK;
    WEFT_GO(create_temporary(&path));
    WEFT_GO(write_frames(path, f, fps));
    WEFT_GO(weft_file_read(path, INT32_MAX, &bytes, &size));
    weft_buf_printf(&url, "data:video/mp4;base64,");
    weft_base64(&url, bytes, size);
    WEFT_GO(weft_buf_check(&url));
    json_array_append_new(
        content, json_pack("{s:s,s:{s:s}}", "type", "video_url", "video_url", "url", url.data));
out:
    if (path)
        unlink(path);
    weft_free(path);
    weft_free(bytes);
    weft_buf_free(&url);
    return status;
}

static weft_status make_messages(const weft_caption_client *c, weft_shot_decoder *source, window *w)
{
    const weft_shot_frames *frames;
    json_t *shot = json_pack("{s:I,s:I}", "start", (json_int_t)w->start, "end",
                             (json_int_t)(w->end - 1)),
           *content = json_array();
    weft_status_code status = WEFT_ALLOCATED(shot && content, "a request");
    WEFT_GO(status);
    WEFT_GO(weft_shot_decoder_get(source, shot, c->config->frames, c->config->side, &frames));
    for (int64_t i = 0; i < frames->count && c->config->request == WEFT_CAPTION_IMAGES; i++)
        WEFT_GO(add_frame(content, frames, i));
    if (c->config->request == WEFT_CAPTION_VIDEO)
        WEFT_GO(add_video(content, frames));
    json_array_append_new(content, text_part(weft_caption_prompt(c->config)));
    w->messages = json_pack("[{s:s,s:O}]", "role", "user", "content", content);
    status = WEFT_ALLOCATED(w->messages, "a request");
out:
    json_decref(shot);
    json_decref(content);
    return status;
}

static char *make_body(const weft_caption_client *c, const window *w)
{
    json_t *body = json_pack("{s:s,s:O,s:I,s:f}", "model", c->config->model, "messages",
                             w->messages, "max_tokens", (json_int_t)c->config->max_tokens,
                             "temperature", c->config->temperature);
    if (body && c->config->format == WEFT_CAPTION_STRUCTURED && c->config->json_schema)
        json_object_set_new(body, "response_format", weft_caption_schema());
    char *text = body ? weft_json_line(body) : NULL;
    json_decref(body);
    return text;
}

/* Requests a caption; a reply of another form is requested once more, with the reason. */
static weft_status ask(weft_caption_client *c, window *w)
{
    for (int round = 0; round < 2; round++) {
        weft_buf why = {0};
        char *body = make_body(c, w);
        WEFT_TRY(WEFT_ALLOCATED(body, "a request"));
        w->last = (exchange){0};
        const weft_status_code status = send_body(c, body, &w->last);
        weft_free(body);
        WEFT_TRY(status);
        if (!w->last.text)
            return WEFT_OK;
        json_array_append_new(w->raw, json_string(w->last.text));
        const bool valid = weft_caption_parse(c->config, w->last.text, &w->caption, &why);
        if (!valid) {
            snprintf(w->last.reason, sizeof w->last.reason, "%s: %.300s",
                     round ? "two replies are not valid captions" : "the reply is not valid",
                     why.data ? why.data : "");
            json_array_append_new(
                w->messages, json_pack("{s:s,s:s}", "role", "assistant", "content", w->last.text));
            weft_buf_printf(&why, ". Reply with the complete JSON object and no other text.");
            json_array_append_new(w->messages, json_pack("{s:s,s:s}", "role", "user", "content",
                                                         why.data ? why.data : ""));
        }
        weft_free(w->last.text);
        w->last.text = NULL;
        weft_buf_free(&why);
        if (valid)
            return WEFT_OK;
    }
    return WEFT_OK;
}

static weft_status caption_window(weft_caption_client *c, weft_shot_decoder *source, window *w,
                                  json_t *record)
{
    w->raw = json_array();
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(w->raw, "a caption"));
    WEFT_GO(make_messages(c, source, w));
    WEFT_GO(ask(c, w));
    json_t *line = json_pack("{s:I,s:I,s:O}", "start_frame", (json_int_t)w->start, "end_frame",
                             (json_int_t)w->end, "raw", w->raw);
    if (w->caption)
        json_object_update(line, w->caption);
    json_array_append_new(json_object_get(record, "windows"), line);
out:
    json_decref(w->messages);
    json_decref(w->raw);
    json_decref(w->caption);
    return status;
}

/* Counts failures of the server in sequence. */
static void note_outcome(weft_caption_client *c, const json_t *record, bool by_server)
{
    const char *failed = json_string_value(json_object_get(record, "failed"));
    pthread_mutex_lock(&c->lock);
    if (!failed)
        c->failures = 0;
    else if (by_server && c->failures < WEFT_CAPTION_MOST_FAILURES) {
        c->failures++;
        snprintf(c->last, sizeof c->last, "%s", failed);
    }
    pthread_mutex_unlock(&c->lock);
}

/* The captions of all windows in one text. */
static void join_windows(json_t *record)
{
    weft_buf text = {0};
    size_t i;
    const json_t *w;
    json_array_foreach(json_object_get(record, "windows"), i, w) weft_buf_printf(
        &text, "%s%s", i ? " " : "", json_string_value(json_object_get(w, "caption")));
    json_object_set_new(record, "caption", json_string(text.data ? text.data : ""));
    weft_buf_free(&text);
}

/* The reason of a failure, and its class of messages. */
static void set_failure(json_t *record, const exchange *x)
{
    const weft_message_class kind = x->by_server ? WEFT_MSG_MODEL_SERVER : WEFT_MSG_CAPTION_REPLY;
    json_object_set_new(record, "failed", json_string(x->reason));
    json_object_set_new(record, "error", json_string(weft_message_id(kind)));
}

static weft_status caption_windows(weft_caption_client *c, const weft_caption_clip *clip,
                                   json_t *record, bool *by_server)
{
    weft_shot_decoder *source = NULL;
    const double length = c->config->window_seconds;
    int64_t count = length > 0 ? (int64_t)ceil(clip->seconds / length - 1e-6) : 1;
    count = count < 1 ? 1 : count > clip->frames ? clip->frames : count;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_shot_decoder_open(clip->path, 30, NULL, NULL, &source));
    for (int64_t i = 0; i < count && !json_object_get(record, "failed"); i++) {
        window w = {.start = i * clip->frames / count, .end = (i + 1) * clip->frames / count};
        const weft_status_code captioned = caption_window(c, source, &w, record);
        *by_server = w.last.by_server;
        WEFT_GO(captioned);
        if (w.last.reason[0] &&
            !json_object_get(json_array_get(json_object_get(record, "windows"), (size_t)i),
                             "caption"))
            set_failure(record, &w.last);
    }
out:
    weft_shot_decoder_close(source);
    return status;
}

weft_status weft_caption_client_clip(weft_caption_client *c, const weft_caption_clip *clip,
                                     json_t **out)
{
    char definition[24];
    bool by_server = false;
    weft_captions_define(c->config, definition);
    json_t *record = json_pack("{s:s,s:s,s:s,s:[]}", "id", clip->id, "model", c->config->model,
                               "definition", definition, "windows");
    WEFT_TRY(WEFT_ALLOCATED(record, "a caption"));
    const weft_status_code status = caption_windows(c, clip, record, &by_server);
    const bool of_clip = status == WEFT_E_FORMAT || status == WEFT_E_UNSUPPORTED ||
                         status == WEFT_E_NOT_FOUND || status == WEFT_E_TOO_LARGE;
    if (status != WEFT_OK && !of_clip) {
        json_decref(record);
        return status;
    }
    if (of_clip)
        json_object_set_new(record, "failed", json_string(weft_error_text()));
    if (!json_object_get(record, "failed"))
        join_windows(record);
    note_outcome(c, record, by_server);
    *out = record;
    return WEFT_OK;
}
