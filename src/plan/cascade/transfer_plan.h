/* Who makes what of a sample, and what goes from whom to whom (Arachne, IV-D): the rule by which
 * iterations are executed (train/cascade_hand.h) and simulated (plan/cascade/assign_trace.c).
 *
 * What a module hands on of a sample is a row per clip, of units one behind the other: latent
 * frames, or one of all. Its ranks make some rows each, or some units of them; a rank of the
 * denoiser's group needs the rows of the clips that it works on, its own where the group splits
 * clips, and of these the units that it reads: where the group splits tokens those that its tokens
 * lie in.
 *
 *     s0.vae on [0 1], one clip    rank 0 made units 0 1    reads 0 1         keeps both
 *     s0.dit on [1 0 2], tokens    rank 1      units 2 3          0 1         0 1 come from rank 0
 *       of 4 units in 3 parts      rank 2                         2 3         2 3 come from rank 1
 *
 * Every unit goes to a rank that lacks it, once, from the rank that made it, and stays where it is
 * for one that has it: fewer bytes cannot do. */
#ifndef WEFT_PLAN_HAND_OFF_H
#define WEFT_PLAN_HAND_OFF_H

#include "graph/mesh.h"
#include "plan/cascade/assign.h"

/* What a module hands on of a clip: units one behind the other. */
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

/* Groups of ranks that share a cascade's clips out, each of as many clips and ranks: as many as
 * divide both; within one the tokens of each clip are split. Where the plan names how tokens are
 * split there is one of all ranks. */
int weft_cascade_shares(weft_sp_method method, int64_t clips, int64_t degree);
/* The units that the tokens of part `part` of `parts` of a clip lie in, `tokens` of each unit, one
 * unit behind the other; at least one, which tells whose they are. */
weft_item_range weft_hand_read(int64_t units, int64_t tokens, int64_t parts, int64_t part);

/* Units of rows from one rank to another, or to itself; they lie together: of one clip, or all. */
typedef struct weft_hand_move {
    int from, to; /* ranks of the job */
    weft_item_range clips, units;
} weft_hand_move;
/* What `producer` hands to `consumer`, whose method is `method`, of a sample of `clips` clips, by
 * the producer's members. Of a producer each member makes what weft_cascade_share_of gives it; of a
 * consumer each reads units read[member] of its clips (NULL: all). moves[] has room for the product
 * of the degrees and the clips; returns how many there are. */
int64_t weft_hand_moves(const weft_assigned *producer, const weft_assigned *consumer,
                        weft_sp_method method, const weft_cascade_row *row,
                        const weft_item_range *read, int64_t clips, weft_hand_move *moves);

#endif
