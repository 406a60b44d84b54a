/* The backend of verbs that generate videos. */
#ifndef WEFT_CLI_GENERATOR_BACKEND_H
#define WEFT_CLI_GENERATOR_BACKEND_H

#include "comm/comm.h"
#include "generate/generator/generator.h"

/* Sets options->backend as weft_backend_settle does, for the precisions of the transformer and the
 * VAE. */
weft_status weft_generator_settle(const char *name, weft_comm *comm,
                                  weft_generator_options *options);

#endif
