/* Errors that the ranks of one job on one machine have in common are printed by one of them. */
#ifndef WEFT_CLI_PRINT_ONCE_H
#define WEFT_CLI_PRINT_ONCE_H

#include <stdbool.h>

/* Prints "weft VERB: MESSAGE" to standard error, unless another rank of this job on this machine
 * has printed the same. The first rank that fails stays until all of them have asked: for 20 s
 * where every rank has the cause (`shared`: the command line, the config), else for 2 s. */
void weft_print_once(const char *verb, const char *message, bool shared);
/* Prints it on every rank. */
void weft_print_own(const char *verb, const char *message);

#endif
