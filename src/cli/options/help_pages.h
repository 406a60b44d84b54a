#ifndef WEFT_CLI_OPTIONS_HELP_PAGES_H
#define WEFT_CLI_OPTIONS_HELP_PAGES_H

#include "base/memory.h"
#include "cli/options/verb.h"

/* The tables of the verbs as a Markdown page and as man pages. */
void weft_help_markdown(const weft_verb *verb, weft_buf *out);
/* `verb` NULL: the page of weft itself. */
void weft_help_man(const weft_verb *verb, weft_buf *out);

#endif
