/* Limits of a token's jobs (access_tokens.h). Called with the lock. */
#ifndef WEFT_SERVE_TOKEN_LIMITS_H
#define WEFT_SERVE_TOKEN_LIMITS_H

#include "serve/serve_request.h"

/* Whether the limits of the owner's token refuse a job that would wait. `job` has the owner and the
 * seconds. A stored job also has its number, and is not counted twice. *reply: the refusal, or an
 * error of the server. */
bool weft_token_limits_refuse(weft_server *server, const weft_queue_job *job,
                              weft_serve_reply *reply);

#endif
