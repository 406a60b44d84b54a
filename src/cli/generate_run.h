/* The work of `weft generate`, in its process or in a worker of `weft serve`. */
#ifndef WEFT_CLI_GENERATE_RUN_H
#define WEFT_CLI_GENERATE_RUN_H

#include "cli/options/args.h"
#include "comm/comm.h"

struct weft_resident_weights;

/* Generates the videos of arguments of `weft generate`. `resident`: weights that stay loaded
 * afterwards; NULL: none do. `world`: the communicator of the process, which stays open; NULL: is
 * opened and closed. After an error other than WEFT_E_CANCELLED, `world` has failed. `prints`:
 * rank 0 prints the paths of the videos. */
weft_status weft_generate_run(const weft_args *args, struct weft_resident_weights *resident,
                              weft_comm *world, bool prints);

#endif
