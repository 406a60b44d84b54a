#ifndef WEFT_CLI_PLAN_CASCADES_H
#define WEFT_CLI_PLAN_CASCADES_H

#include "cli/options/verb.h"

weft_status weft_plan_cascades_run(const weft_args *args);

#endif
