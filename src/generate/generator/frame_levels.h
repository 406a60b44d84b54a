/* Noise levels per block of frames (diffusion forcing, as in SkyReels-V2). In each round, a block
 * is `lag` steps noisier than the block before. A block whose predecessor is finished runs one step
 * per round.
 *
 *     round       1 2 3 4 5 6 7         steps 5, lag 2
 *     block 0     1 2 3 4 5 .           number: the step that the block runs in this round
 *     block 1         1 2 3 4 5         the model sees a block before its first step as noise */
#ifndef WEFT_GENERATE_GENERATOR_FRAME_LEVELS_H
#define WEFT_GENERATE_GENERATOR_FRAME_LEVELS_H

#include <stdbool.h>
#include <stdint.h>

/* State of the blocks. 0: not begun; 1 to steps: runs this step; steps + 1: finished. */
typedef struct weft_frame_levels {
    int64_t blocks, steps, lag;
    int64_t ready; /* first blocks that are given and never run */
    int64_t *row;  /* [blocks], of the caller */
    bool *runs;    /* [blocks], of the caller: the block runs a step in this round */
} weft_frame_levels;

void weft_frame_levels_begin(weft_frame_levels *l);
/* Begins the next round. Returns false if all blocks have run all steps. */
bool weft_frame_levels_next(weft_frame_levels *l);
/* Number of rounds. */
int64_t weft_frame_levels_rounds(int64_t blocks, int64_t steps, int64_t lag, int64_t ready);

#endif
