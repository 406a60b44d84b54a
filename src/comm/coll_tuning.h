/* Measured algorithm of each collective. The costs of coll_schedule.h decide where no row applies.
 * `weft doctor --collectives` measures the rows on the available ranks. WEFT_COLLECTIVES=FILE
 * applies them to jobs with the same number of ranks on the same arrangement of nodes.
 *
 *     {"format": "weft.collectives/1", "choices": [
 *       {"op": "all_reduce", "ranks": 2, "nodes": 1, "per_node": 2, "from": 65536,
 *        "algorithm": "halving"}, ...]}
 *
 * Sums are bitwise identical with every algorithm, so a table changes times only. */
#ifndef WEFT_COMM_COLL_TUNING_H
#define WEFT_COMM_COLL_TUNING_H

#include "comm/coll_schedule.h"

/* Algorithm of collectives `op` on `span` of at least `from` bytes (counted as in
 * weft_algorithm_cost), up to the next row's `from`. */
typedef struct weft_coll_tuning_row {
    weft_comm_op op;
    weft_span span;
    int64_t from;
    weft_algorithm algorithm;
} weft_coll_tuning_row;

typedef struct weft_coll_tuning {
    /* rows of one op and span in ascending order of `from`. Owned: heap */
    weft_coll_tuning_row *row;
    int64_t count, capacity;
} weft_coll_tuning;

void weft_coll_tuning_free(weft_coll_tuning *tuning);
weft_status weft_coll_tuning_add(weft_coll_tuning *tuning, const weft_coll_tuning_row *row);
/* Returns true and sets *algorithm if a row applies and its algorithm fits. */
bool weft_coll_tuning_find(const weft_coll_tuning *tuning, weft_comm_op op, const weft_span *span,
                           int64_t bytes, bool is_16bit, weft_algorithm *algorithm);
weft_status weft_coll_tuning_save(const weft_coll_tuning *tuning, const char *path);
/* `name`: file name for error messages. */
weft_status weft_coll_tuning_parse(const char *text, int64_t bytes, const char *name,
                                   weft_coll_tuning *tuning);

#endif
