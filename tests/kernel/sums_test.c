/* The order of additions in sums over ranks: a tree. */
#include "kernel/sums.h"

#include <criterion/criterion.h>

enum { MOST = 33 };

typedef struct summed {
    int terms;
    uint64_t in[MOST]; /* by term: the set of terms in its sum; 0: added to another term */
} summed;

static void add(void *user, int to, int from)
{
    summed *s = user;
    cr_assert(to >= 0 && from >= 0 && to < s->terms && from < s->terms && to != from,
              "%d terms: %d += %d", s->terms, to, from);
    cr_expect(s->in[to] && s->in[from], "%d terms: %d += %d: a term was already added", s->terms,
              to, from);
    s->in[to] |= s->in[from];
    s->in[from] = 0;
}

/* Every term is added once: a rank that is omitted or counted twice would give other gradients. */
Test(sums, each_term_is_added_once)
{
    for (int terms = 1; terms <= MOST; terms++) {
        summed s = {.terms = terms};
        for (int i = 0; i < terms; i++)
            s.in[i] = (uint64_t)1 << i;
        weft_sum_tree(terms, add, &s);
        cr_expect_eq(s.in[0], ((uint64_t)1 << (terms - 1) << 1) - 1, "%d terms: some are missing",
                     terms);
    }
}
