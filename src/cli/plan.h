/* The commands of `weft plan`; each is in cli/plan_<name>.c. They share the verb's option table. */
#ifndef WEFT_CLI_PLAN_H
#define WEFT_CLI_PLAN_H

#include "base/json.h"
#include "cli/options/verb.h"
#include "cli/plan_output.h"

#endif
