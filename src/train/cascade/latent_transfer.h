/* Results of encoders on their way to the denoiser (Arachne, IV-D).
 *
 * Who hands what to whom: plan/cascade/hand_off.h. What a rank reads is told by its program; of
 * units that it does not read there are zeros. Sends are fire and forget on the channel HAND_OFF;
 * receives of an iteration are posted at its beginning, into the host's memory, in the order in
 * which their senders take the cascades that make them. */
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

/* The receives of an iteration, and what was received. */
typedef struct weft_hands weft_hands;
typedef struct weft_hands_place {
    weft_comm *comm;
    /* Of a device with a clock, on which messages take their time; NULL: there is none. */
    const weft_device *device;
    weft_device_stream *stream;
} weft_hands_place;
/* `order` NULL: ranks of consumers are not known yet. Nothing is posted, producers keep their rows,
 * and weft_hands_direct sends them once a consumer has its ranks.
 *
 * Posts those of this rank; row[] and read[] by sample * WEFT_CASCADE_MODULES + module, read[] as
 * of weft_hand_moves. `order`: of all cascades. All are borrowed until weft_hands_close. */
weft_status weft_hands_open(const weft_hands_place *place, const weft_placed_iteration *plan,
                            const int32_t *order, const weft_cascade_row *row,
                            const weft_item_range *const *read, weft_hands **hands);
/* Where this rank, a member of cascade `index`, makes its rows: the whole sample's first. Freed by
 * weft_hands_give. */
weft_status weft_hands_make(weft_hands *hands, int32_t index, float **row);
/* Sends them to those that need them, and keeps what this rank needs. */
weft_status weft_hands_give(weft_hands *hands, int32_t index, weft_cascade_done *done);
/* With `order` NULL, once the ranks of cascade `index`, which are its plan's now, are decided.
 * Sends this rank's rows to them, on any thread. `when`: the modelled time of the decision, which
 * outlives the iteration. done[] is that of the iteration. */
weft_status weft_hands_direct(weft_hands *hands, int32_t index, double *when,
                              weft_cascade_done *done);
/* Then, on the thread that runs cascade `index`: posts its receives. */
weft_status weft_hands_expect(weft_hands *hands, int32_t index);
/* Waits for all that cascade `index` comes after; handed[] is valid until weft_hands_drop. */
weft_status weft_hands_take(weft_hands *hands, int32_t index,
                            weft_handed handed[WEFT_CASCADE_MODULES], weft_cascade_done *done);
/* It has been used. */
void weft_hands_drop(weft_hands *hands, int32_t index);
void weft_hands_close(weft_hands *hands); /* accepts NULL */

#endif
