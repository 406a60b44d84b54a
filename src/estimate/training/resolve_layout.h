/* What the section `parallel` leaves open, before anything is laid out by it. */
#ifndef WEFT_TRAIN_SETTLE_H
#define WEFT_TRAIN_SETTLE_H

#include "runtime/runtime.h"
#include "train/objective.h"

/* Turns `plan: FILE` into the degrees of that file, and `context: auto` and `slices: auto` into the
 * cheapest way by the profile <out>/profile.json, or this machine's figures where there is none.
 * Collective where `comm` is there; else for `ranks` of them (0: as many as the degrees make).
 * `told` gets a line on what was decided, on rank 0. WEFT_E_CONFIG: other degrees beside a plan, or
 * a plan for another run. */
weft_status weft_run_settle(weft_run *run, const weft_run_models *models, const char *path,
                            weft_comm *comm, int ranks, weft_arena *arena, weft_buf *told);

#endif
