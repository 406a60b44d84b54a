/* The training loop. */
#ifndef WEFT_TRAIN_TRAINER_H
#define WEFT_TRAIN_TRAINER_H

#include "train/run.h"

/* Trains what `run` describes, going on from the newest checkpoint in run->out, and writes
 * <out>/model at the end. `path` names the config in messages. Under mpirun every rank calls it. */
weft_status weft_train(const weft_run *run, const char *path);

#endif
