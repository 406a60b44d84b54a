/* Limits of a token's jobs (access_tokens.h). Called with the lock. */
#ifndef WEFT_SERVE_TOKEN_LIMITS_H
#define WEFT_SERVE_TOKEN_LIMITS_H

#include "serve/serve_request.h"

/* Whether the limits of the owner's token refuse a job that would wait. `job` has the owner, the
 * seconds and, if it is stored, the number: the stored job in the queue is not counted. *reply: the
 * refusal, or an error of the server. */
bool weft_token_limits_refuse(weft_server *server, const weft_queue_job *job,
                              weft_serve_reply *reply);

#endif
