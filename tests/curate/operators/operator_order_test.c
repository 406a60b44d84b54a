#include "curate/operators/operator_order.h"

#include <criterion/criterion.h>
#include <math.h>

/* The lowest cost over all orders that respect `after`, by trying all. */
static double least_cost(const weft_operator_price *price, int count, int *order, int placed)
{
    double least = INFINITY;
    if (placed == count)
        return weft_operator_order_cost(price, count, order);
    for (int i = 0; i < count; i++) {
        uint32_t done = 0;
        for (int k = 0; k < placed; k++)
            done |= (uint32_t)1 << order[k];
        if ((done >> i & 1) || (price[i].after & ~done))
            continue;
        order[placed] = i;
        least = fmin(least, least_cost(price, count, order, placed + 1));
    }
    return least;
}

static uint32_t state = 7;
static double next_random(void)
{
    state = state * 1664525 + 1013904223;
    return (double)(state >> 8) / (1 << 24);
}

Test(operator_order, prices_are_ascending)
{
    enum { COUNT = 9 };
    weft_operator_price price[COUNT];
    int order[COUNT];
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < COUNT; i++)
            price[i] = (weft_operator_price){next_random() * 10, next_random() * 0.99, 0};
        cr_assert_eq(weft_operator_order_find(price, COUNT, order), WEFT_OK);
        for (int i = 1; i < COUNT; i++)
            cr_assert_leq(weft_operator_price_of(&price[order[i - 1]]),
                          weft_operator_price_of(&price[order[i]]) * (1 + 1e-9));
    }
}

/* Operators that need scores of others cannot always run in the order of prices. */
Test(operator_order, needed_scores_come_first_at_the_lowest_cost)
{
    enum { COUNT = 6 };
    weft_operator_price price[COUNT];
    int order[COUNT], tried[COUNT];
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < COUNT; i++) {
            price[i] = (weft_operator_price){next_random() * 10, next_random(), 0};
            for (int k = 0; k < i; k++)
                if (next_random() < 0.3)
                    price[i].after |= (uint32_t)1 << k;
        }
        cr_assert_eq(weft_operator_order_find(price, COUNT, order), WEFT_OK);
        uint32_t done = 0;
        for (int i = 0; i < COUNT; i++) {
            cr_assert_eq(price[order[i]].after & ~done, 0);
            done |= (uint32_t)1 << order[i];
        }
        cr_assert_eq(done, (1 << COUNT) - 1);
        cr_assert_float_eq(weft_operator_order_cost(price, COUNT, order),
                           least_cost(price, COUNT, tried, 0), 1e-9);
    }
}

Test(operator_order, equal_operators_keep_the_order_of_the_list)
{
    const weft_operator_price price[] = {{0, 0.5, 0}, {0, 0.5, 0}, {3, 1, 0}, {3, 1, 0}};
    int order[4];
    cr_assert_eq(weft_operator_order_find(price, 4, order), WEFT_OK);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(order[i], i);
    cr_assert(isinf(weft_operator_price_of(&price[2])));
}
