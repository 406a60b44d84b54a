/* The routes of the server. */
#ifndef WEFT_SERVE_ROUTES_H
#define WEFT_SERVE_ROUTES_H

#include "serve/http_request.h"

/* Whether the path needs no token: /health and /ready. */
bool weft_routes_is_open(const weft_http_request *request);
/* Answers a complete request. The lock is held. */
weft_http_reply weft_routes_answer(weft_http_request *request);

#endif
