/* The plan of an iteration, made while the one before runs.
 *
 *     rank 0    look(i+1) ──> samples, prices ──> planner's thread: a first plan at once,
 *               run(i)  ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒    then better ones until it is asked
 *               take(i+1) <── the best so far ─────────────────┘
 *     others    take(i+1) <── the same, as text
 *
 * Only rank 0 plans, so that all ranks have the same plan although the search ends when it is
 * needed. Its thread is of low priority; a step that finds no plan makes the first one itself,
 * which is told. */
#ifndef WEFT_TRAIN_CASCADE_AHEAD_H
#define WEFT_TRAIN_CASCADE_AHEAD_H

#include "plan/cascade/expect.h"
#include "runtime/runtime.h"
#include "train/cascade_config.h"
#include "train/cascade_cost.h"
#include "train/cascade_plans.h"

typedef struct weft_ahead_setup {
    const weft_cascade_config *config;
    const char *path;            /* of the run's config, for messages */
    const weft_cluster *cluster; /* of weft_ahead_cluster */
    weft_comm *comm;             /* NULL: this process plans for `ranks` that do not run */
    int ranks;
    double memory; /* bytes of a rank; 0: no limit */
    weft_cascade_prices *prices;
    int buckets;
    const weft_bucket *bucket; /* in pixels, with a sample's clips */
    const double *work;        /* FLOPs of a sample, by bucket */
    int64_t heads;
    bool ring;      /* the model's tokens may go round in parts */
    bool text, vae; /* modules beside the DiT */
    uint64_t seed;
    bool patient;             /* a take waits for the best plan, not for the first */
    const weft_plans *replay; /* plan: FILE */
    /* For objective: expected, on rank 0; copied when an iteration is begun. */
    const weft_price_errors *errors; /* [WEFT_CASCADE_MODULES] */
    const weft_rank_speeds *speeds;
    const weft_dispatch_hand *hand; /* [buckets] of the latents of a sample */
    double sums;                    /* seconds of all sums of gradients */
} weft_ahead_setup;

/* `cluster` with as many devices as there are ranks: nodes that are full or one; ranks that share a
 * device share its memory. *memory: bytes of a rank; the config's where it says some. */
void weft_ahead_cluster(weft_cluster *cluster, const weft_cascade_config *config, int ranks,
                        double *memory);
/* How a policy splits the tokens of a DiT cascade; NONE: as the executor chooses. `ring`: the model
 * knows how to. */
weft_sp_method weft_ahead_method(const weft_cascade_config *config, bool ring);

typedef struct weft_ahead weft_ahead;
/* Borrows what the setup points to. */
weft_status weft_ahead_create(const weft_ahead_setup *setup, weft_ahead **out);
void weft_ahead_free(weft_ahead *ahead); /* accepts NULL */

/* Equal groups of the best degree for several iterations, list[i] with count[i] samples; nothing
 * for policies without them, or with a degree in the config. Before the first of them is
 * planned. */
weft_status weft_ahead_settle(weft_ahead *ahead, const weft_placed_sample *const *list,
                              const int64_t *count, int iterations);
/* Begins to plan; the samples (copied) need batch, bucket, clips, item and weight. On rank 0, on
 * others nothing. A sample that fits on no degree is refused with the least memory that would do,
 * or left out as the config says. */
weft_status weft_ahead_look(weft_ahead *ahead, int64_t step, const weft_placed_sample *sample,
                            int64_t samples);

/* How a plan came about. */
typedef struct weft_ahead_news {
    double late;      /* seconds that the step waited for it */
    double seconds;   /* that the planner worked, */
    double busy;      /* and that a processor did for it */
    int64_t rounds;   /* of its search */
    bool proved;      /* no plan is shorter */
    bool replayed;    /* of a file, or of the same sizes before */
    int64_t left_out; /* samples that fit on no degree */
    double idle;      /* share, as planned */
} weft_ahead_news;
/* Collective. The plan that was begun last, valid until the next take; `text` (borrowed likewise)
 * is its line for a file. */
weft_status weft_ahead_take(weft_ahead *ahead, const weft_placed_iteration **plan,
                            weft_ahead_news *news, const char **text);

#endif
