/* Simulates a plan of cascades or of a pipeline over its cluster, and prints the result. */
#ifndef WEFT_ESTIMATE_PLAN_SIMULATION_H
#define WEFT_ESTIMATE_PLAN_SIMULATION_H

#include "base/json.h"
#include "graph/trace.h"
#include "plan/cascade/assign.h"
#include "plan/simulate/simulator.h"

typedef struct weft_simulation_options {
    const char *cluster;            /* NULL: the plan's */
    const char *chrome, *svg, *out; /* files to write; NULL: none */
    int64_t links;                  /* busiest links to print */
    int64_t pass_splits;            /* parts per pass over the layers; 0: by the devices */
    bool splits_set;
} weft_simulation_options;

/* Properties of the simulated plan for the report. */
typedef struct weft_simulated_plan {
    const weft_cluster *cluster;
    const weft_assigned *placed; /* NULL: a pipeline or an executed trace */
    double seconds, bound;
    bool executed; /* measured seconds */
} weft_simulated_plan;

/* Simulates the plan `json` of the file `path`. WEFT_E_FORMAT: the plan is for another cluster or
 * model, or has no steps. */
weft_status weft_plan_simulate(const weft_simulation_options *options, const char *path,
                               const json_t *json);
/* Prints a simulation, and writes the files of the options. */
weft_status weft_simulation_report(const weft_simulation_options *options,
                                   const weft_simulated_plan *plan, const weft_trace *trace,
                                   const weft_simulation *result, const char *path);
/* Rejects --pass-splits for a plan without passes over layers; `kind` names the plan. */
weft_status weft_simulation_refuse_splits(const weft_simulation_options *options, const char *path,
                                          const char *kind);

#endif
