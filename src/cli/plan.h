/* The commands of `weft plan`; each is in cli/plan_<name>.c. They share the verb's option table. */
#ifndef WEFT_CLI_PLAN_H
#define WEFT_CLI_PLAN_H

#include "cli/verb.h"

weft_status weft_plan_cascades_run(const weft_args *args);

#endif
