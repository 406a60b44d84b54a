/* Splits an encoder's cascade over its ranks. Ranks share the clips. The frames of a clip are split
 * into parts where that is faster and the autoencoder can encode a stream (model/family.h).
 *
 *     1 clip of 13 frames on 3 ranks       part 0      f0..f4   z0 z1     convolutions read frames
 *     4 latent frames, a frame a piece     part 1      f5..f8   z2          of the part before,
 *                                          part 2      f9..f12  z3          layer by layer
 *
 *     4 clips on 3 ranks                   clips 0 1 | clips 2 3 | -        or parts of each clip
 *
 * The parts compute the same values as the complete clip: nothing is blended or computed twice. */
#ifndef WEFT_TRAIN_CASCADE_CASCADE_ENCODERS_H
#define WEFT_TRAIN_CASCADE_CASCADE_ENCODERS_H

#include "plan/cascade/transfer_plan.h"
#include "train/step/train_step.h"

/* Returns the pixel frames of the latent frames `units`. */
weft_item_range weft_encoder_frames(const weft_grid *grid, weft_item_range units);
/* Returns the graph of weft_encoder_build for one clip (owned by the caller), or NULL: out of
 * memory. With share->parts > 1 the graph encodes the frames of one part. Ranks then exchange the
 * frames that the convolutions of the next part read. */
weft_graph *weft_encoder_part(const weft_model *autoencoder, const weft_bucket *bucket,
                              const weft_cascade_share *share);
/* Sets `exec` to run the program of weft_encoder_part, whose graph is already for one rank. */
void weft_encoder_part_setup(weft_exec_config *exec, int part, int parts);

#endif
