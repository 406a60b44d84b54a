/* Tables of pipelines from files. */
#ifndef WEFT_TRAIN_PIPE_TABLE_H
#define WEFT_TRAIN_PIPE_TABLE_H

#include "plan/pipeline/schedule.h"

/* A plan of `weft plan pipeline` (.json), or PyTorch's form of a schedule's computations (.csv): a
 * line per rank, and of each step what it does there, or nothing:
 *
 *   0F0,0F1,,0B0,0B1      stage 0: forward of microbatches 0 and 1, a pause, their backward
 *   ,1F0,1B0,1F1,1B1      or, with the backward in two: 1I0 (of inputs), 1W0 (of weights)
 *
 * Pauses only keep the columns together: what there is to be done is done in order. The table is
 * checked (weft_schedule_check). WEFT_E_NOT_FOUND: there is no such file. */
weft_status weft_pipe_table_load(const char *path, weft_schedule *table);

#endif
