#ifndef WEFT_CLI_OPTIONS_HELP_PAGES_H
#define WEFT_CLI_OPTIONS_HELP_PAGES_H

#include "base/memory.h"
#include "cli/options/verb.h"

/* The tables of the verbs as a Markdown page, the man page and bash completion. */
void weft_help_markdown(const weft_verb *verb, weft_buf *out);
void weft_help_man(weft_buf *out);
void weft_help_bash(weft_buf *out);

#endif
