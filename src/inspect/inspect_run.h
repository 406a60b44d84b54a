/* weft inspect graph CONFIG: the graphs and programs of one rank of a training run, and what each
 * pass changed. */
#ifndef WEFT_INSPECT_INSPECT_RUN_H
#define WEFT_INSPECT_INSPECT_RUN_H

#include "train/config/train_config.h"

typedef struct weft_inspect_run_options {
    bool graph, passes;  /* print the graphs, and what each pass changed */
    weft_bucket size;    /* replaces the sizes of every training stage; 0: the stage's */
    const char *mesh;    /* replaces the degrees; "": the run's */
    const char *cluster; /* prints seconds of a step on this cluster; NULL: none */
    /* rank of the mesh, which is also set up on backend `virtual`; -1: rank 0, without set-up */
    int rank;
    const char *roofline;         /* cluster whose GPU's roofline is printed instead; NULL: none */
    bool json;                    /* of the roofline */
    const char *const *recompute; /* patterns that replace the run's; borrowed */
    int recompute_count;
} weft_inspect_run_options;

/* Prints every training stage of the run. */
weft_status weft_inspect_run(weft_run *run, const char *path,
                             const weft_inspect_run_options *options, weft_arena *arena);

#endif
