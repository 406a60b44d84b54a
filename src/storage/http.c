#include "storage/http.h"

#include "base/config.h"
#include "base/log.h"
#include "storage/curl_library.h"
#include "storage/http_retry.h"
#include "storage/stoppable_wait.h"

#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#ifdef WEFT_HAS_CURL
enum {
    MOST_IDLE = 64,
    STALL_SECONDS = 30,
    CONNECT_SECONDS = 10,
    STAGE_BYTES = 256 << 10,
    PROGRESS_BYTES = 64 << 10 /* after which a cut range has its attempts again */
};

struct weft_http {
    const weft_curl_library *curl;
    pthread_mutex_t lock;
    void *idle[MOST_IDLE]; /* handles with open connections */
    int idle_count;
    pid_t owner; /* process of the idle handles */
    atomic_llong random;
};

weft_status weft_http_headers_add(weft_http_headers *headers, const char *name, const char *value)
{
    weft_buf line = {0};
    weft_buf_printf(&line, "%s: %s", name, value);
    const weft_status_code status = weft_buf_check(&line);
    if (status != WEFT_OK || headers->count == WEFT_HTTP_MOST_HEADERS) {
        weft_buf_free(&line);
        return status != WEFT_OK ? status : weft_no_memory("a header");
    }
    headers->line[headers->count++] = line.data;
    return WEFT_OK;
}

static void free_headers(weft_http_headers *headers)
{
    for (int i = 0; i < headers->count; i++)
        weft_free(headers->line[i]);
    headers->count = 0;
}

weft_status weft_http_open(weft_http **http)
{
    const weft_curl_library *curl;
    WEFT_TRY(weft_curl_library_load(&curl));
    weft_http *h;
    WEFT_TRY(WEFT_NEW(h, 1, "connections"));
    h->curl = curl;
    h->owner = getpid();
    atomic_store(&h->random, (long long)getpid() << 32 ^ (long long)time(NULL));
    pthread_mutex_init(&h->lock, NULL);
    *http = h;
    return WEFT_OK;
}

void weft_http_close(weft_http *h)
{
    if (!h)
        return;
    for (int i = 0; i < h->idle_count && h->owner == getpid(); i++)
        h->curl->easy_cleanup(h->idle[i]);
    pthread_mutex_destroy(&h->lock);
    weft_free(h);
}

/* ---- handles ------------------------------------------------------------------------------- */

static void *take_handle(weft_http *h)
{
    pthread_mutex_lock(&h->lock);
    if (h->owner != getpid()) { /* the parent's connections are the parent's alone */
        h->idle_count = 0;
        h->owner = getpid();
    }
    void *easy = h->idle_count ? h->idle[--h->idle_count] : NULL;
    pthread_mutex_unlock(&h->lock);
    if (easy)
        h->curl->easy_reset(easy);
    return easy ? easy : h->curl->easy_init();
}

static void give_handle(weft_http *h, void *easy)
{
    pthread_mutex_lock(&h->lock);
    const bool kept = h->idle_count < MOST_IDLE;
    if (kept)
        h->idle[h->idle_count++] = easy;
    pthread_mutex_unlock(&h->lock);
    if (!kept)
        h->curl->easy_cleanup(easy);
}

/* ---- one attempt --------------------------------------------------------------------------- */

typedef struct attempt {
    const weft_http_request *request;
    weft_http_reply *reply;
    bool overflow;         /* the reply is longer than its buffer */
    bool checked;          /* the range and version of the reply are right */
    char *stage;           /* owned; for bytes of the body that the sink has not taken yet */
    int64_t staged;        /* bytes there, the last ones received */
    weft_status_code sunk; /* status that the sink returned */
} attempt;

static void copy_value(char *to, size_t size, const char *value, size_t length)
{
    while (length && isspace((unsigned char)*value)) {
        value++;
        length--;
    }
    while (length && isspace((unsigned char)value[length - 1]))
        length--;
    snprintf(to, size, "%.*s", (int)length, value);
}

