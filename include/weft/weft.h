/* All public headers of weft.
 *
 *   cc program.c $(pkg-config --cflags --libs weft)
 *
 * Signals: some kernels move the stack pointer of their thread into heap memory, which a signal
 * handler on that stack would overwrite. Block the signals that your program handles in threads
 * that run programs, or give the handlers their own stack (sigaltstack, SA_ONSTACK).
 * examples/embed has programs in C and C++. */
#ifndef WEFT_H
#define WEFT_H

#include "weft/core.h"
#include "weft/data.h"
#include "weft/generate.h"
#include "weft/graph.h"
#include "weft/program.h"

#endif
