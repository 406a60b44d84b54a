/* Predicted seconds and bytes of requests, by `weft estimate` in a child process. Equal sizes are
 * asked once. Functions of numbers and text; the caller has the lock. */
#ifndef WEFT_SERVE_PRICES_H
#define WEFT_SERVE_PRICES_H

#include "base/json.h"
#include "base/memory.h"
#include "serve/job_layout.h"
#include "serve/method_fields.h"

enum { WEFT_PRICE_KEY = 384 + WEFT_METHOD_TEXT };

typedef struct weft_price {
    /* model, size, steps, batch and its layout, ranks (0: all of the server), guidance, the given
     * inputs, types of numbers, and further options */
    char key[WEFT_PRICE_KEY];
    enum { WEFT_PRICE_NEW, WEFT_PRICE_ASKED, WEFT_PRICE_KNOWN, WEFT_PRICE_REFUSED } state;
    double seconds, decode; /* of a video; of its decoding, which is a part */
    double measured;        /* mean of the last runs, seconds of a video; 0: none has ended */
    int64_t bytes;
    char layout[WEFT_JOB_LAYOUT];        /* chosen for the ranks of the worker; "": none */
    char code[64], field[32], text[512]; /* REFUSED: the reason */
    uint64_t stamp; /* of the model's files when the price was asked (weft_served_model_stamp) */
    int64_t used;   /* order of use */
} weft_price;

enum { WEFT_PRICES = 256 };
typedef struct weft_prices {
    weft_price at[WEFT_PRICES];
    int count;
    int64_t uses;
} weft_prices;

/* The price of a request; adds a NEW one. NULL: all prices are being asked. The pointer is valid
 * until the next call. `stamp`: of the model's files, which a refusal compares. Equal requests have
 * the same refusal until these files change. A refusal that is due to the machine (too many
 * processes) answers only the waiting requests: a later request makes the price NEW. *asks:
 * false at the first call of a request, then kept for the request. */
weft_price *weft_prices_ask(weft_prices *prices, const json_t *request, uint64_t stamp, bool *asks);
/* The KNOWN price of a request; NULL: none. Valid until the next call of weft_prices_ask. */
const weft_price *weft_prices_find(const weft_prices *prices, const json_t *request);
/* The first NEW price; NULL: none. */
weft_price *weft_prices_next(weft_prices *prices);
/* Reads the output of `weft estimate --json`, or its error, into an ASKED price. */
void weft_price_read(weft_price *price, bool succeeded, const char *output, const char *messages);
/* Copies the class, the field and a text without paths of the last error in lines of JSON. Skips
 * errors of WEFT_E_COMM, which follow the error, or the crash, of another rank. Returns false
 * without an error. */
bool weft_last_error(const char *messages, char code[64], char field[32], char text[512]);

#endif
