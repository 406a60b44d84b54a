#include "format/log/metrics_server.h"

#include "base/listen_address.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { REQUEST_BYTES = 4096, CLIENT_SECONDS = 2 };

struct weft_metrics_server {
    int listening, stop[2]; /* stop: a pipe, whose closed end wakes the thread */
    pthread_t thread;
    bool has_thread;
    double published;     /* weft_now of the newest text; 0: none */
    pthread_mutex_t lock; /* of the text */
    weft_buf text;
};

/* ---- text ----------------------------------------------------------------------------------- */

void weft_metric_text_head(weft_buf *text, const char *name, const char *type, const char *help)
{
    weft_buf_printf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_number(weft_buf *text, double value)
{
    if (isnan(value))
        weft_buf_printf(text, " NaN\n");
    else if (isinf(value))
        weft_buf_printf(text, value > 0 ? " +Inf\n" : " -Inf\n");
    else
        weft_buf_printf(text, " %.17g\n", value);
}

void weft_metric_text_value(weft_buf *text, const char *name, const char *label, const char *of,
                            double value)
{
    weft_buf_printf(text, "%s", name);
    if (label) {
        weft_buf_printf(text, "{%s=\"", label);
        for (const char *c = of; *c; c++)
            if (*c == '\n')
                weft_buf_printf(text, "\\n");
            else
                weft_buf_printf(text, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
        weft_buf_printf(text, "\"}");
    }
    put_number(text, value);
}

void weft_metric_text_one(weft_buf *text, const char *name, const char *type, const char *help,
                          double value)
{
    weft_metric_text_head(text, name, type, help);
    weft_metric_text_value(text, name, NULL, NULL, value);
}

/* ---- requests ------------------------------------------------------------------------------- */

static void send_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* the client left */
        data += n;
        bytes -= (size_t)n;
    }
}

