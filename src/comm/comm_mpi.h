#ifndef WEFT_COMM_COMM_MPI_H
#define WEFT_COMM_COMM_MPI_H

#include "comm/comm.h"

/* Opens the communicator of all ranks of this job. Without mpirun, one rank, and MPI is not
 * initialised. MPI can be started once per process. Only comm/comm_mpi.c calls MPI. */
weft_status weft_comm_open_mpi(weft_comm **comm);

/* Bytes that a process with MPI uses more than this process: a call without mpirun starts and ends
 * MPI once to measure them. 0 with mpirun, or if MPI cannot be started. */
int64_t weft_comm_mpi_bytes(void);

#endif
