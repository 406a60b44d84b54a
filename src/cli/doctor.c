#include "cli/verb.h"

#include <stdio.h>
#include <unistd.h>

static weft_status run_doctor(const weft_args *args)
{
    (void)args;
    printf("cores: %ld\n", sysconf(_SC_NPROCESSORS_ONLN));
    return WEFT_OK;
}

const weft_verb weft_verb_doctor = {
    .name = "doctor",
    .summary = "say what of this machine and its libraries weft finds and can use",
    .usage = "",
    .details = "Lists cores, memory, instruction sets and libraries with their versions.",
    .examples = "weft doctor\n",
    .run = run_doctor,
};
