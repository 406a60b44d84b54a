#ifndef WEFT_EXEC_TWIN_H
#define WEFT_EXEC_TWIN_H

#include "exec/program.h"
#include "kernel/kernel.h"

/* Creates a program for mesh rank `rank` that shares plan, code and tables of `like`. The node
 * shapes of both ranks must be equal. `like` is borrowed and not bound. The twin has its own
 * requests and streams, needs a few KiB and no store, and may run at the same time as other twins.
 * Returns WEFT_E_ARG if `like` offloads, has a profile, is bound or is a twin, or if a device is
 * not a meta device. */
weft_status weft_program_twin(const weft_program *like, const weft_backend *backend, int rank,
                              weft_program **out);

#endif
