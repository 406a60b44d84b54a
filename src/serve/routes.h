/* The routes of the server. */
#ifndef WEFT_SERVE_ROUTES_H
#define WEFT_SERVE_ROUTES_H

#include "serve/serve_request.h"

/* Whether the path needs no token: the page, /health and /ready. */
bool weft_routes_is_open(const weft_serve_request *request);
/* Answers a complete request. The lock is held. */
weft_serve_reply weft_routes_answer(weft_serve_request *request);

#endif
