/* Sums of the terms of ranks, on the host. They use the vectors of one core. Each element is added
 * along the same tree on every rank. */
#ifndef WEFT_KERNEL_SUMS_H
#define WEFT_KERNEL_SUMS_H

#include "base/dtype.h"

/* The tree over any number of terms: the first `extras` of a power of two are pairs,
 *
 *   6 = 4 + 2 terms    0+1  2+3  4   5       pairs first
 *                      (0+2)   (4+5)         then by distance 1, 2, ...
 *                          (0+4)
 */
int weft_sum_power(int n); /* returns the largest power of two that is at most n */
/* Returns the first term of leaf v of the power-of-two tree, when the first `extras` leaves are
 * pairs. */
int weft_sum_stand_in(int v, int extras);
/* Calls add(user, to, from) for the additions `term[to] += term[from]` in a valid order. The sum is
 * then in term 0. */
void weft_sum_tree(int terms, void (*add)(void *user, int to, int from), void *user);

weft_dtype weft_sum_dtype(weft_dtype dtype); /* dtype of partial sums: f32 for bf16 and f16 */
/* out = a + b. out may be a or b. Integers wrap around. */
void weft_sum_two(weft_dtype dtype, void *out, const void *a, const void *b, int64_t count);
/* out = the sum of k terms. slot[i]: scratch memory of a term; term[i]: address of the term, which
 * may be slot[i]. temp: weft_sum_temp_bytes. */
int64_t weft_sum_temp_bytes(weft_dtype dtype, int k);
void weft_sum_terms(weft_dtype dtype, int k, const void *const *term, void *const *slot, void *temp,
                    void *out, int64_t count);

#endif
