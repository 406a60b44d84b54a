/* `weft curate` with --engine or --worker: work that an engine distributes. */
#ifndef WEFT_CLI_CURATE_ENGINE_H
#define WEFT_CLI_CURATE_ENGINE_H

#include "cli/options/args.h"
#include "curate/curate.h"

/* Writes the job script of --engine, and with --submit submits its jobs; or runs the tasks of a
 * --worker. `path`: the config's file; NULL: none. */
weft_status weft_curate_engine_run(const weft_args *args, const char *path,
                                   const weft_curate_config *config);

#endif