static size_t on_header(char *line, size_t size, size_t count, void *user)
{
    attempt *a = user;
    weft_http_reply *r = a->reply;
    const size_t bytes = size * count;
    const struct {
        const char *name;
        char *to;
        size_t size;
    } known[] = {{"etag:", r->etag, sizeof r->etag},
                 {"content-range:", r->content_range, sizeof r->content_range},
                 {"retry-after:", r->retry_after, sizeof r->retry_after},
                 {"x-amz-bucket-region:", r->region, sizeof r->region},
                 {"last-modified:", r->last_modified, sizeof r->last_modified},
                 {"date:", r->date, sizeof r->date}};
    char length[32];
    if (bytes >= 5 && !strncmp(line, "HTTP/", 5)) { /* of the last reply only */
        const char *space = memchr(line, ' ', bytes);
        r->status = space ? atoi(space) : 0;
        r->length = -1;
        for (int i = 0; i < WEFT_COUNT(known); i++)
            *known[i].to = 0;
    }
    for (int i = 0; i < WEFT_COUNT(known); i++) {
        const size_t name = strlen(known[i].name);
        if (bytes > name && !strncasecmp(line, known[i].name, name))
            copy_value(known[i].to, known[i].size, line + name, bytes - name);
    }
    if (bytes > 15 && !strncasecmp(line, "content-length:", 15)) {
        copy_value(length, sizeof length, line + 15, bytes - 15);
        r->length = strtoll(length, NULL, 10);
    }
    return bytes;
}

bool weft_http_is_success(int status)
{
    return status >= 200 && status < 300;
}

static void empty_stage(attempt *a)
{
    const weft_byte_sink *sink = a->request->sink;
    if (a->staged && a->sunk == WEFT_OK)
        a->sunk = sink->take(sink->user, a->reply->received - a->staged, a->stage, a->staged);
    a->staged = 0;
}

/* libcurl passes the body on in pieces of 16 KiB. The sink gets larger ones, as it may write them
 * to a file. */
static void stage_body(attempt *a, const char *data, int64_t bytes)
{
    for (int64_t done = 0; done < bytes && a->sunk == WEFT_OK;) {
        const int64_t space = STAGE_BYTES - a->staged,
                      n = bytes - done < space ? bytes - done : space;
        memcpy(a->stage + a->staged, data + done, (size_t)n);
        a->staged += n;
        a->reply->received += n;
        done += n;
        if (n == space)
            empty_stage(a);
    }
}

static weft_status check_range(attempt *a)
{
    const weft_http_range *r = a->request->range;
    if (r && !a->checked)
        WEFT_TRY(r->check(r->user, r->at + r->kept, r->bytes - r->kept, a->reply));
    a->checked = true;
    return WEFT_OK;
}

/* False: the attempt ends. */
static bool take_body(attempt *a, const char *data, int64_t bytes)
{
    weft_http_reply *r = a->reply;
    if ((a->sunk = check_range(a)) != WEFT_OK)
        return false;
    a->overflow = r->received + bytes > a->request->to_bytes;
    if (a->overflow)
        return false;
    if (a->stage) {
        stage_body(a, data, bytes);
    } else {
        memcpy((char *)a->request->to + r->received, data, (size_t)bytes);
        r->received += bytes;
    }
    return a->sunk == WEFT_OK;
}

static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    enum { MOST_TEXT = 64 << 20 }; /* of a list or an error */
    attempt *a = user;
    weft_http_reply *r = a->reply;
    const int64_t bytes = (int64_t)(size * count);
    if ((a->request->to || a->request->sink) && weft_http_is_success(r->status))
        return take_body(a, data, bytes) ? size * count : 0;
    if (r->body.len + bytes > MOST_TEXT)
        return 0;
    weft_buf_append(&r->body, data, bytes);
    return r->body.failed ? 0 : size * count;
}

/* The bytes that a cut attempt received of a range stay, and the next one continues there. A reply
 * without Content-Range is the whole file and begins again. True: nothing is missing. */
