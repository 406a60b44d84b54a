/* Results of encoders on their way to the denoiser (Arachne, IV-D).
 *
 * What a module hands on of a sample is a row per clip, of units one behind the other. Its ranks
 * make some rows each, or some units of them (train/cascade_encode.h); a rank of the DiT's group
 * needs the rows of the clips that it works on, its own where the group splits clips, and of these
 * the units that its program reads: where the group splits tokens those that its tokens lie in.
 *
 *     s0.vae on [0 1], one clip    rank 0 made units 0 1    reads 0 1         keeps both
 *     s0.dit on [1 0 2], tokens    rank 1      units 2 3          0 1         0 1 come from rank 0
 *       of 4 units in 3 parts      rank 2                         2 3         2 3 come from rank 1
 *
 * Every unit goes to a rank that lacks it, once, from the rank that made it, and stays where it is
 * for one that has it: fewer bytes cannot do. Of units that a program does not read there are
 * zeros. Sends are fire and forget on the channel HAND_OFF; receives of an iteration are posted at
 * its beginning, into the host's memory, in the order in which their senders take the cascades that
 * make them. */
#ifndef WEFT_TRAIN_CASCADE_HAND_H
#define WEFT_TRAIN_CASCADE_HAND_H

#include "runtime/runtime.h"
#include "train/cascade_encode.h"
#include "train/cascade_plan.h"

/* Of one sample and module, on a rank that needs some of it. */
typedef struct weft_handed {
    const float *row;      /* (clips, floats), of which this rank's are filled; NULL: nothing was */
    int64_t floats, units; /* units: of a row, all of one size */
    weft_item_range read;  /* of these, that are there and this rank's program reads */
} weft_handed;

/* Groups of ranks that share a cascade's clips out, each of as many clips and ranks: as many as
 * divide both; within one the tokens of each clip are split. Where the plan names how tokens are
 * split there is one of all ranks. */
int weft_cascade_shares(weft_sp_method method, int64_t clips, int64_t degree);

/* Units of rows from one rank to another, or to itself; they lie together: of one clip, or all. */
typedef struct weft_hand_move {
    int from, to; /* ranks of the job */
    weft_item_range clips, units;
} weft_hand_move;
/* What `producer` hands to `consumer` of a sample of `clips` clips, by the producer's members. Of a
 * producer each member makes what weft_cascade_share_of gives it; of a consumer each reads units
 * read[member] of its clips (NULL: all). moves[] has room for the product
 * of the degrees and the clips; returns how many there are. */
int64_t weft_hand_moves(const weft_placed_cascade *producer, const weft_placed_cascade *consumer,
                        const weft_cascade_row *row, const weft_item_range *read, int64_t clips,
                        weft_hand_move *moves);

/* The receives of an iteration, and what was received. */
typedef struct weft_hands weft_hands;
typedef struct weft_hands_place {
    weft_comm *comm;
    /* Of a device with a clock, on which messages take their time; NULL: there is none. */
    const weft_device *device;
    weft_device_stream *stream;
} weft_hands_place;
/* Posts those of this rank; row[] and read[] by sample * WEFT_CASCADE_MODULES + module, read[] as
 * of weft_hand_moves. `order`: of all cascades. All are borrowed until weft_hands_close. */
weft_status weft_hands_open(const weft_hands_place *place, const weft_placed_iteration *plan,
                            const int32_t *order, const weft_cascade_row *row,
                            const weft_item_range *const *read, weft_hands **hands);
/* Where this rank, a member of cascade `index`, makes its rows: the whole sample's first. Freed by
 * weft_hands_give. */
weft_status weft_hands_make(weft_hands *hands, int32_t index, float **row);
/* Sends them to those that need them, and keeps what this rank needs. */
weft_status weft_hands_give(weft_hands *hands, int32_t index, weft_cascade_done *done);
/* Waits for all that cascade `index` comes after; handed[] is valid until weft_hands_drop. */
weft_status weft_hands_take(weft_hands *hands, int32_t index,
                            weft_handed handed[WEFT_CASCADE_MODULES], weft_cascade_done *done);
/* It has been used. */
void weft_hands_drop(weft_hands *hands, int32_t index);
void weft_hands_close(weft_hands *hands); /* accepts NULL */

#endif
