/* Feature cache: a denoising step reuses results of an earlier step that computed nearly the same.
 * From the forward graph of complete tensors, the pass creates the programs of steps that refresh
 * the cache and of steps that reuse it. Blocks are chosen by global shapes only, so every layout of
 * ranks chooses the same ones.
 *
 *     BLOCKS (Aquarius §6, TeaCache, first-block caches)       ATTENTION (Aquarius §6)
 *
 *     latents ─ embed ─ [0] ─ x ─ [1] ─ ... ─ [n] ─ y ─ head   [i]: x ─ norm ─ attn ─ a ─ + ..
 *                             └───── y = x + kept ────┘                            └ kept
 *               front: always     refresh: kept = y - x
 *
 *     refresh   computes everything, and caches what the blocks after the front added, or the
 *               output of each attention
 *     reuse     skips these blocks or attentions and uses the cached values instead
 *
 * A rule that decides between the two reads a signal that is computed before these blocks run. It
 * has a third program:
 *
 *     probe     computes the front, the values that the other programs read, and the change of the
 *               `signal` against reuse.before. Outputs per row: reuse.moved (sum of the absolute
 *               change) and reuse.size (sum of the absolute old signal)
 *
 * Values pass between the programs, and between steps, in states outside the store
 * (weft_attr_source.slot):
 *
 *     reuse.kept.v12    cached value 12, one per sampling trajectory
 *     reuse.now         signal of this step, one per trajectory
 *     reuse.before      signal to compare with, one per trajectory
 *     reuse.front.v7    from the probe to the program that follows in the same step
 *
 * The graph determines everything. A block is the scope, up to its first number, of an attention
 * whose queries depend on the latents. The residual stream through the blocks is found along the
 * sums in each block (x + gate y). A refresh step is bitwise identical to the original graph. */
#ifndef WEFT_TRANSFORM_NUMERIC_FEATURE_CACHE_GRAPHS_H
#define WEFT_TRANSFORM_NUMERIC_FEATURE_CACHE_GRAPHS_H

#include "graph/graph.h"

typedef enum weft_feature_cache_kind {
    WEFT_FEATURE_CACHE_BLOCKS,
    WEFT_FEATURE_CACHE_ATTENTION
} weft_feature_cache_kind;

/* Signal of a rule. With a signal, the front is the first block (BLOCK) or no block (others). */
typedef enum weft_feature_cache_signal {
    WEFT_SIGNAL_NONE,
    WEFT_SIGNAL_BLOCK, /* change of the residual stream by the front */
    WEFT_SIGNAL_INPUT, /* input of the first linear layer: the modulated latents */
    WEFT_SIGNAL_TIME,  /* time embedding that the first block reads */
} weft_feature_cache_signal;

typedef struct weft_feature_cache_programs_setup {
    const char *latents, *time; /* names of inputs: "batch.latents", "batch.timestep" */
    weft_feature_cache_kind what;
    weft_feature_cache_signal signal; /* BLOCKS only */
    /* BLOCKS without a signal: number of blocks that always run. The front is longer if the
     * residual stream gets its final shape only after more blocks (alternating spatial and temporal
     * blocks) */
    int front;
} weft_feature_cache_programs_setup;

/* Programs of a feature cache; owned. `probe` is NULL without a signal. */
typedef struct weft_feature_cache_programs {
    weft_graph *probe, *refresh, *reuse;
    int blocks; /* blocks of the graph */
    int left;   /* blocks, or attentions, that reuse skips */
} weft_feature_cache_programs;

/* Creates the programs. Returns WEFT_E_UNSUPPORTED if the graph has no such blocks, if its residual
 * stream is not a sum, or if the signal is missing. */
weft_status weft_pass_feature_cache(const weft_graph *graph,
                                    const weft_feature_cache_programs_setup *setup,
                                    weft_feature_cache_programs *out);
void weft_feature_cache_programs_free(weft_feature_cache_programs *reuse);

struct weft_pass_setup;

#endif
