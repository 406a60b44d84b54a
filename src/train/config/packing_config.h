/* Sequence packing in a run's config: `data.packing`. */
#ifndef WEFT_TRAIN_CONFIG_PACKING_CONFIG_H
#define WEFT_TRAIN_CONFIG_PACKING_CONFIG_H

#include "train/config/train_config.h"

static inline bool weft_run_packs(const weft_run *run)
{
    return run->data.packing.tokens > 0;
}
/* Programs of a training stage that compute gradients: one for packed rows, else one per bucket. */
static inline int weft_run_stage_programs(const weft_run *run, const weft_train_stage *train_stage)
{
    return weft_run_packs(run) ? 1 : weft_train_stage_bucket_count(train_stage);
}
/* Size of the batches of program i, for reports. Packed rows: 1 x 1 x tokens. */
static inline weft_bucket weft_run_program_size(const weft_run *run,
                                                const weft_train_stage *train_stage, int i)
{
    const weft_row_packing *p = &run->data.packing;
    return weft_run_packs(run) ? (weft_bucket){p->rows, 1, 1, p->tokens, 0}
                               : *weft_train_stage_bucket(train_stage, i);
}
/* Rejects settings that cannot be combined with packing. */
weft_status weft_row_packing_check(const weft_run *run, const char *path);

#endif
