/* Which algorithm a collective takes where that was measured: rows beside the costs of moves.h,
 * which decide what no row is for. `weft doctor --collectives` makes them on the ranks at hand;
 * WEFT_COLLECTIVES=FILE has jobs of as many ranks that lie in the same way take them.
 *
 *     {"format": "weft.collectives/1", "choices": [
 *       {"op": "all_reduce", "ranks": 2, "nodes": 1, "per_node": 2, "from": 65536,
 *        "algorithm": "halving"}, ...]}
 *
 * Sums have the same bits by every algorithm, so a table changes times only. */
#ifndef WEFT_RUNTIME_CHOICES_H
#define WEFT_RUNTIME_CHOICES_H

#include "runtime/moves.h"

/* Of collectives `op` among ranks that lie so: those of `from` bytes on, as weft_algorithm_cost
 * counts them, up to the next row's. */
typedef struct weft_choice {
    weft_comm_op op;
    weft_span span;
    int64_t from;
    weft_algorithm algorithm;
} weft_choice;

typedef struct weft_choices {
    weft_choice *row; /* of one op and span by `from`, upwards. Owned: heap */
    int64_t count, room;
} weft_choices;

void weft_choices_free(weft_choices *choices);
weft_status weft_choices_add(weft_choices *choices, const weft_choice *row);
/* True: a row says which, and it can. */
bool weft_choices_find(const weft_choices *choices, weft_comm_op op, const weft_span *span,
                       int64_t bytes, bool narrow, weft_algorithm *algorithm);
weft_status weft_choices_save(const weft_choices *choices, const char *path);
/* `name`: of the file, for messages. */
weft_status weft_choices_parse(const char *text, int64_t bytes, const char *name,
                               weft_choices *choices);

#endif
