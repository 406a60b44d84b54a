/* The order in which operators see a shot. Numbers only.
 *
 *     shot ──> operator 0 ── passes ──> operator 1 ── passes ──> ... ──> accepted
 *                 │ rejects                │ rejects
 *                 ▼                        ▼            later operators do not see the shot
 */
#ifndef WEFT_CURATE_OPERATORS_OPERATOR_ORDER_H
#define WEFT_CURATE_OPERATORS_OPERATOR_ORDER_H

#include "base/status.h"

#include <stdint.h>

enum { WEFT_MOST_OPERATORS = 16 };

typedef struct weft_operator_price {
    double cost;    /* seconds per shot, at least 0 */
    double pass;    /* share of shots that pass, 0 to 1 */
    uint32_t after; /* bits of the operators whose scores this one needs */
} weft_operator_price;

/* cost / (1 - pass): seconds per rejected shot. Infinite: nothing is rejected, or nothing was
 * measured. */
double weft_operator_price_of(const weft_operator_price *price);
/* Expected seconds per shot, if operators reject independently of one another. */
double weft_operator_order_cost(const weft_operator_price *price, int count, const int *order);
/* Finds the order with the lowest expected cost in which each operator follows the operators of
 * `after`. Without such rules this is the order of prices. Among equal orders, the operator that is
 * first in the list is first. WEFT_E_MEMORY. */
weft_status weft_operator_order_find(const weft_operator_price *price, int count, int *order);

#endif
