/* A verb as the program runs it. */
#ifndef WEFT_CLI_RUN_VERB_H
#define WEFT_CLI_RUN_VERB_H

#include "base/memory.h"
#include "cli/options/verb.h"

enum { WEFT_EXIT_DONE = 0, WEFT_EXIT_FAILED = 1, WEFT_EXIT_USAGE = 2, WEFT_EXIT_STOPPED = 130 };

/* Reads the arguments after the verb's name, runs it, and prints its error. Returns the exit
 * status of the program. */
int weft_run_verb(const weft_verb *verb, int argc, char *const *argv);
/* Writes a text to standard output and frees it. Returns the exit status. */
int weft_print_and_free(weft_buf *text);

#endif
