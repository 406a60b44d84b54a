/* Ctrl-C: the first SIGINT or SIGTERM asks the running verb to stop at the next safe point, the
 * second kills. The flag is the process's, as signals are. */
#ifndef WEFT_BASE_INTERRUPT_H
#define WEFT_BASE_INTERRUPT_H

#include "base/status.h"

#include <stdbool.h>
#include <sys/types.h>

/* Called once by the program, before it makes threads, for verbs that ask weft_interrupted() often
 * (twice a second or more). A thread that does nothing else takes the signals. */
void weft_interrupt_catch(void);
/* Call in a forked child: the parent handles Ctrl-C, SIGTERM ends the child. */
void weft_interrupt_leave_to_parent(void);
/* Call in a forked child before exec. The child is killed when `parent` ends, or at once if it has
 * ended; it has a process group of its own, and the signals of a new program. Only calls functions
 * that are safe in signal handlers. */
void weft_interrupt_detach_child(pid_t parent);
/* Sets what weft_interrupted() returns, for a process that continues after work that was stopped.
 * Any thread. */
void weft_interrupt_request(bool stops);
/* Requests like weft_interrupt_request(true), for work that is not resumed: nothing need be saved.
 * `alone`: no other rank waits for this process, so that programs end with WEFT_E_CANCELLED before
 * their next instruction. */
void weft_interrupt_discard(bool alone);
/* Whether the work that is interrupted is not resumed. */
bool weft_interrupt_discards(void);
/* Whether programs end before their next instruction. */
bool weft_interrupt_ends_programs(void);
bool weft_interrupted(void);
/* WEFT_E_CANCELLED with a message when interrupted, for WEFT_TRY in loops. */
weft_status weft_interrupt_check(void);

#endif
