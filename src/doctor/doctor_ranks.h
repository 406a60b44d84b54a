/* weft doctor --ranks: prints the speed of each rank of a job and the location of its ranks. */
#ifndef WEFT_DOCTOR_DOCTOR_RANKS_H
#define WEFT_DOCTOR_DOCTOR_RANKS_H

#include "transform/sharding/mesh_config.h"

/* Collective. Opens MPI and prints the table on rank 0, with the axes of `parallel`. */
weft_status weft_doctor_ranks(const weft_parallel *parallel);

#endif
