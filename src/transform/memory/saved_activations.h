#ifndef WEFT_TRANSFORM_MEMORY_SAVED_ACTIVATIONS_H
#define WEFT_TRANSFORM_MEMORY_SAVED_ACTIVATIONS_H

#include "graph/op.h"

/* Activation that a forward node of a block saves for the backward. A block is all nodes below a
 * scope up to its first number ("transformer.blocks.3"). */
typedef struct weft_saved_activation {
    /* Hash of scope, op and ordinal among equal nodes, the same in graphs of other sizes. 0:
     * outside of blocks, or not computed */
    uint64_t key;
    uint64_t like;  /* key without the block number: equal in all blocks */
    uint64_t block; /* hash of the block; 0: none */
    int64_t bytes;  /* bytes of outputs that the backward reads, directly or through aliases */
    bool stays;     /* never recomputed: collective, output, update, or read by another block */
} weft_saved_activation;
typedef enum weft_activation_policy {
    WEFT_ACTIVATION_KEEP,
    WEFT_ACTIVATION_RECOMPUTE,
    WEFT_ACTIVATION_OFFLOAD
} weft_activation_policy;
/* Bytes of activations and seconds of a step that a plan was chosen by. */
typedef struct weft_activation_figures {
    double all, kept, recomputed, offloaded; /* bytes */
    double step, longer;  /* seconds without the plan, and added; NaN: not estimated */
    double copy_slowdown; /* share of the time of copies that kernels lose */
} weft_activation_figures;

/* Policies sorted by key. A key without a row is kept. */
typedef struct weft_activation_plan {
    struct weft_activation_policy_row {
        uint64_t key;
        weft_activation_policy policy;
    } * row; /* heap */
    int64_t count;
    weft_activation_figures figures; /* for reports */
} weft_activation_plan;

/* Length of the block part of a scope, such as "transformer.blocks.3"; 0: in no block. */
size_t weft_scope_block(const char *scope);

/* Sets *saved to one entry per forward node (heap, owned by the caller), *count entries. A node
 * that only passes a parameter on saves nothing. */
weft_status weft_saved_activations_find(const weft_graph *g, weft_saved_activation **saved,
                                        int32_t *count);
/* Sorts the rows by key, as weft_activation_plan_find requires. */
void weft_activation_plan_sort(weft_activation_plan *activations);
/* Policy of the saved activation with this key; without a row: WEFT_ACTIVATION_KEEP. */
weft_activation_policy weft_activation_plan_find(const weft_activation_plan *activations,
                                                 uint64_t key);

#endif
