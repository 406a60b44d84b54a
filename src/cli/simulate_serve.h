/* weft simulate serve: replays the queue of `weft serve`. */
#ifndef WEFT_CLI_SIMULATE_SERVE_H
#define WEFT_CLI_SIMULATE_SERVE_H

#include "cli/options/args.h"

/* Rejects options of random traces, which have no effect on the file `path`. */
weft_status weft_simulate_refuse_for_file(const weft_args *args, const char *path);
/* Replays the trace of the second word. */
weft_status weft_simulate_serve(const weft_args *args);

#endif
