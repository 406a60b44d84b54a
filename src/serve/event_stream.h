/* Server-sent events of a job: an event with the job as JSON for each change of its state or
 * progress, until it is final. A slow client gets the newest state. */
#ifndef WEFT_SERVE_EVENT_STREAM_H
#define WEFT_SERVE_EVENT_STREAM_H

#include "serve/serve_request.h"

/* The response of a stream; NULL: out of memory. The lock is held. */
struct MHD_Response *weft_event_stream_open(weft_serve_request *request, const char *id);
/* Wakes all streams. The lock is held. */
void weft_event_streams_wake(weft_server *server);

#endif
