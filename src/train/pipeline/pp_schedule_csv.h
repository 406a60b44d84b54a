/* Reads pipeline schedules from files. */
#ifndef WEFT_TRAIN_PIPELINE_PP_SCHEDULE_CSV_H
#define WEFT_TRAIN_PIPELINE_PP_SCHEDULE_CSV_H

#include "plan/pipeline/schedule.h"

/* Loads a plan of `weft plan pipeline` (.json), or a schedule in PyTorch's compute-only format
 * (.csv). A .csv has one line per rank and one cell per time step, with a task or nothing:
 *
 *   0F0,0F1,,0B0,0B1      stage 0: forward of microbatches 0 and 1, a pause, their backward
 *   ,1F0,1B0,1F1,1B1      with a split backward: 1I0 (of inputs), 1W0 (of weights)
 *
 * Pauses only align the columns: tasks run in order. The schedule is checked
 * (weft_pp_schedule_check). WEFT_E_NOT_FOUND: no such file. */
weft_status weft_pp_schedule_csv_load(const char *path, weft_pp_schedule *table);

#endif
