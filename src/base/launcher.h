/* The variables that the launcher of a job (mpirun, srun) sets, readable before MPI starts. */
#ifndef WEFT_BASE_LAUNCHER_H
#define WEFT_BASE_LAUNCHER_H

/* Rank of this process by the environment of the launcher; -1: started without one. */
int weft_launcher_rank(void);

#endif
