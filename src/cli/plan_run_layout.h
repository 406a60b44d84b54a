#ifndef WEFT_CLI_PLAN_RUN_LAYOUT_H
#define WEFT_CLI_PLAN_RUN_LAYOUT_H

#include "cli/options/verb.h"

weft_status weft_plan_run_layout_run(const weft_args *args); /* layout --run-config */

#endif
