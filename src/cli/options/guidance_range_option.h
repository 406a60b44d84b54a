/* The options --guidance-from and --guidance-until of several verbs. */
#ifndef WEFT_CLI_GUIDED_OPTION_H
#define WEFT_CLI_GUIDED_OPTION_H

#include "cli/verb.h"

/* Shares of the steps, as weft_generator_options has them. WEFT_E_ARG. */
weft_status weft_args_guided(const weft_args *args, double guided[2]);

/* clang-format off */
#define WEFT_GUIDED_OPTIONS \
    {.name = "--guidance-from", .value_name = "S", .fallback = "0", \
     .help = "share of the steps (0..1) before guidance begins: those before it cost half"}, \
    {.name = "--guidance-until", .value_name = "S", .fallback = "1", \
     .help = "share of the steps at which guidance ends; those behind it cost half"}
/* clang-format on */

#endif