static void reply(int fd, const char *status, const char *body, size_t bytes)
{
    char head[256];
    const int n = snprintf(head, sizeof head,
                           "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"
                           "\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                           status, bytes);
    send_all(fd, head, (size_t)n);
    send_all(fd, body, bytes);
}

static void reply_text(int fd, const char *status, const char *body)
{
    reply(fd, status, body, strlen(body));
}

static void answer(weft_metrics_server *s, int fd, const char *request)
{
    static const char path[] = "GET /metrics";
    if (strncmp(request, "GET ", 4) != 0) {
        reply_text(fd, "405 Method Not Allowed", "use GET\n");
        return;
    }
    if (strncmp(request, path, sizeof path - 1) != 0 || !strchr(" ?", request[sizeof path - 1])) {
        reply_text(fd, "404 Not Found", "the metrics are at /metrics\n");
        return;
    }
    weft_buf text = {0};
    pthread_mutex_lock(&s->lock);
    weft_buf_append(&text, s->text.data ? s->text.data : "", s->text.len);
    pthread_mutex_unlock(&s->lock);
    if (text.failed)
        reply_text(fd, "500 Internal Server Error", "out of memory\n");
    else
        reply(fd, "200 OK", text.data ? text.data : "", (size_t)text.len);
    weft_buf_free(&text);
}

/* Reads a request up to the empty line. A client that stalls is dropped. */
static void attend(weft_metrics_server *s, int fd)
{
    char request[REQUEST_BYTES + 1];
    size_t bytes = 0;
    const struct timeval limit = {.tv_sec = CLIENT_SECONDS};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    for (request[0] = 0; !strstr(request, "\r\n\r\n") && bytes < REQUEST_BYTES;) {
        const ssize_t n = recv(fd, request + bytes, REQUEST_BYTES - bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        bytes += (size_t)n;
        request[bytes] = 0;
    }
    answer(s, fd, request);
}

static void *serve(void *user)
{
    weft_metrics_server *s = user;
    struct pollfd polled[2] = {{.fd = s->listening, .events = POLLIN},
                               {.fd = s->stop[0], .events = POLLIN}};
    for (;;) {
        if (poll(polled, 2, -1) < 0 && errno != EINTR)
            return NULL;
        if (polled[1].revents)
            return NULL;
        const int fd = polled[0].revents ? accept4(s->listening, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd < 0)
            continue;
        attend(s, fd);
        shutdown(fd, SHUT_WR);
        close(fd);
    }
}

/* ---- start and stop ------------------------------------------------------------------------- */

static weft_status refuse(const char *address, const char *what)
{
    return weft_error(WEFT_MSG_SERVER_LISTEN, WEFT_AT(.key = "--metrics", .value = address),
                      "%s: %s", what, strerror(errno));
}

static weft_status start_listening(weft_metrics_server *s, const char *text, int *port)
{
    struct addrinfo *address;
    const int on = 1;
    WEFT_TRY(weft_listen_address_read(text, "--metrics", &address));
    s->listening =
        socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool fine = s->listening >= 0;
    if (fine)
        setsockopt(s->listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    fine = fine && bind(s->listening, address->ai_addr, address->ai_addrlen) == 0 &&
           listen(s->listening, 16) == 0;
    freeaddrinfo(address);
    struct sockaddr_in6 own = {0}; /* the port is at the same place as of IPv4 */
    socklen_t bytes = sizeof own;
    if (!fine || getsockname(s->listening, (struct sockaddr *)&own, &bytes) != 0)
        return refuse(text, "the address cannot be used");
    *port = ntohs(own.sin6_port);
    return WEFT_OK;
}

/* The thread takes no signals: another thread of the program waits for signals. */
static weft_status start_thread(weft_metrics_server *s, const char *address)
{
    sigset_t all, before;
    if (pipe2(s->stop, O_CLOEXEC) != 0)
        return refuse(address, "no pipe can be created");
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    errno = pthread_create(&s->thread, NULL, serve, s);
    s->has_thread = errno == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return s->has_thread ? WEFT_OK : refuse(address, "no thread can be created");
}

weft_status weft_metrics_server_open(const char *address, weft_metrics_server **server)
{
    weft_metrics_server *s;
    int port = 0;
    WEFT_TRY(WEFT_NEW(s, 1, "the metrics"));
    s->listening = s->stop[0] = s->stop[1] = -1;
    pthread_mutex_init(&s->lock, NULL);
    weft_status_code status = WEFT_OK;
    WEFT_GO(start_listening(s, address, &port));
    WEFT_GO(start_thread(s, address));
out:
    if (status != WEFT_OK) {
        weft_metrics_server_close(s);
        return status;
    }
    const int host = (int)(strrchr(address, ':') - address);
    weft_notice(WEFT_MSG_SERVER_READY, WEFT_AT(WEFT_NUMBER(port)),
                "metrics: http://%.*s:%d/metrics", host, address, port);
    *server = s;
    return WEFT_OK;
}

weft_status weft_metrics_server_publish(weft_metrics_server *s, const weft_buf *text)
{
    weft_buf copy = {0};
    if (!s)
        return WEFT_OK;
    weft_buf_append(&copy, text->data ? text->data : "", text->len);
    WEFT_TRY(weft_buf_check(&copy));
    pthread_mutex_lock(&s->lock);
    const weft_buf old = s->text;
    s->text = copy;
    pthread_mutex_unlock(&s->lock);
    copy = old;
    weft_buf_free(&copy);
    s->published = weft_now();
    return WEFT_OK;
}

bool weft_metrics_server_is_due(const weft_metrics_server *s)
{
    return s && (s->published == 0 || weft_now() - s->published >= 0.5);
}

void weft_metrics_server_close(weft_metrics_server *s)
{
    if (!s)
        return;
    if (s->stop[1] >= 0)
        close(s->stop[1]); /* wakes the thread */
    if (s->has_thread)
        pthread_join(s->thread, NULL);
    if (s->stop[0] >= 0)
        close(s->stop[0]);
    if (s->listening >= 0)
        close(s->listening);
    pthread_mutex_destroy(&s->lock);
    weft_buf_free(&s->text);
    weft_free(s);
}
