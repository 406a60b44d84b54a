#ifndef WEFT_CLI_PLAN_LAYOUT_H
#define WEFT_CLI_PLAN_LAYOUT_H

#include "cli/options/verb.h"

weft_status weft_plan_layout_run(const weft_args *args);
extern const weft_section weft_plan_layout_section;

#endif
