/* Choices and plans of collectives that the ranks of one process share. Equal collectives of
 * simulated ranks are planned once per member, and not once per rank and layer. Thread-safe. */
#ifndef WEFT_COMM_COLL_PLANS_H
#define WEFT_COMM_COLL_PLANS_H

#include "comm/comm.h"

typedef struct weft_coll_plans weft_coll_plans;
typedef struct weft_coll_plan weft_coll_plan;
typedef struct weft_coll_selection weft_coll_selection;

weft_coll_plans *weft_coll_plans_create(void);     /* NULL: out of memory */
void weft_coll_plans_free(weft_coll_plans *plans); /* accepts NULL */
/* Sets *plan to the plan of the request's algorithm, owned by `plans`. */
weft_status weft_coll_plans_find(weft_coll_plans *plans, const weft_comm_request *x,
                                 const weft_coll_plan **plan);
/* Sets kind->algorithm by the default costs. */
weft_status weft_coll_plans_choose(weft_coll_plans *plans, weft_coll_selection *kind);

/* Numbers of plans, schedules and choices that were made. */
typedef struct weft_coll_plans_made {
    int64_t plans, schedules, choices;
} weft_coll_plans_made;
weft_coll_plans_made weft_coll_plans_count(weft_coll_plans *plans);

#endif
