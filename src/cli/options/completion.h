#ifndef WEFT_CLI_OPTIONS_COMPLETION_H
#define WEFT_CLI_OPTIONS_COMPLETION_H

#include "base/memory.h"

/* Completion of command lines from the tables of the verbs: verbs, first words of their usage,
 * options, values of options that are a choice, sections of --help, and keys and values of --set.
 */
void weft_completion_bash(weft_buf *out);
void weft_completion_zsh(weft_buf *out);
void weft_completion_fish(weft_buf *out);

#endif
