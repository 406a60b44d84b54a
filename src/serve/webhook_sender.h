/* The thread that sends webhooks. A failed attempt is repeated after a growing delay, also by a
 * later server; the outcome is stored. */
#ifndef WEFT_SERVE_WEBHOOK_SENDER_H
#define WEFT_SERVE_WEBHOOK_SENDER_H

#include "serve/server_parts.h"

/* Starts the thread, if options->webhooks has a URL. The lock is not held. */
weft_status weft_webhook_sender_start(weft_server *server);
/* Ends the thread; server->stopping is set. An attempt that has no reply yet ends as a failed
 * one. */
void weft_webhook_sender_stop(weft_server *server);

#endif
