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

#include "train/step.h"

/* What a module hands on of a clip: units one behind the other, latent frames or one of all. */
typedef struct weft_cascade_row {
    int64_t units, floats; /* floats of a unit */
    int64_t piece; /* units that are made together, the first takes what does not divide; 0: all */
    /* That the consumer's program is given them as, clips first and then their units; NULL: no rank
     * of it goes without any */
    const char *input;
} weft_cascade_row;
static inline int64_t weft_cascade_row_floats(const weft_cascade_row *row)
{
    return row->units * row->floats;
}

/* What member `member` of an encoder's cascade makes: units of each of its clips. clips.count 0:
 * nothing. */
typedef struct weft_cascade_share {
    weft_item_range clips, units;
    int part, parts; /* of a clip; members of the same clips lie side by side in the group */
} weft_cascade_share;
/* As many groups of ranks for clips, and parts of a clip in each, as leave the busiest rank least;
 * of two that are alike the one with fewer parts. */
weft_cascade_share weft_cascade_share_of(const weft_cascade_row *row, int64_t clips, int64_t degree,
                                         int64_t member);

/* Pixel frames of so many latent frames. */
weft_item_range weft_encoder_frames(const weft_grid *grid, weft_item_range units);
/* As weft_encoder_build of one clip; in parts of several ranks of their frames, and between them
 * the frames that the next one looks back on. NULL: no memory. */
weft_graph *weft_encoder_part(const weft_model *autoencoder, const weft_bucket *bucket,
                              const weft_cascade_share *share);
/* Where the program of that runs, whose graph is a rank's already. */
void weft_encoder_part_place(weft_place_of_run *place, int part, int parts);

#endif
