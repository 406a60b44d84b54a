#ifndef WEFT_EXEC_COALESCE_H
#define WEFT_EXEC_COALESCE_H

#include "base/status.h"
#include "exec/compiled.h"

/* Assigns a channel to each collective and coalesces small all-reduces. Fills the allocated tables
 * channel, begins and joined. */
weft_status weft_compiled_choose_channels(weft_compiled *c);
void weft_compiled_coalesce(weft_compiled *c);

#endif
