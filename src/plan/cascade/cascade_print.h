#ifndef WEFT_PLAN_CASCADE_CASCADE_PRINT_H
#define WEFT_PLAN_CASCADE_CASCADE_PRINT_H

#include "plan/cascade/genetic.h"
#include "plan/cascade/iteration.h"

/* Prints degree, start, end and devices of each cascade. */
void weft_cascade_print_table(const weft_cascade_solution *plan);
/* Prints the bounds, the search, and the cost of each degree next to the chosen one. */
void weft_cascade_explain(const weft_cascade_solution *plan);
/* Prints the simulator's result; with `explain_sets` also the sets of degrees that were tried. */
void weft_cascade_print_simulated(const weft_model_work *model, const weft_iteration *it,
                                  bool explain_sets);
/* Writes a Gantt chart as SVG to `path`, atomically. `per_node` 0: no lines between nodes. */
weft_status weft_cascade_draw(const char *path, const char *title,
                              const weft_cascade_solution *plan, int64_t per_node,
                              weft_arena *arena);

#endif
