/* Keys and values of earlier frames, for denoisers that generate a video block by block: a block
 * attends to itself and to earlier blocks (CausVid, Yin et al.; Self-Forcing, Huang et al.). The
 * keys and values of a layer are states, so that every block of a video costs the same.
 *
 *     [ earlier frames, the newest last ][ sink: first frames of the video ][ block ]
 *                  ^begin                                                        ^end   of the keys
 *
 * Frames that do not exist yet are before `begin`. Once the window is full, each block replaces the
 * oldest frames; the sink stays. All counts are in frames of tokens. */
#ifndef WEFT_MODEL_FRAME_CACHE_H
#define WEFT_MODEL_FRAME_CACHE_H

#include "model/family.h"

/* Begin of the names of all states. */
#define WEFT_FRAME_CACHE_STATES "batch.cache."

enum { WEFT_FRAME_CACHE_LAYERS = 1024 }; /* at most */

typedef struct weft_frame_cache_size {
    int64_t block, rest, sink; /* rest: kept frames other than the sink */
} weft_frame_cache_size;

/* The frames that are kept for a video of `frames` frames, which has whole blocks. */
weft_frame_cache_size weft_frame_cache_of(const weft_grid *grid, int64_t frames);

/* Inputs and states of a graph for one block. */
typedef struct weft_frame_cache {
    weft_frame_cache_size size;
    weft_dtype dtype;       /* of the states: f32, or bf16 if attention is in bf16 */
    bool adds;              /* each run adds the keys and values of its block to the states */
    weft_value position[3]; /* i32 (1,S): frame, row and column of a token of the block */
    weft_value keys;        /* i32 (B,1,4): the segment of weft_attr_attention */
    weft_value turn;        /* f32 (3), with `adds` and a sink: the item of the block's turn is 1 */
    /* Without states, for a graph that has a call for each block (training): past[2 l] has the keys
     * of the earlier frames in layer l, past[2 l + 1] their values, both (B,S,H,D). `adds` appends
     * the block's keys and values, without gradient. NULL: states */
    weft_value *past;
    int64_t at; /* the block, from 0, with `past`; the other inputs are not used */
} weft_frame_cache;

/* Adds the inputs of a batch of `batch` blocks of `rows` x `columns` tokens per frame. `cache` has
 * its other fields. */
void weft_frame_cache_inputs(weft_graph *g, weft_frame_cache *cache, int64_t batch, int64_t rows,
                             int64_t columns);
/* First kept frame that exists for block `at` of the video, counted from the first of `rest`. */
int64_t weft_frame_cache_begin(const weft_frame_cache_size *size, int64_t at);
/* Turn of block `at`: 0: its frames go to the sink; 1: its first frames do; 2: no frame does. */
int weft_frame_cache_turn(const weft_frame_cache_size *size, int64_t at);

/* Joins the keys and values of the kept frames and of a block in layer `layer`, kv (B,S,H,D).
 * `joined` may be `kv`. */
void weft_frame_cache_join(weft_graph *g, const weft_frame_cache *cache, int64_t layer,
                           const weft_value kv[2], weft_value joined[2]);

#endif
