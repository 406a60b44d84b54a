#ifndef WEFT_CLI_PLAN_PIPELINE_H
#define WEFT_CLI_PLAN_PIPELINE_H

#include "cli/options/verb.h"

weft_status weft_plan_pipeline_run(const weft_args *args);
extern const weft_section weft_plan_pipeline_section;

#endif
