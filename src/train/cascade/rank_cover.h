/* Sums of gradients by representatives (Arachne, IV-D), as far as they are a matter of numbers.
 *
 * The fewest ranks are chosen such that every DiT cascade has one of them in its group (an exact
 * minimum set cover: a rank covers the cascades that it is in). What a rank that was not chosen
 * adds of a cascade goes at once to a chosen one of the group, what a chosen one adds stays where
 * it is; so each term is in one chosen rank's sum, whatever the groups. In the end the chosen ones
 * have all terms between them, sum, and hand the whole to the others:
 *
 *     s0.dit [0 1 2]   s1.dit [2 3]   s2.dit [3]      chosen: 2 3
 *
 *     rank 0 ─┐ s0                        ┌─> rank 0
 *     rank 1 ─┴─> rank 2 ──all_reduce──> 2┴─> rank 1
 *                 rank 3 ──────────────> 3                                                       */
#ifndef WEFT_TRAIN_CASCADE_GRADS_H
#define WEFT_TRAIN_CASCADE_GRADS_H

#include "train/cascade_plan.h"

typedef struct weft_cover {
    int ranks, count;
    bool *chosen;  /* [ranks] */
    int *peer;     /* [ranks] that hands the whole to it: itself where it was chosen */
    bool smallest; /* no smaller set would do; false: the search was cut off */
} weft_cover;
/* The same on all ranks. Ranks that took part in nothing are handed the whole, too. */
weft_status weft_cover_find(const weft_placed_iteration *plan, int ranks, weft_cover *out);
void weft_cover_free(weft_cover *cover);
/* Those who sum when cascade `index` is done, the chosen one first; returns how many, 1: nobody has
 * anything to hand over. list[] has room for the cascade's ranks. */
int weft_cover_group(const weft_cover *cover, const weft_placed_iteration *plan, int32_t index,
                     int *list);

#endif
