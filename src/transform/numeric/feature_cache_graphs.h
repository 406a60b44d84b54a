/* Doing less in a step of denoising because a step before did nearly the same: from the forward
 * graph of whole tensors the programs of steps that keep something and of steps that take it again.
 * The choice of blocks depends on global shapes only, so every layout of ranks makes the same one.
 *
 *     BLOCKS (Aquarius §6, TeaCache, first-block caches)       ATTENTION (Aquarius §6)
 *
 *     latents ─ embed ─ [0] ─ x ─ [1] ─ ... ─ [n] ─ y ─ head   [i]: x ─ norm ─ attn ─ a ─ + ..
 *                             └───── y = x + kept ────┘                            └ kept
 *               front: always     refresh: kept = y - x
 *
 *     refresh   everything; what the blocks behind the front have added (what an attention has
 *               given) is kept
 *     reuse     they are left out: what they added is added again
 *
 * Whether it is near enough is seen in what is there before those blocks run. A rule that looks at
 * that has a third program:
 *
 *     probe     the front; leaves the `signal`, how far it has moved from what it was (reuse.moved
 *               against reuse.size, a sum per row each), and what the others go on from
 *
 * Values pass between the programs, and from step to step, in states that are no store's
 * (weft_attr_source.slot):
 *
 *     reuse.kept.v12    of value 12: one record for each thing that is denoised by itself
 *     reuse.now         the signal of this step, in the same record
 *     reuse.before      that it is compared with, likewise
 *     reuse.front.v7    from the probe to the program behind it; nothing outlives a step
 *
 * Everything is found in the graph: a block is the scope up to its first number of an attention
 * whose queries depend on the latents, what goes through the blocks is found along the sums that
 * each makes (x + gate y). Refreshing is bitwise the graph that it was made from. */
#ifndef WEFT_PASS_REUSE_H
#define WEFT_PASS_REUSE_H

#include "graph/graph.h"

typedef enum weft_reuse_what { WEFT_REUSE_BLOCKS, WEFT_REUSE_ATTENTION } weft_reuse_what;

/* What a rule looks at; with one, the front is the first block for BLOCK and none else. */
typedef enum weft_reuse_signal {
    WEFT_SIGNAL_NONE,
    WEFT_SIGNAL_BLOCK, /* what the front adds */
    WEFT_SIGNAL_INPUT, /* what its first linear layer reads: the modulated latents */
    WEFT_SIGNAL_TIME,  /* what it is told of the time */
} weft_reuse_signal;

typedef struct weft_reuse_setup {
    const char *latents, *time; /* inputs: "batch.latents", "batch.timestep" */
    weft_reuse_what what;
    weft_reuse_signal signal; /* BLOCKS only */
    /* BLOCKS without a signal: blocks that always run. A front is longer than that where what goes
     * through the blocks has the shape that it ends with only behind more of them (blocks over
     * space and over time that take turns) */
    int front;
} weft_reuse_setup;

/* Owned; `probe` is NULL without a signal. */
typedef struct weft_reuse {
    weft_graph *probe, *refresh, *reuse;
    int blocks; /* of the graph */
    int left;   /* blocks, or attentions, that reuse leaves out */
} weft_reuse;

/* WEFT_E_UNSUPPORTED, saying what was not found: the graph has no such blocks, or what goes through
 * them is no sum. */
weft_status weft_pass_reuse(const weft_graph *graph, const weft_reuse_setup *setup,
                            weft_reuse *out);
void weft_reuse_free(weft_reuse *reuse);

/* Replaces the graphs by those of one rank: the passes of WEFT_PASS_WHOLE, with the recipe of the
 * setup. A state has the layout of the value that is written to it, in all graphs that read it. */
struct weft_pass_setup;
weft_status weft_reuse_shard(weft_reuse *reuse, const struct weft_pass_setup *setup);

#endif
