/* Simulates one step of a training stage on the devices and links of a cluster: by the event
 * simulator, and, if executed, by one thread per rank (train/estimate/simulated_step.h). */
#ifndef WEFT_ESTIMATE_TRAINING_RUN_SIMULATION_H
#define WEFT_ESTIMATE_TRAINING_RUN_SIMULATION_H

#include "base/json.h"
#include "plan/cluster/cluster.h"
#include "train/estimate/simulated_step.h"

typedef struct weft_run_simulation_setup {
    const weft_run *run; /* all pointers borrowed; the layout is resolved */
    const char *path;    /* path of the config, for messages */
    const weft_run_models *models;
    const weft_train_stage *train_stage;
    const weft_cluster *cluster;
    weft_execute execute;
    bool separate; /* plan the programs of every executed rank (tests) */
    weft_arena *arena;
} weft_run_simulation_setup;

typedef struct weft_run_simulation {
    weft_simulated_step step;
    double seconds, idle; /* results of the event simulator */
    double took;          /* duration of the simulation */
} weft_run_simulation;

/* Simulates a step of the stage's first bucket. WEFT_E_CONFIG: the cluster has fewer devices than
 * the layout has ranks. */
weft_status weft_run_simulate(const weft_run_simulation_setup *setup, weft_run_simulation *out);
void weft_run_simulation_free(weft_run_simulation *simulation);
/* Appends a table: seconds, idle share, bytes and messages by axis, peak memory. */
void weft_run_simulation_print(const weft_run_simulation *simulation, const char *cluster,
                               weft_buf *out);
/* The figures of the table; NULL: out of memory. */
json_t *weft_run_simulation_json(const weft_run_simulation *simulation);
/* Writes the costs of the pipeline stages, the input of `weft plan pipeline --costs` for another
 * schedule of the same stages. */
weft_status weft_run_simulation_save_costs(const char *path, const weft_run_simulation *simulation,
                                           const weft_cluster *cluster);

#endif
