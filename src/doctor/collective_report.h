#ifndef WEFT_DOCTOR_COLLECTIVE_REPORT_H
#define WEFT_DOCTOR_COLLECTIVE_REPORT_H

#include "base/status.h"

/* Prints the table of `weft doctor --collectives` for `text`, RANKS or RANKS/PER_NODE. Under mpirun
 * the message costs are measured. With the requested number of ranks the collectives are timed,
 * too, and the fastest algorithms are written to `out` (NULL: no file). Collective. */
weft_status weft_doctor_collectives(const char *text, const char *out);

#endif
