/* What a video would take if generation were laid over ranks in a given way: the generator's own
 * programs on a cluster's clock, with the memory that it tells before it begins. Nothing is
 * reserved, no weight is read and no rank runs.
 *
 *     model folder, size ──> generator of rank 0 of N ──> bytes, tiles
 *                                  │ text encoders x 1, denoiser x steps, decoder x tiles
 *     profile or cluster ──────────┴──────────────────────────────────────> seconds */
#ifndef WEFT_GENERATE_LAYOUTS_PRICED_H
#define WEFT_GENERATE_LAYOUTS_PRICED_H

#include "generate/generator.h"
#include "plan/cluster/cluster.h"

/* What is the same for all layouts; borrowed. */
typedef struct weft_generation_pricer {
    const char *folder;
    /* memory: bytes of a rank; of `parallel` (may be NULL) what is no degree */
    const weft_generator_options *options;
    const weft_cluster *cluster;
    int ranks;
    weft_arena *arena;
} weft_generation_pricer;

typedef struct weft_generation_price {
    weft_parallel parallel;
    bool stream; /* weights are read for each use: resident they do not fit */
    bool legal;  /* generation takes it; */
    bool fits;   /* and a rank has the memory */
    /* Seconds of a video: its share of the batch's texts and steps, and its decoding */
    double video;
    double step;  /* of a denoising step of the batch, the mean: kernels, what they wait for */
    int64_t runs; /* of denoisers' programs in a walk, of all windows */
    double compute, exchange, hidden; /* hidden: behind the kernels */
    double text, decode;              /* of the batch's texts; of one video */
    double first;    /* beside `text` and the steps: memory that is used for the first time */
    double exact;    /* share of the kernels' seconds that was measured */
    int64_t peak;    /* bytes of the rank that takes most */
    int64_t wire;    /* bytes that a rank sends in a step */
    char tiles[64];  /* that a picture is decoded in; "": whole */
    const char *why; /* not legal or does not fit; arena */
} weft_generation_price;

typedef struct weft_generation_prices {
    weft_generation_price *item; /* arena; those that fit, by seconds; then the others */
    int64_t count, fitting, legal;
    double seconds; /* that the search took */
} weft_generation_prices;

/* Of a generator that is open, as it is laid out. */
weft_status weft_generation_price_open(const weft_generation_pricer *pricer,
                                       weft_generator *generator, weft_generation_price *out);
/* A layout that cannot be is told in `out`, not as an error. */
weft_status weft_generation_price_of(const weft_generation_pricer *pricer,
                                     const weft_parallel *parallel, bool stream,
                                     weft_generation_price *out);
/* Visits every product of cfg, dp, fsdp, ep (models with experts), tp and cp that makes the ranks;
 * tp with and without sequence; every pair of ulysses and ring that makes cp, of models that split
 * heads between frames and places also with kind heads. dp is at most the rows of the batch. The
 * pricer's cluster is not used. */
typedef weft_status_code weft_generation_layout_fn(void *user, const weft_parallel *parallel);
weft_status weft_generation_layouts(const weft_generation_pricer *pricer,
                                    weft_generation_layout_fn *with, void *user);
/* The price of each of them. Where weights do not fit, with `stream` too. */
weft_status weft_generation_search(const weft_generation_pricer *pricer,
                                   weft_generation_prices *prices);
/* "cfg=2 tp=2, weights stream". */
void weft_generation_layout_name(const weft_generation_price *price, weft_buf *out);
/* Why layout `index` is not the best one. */
void weft_generation_why(const weft_generation_prices *prices, int64_t index, weft_buf *out);
/* A line each; the first ten, or with `explain` all and why they lost. */
void weft_generation_print(const weft_generation_pricer *pricer,
                           const weft_generation_prices *prices, bool explain, weft_buf *out);

/* The best for the ranks of `comm`, chosen by rank 0 for all: sets the degrees and stream; `told`
 * gets a line on it. options->memory 0: what machines have free. Collective. */
weft_status weft_generation_choose(const weft_generation_pricer *pricer, weft_comm *comm,
                                   weft_parallel *parallel, bool *stream, weft_buf *told);
/* What the slices of `parallel` leave open, for its degrees, by the seconds of a step
 * (pass/slices_search.h). `told` gets a line on it and on the next best. Collective, chosen by rank
 * 0 for all. */
weft_status weft_generation_choose_slices(const weft_generation_pricer *pricer, weft_comm *comm,
                                          bool stream, weft_parallel *parallel, weft_buf *told);

#endif
