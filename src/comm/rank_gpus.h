/* The GPU of each rank. */
#ifndef WEFT_COMM_RANK_GPUS_H
#define WEFT_COMM_RANK_GPUS_H

#include "comm/comm.h"

/* Collective, once per process; before a GPU is used. Gives the ranks of each machine different
 * GPUs: those near the cores to which the launcher bound a rank, and the others in the order of
 * local ranks. A rank that the launcher did not bind is bound to the cores near its GPU, unless
 * WEFT_CUDA_BIND=off.
 * Does nothing for one rank, for other backends than `cuda` and `auto`, and on machines whose ranks
 * have different lists of GPUs (CUDA_VISIBLE_DEVICES): their ranks use the GPU of their local
 * rank. */
weft_status weft_rank_gpus_choose(const char *backend, weft_comm *comm);

#endif
