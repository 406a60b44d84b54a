/* The price of a request, and the prices by its ranks where jobs share the ranks of the server. The
 * caller has the server's lock. */
#ifndef WEFT_SERVE_JOB_PRICE_H
#define WEFT_SERVE_JOB_PRICE_H

#include "serve/serve_request.h"

/* Seconds, bytes and layout are the ones of the fastest number of ranks, if ranks are shared. */
typedef struct weft_job_price {
    double seconds;
    int64_t bytes;
    char layout[WEFT_JOB_LAYOUT]; /* chosen for the ranks; "": none */
    /* [{"ranks", "seconds", "bytes", "layout"}] of each number of ranks that fits the memory
     * (json_decref); NULL: ranks are not shared */
    json_t *degrees;
} weft_job_price;

/* Whether the price is known. False: `reply` is a refusal, or waits for estimates. */
bool weft_job_price_find(weft_serve_request *request, const json_t *video, weft_job_price *price,
                         weft_serve_reply *reply);
/* The seconds by ranks for a decision, with the pace. Without shared ranks *size is empty. */
weft_status weft_job_price_size(const weft_server *server, const weft_job_price *price,
                                const json_t *video, weft_elastic_size *size);

#endif