static bool keep_received(attempt *a)
{
    weft_http_range *r = a->request->range;
    if (!r || !a->checked || !weft_http_is_success(a->reply->status) || !*a->reply->content_range)
        return false;
    empty_stage(a);
    if (a->sunk != WEFT_OK)
        return false;
    if (a->reply->received - r->kept >= PROGRESS_BYTES)
        a->reply->failures = 0;
    r->kept = a->reply->received;
    return r->kept == r->bytes;
}

/* Whether a reply has less than its range although the connection did not end: a server or proxy
 * between sent the length of a part. */
static bool is_short(const attempt *a)
{
    const weft_http_range *r = a->request->range;
    return r && weft_http_is_success(a->reply->status) && a->reply->received < r->bytes;
}

static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const attempt *own = user;
    (void)a, (void)b, (void)c, (void)d;
    return !own->request->uninterrupted && weft_stop_requested();
}

static void set_times(const weft_curl_library *c, void *easy, const weft_http_request *q)
{
    c->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    c->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, q->local ? 1L : (long)CONNECT_SECONDS);
    c->easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    if (q->seconds > 0)
        c->easy_setopt(easy, CURLOPT_TIMEOUT, (long)q->seconds);
    else
        c->easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, q->local ? 5L : (long)STALL_SECONDS);
    if (q->local)
        c->easy_setopt(easy, CURLOPT_NOPROXY, "*");
}

static void set_method(const weft_curl_library *c, void *easy, const weft_http_request *q)
{
    if (!strcmp(q->method, "HEAD")) {
        c->easy_setopt(easy, CURLOPT_NOBODY, 1L);
        return;
    }
    if (q->body || !strcmp(q->method, "PUT") || !strcmp(q->method, "POST")) {
        c->easy_setopt(easy, CURLOPT_POST, 1L);
        c->easy_setopt(easy, CURLOPT_POSTFIELDS, q->body ? q->body : "");
        c->easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->body_bytes);
    }
    c->easy_setopt(easy, CURLOPT_CUSTOMREQUEST, q->method);
}

static void set_options(const weft_curl_library *c, void *easy, attempt *a, char *problem)
{
    const weft_http_request *q = a->request;
    const char *bundle = getenv("AWS_CA_BUNDLE");
    c->easy_setopt(easy, CURLOPT_URL, q->url);
    c->easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    c->easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    c->easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    c->easy_setopt(easy, CURLOPT_USERAGENT, "weft/" WEFT_VERSION);
    c->easy_setopt(easy, CURLOPT_FOLLOWLOCATION, q->follow ? 1L : 0L);
    c->easy_setopt(easy, CURLOPT_MAXREDIRS, 5L);
    c->easy_setopt(easy, CURLOPT_ERRORBUFFER, problem);
    c->easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    c->easy_setopt(easy, CURLOPT_HEADERDATA, a);
    c->easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    c->easy_setopt(easy, CURLOPT_WRITEDATA, a);
    c->easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    c->easy_setopt(easy, CURLOPT_XFERINFODATA, a);
    c->easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
    c->easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L << 10);
    if (bundle && *bundle)
        c->easy_setopt(easy, CURLOPT_CAINFO, bundle);
    set_times(c, easy, q);
    set_method(c, easy, q);
}

/* Whether the attempt has a type of the body of its own. */
static bool has_type(const weft_http_headers *headers)
{
    bool has = false;
    for (int i = 0; i < headers->count; i++)
        has = has || !strncasecmp(headers->line[i], "Content-Type:", 13);
    return has;
}

/* The attempt's headers as libcurl's list; NULL: out of memory. */
static struct curl_slist *list_headers(const weft_curl_library *c, const weft_http_request *q,
                                       const weft_http_headers *headers)
{
    struct curl_slist *list = c->slist_append(NULL, "Expect:");
    bool failed = !list;
    const bool sends = q->body || !strcmp(q->method, "PUT") || !strcmp(q->method, "POST");
    if (!failed && sends && !has_type(headers)) {
        struct curl_slist *longer = c->slist_append(list, "Content-Type: application/octet-stream");
        failed = !longer;
        list = longer ? longer : list;
    }
    for (int i = 0; i < headers->count && !failed; i++) {
        struct curl_slist *longer = c->slist_append(list, headers->line[i]);
        failed = !longer;
        list = longer ? longer : list;
    }
    if (failed)
        c->slist_free_all(list);
    return failed ? NULL : list;
}

