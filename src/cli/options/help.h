#ifndef WEFT_CLI_OPTIONS_HELP_H
#define WEFT_CLI_OPTIONS_HELP_H

#include "base/memory.h"
#include "cli/options/verb.h"

/* Terminal text of at most WEFT_WRAP_COLUMNS columns. */

/* `weft --help`. */
void weft_help_overview(weft_buf *out);
/* `weft VERB --help SECTION`: the first screen if `section` is "", everything if it is "all".
 * WEFT_E_ARG: the verb has no such section; the message lists the sections. */
weft_status weft_help_write(const weft_verb *verb, const char *section, weft_buf *out);

#endif
