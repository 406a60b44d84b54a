/* Parts of a program's code that the device has recorded, each launched with one call. */
#ifndef WEFT_EXEC_CAPTURED_CODE_H
#define WEFT_EXEC_CAPTURED_CODE_H

#include "exec/program_internal.h"

/* Runs one instruction, whose work goes to the program's stream. */
typedef weft_status_code (*weft_run_instruction)(const weft_program *p, const instruction *code);

/* If a recorded part begins at instruction `at`, launches it. Records a part that begins there and
 * may be recorded: kernels and slices between collectives and copies, after a run with the same
 * addresses. Sets
 * *end past the end of the part; *end = at: the instruction runs alone. */
weft_status weft_captured_run(weft_program *p, int32_t at, weft_run_instruction run, int32_t *end);
/* Forgets the parts, because addresses have changed or the memory is released. The stream is idle
 * or NULL. */
void weft_captured_drop(weft_program *p);

#endif
