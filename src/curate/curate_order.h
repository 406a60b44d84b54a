/* The order of the operators of a curation, by measured prices, and the table at the end. Private
 * to curate/. */
#ifndef WEFT_CURATE_CURATE_ORDER_H
#define WEFT_CURATE_CURATE_ORDER_H

#include "curate/curate_plan.h"

/* Takes the order from OUT/state/operators.json, if the operators and their limits are the
 * same, or from the config if the order is fixed. */
weft_status weft_curate_order_read(weft_curate_plan *plan);
/* Decides the order from the loaded scores, and records it. Another run that decided meanwhile
 * wins. Not `force`: only with enough shots. */
weft_status weft_curate_order_decide(weft_curate_plan *plan, bool force);
/* Input, output, seconds and price of each operator over all records; new reference, NULL: no
 * operators. */
json_t *weft_curate_order_table(const weft_curate_plan *plan);

#endif
