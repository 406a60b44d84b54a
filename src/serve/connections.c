#include "serve/connections.h"

#include "base/memory.h"

#include <sys/resource.h>
#include <sys/socket.h>

enum {
    MOST = 1024,
    LEAST = 8,
    /* descriptors of the queue, of locks, pipes and children, and of connections being closed */
    RESERVE = 64 + 2 * WEFT_CONNECTIONS_SLACK
};

struct weft_connection {
    int socket;
    bool closing;
    weft_connection_state state;
    int64_t used;
    weft_connection *next;
};

weft_status weft_connections_init(weft_connections *c)
{
    struct rlimit files;
    *c = (weft_connections){0};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return weft_error_errno(WEFT_NOWHERE, "cannot read the limit of open files");
    c->limit = files.rlim_cur >= RESERVE + 2 * MOST ? MOST
               : files.rlim_cur > RESERVE           ? (int)(files.rlim_cur - RESERVE) / 2
                                                    : 0;
    if (c->limit < LEAST)
        return weft_error(
            WEFT_MSG_WORKER_FAILED, WEFT_AT(.key = "ulimit -n", WEFT_NUMBER(files.rlim_cur)),
            "%lld open files are allowed, and `weft serve` needs %d. Raise the limit, "
            "such as with `ulimit -n 1024`.",
            (long long)files.rlim_cur, RESERVE + 2 * LEAST);
    return WEFT_OK;
}

/* Its end is reported by weft_connections_notify. */
static void close_one(weft_connections *c)
{
    weft_connection *oldest = NULL;
    for (weft_connection *x = c->first; x; x = x->next)
        if (!x->closing && x->state != WEFT_CONNECTION_ANSWERING &&
            (!oldest || x->state < oldest->state ||
             (x->state == oldest->state && x->used < oldest->used)))
            oldest = x;
    if (!oldest)
        return;
    oldest->closing = true;
    c->count--;
    (void)shutdown(oldest->socket, SHUT_RDWR);
}

static void remove_one(weft_connections *c, weft_connection *x)
{
    weft_connection **at = &c->first;
    while (*at && *at != x)
        at = &(*at)->next;
    if (*at)
        *at = x->next;
    c->count -= !x->closing;
    weft_free(x);
}

void weft_connections_notify(void *connections, struct MHD_Connection *connection, void **context,
                             enum MHD_ConnectionNotificationCode code)
{
    weft_connections *c = connections;
    weft_connection *x = *context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (x)
            remove_one(c, x);
        *context = NULL;
        return;
    }
    const int socket =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    x = *context = weft_calloc(1, sizeof *x);
    if (!x) { /* a connection without a place in the list is not kept */
        (void)shutdown(socket, SHUT_RDWR);
        return;
    }
    *x = (weft_connection){.socket = socket, .used = ++c->uses, .next = c->first};
    c->first = x;
    if (++c->count > c->limit)
        close_one(c);
}

void weft_connections_set(weft_connections *c, struct MHD_Connection *connection,
                          weft_connection_state state)
{
    weft_connection *x =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    if (!x)
        return;
    x->state = state;
    x->used = ++c->uses;
}

bool weft_connections_are_busy(const weft_connections *c)
{
    int answering = 0;
    for (const weft_connection *x = c->first; x; x = x->next)
        answering += !x->closing && x->state == WEFT_CONNECTION_ANSWERING;
    return answering > (c->limit + 1) / 2;
}
