/* Steps on a device that holds no values (backend virtual): how long they take there as its rates
 * say, and as the executor and the ranks' exchanges took. */
#ifndef WEFT_TRAIN_REHEARSAL_H
#define WEFT_TRAIN_REHEARSAL_H

#include "train/pipe_run.h"
#include "train/step.h"

enum { WEFT_REHEARSED = 5 }; /* steps of a stage; one of each bucket where there are more */

typedef struct weft_rehearsal {
    double predicted; /* seconds: kernels one after the other, by the device's rates */
    double executed;  /* the caller's: of whole steps */
    double waited;    /* for other ranks, of that */
    int64_t steps;
} weft_rehearsal;

/* What one run of the kernels of `graph` takes on a backend `virtual`. */
double weft_rehearsal_kernels(const weft_backend *backend, const weft_graph *graph);
/* Runs it once; it is bound on the backend `virtual`, or one made of it. */
weft_status weft_rehearsal_run(weft_rehearsal *rehearsal, const weft_step *step);
/* The stages of a step's microbatches once, by their table. */
weft_status weft_rehearsal_run_stages(weft_rehearsal *rehearsal, weft_pipe_run *run,
                                      weft_step *const *bucket, const int *bucket_of,
                                      int64_t microbatches);
/* A line on a stage; `peak`: bytes that it reserves on this rank, weights and all. */
void weft_rehearsal_tell(const weft_rehearsal *rehearsal, int64_t stage, int64_t peak);

#endif
