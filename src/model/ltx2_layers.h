/* Layers that LTX-2's transformer and its text connectors share. Shape letters: B batch, S tokens,
 * C width, H heads, D head width. */
#ifndef WEFT_MODEL_LTX2_LAYERS_H
#define WEFT_MODEL_LTX2_LAYERS_H

#include "graph/graph.h"

/* Rotary embedding over the complete width, before the split into heads. */
typedef struct weft_ltx2_rope {
    double theta;          /* largest frequency over the smallest */
    bool double_precision; /* frequencies are computed in f64 */
    bool halves;           /* pairs are from both halves of a head; else neighbours */
} weft_ltx2_rope;

/* Rotary tables (1 or B,S,H,D/2) of H heads. */
typedef struct weft_ltx2_tables {
    weft_value cos_sin[WEFT_MAX_OUTPUTS];
    int64_t heads;
} weft_ltx2_tables;

/* Tables of positions (1 or B,S,axes), whose complete length per axis is `whole`. The first pairs
 * of the width, the remainder of its division by the axes, are not rotated. The other pairs
 * alternate between the axes. */
void weft_ltx2_rope_tables(weft_graph *g, const weft_ltx2_rope *rope, weft_value positions,
                           const float *whole, int64_t width, int64_t heads,
                           weft_ltx2_tables *tables);

typedef struct weft_ltx2_attention {
    int64_t heads, head_dim;
    bool bias, out_bias; /* of queries, keys and values; after attention */
    bool gated;          /* the heads have gates "to_gate_logits" */
    bool halves;         /* as in weft_ltx2_rope */
    /* (B): 0: the values replace the attention, 1: they do not. Borrowed; NULL (default): 1 */
    const weft_value *attended;
} weft_ltx2_attention;

/* Attention of x (B,S,C) to `context`. ropes[2]: tables of queries and keys; NULL: none. `bias`:
 * of the keys, or WEFT_NONE. */
weft_value weft_ltx2_attend(weft_graph *g, const weft_ltx2_attention *a, const char *name,
                            weft_value x, weft_value context,
                            const weft_ltx2_tables *const ropes[2], weft_value bias);
weft_value weft_ltx2_feed_forward(weft_graph *g, const char *name, weft_value x, bool bias);

#endif
