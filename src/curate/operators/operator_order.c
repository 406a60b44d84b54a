#include "curate/operators/operator_order.h"

#include "base/memory.h"

#include <math.h>

double weft_operator_price_of(const weft_operator_price *p)
{
    return p->pass < 1 ? p->cost / (1 - p->pass) : INFINITY;
}

double weft_operator_order_cost(const weft_operator_price *price, int count, const int *order)
{
    double cost = 0, reached = 1;
    for (int i = 0; i < count; i++) {
        cost += reached * price[order[i]].cost;
        reached *= price[order[i]].pass;
    }
    return cost;
}

/* The operator that is best after the operators of `done`, given the cost of the rest for each
 * larger set. */
static int best_next(const weft_operator_price *price, int count, const double *rest, uint32_t done,
                     double *cost)
{
    int best = -1;
    *cost = 0;
    for (int i = 0; i < count; i++) {
        const uint32_t own = (uint32_t)1 << i;
        if ((done & own) || (price[i].after & ~done))
            continue;
        const double c = price[i].cost + price[i].pass * rest[done | own];
        if (best < 0 || c < *cost * (1 - 1e-12))
            best = i, *cost = c;
    }
    return best;
}

weft_status weft_operator_order_find(const weft_operator_price *price, int count, int *order)
{
    double *rest; /* by set of operators: lowest expected cost of all operators outside the set */
    const uint32_t all = ((uint32_t)1 << count) - 1;
    WEFT_TRY(WEFT_NEW(rest, (int64_t)all + 1, "the order of %d operators", count));
    for (uint32_t done = all; done-- > 0;)
        if (best_next(price, count, rest, done, &rest[done]) < 0)
            rest[done] = INFINITY; /* the set lacks an operator that a member needs */
    uint32_t done = 0;
    for (int i = 0; i < count; i++) {
        double cost;
        order[i] = best_next(price, count, rest, done, &cost);
        done |= (uint32_t)1 << order[i];
    }
    weft_free(rest);
    return WEFT_OK;
}
