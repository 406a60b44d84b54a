/* The option --backend of the verbs that run models. */
#ifndef WEFT_CLI_OPTIONS_BACKEND_OPTION_H
#define WEFT_CLI_OPTIONS_BACKEND_OPTION_H

#include "cli/options/verb.h"
#include "kernel/kernel.h"

/* Finds the backend. WEFT_E_ARG: the name is unknown, or the backend computes no values. */
weft_status weft_args_backend(const weft_args *args, const weft_backend **backend);

/* clang-format off */
#define WEFT_BACKEND_OPTION \
    {.name = "--backend", .value_name = "NAME", .fallback = "cpu", \
     .help = "backend that runs the model: cpu, cuda, ref, or auto (cuda if its kernels pass, " \
             "otherwise cpu)", \
     .group = "memory"}
/* clang-format on */

#endif
