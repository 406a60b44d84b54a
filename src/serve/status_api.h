/* State of the server: /health, /ready, /metrics, /v1/models, /capabilities. */
#ifndef WEFT_SERVE_STATUS_API_H
#define WEFT_SERVE_STATUS_API_H

#include "serve/http_request.h"

weft_http_reply weft_status_health(void);
weft_http_reply weft_status_ready(const weft_server *server);
weft_http_reply weft_status_metrics(const weft_server *server);
weft_http_reply weft_status_models(const weft_server *server);
weft_http_reply weft_status_capabilities(const weft_server *server);

#endif
