/* Prints an error that several ranks of a job on one machine share only once. */
#ifndef WEFT_CLI_OPTIONS_PRINT_ONCE_H
#define WEFT_CLI_OPTIONS_PRINT_ONCE_H

#include <stdbool.h>

/* Prints this thread's last error as "weft VERB: error[ID]: MESSAGE" to standard error, or as a
 * line of JSON with WEFT_LOG_FORMAT=json. Prints nothing if another rank of this job on this
 * machine has printed the same message. The first rank that fails waits until all other ranks have
 * asked. The limit is 20 s if every rank has the cause (`shared`: the command line, the config),
 * else 2 s. `verb` may be NULL. */
void weft_print_once(const char *verb, bool shared);
/* Prints this thread's last error on every rank. */
void weft_print_own(const char *verb);

#endif
