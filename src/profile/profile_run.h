/* The measurements of `weft profile`. */
#ifndef WEFT_PROFILE_PROFILE_RUN_H
#define WEFT_PROFILE_PROFILE_RUN_H

#include "cli/options/args.h"

/* Measures for about `seconds`: the run of the config `path`, generation with --model if `path` is
 * NULL, else small models, a transformer block of width `hidden` and convolutions. Rank 0 prints
 * the rates and writes the files of --out and --yaml. Collective. */
weft_status weft_profile_run(const weft_args *args, const char *path, int64_t hidden,
                             double seconds);

#endif
