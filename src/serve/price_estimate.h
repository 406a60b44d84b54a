/* Estimates of prices: `weft estimate` in a child process, one at a time. The main thread's; the
 * caller has the server's lock. */
#ifndef WEFT_SERVE_PRICE_ESTIMATE_H
#define WEFT_SERVE_PRICE_ESTIMATE_H

#include "serve/server_parts.h"

/* An image in the state folder. Seconds and bytes do not depend on the pixels. */
#define WEFT_PRICE_IMAGE "price.png"

/* Zero-initialised: no price is estimated. */
typedef struct weft_price_estimate {
    weft_child child;
    char asked[WEFT_PRICE_KEY]; /* key of the price */
} weft_price_estimate;

/* Begins the next estimate if there is none and a price is asked. Returns whether one was begun. */
bool weft_price_estimate_begin(weft_price_estimate *estimate, weft_server *server);
/* Reads the output, and stores the price at the end. */
void weft_price_estimate_advance(weft_price_estimate *estimate, weft_server *server);
/* Kills the child process. */
void weft_price_estimate_stop(weft_price_estimate *estimate);

#endif
