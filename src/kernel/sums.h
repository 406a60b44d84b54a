/* Sums of what ranks send, on the host: vectors of one core, each element along the same tree
 * whoever adds it up. */
#ifndef WEFT_KERNEL_SUMS_H
#define WEFT_KERNEL_SUMS_H

#include "base/dtype.h"

/* The tree over any number of terms: the first `extras` of a power of two are pairs,
 *
 *   6 = 4 + 2 terms    0+1  2+3  4   5       pairs first
 *                      (0+2)   (4+5)         then by distance 1, 2, ...
 *                          (0+4)
 */
int weft_sum_power(int n); /* the largest power of two in n */
/* The term that stands for pair or single number v, when the first `extras` are pairs. */
int weft_sum_stand_in(int v, int extras);
/* Calls add(user, to, from) for the additions `term[to] += term[from]`, in an order that can be
 * followed; the sum is then in term 0. */
void weft_sum_tree(int terms, void (*add)(void *user, int to, int from), void *user);

weft_dtype weft_sum_dtype(weft_dtype dtype); /* of partial sums: f32 for bf16 and f16 */
/* out = a + b, where out may be a or b; integers wrap around. */
void weft_sum_two(weft_dtype dtype, void *out, const void *a, const void *b, int64_t count);
/* out = the sum of k terms. slot[i]: memory that may be written on the way; term[i]: where the term
 * is (maybe there). temp: weft_sum_temp_bytes. */
int64_t weft_sum_temp_bytes(weft_dtype dtype, int k);
void weft_sum_terms(weft_dtype dtype, int k, const void *const *term, void *const *slot, void *temp,
                    void *out, int64_t count);

#endif
