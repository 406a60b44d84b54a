/* How an encoder's cascade lies over its ranks: clips are dealt, and a clip's frames are cut into
 * parts where that is quicker and the autoencoder is a stream (model/family.h).
 *
 *     1 clip of 13 frames on 3 ranks       part 0      f0..f4   z0 z1     convolutions look back
 *     4 latent frames, a frame a piece     part 1      f5..f8   z2          on the part
 *                                          part 2      f9..f12  z3          before, layer by layer
 *
 *     4 clips on 3 ranks                   clips 0 1 | clips 2 3 | -        or parts of each clip
 *
 * Parts compute what the whole computes: nothing is blended and nothing made twice. */
#ifndef WEFT_TRAIN_CASCADE_ENCODE_H
#define WEFT_TRAIN_CASCADE_ENCODE_H

#include "plan/cascade/hand_off.h"
#include "train/step.h"

/* Pixel frames of so many latent frames. */
weft_item_range weft_encoder_frames(const weft_grid *grid, weft_item_range units);
/* As weft_encoder_build of one clip; in parts of several ranks of their frames, and between them
 * the frames that the next one looks back on. NULL: no memory. */
weft_graph *weft_encoder_part(const weft_model *autoencoder, const weft_bucket *bucket,
                              const weft_cascade_share *share);
/* Where the program of that runs, whose graph is a rank's already. */
void weft_encoder_part_place(weft_place_of_run *place, int part, int parts);

#endif
