/* The interpreter of a pipeline's table: runs this rank's tasks (F, B or W of a stage and a
 * microbatch) in their order, and moves what they hand to one another.
 *
 *   stage s, `slots` records            the record of microbatch m is number m mod slots; how many
 *   ┌────────┬────────┬────────┐        there are the table tells: so many are in use at a time
 *   │ mb 3   │ mb 4   │ mb 2   │
 *   └────────┴────────┴────────┘
 *     a record: what came in, what the backward reads of the forward, what goes out, gradients;
 *     with memory.offload a part of it, of what the backward reads, lies elsewhere
 *
 * A receive is posted as soon as its record is free and what was sent from it has left, which no
 * task waits for but the one that needs the record; a send leaves when its program has run, from
 * the record itself. Messages between two stages are a stream of their own, in the order of
 * microbatches on both sides, so any legal table runs without a deadlock: whatever a task waits for
 * was sent by a task before it in the table, and no send waits for anything but its receive, which
 * was posted before the receiver's forward of that microbatch. A value that goes to a stage of the
 * same rank is read where it lies. */
#ifndef WEFT_TRAIN_PIPE_RUN_H
#define WEFT_TRAIN_PIPE_RUN_H

#include "train/pipe.h"

typedef struct weft_pipe_run weft_pipe_run;

/* Of steps of so many microbatches, each of one of the buckets, by whose number it goes. All is
 * borrowed; nothing is reserved yet. */
weft_status weft_pipe_run_plan(const weft_pipe *pipe, weft_pipe_step *const *steps, int buckets,
                               int64_t microbatches, weft_pipe_run **run);
void weft_pipe_run_free(weft_pipe_run *run); /* accepts NULL */
/* Bytes that it reserves when it is bound: records, and the inputs of all microbatches. */
int64_t weft_pipe_run_bytes(const weft_pipe_run *run);
/* And elsewhere. */
int64_t weft_pipe_run_away_bytes(const weft_pipe_run *run);
/* Reserves them; the programs must be bound. The pipeline's ranks are those of `group` (its mesh
 * laid over all its members). */
weft_status weft_pipe_run_bind(weft_pipe_run *run, weft_group *group, const weft_mesh *mesh);
/* The input of a microbatch, which is of bucket `bucket`, to be filled before the step; valid until
 * the next call. NULL: this rank needs no such. */
weft_tensor *weft_pipe_run_input(weft_pipe_run *run, int64_t microbatch, int bucket,
                                 const char *name);
/* `bucket_of`: by microbatch. */
weft_status weft_pipe_run_step(weft_pipe_run *run, const int *bucket_of);
/* From here on tasks, their programs (compiled with `profile`), what they send and what they wait
 * for are added to `timeline` (borrowed); NULL: no longer. */
void weft_pipe_run_trace(weft_pipe_run *run, weft_timeline *timeline);
/* So far. */
typedef struct weft_pipe_times {
    int64_t sent;           /* bytes to stages of other ranks */
    double waited;          /* seconds for those */
    weft_comm_times inside; /* what the stages' programs exchanged, */
    weft_away_times moved;  /* and what they moved elsewhere and back */
} weft_pipe_times;
weft_pipe_times weft_pipe_run_times(const weft_pipe_run *run);

#endif
