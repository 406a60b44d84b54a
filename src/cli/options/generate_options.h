/* The options of `weft generate` and their groups. */
#ifndef WEFT_CLI_OPTIONS_GENERATE_OPTIONS_H
#define WEFT_CLI_OPTIONS_GENERATE_OPTIONS_H

#include "cli/options/verb.h"

enum { WEFT_GENERATE_OPTIONS = 91 };

extern const weft_option weft_generate_options[];
extern const weft_option_group weft_generate_groups[];

#endif
