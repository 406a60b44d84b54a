#ifndef WEFT_CLI_OPTIONS_HELP_GENERATE_H
#define WEFT_CLI_OPTIONS_HELP_GENERATE_H

#include "cli/options/verb.h"

/* Names that generation accepts: models with image conditioning, samplers, guidance methods and
 * scheduler classes. */
extern const weft_help_table weft_help_generate[];

#endif
