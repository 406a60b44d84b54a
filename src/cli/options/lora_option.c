#include "cli/options/lora_option.h"

#include "base/config.h"
#include "base/fs.h"
#include "cli/options/args.h"

#include <string.h>

weft_status weft_args_weighted_file(const char *text, weft_arena *arena, const char **path,
                                    double *weight)
{
    char *file = weft_arena_strdup(arena, text), *colon = file ? strrchr(file, ':') : NULL;
    WEFT_TRY(WEFT_ALLOCATED(file, "--lora"));
    *path = file;
    *weight = 1;
    if (colon && !weft_path_exists(text)) {
        if (!weft_parse_f64(colon + 1, weight))
            return weft_error(
                WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--lora", .value = text),
                "'%.80s' is not FILE:WEIGHT: the file does not exist, and '%.80s' is not a number",
                text, colon + 1);
        *colon = '\0';
    }
    return *file ? WEFT_OK
                 : weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--lora", .value = text),
                              "'%.80s' names no file; write FILE or FILE:WEIGHT", text);
}

weft_status weft_args_lora(const weft_args *args, weft_arena *arena,
                           const weft_adapter_choice **list, int *count)
{
    static const char *const experts[] = {"transformer=", "transformer_2="};
    const char *const *text = weft_args_list(args, "--lora", count);
    weft_adapter_choice *each = weft_arena_alloc(arena, *count * (int64_t)sizeof *each + 1);
    WEFT_TRY(WEFT_ALLOCATED(each, "--lora"));
    for (int i = 0; i < *count; i++) {
        const char *file = text[i];
        each[i].expert = -1;
        for (int k = 0; k < WEFT_COUNT(experts) && each[i].expert < 0; k++)
            if (!strncmp(file, experts[k], strlen(experts[k]))) {
                file += strlen(experts[k]);
                each[i].expert = k;
            }
        WEFT_TRY(weft_args_weighted_file(file, arena, &each[i].path, &each[i].weight));
    }
    *list = each;
    return WEFT_OK;
}