/* The number of attempts that can help against a failure. A wrong URL, a certificate that is not
 * trusted and a refusal of the proxy are the same in every attempt. A handshake or the name of a
 * proxy can fail for both reasons. */
static int64_t limit_of(CURLcode code, long proxy_status)
{
    static const CURLcode final[] = {CURLE_UNSUPPORTED_PROTOCOL,
                                     CURLE_URL_MALFORMAT,
                                     CURLE_NOT_BUILT_IN,
                                     CURLE_TOO_MANY_REDIRECTS,
                                     CURLE_PEER_FAILED_VERIFICATION,
                                     CURLE_SSL_CACERT_BADFILE,
                                     CURLE_SSL_CERTPROBLEM,
                                     CURLE_SSL_CIPHER,
                                     CURLE_SSL_ISSUER_ERROR,
                                     CURLE_SSL_CRL_BADFILE,
                                     CURLE_SSL_INVALIDCERTSTATUS,
                                     CURLE_SSL_CLIENTCERT,
                                     CURLE_PROXY};
    for (int i = 0; i < WEFT_COUNT(final); i++)
        if (code == final[i])
            return 1;
    if (proxy_status >= 400 && !weft_http_is_transient((int)proxy_status))
        return 1;
    return code == CURLE_SSL_CONNECT_ERROR || code == CURLE_COULDNT_RESOLVE_PROXY ? 2 : INT64_MAX;
}

/* *list: the headers of the request; NULL without memory. */
static weft_status make_headers(weft_http *h, const weft_http_request *q, struct curl_slist **list)
{
    weft_http_headers headers = {0};
    weft_status_code status = WEFT_OK;
    if (q->prepare)
        WEFT_GO(q->prepare(q->user, &headers));
    *list = list_headers(h->curl, q, &headers);
out:
    free_headers(&headers);
    return status;
}

/* Sets reply->status to 0, with the reason in `problem`, if the reply is missing or incomplete. */
static weft_status try_once(weft_http *h, const weft_http_request *q, weft_http_reply *reply,
                            char problem[CURL_ERROR_SIZE])
{
    struct curl_slist *list = NULL;
    const int failures = reply->failures;
    long proxy_status = 0; /* of the reply to CONNECT */
    weft_buf_free(&reply->body);
    *reply = (weft_http_reply){.length = -1,
                               .failures = failures,
                               .limit = INT64_MAX,
                               .received = q->range ? q->range->kept : 0};
    WEFT_TRY(make_headers(h, q, &list));
    attempt a = {.request = q, .reply = reply};
    if (q->sink)
        a.stage = weft_alloc(STAGE_BYTES);
    void *easy = list && (a.stage || !q->sink) ? take_handle(h) : NULL;
    if (!easy) {
        h->curl->slist_free_all(list);
        weft_free(a.stage);
        return weft_no_memory("a request");
    }
    set_options(h->curl, easy, &a, problem);
    h->curl->easy_setopt(easy, CURLOPT_HTTPHEADER, list);
    problem[0] = 0;
    CURLcode code = h->curl->easy_perform(easy);
    h->curl->easy_getinfo(easy, CURLINFO_HTTP_CONNECTCODE, &proxy_status);
    h->curl->slist_free_all(list);
    give_handle(h, easy);
    if (code == CURLE_OK && is_short(&a))
        code = CURLE_PARTIAL_FILE;
    if (code == CURLE_OK)
        empty_stage(&a);
    else if (!a.overflow && keep_received(&a))
        code = CURLE_OK;
    weft_free(a.stage);
    if (!q->uninterrupted)
        WEFT_TRY(weft_stop_check());
    WEFT_TRY(a.sunk);
    if (reply->body.failed)
        return weft_no_memory("a reply");
    if (code != CURLE_OK && !a.overflow) {
        if (!problem[0])
            snprintf(problem, CURL_ERROR_SIZE, "%s", h->curl->easy_strerror(code));
        reply->status = 0;
        reply->limit = limit_of(code, proxy_status);
    }
    weft_buf_append(&reply->body, "", 0); /* terminated also if empty */
    return WEFT_OK;
}

