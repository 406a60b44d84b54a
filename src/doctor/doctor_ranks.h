/* weft doctor --ranks: what each rank of a job can do, and who is near whom. */
#ifndef WEFT_CLI_DOCTOR_RANKS_H
#define WEFT_CLI_DOCTOR_RANKS_H

#include "cli/verb.h"

weft_status weft_doctor_ranks(const weft_args *args);

#endif
