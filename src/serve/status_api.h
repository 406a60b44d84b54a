/* State of the server: /health, /ready, /metrics, /v1/models, /v1/loras, /capabilities. */
#ifndef WEFT_SERVE_STATUS_API_H
#define WEFT_SERVE_STATUS_API_H

#include "serve/serve_request.h"

weft_serve_reply weft_status_health(void);
weft_serve_reply weft_status_ready(const weft_server *server);
weft_serve_reply weft_status_metrics(weft_server *server);
weft_serve_reply weft_status_loras(const weft_server *server);
weft_serve_reply weft_status_models(const weft_server *server);
weft_serve_reply weft_status_capabilities(const weft_server *server);

#endif