/* ---- attempts ------------------------------------------------------------------------------ */

/* A random number in [0, 1), another one in each process and call. */
static double next_random(weft_http *h)
{
    uint64_t x = (uint64_t)atomic_fetch_add(&h->random, 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 11) / 9007199254740992.0;
}

static bool is_transient(const weft_http_request *q, const weft_http_reply *reply)
{
    return weft_http_is_transient(reply->status) ||
           (q->transient && q->transient(reply->status, reply->body.data));
}

static weft_status fail(const weft_http_request *q, const weft_http_reply *reply,
                        const char *problem)
{
    return weft_error(WEFT_MSG_STORAGE_REQUEST,
                      WEFT_AT(.file = q->location, .value = q->method,
                              WEFT_DETAILS(WEFT_DETAIL("attempts", reply->failures + 1))),
                      "%s failed %d time%s: %s. Check %s.", q->method, reply->failures + 1,
                      weft_plural(reply->failures + 1), problem,
                      reply->limit == INT64_MAX
                          ? "the network and the address"
                          : "the address, the proxy and the certificates (AWS_CA_BUNDLE)");
}

weft_status weft_http_send(weft_http *h, const weft_http_request *q, weft_http_reply *reply)
{
    char problem[CURL_ERROR_SIZE];
    *reply = (weft_http_reply){.length = -1};
    if (q->range)
        q->range->kept = 0;
    for (;;) {
        WEFT_TRY(try_once(h, q, reply, problem));
        if (!is_transient(q, reply))
            return WEFT_OK;
        if (reply->failures + 1 >= (reply->limit < q->attempts ? reply->limit : q->attempts))
            return reply->status ? WEFT_OK : fail(q, reply, problem);
        if (reply->status)
            snprintf(problem, sizeof problem, "status %d", reply->status);
        const int64_t ms = weft_http_retry_ms(++reply->failures, next_random(h), reply->retry_after,
                                              (int64_t)time(NULL));
        weft_notice(WEFT_MSG_STORAGE_RETRY,
                    WEFT_AT(.file = q->location, .value = q->method,
                            WEFT_DETAILS(WEFT_DETAIL("status", reply->status),
                                         WEFT_DETAIL("attempt", reply->failures))),
                    "%s failed: %s; attempt %d of %" PRId64 " follows in %" PRId64 " ms", q->method,
                    problem, reply->failures + 1, q->attempts, ms);
        if (q->uninterrupted)
            nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
        else
            WEFT_TRY(weft_stoppable_wait(ms));
    }
}

#else /* built without libcurl: no client exists, so nothing is sent */

struct weft_http {
    int none;
};

weft_status weft_http_headers_add(weft_http_headers *headers, const char *name, const char *value)
{
    (void)headers, (void)value;
    return weft_no_memory("%s", name);
}

weft_status weft_http_open(weft_http **http)
{
    *http = NULL;
    return weft_error(WEFT_MSG_LIBRARY_MISSING, WEFT_NOWHERE,
                      "this build of weft has no libcurl, so it reads and writes folders only. "
                      "Install libcurl4-openssl-dev and build weft again.");
}

void weft_http_close(weft_http *h)
{
    weft_free(h);
}

weft_status weft_http_send(weft_http *h, const weft_http_request *q, weft_http_reply *reply)
{
    *reply = (weft_http_reply){.length = -1};
    return weft_http_open(&h) == WEFT_OK
               ? WEFT_OK
               : weft_error_at(WEFT_E_UNSUPPORTED, WEFT_AT(.file = q->location));
}
#endif

void weft_http_range_print(const weft_http_range *r, char text[WEFT_HTTP_RANGE_TEXT])
{
    snprintf(text, WEFT_HTTP_RANGE_TEXT, "bytes=%" PRId64 "-%" PRId64, r->at + r->kept,
             r->at + r->bytes - 1);
}

void weft_http_reply_free(weft_http_reply *reply)
{
    weft_buf_free(&reply->body);
}
