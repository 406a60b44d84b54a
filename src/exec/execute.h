#ifndef WEFT_EXEC_EXECUTE_H
#define WEFT_EXEC_EXECUTE_H

#include "base/status.h"
#include "exec/program.h"

weft_status weft_program_run(weft_program *program);
/* Like weft_program_run, but a device that is apart may still run the program when the call
 * returns. The caller does not touch the store until it has run another program of the same shared
 * memory, which begins after this run. weft_program_input and weft_program_output wait as long as
 * needed. */
weft_status weft_program_launch(weft_program *program);
/* Waits for launched runs, and returns their error. */
weft_status weft_program_finish(weft_program *program);
/* Waits for launched runs, and keeps their error for weft_program_finish. */
void weft_program_settle(weft_program *program);
/* The stream that runs the kernels of a bound program. */
weft_device_stream *weft_program_stream(const weft_program *program);

#endif
