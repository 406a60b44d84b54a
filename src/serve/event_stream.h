/* Server-sent events of a job: an event with the job as JSON for each change of its state or
 * progress, until it is final. A slow client gets the newest state. */
#ifndef WEFT_SERVE_EVENT_STREAM_H
#define WEFT_SERVE_EVENT_STREAM_H

#include "serve/serve_request.h"

/* The response of a stream; NULL: out of memory. The lock is held. */
struct MHD_Response *weft_event_stream_open(weft_serve_request *request, const char *id);
/* Wakes the streams of the job `id` (NULL: all), and those whose place in the queue differs. A
 * stream that sleeps costs a comparison: 200 streams must not delay other requests. The lock is
 * held. */
void weft_event_streams_changed(weft_server *server, const char *id);
/* A heartbeat to all streams, which finds clients that have left. The lock is held. */
void weft_event_streams_beat(weft_server *server);

#endif
