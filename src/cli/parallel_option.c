#include "cli/parallel_option.h"

weft_status weft_args_parallel(const weft_args *args, weft_arena *arena, weft_parallel *parallel)
{
    int count;
    const char *const *text = weft_args_list(args, "--parallel", &count);
    return weft_config_parse(arena, "", 0, "--parallel", text, count, &weft_parallel_section,
                             parallel);
}
