/* Transfer plan: the ranks that produce the latents of a sample, and the sends between ranks
 * (Arachne, IV-D). Iterations are executed (latent_transfer.h) and simulated
 * (plan/cascade/assign_trace.c) by this rule.
 *
 * A module sends a row per clip. A row has contiguous units: latent frames, or one unit. Each rank
 * of the module produces some rows, or some units of rows. A rank of the denoiser needs the rows
 * of its clips: its own clips where the group splits clips. Where the group splits tokens, the
 * rank needs only the units that contain its tokens.
 *
 *     s0.vae on [0 1], one clip    rank 0 makes units 0 1    reads 0 1         keeps both
 *     s0.dit on [1 0 2], tokens    rank 1       units 2 3          0 1         0 1 come from rank 0
 *       of 4 units in 3 parts      rank 2                          2 3         2 3 come from rank 1
 *
 * Every unit is sent once to each rank that lacks the unit, from the rank that produced it. This
 * is the least number of bytes. */
#ifndef WEFT_PLAN_CASCADE_TRANSFER_PLAN_H
#define WEFT_PLAN_CASCADE_TRANSFER_PLAN_H

#include "graph/mesh.h"
#include "plan/cascade/assign.h"

/* Row that a module sends per clip: contiguous units. */
typedef struct weft_cascade_row {
    int64_t units, floats; /* floats of a unit */
    int64_t piece; /* units encoded together; the first piece gets the remainder. 0: all units */
    /* Input of the consumer's program that receives the rows, clips first, then their units. NULL:
     * every rank of the consumer reads all units. */
    const char *input;
} weft_cascade_row;
static inline int64_t weft_cascade_row_floats(const weft_cascade_row *row)
{
    return row->units * row->floats;
}

/* Share of one member of an encoder's cascade: units of each of its clips. clips.count 0: none. */
typedef struct weft_cascade_share {
    weft_item_range clips, units;
    int part, parts; /* part of a clip; members with the same clips are adjacent in the group */
} weft_cascade_share;
/* Returns the share of `member`. Chooses the number of clip groups, and of parts per clip, that
 * minimises the work of the busiest rank; ties go to fewer parts. */
weft_cascade_share weft_cascade_share_of(const weft_cascade_row *row, int64_t clips, int64_t degree,
                                         int64_t member);

/* Returns the number of rank groups that share the clips of a cascade, with equal clips and ranks
 * per group: the greatest common divisor. Each group splits the tokens of its clips. 1 if the plan
 * sets a method, which splits tokens over all ranks. */
int weft_cascade_shares(weft_sp_method method, int64_t clips, int64_t degree);
/* Returns the units that contain the tokens of part `part` of `parts` of a clip. `tokens`: tokens
 * per unit, units contiguous. The result has at least one unit, which identifies the sample. */
weft_item_range weft_latent_units_read(int64_t units, int64_t tokens, int64_t parts, int64_t part);

/* Contiguous units of rows, sent from one rank to another or kept on a rank: of one clip, or
 * complete rows of several clips. */
typedef struct weft_latent_send {
    int from, to; /* ranks of the job */
    weft_item_range clips, units;
} weft_latent_send;
/* Fills `sends` with the units that `producer` sends to `consumer`, ordered by the producer's
 * members, and returns their number. `method` is the consumer's, `clips` the number of clips of the
 * sample. Each member of the producer makes the share of weft_cascade_share_of. Each member of the
 * consumer reads units read[member] of its clips; NULL: all units. sends[] has space for the
 * product of both degrees and the clips. */
int64_t weft_latent_sends_list(const weft_assigned *producer, const weft_assigned *consumer,
                               weft_sp_method method, const weft_cascade_row *row,
                               const weft_item_range *read, int64_t clips, weft_latent_send *sends);

#endif
