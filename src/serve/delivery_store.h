/* Deliveries of webhooks in the queue's file: pending ones, and the outcome of each. A delivery is
 * added in the transaction that ends its job. */
#ifndef WEFT_SERVE_DELIVERY_STORE_H
#define WEFT_SERVE_DELIVERY_STORE_H

#include "serve/queue_store.h"

typedef enum weft_delivery_state {
    WEFT_DELIVERY_PENDING,
    WEFT_DELIVERY_DELIVERED,
    WEFT_DELIVERY_FAILED, /* all attempts failed */
} weft_delivery_state;

typedef struct weft_delivery {
    int64_t number;
    char job[WEFT_QUEUE_ID];
    char *url;      /* owned */
    char event[32]; /* "job.completed" */
    double created; /* seconds since 1970 */
    double due;     /* time of the next attempt */
    weft_delivery_state state;
    int64_t attempts;
    int64_t reply;   /* status of the last reply; 0: none */
    char error[160]; /* why the last attempt had no reply; "": it had */
} weft_delivery;
void weft_delivery_free(weft_delivery *delivery);

/* "pending" */
const char *weft_delivery_state_name(weft_delivery_state state);
/* The pending delivery that is due first. */
weft_status weft_delivery_store_next(weft_queue_store *store, weft_delivery *delivery, bool *found);
/* The last delivery of a job. */
weft_status weft_delivery_store_find(weft_queue_store *store, const char *job,
                                     weft_delivery *delivery, bool *found);
/* Stores state, attempts, due, reply and error. */
weft_status weft_delivery_store_record(weft_queue_store *store, const weft_delivery *delivery);

#endif
