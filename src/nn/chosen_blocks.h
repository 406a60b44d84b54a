/* Attention in which queries attend to chosen blocks of keys. Blocks are of consecutive tokens. */
#ifndef WEFT_NN_CHOSEN_BLOCKS_H
#define WEFT_NN_CHOSEN_BLOCKS_H

#include "graph/graph.h"

/* Orders the tokens of x (B,S,...) or of a table (S,D) by blocks, or back. `size` of the video and
 * sides of a block, in tokens: frames, rows and columns. Blocks divide the video. */
weft_value weft_nn_by_blocks(weft_graph *g, weft_value x, const int64_t size[3],
                             const int64_t block[3], bool back);
/* Products of the means of blocks of `tokens` queries and keys: q (B,M tokens,H,D) and
 * k (B,N tokens,H,D) -> f32 (B,H,M,N). They are constants of the gradient. */
weft_value weft_nn_block_scores(weft_graph *g, weft_value q, weft_value k, int64_t tokens);
/* Queries of block m attend to block n if chosen (B,H,M,N) is positive. */
weft_value weft_nn_attend_blocks(weft_graph *g, weft_value q, weft_value k, weft_value v,
                                 weft_value chosen);

#endif
