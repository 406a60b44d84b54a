#ifndef WEFT_EXEC_EXECUTE_H
#define WEFT_EXEC_EXECUTE_H

#include "base/status.h"
#include "exec/program.h"

weft_status weft_program_run(weft_program *program);

#endif
