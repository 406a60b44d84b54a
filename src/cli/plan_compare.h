#ifndef WEFT_CLI_PLAN_COMPARE_H
#define WEFT_CLI_PLAN_COMPARE_H

#include "cli/options/verb.h"

weft_status weft_plan_compare_run(const weft_args *args);

#endif
