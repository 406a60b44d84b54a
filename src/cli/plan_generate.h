#ifndef WEFT_CLI_PLAN_GENERATE_H
#define WEFT_CLI_PLAN_GENERATE_H

#include "cli/options/verb.h"

weft_status weft_plan_generate_run(const weft_args *args);
extern const weft_section weft_plan_generate_section;

#endif
