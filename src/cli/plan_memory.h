#ifndef WEFT_CLI_PLAN_MEMORY_H
#define WEFT_CLI_PLAN_MEMORY_H

#include "cli/options/verb.h"

weft_status weft_plan_memory_run(const weft_args *args);
extern const weft_section weft_plan_memory_section;

#endif
