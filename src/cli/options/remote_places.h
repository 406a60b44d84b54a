/* Input and output of a verb in buckets, where the verb itself needs paths. */
#ifndef WEFT_CLI_OPTIONS_REMOTE_PLACES_H
#define WEFT_CLI_OPTIONS_REMOTE_PLACES_H

#include "cli/options/verb.h"

typedef weft_status_code (*weft_places_run)(const weft_args *args, const char *in, const char *out);
/* Calls `run` with paths. A remote `in` is copied first, and with `configs` without its files of
 * weights. A remote `out` must not exist, and is sent after success. `out` NULL: none. */
weft_status weft_remote_places_run(const weft_args *args, const char *in, const char *out,
                                   bool configs, weft_places_run run);

#endif
