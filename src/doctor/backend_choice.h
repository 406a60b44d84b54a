/* The backend of a verb, before it makes programs. */
#ifndef WEFT_DOCTOR_BACKEND_CHOICE_H
#define WEFT_DOCTOR_BACKEND_CHOICE_H

#include "comm/comm.h"
#include "kernel/kernel.h"

/* Collective. Sets *backend to the backend of `name`, and fails if this machine or build cannot run
 * the backend. Loads the verdicts of the GPU for the precision of the programs, or compares the
 * kernels first; the waits of other ranks do not time out meanwhile.
 * The name `auto`: all ranks use `cuda`, or all use `cpu` because a rank has no GPU or because an
 * op of its GPU failed the comparison. Rank 0 prints the choice. comm NULL: one process.
 * WEFT_E_ARG: the name is unknown. */
weft_status weft_backend_settle(const char *name, weft_products products, weft_comm *comm,
                                const weft_backend **backend);

#endif
