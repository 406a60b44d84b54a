/* `weft train --dry-run`: plans the first iterations of a run with cascades and executes
 * nothing. */
#ifndef WEFT_TRAIN_CASCADE_CASCADE_DRY_RUN_H
#define WEFT_TRAIN_CASCADE_CASCADE_DRY_RUN_H

#include "train/config/train_config.h"

/* Appends tables of the first `iterations` iterations of every training stage to `out`. `ranks` is
 * the number of ranks to plan for; 0: all devices of the cluster. `svg` receives the chart of the
 * first iteration; NULL: no chart. Reads the sizes of samples, decodes no pixels and writes no
 * files. */
weft_status weft_cascade_dry_run(const weft_run *run, const char *path, int ranks, int iterations,
                                 weft_buf *svg, weft_buf *out);

#endif
