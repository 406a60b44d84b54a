/* The HTTP side of the server: libmicrohttpd, limits, authentication, routes. */
#ifndef WEFT_SERVE_HTTP_SERVER_H
#define WEFT_SERVE_HTTP_SERVER_H

#include "serve/server_parts.h"

/* Listens at options->listen. Without tokens only an address of the loopback is accepted. *port:
 * the port, also for port 0. */
weft_status weft_http_server_start(weft_server *server, int *port);
/* Answers suspended requests and stops. server->stopping must be set. */
void weft_http_server_stop(weft_server *server);
/* Resumes suspended requests. The lock is held. */
void weft_http_server_wake(weft_server *server);

#endif
