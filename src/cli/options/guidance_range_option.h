/* The options --guidance-start and --guidance-end of several verbs. */
#ifndef WEFT_CLI_OPTIONS_GUIDANCE_RANGE_OPTION_H
#define WEFT_CLI_OPTIONS_GUIDANCE_RANGE_OPTION_H

#include "cli/options/verb.h"

/* Reads shares of the steps, as in weft_generator_options. WEFT_E_ARG: invalid value. */
weft_status weft_args_guided(const weft_args *args, double guided[2]);

/* clang-format off */
#define WEFT_GUIDED_OPTIONS \
    {.name = "--guidance-start", WEFT_ALSO("--guidance-from"), .value_name = "S", .fallback = "0", \
     .help = "share of the steps, 0 to 1, at which guidance starts; earlier steps cost half", \
     .group = "guidance"}, \
    {.name = "--guidance-end", WEFT_ALSO("--guidance-until"), .value_name = "S", .fallback = "1", \
     .help = "share of the steps, 0 to 1, at which guidance ends; later steps cost half", \
     .group = "guidance"}
/* clang-format on */

#endif
