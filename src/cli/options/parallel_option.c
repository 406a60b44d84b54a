#include "cli/options/parallel_option.h"

#include "cli/options/args.h"

#include <string.h>

weft_status weft_args_parallel(const weft_args *args, weft_arena *arena, weft_parallel *parallel)
{
    int count;
    const char *const *text = weft_args_list(args, "--parallel", &count);
    return weft_config_parse(arena, "", 0, "--parallel", text, count, &weft_parallel_section,
                             parallel);
}

weft_status weft_args_parallel_is_auto(const weft_args *args, bool *is_auto)
{
    int count;
    const char *const *text = weft_args_list(args, "--parallel", &count);
    bool any = false;
    for (int i = 0; i < count; i++)
        any = any || !strcmp(text[i], "auto");
    *is_auto = any;
    if (!any || count == 1)
        return WEFT_OK;
    return weft_error(WEFT_MSG_OPTION_CONFLICT,
                      WEFT_AT(.key = "--parallel", .value = "auto",
                              WEFT_DETAILS(WEFT_WORD("with", "another --parallel"))),
                      "auto chooses all degrees and cannot be combined with another --parallel; "
                      "remove one option");
}

weft_status weft_args_comm_overlap(const weft_args *args, weft_comm_overlap *overlap)
{
    const char *value = weft_args_string(args, "--comm-overlap");
    weft_arena *arena;
    if (!value || !*value)
        return WEFT_OK;
    arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "--comm-overlap"));
    char *rest = weft_arena_printf(arena, "%s%s", strchr(value, '=') ? "" : "kind=", value);
    const char *text[8];
    int count = 0;
    while (rest && count < WEFT_COUNT(text)) {
        text[count++] = rest;
        rest = strchr(rest, ',');
        if (rest)
            *rest++ = '\0';
    }
    static const char *const key[WEFT_MADE][2] = {
        {"time=", "early_time="}, {"space=", "early_space="}, {"heads="}, {"chunks="}};
    const weft_status_code status = weft_config_parse(arena, "", 0, "--comm-overlap", text, count,
                                                      &weft_comm_overlap_section, overlap);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < WEFT_MADE; k++)
            for (int n = 0; n < 2 && key[k][n]; n++)
                if (!strncmp(text[i], key[k][n], strlen(key[k][n])))
                    overlap->explicit_keys |= 1u << k;
    weft_arena_free(arena);
    return status;
}
