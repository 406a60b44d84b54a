/* Gradient reduction by representative ranks (Arachne, IV-D): selects the ranks.
 *
 * The smallest set of representatives is selected such that the group of every DiT cascade has one
 * (an exact minimum set cover: a rank covers the cascades of its groups). After a cascade the
 * other ranks of the group send their gradients to one representative; representatives keep their
 * own. So each contribution is in the sum of one representative, for any grouping. At the end the
 * representatives all-reduce their sums and send the result to the other ranks:
 *
 *     s0.dit [0 1 2]   s1.dit [2 3]   s2.dit [3]      representatives: 2 3
 *
 *     rank 0 ─┐ s0                        ┌─> rank 0
 *     rank 1 ─┴─> rank 2 ──all_reduce──> 2┴─> rank 1
 *                 rank 3 ──────────────> 3 */
#ifndef WEFT_TRAIN_CASCADE_RANK_COVER_H
#define WEFT_TRAIN_CASCADE_RANK_COVER_H

#include "train/cascade/iteration_layout.h"

typedef struct weft_rank_cover {
    int ranks, count;
    bool *representative; /* [ranks] */
    int *peer;            /* [ranks] representative that sends the result; itself if selected */
    bool smallest;        /* the set is minimal; false: the search reached its limit */
} weft_rank_cover;
/* Selects the representatives, the same on all ranks. Ranks without a cascade receive the result,
 * too. */
weft_status weft_rank_cover_find(const weft_placed_iteration *plan, int ranks,
                                 weft_rank_cover *out);
void weft_rank_cover_free(weft_rank_cover *cover);
/* Sets `list` to the ranks that reduce after cascade `index`, the representative first, and returns
 * their number. 1: no rank has gradients to send. list[] has space for the cascade's degree. */
int weft_rank_cover_group(const weft_rank_cover *cover, const weft_placed_iteration *plan,
                          int32_t index, int *list);

#endif
