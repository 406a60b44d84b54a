/* The layouts of a number of ranks: degrees of parallelism, ZeRO stage, microbatch and
 * interleaving, and the rules that make a layout legal. Every layout search enumerates this space;
 * the rules in which the searches differ are members of weft_degree_space. */
#ifndef WEFT_PLAN_LAYOUT_DEGREE_SPACE_H
#define WEFT_PLAN_LAYOUT_DEGREE_SPACE_H

#include "base/status.h"

#include <stdint.h>

typedef struct weft_degrees {
    int64_t tp, cp, ep, pp, dp, fsdp;
    int64_t zero; /* sharded over dp cp. 0: none, 1: optimizer, 2: + gradients, 3: + weights */
    int64_t microbatch, accumulation, interleave;
    bool offload; /* activations and, if needed, optimizer states may be offloaded */
} weft_degrees;

typedef enum weft_degree_axis {
    WEFT_DEGREE_TP,
    WEFT_DEGREE_CP,
    WEFT_DEGREE_EP,
    WEFT_DEGREE_PP,
    WEFT_DEGREE_DP,
    WEFT_DEGREE_FSDP,
    WEFT_DEGREE_AXES
} weft_degree_axis;

typedef struct weft_degree_space {
    int64_t ranks;
    /* Axes whose degrees have the product `ranks`, in the order of enumeration. Degrees of other
     * axes are 1, except ep: unless it is listed it splits the ranks of dp and cp. */
    weft_degree_axis axis[WEFT_DEGREE_AXES];
    int axes;
    int64_t most[WEFT_DEGREE_AXES]; /* limits by weft_degree_axis; 0: none */
    int64_t heads;                  /* tp divides them; 0: any tp */
    int64_t layers;                 /* a stage has one or more; 0: any pp */
    int64_t experts;                /* ep divides them; 0: any listed ep, else none */
    int64_t batch;                  /* dp microbatch accumulation; 0: pp microbatches of any size */
    int64_t most_microbatch;        /* 0: a replica's share of `batch` */
    int64_t least_zero, most_zero;
    bool zero_needs_dp; /* ZeRO stages above 0 need dp above 1: runs shard over dp only */
    /* A rank has two stages, a stage and its mirror image, whose layers may differ in number: the
     * collocated skips of PULSE. Otherwise it has `interleave` stages of equal depth that take
     * turns. */
    bool mirrored;
} weft_degree_space;

typedef weft_status_code weft_degree_visit(void *user, const weft_degrees *degrees);

/* Visits the legal degrees and ZeRO stages. Microbatch, accumulation and interleave are the least
 * possible ones. Larger degrees of the first axis come first. */
weft_status weft_degree_space_visit(const weft_degree_space *space, weft_degree_visit *visit,
                                    void *user);
/* Visits the legal microbatches (powers of 2) and interleavings (up to 8) of `degrees`. */
weft_status weft_degree_space_rounds(const weft_degree_space *space, const weft_degrees *degrees,
                                     weft_degree_visit *visit, void *user);
/* WEFT_E_INFEASIBLE names the rule that the layout breaks. Limits of a search do not
 * count. */
weft_status weft_degree_space_check(const weft_degree_space *space, const weft_degrees *degrees);

#endif
