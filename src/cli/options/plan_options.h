/* The options of `weft plan`, and which of them each subcommand reads. */
#ifndef WEFT_CLI_OPTIONS_PLAN_OPTIONS_H
#define WEFT_CLI_OPTIONS_PLAN_OPTIONS_H

#include "cli/options/verb.h"

typedef struct weft_plan_command {
    const char *name;
    weft_status (*run)(const weft_args *args);
    const weft_section *config; /* config keys of --list-keys */
} weft_plan_command;

enum { WEFT_PLAN_OPTIONS = 19 };

extern const weft_option weft_plan_options[];
extern const weft_option_group weft_plan_groups[];
/* Rejects options that the subcommand does not read with the given options. */
weft_status weft_plan_refuse_idle(const weft_args *args, const weft_plan_command *command);

#endif
