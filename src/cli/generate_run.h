/* The work of `weft generate`, in its process or in a worker of `weft serve`. */
#ifndef WEFT_CLI_GENERATE_RUN_H
#define WEFT_CLI_GENERATE_RUN_H

#include "cli/options/args.h"

struct weft_resident_weights;

/* Generates the videos of arguments of `weft generate`. `resident`: weights that stay loaded
 * afterwards; NULL: none do. */
weft_status weft_generate_run(const weft_args *args, struct weft_resident_weights *resident);

#endif
