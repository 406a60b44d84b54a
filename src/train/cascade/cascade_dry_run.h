/* `weft train --dry-run`: the first iterations of a run of cascades, planned and not begun. */
#ifndef WEFT_TRAIN_CASCADE_DRY_H
#define WEFT_TRAIN_CASCADE_DRY_H

#include "train/run.h"

/* Tables of the first `iterations` of every stage for `ranks` ranks (0: as many as the cluster has
 * devices). Reads the samples' sizes and no pictures; starts and writes nothing. `svg` (or NULL)
 * gets the chart of the first one. */
weft_status weft_cascade_dry_run(const weft_run *run, const char *path, int ranks, int iterations,
                                 weft_buf *svg, weft_buf *out);

#endif
