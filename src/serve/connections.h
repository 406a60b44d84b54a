/* Open connections. Their number is bounded, so that descriptors remain for files and children. A
 * new connection above the limit closes the one whose use is longest ago: an idle one, otherwise
 * a connection with an incomplete request. Called by the HTTP thread alone. */
#ifndef WEFT_SERVE_CONNECTIONS_H
#define WEFT_SERVE_CONNECTIONS_H

#include "base/status.h"

#include <microhttpd.h>

/* Connections that exist for a moment above the limit, until the closed one has ended. */
enum { WEFT_CONNECTIONS_SLACK = 16 };

typedef enum weft_connection_state {
    WEFT_CONNECTION_IDLE,
    WEFT_CONNECTION_RECEIVING, /* a request is incomplete */
    WEFT_CONNECTION_ANSWERING,
} weft_connection_state;

typedef struct weft_connection weft_connection;
typedef struct weft_connections {
    weft_connection *first;
    int count, limit; /* count: without the closing connections */
    int64_t uses;
} weft_connections;

/* Sets the limit from the limit of open files. A connection has two descriptors at most: its own
 * and a file. Fails if too few descriptors remain. */
weft_status weft_connections_init(weft_connections *connections);
/* MHD_OPTION_NOTIFY_CONNECTION with the connections as closure. */
void weft_connections_notify(void *connections, struct MHD_Connection *connection, void **context,
                             enum MHD_ConnectionNotificationCode code);
/* Records the state and the use of a connection. */
void weft_connections_set(weft_connections *connections, struct MHD_Connection *connection,
                          weft_connection_state state);
/* Whether half of the connections are being answered. A further answer must not take long. */
bool weft_connections_are_busy(const weft_connections *connections);

#endif
