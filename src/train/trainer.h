/* The training loop. */
#ifndef WEFT_TRAIN_TRAINER_H
#define WEFT_TRAIN_TRAINER_H

#include "train/config/train_config.h"

/* Trains the models of `run`. Resumes from the newest intact checkpoint in run->out and writes
 * <out>/model at the end. `path` names the config in messages. Under mpirun, every rank calls this
 * function. */
weft_status weft_train(const weft_run *run, const char *path);

#endif
