/* weft eval cache: what fewer and cheaper steps gain and lose. */
#include "cli/eval_savings.h"
#include "base/fs.h"
#include "generate/evaluate.h"
#include "generate/quality.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const usual[] = {
    "cache=conservative",     "cache=fast",
    "cache=every:2",          "cache=every:3",
    "cache=attention:2",      "guidance-from=0.2",
    "guidance-until=0.6",     "guidance-until=0.6 cache=fast",
    "sampler=unipc steps=20", "sampler=unipc steps=10",
    "sampler=dpmpp steps=20", "sampler=dpmpp steps=10",
    "sampler=euler steps=15", "sampler=unipc steps=20 cache=fast",
};

static weft_status refuse(const char *text, const char *part)
{
    return weft_fail(WEFT_E_ARG,
                     "--try %s: \"%s\" is none of cache=RULE, steps=N, sampler=NAME, "
                     "guidance-from=S, guidance-until=S, with blanks between them",
                     text, part);
}

static weft_status read_part(const char *text, char *part, weft_generator_options *o)
{
    char *value = strchr(part, '='), *end = NULL;
    if (!value)
        return refuse(text, part);
    *value++ = '\0';
    const double number = strtod(value, &end);
    const bool numeric = end != value && !*end && number >= 0;
    if (!strcmp(part, "cache"))
        o->cache = value;
    else if (!strcmp(part, "sampler") && weft_sampler_find(value))
        o->sampler = weft_sampler_find(value);
    else if (!strcmp(part, "steps") && numeric && number >= 1 && number <= 10000)
        o->steps = (int64_t)number;
    else if (!strcmp(part, "guidance-from") && numeric && number < 1)
        o->guided[0] = number;
    else if (!strcmp(part, "guidance-until") && numeric && number <= 1)
        o->guided[1] = number;
    else
        return refuse(text, part);
    return WEFT_OK;
}

static weft_status read_saving(const char *text, weft_arena *arena,
                               const weft_generator_options *plain, weft_saving *saving)
{
    *saving = (weft_saving){.name = text, .options = *plain};
    char *copy = weft_arena_strdup(arena, text), *rest = copy;
    if (!copy)
        return weft_fail(WEFT_E_MEMORY, "out of memory for --try");
    for (char *part; (part = strtok_r(rest, " ", &rest));)
        WEFT_TRY(read_part(text, part, &saving->options));
    double *guided = saving->options.guided;
    if (guided[0] > 0 && !(guided[1] > 0))
        guided[1] = 1;
    if (guided[0] >= guided[1] && guided[1] > 0)
        return weft_fail(WEFT_E_ARG, "--try %s: no step lies between %g and %g", text, guided[0],
                         guided[1]);
    return WEFT_OK;
}

/* One a line, without empty ones. */
static weft_status read_prompts(const char *path, weft_arena *arena, const char ***prompt,
                                int64_t *count)
{
    char *data;
    int64_t bytes, room = 0;
    WEFT_TRY(weft_file_read(path, 1 << 24, &data, &bytes));
    char *copy = weft_arena_strdup(arena, data), *rest = copy;
    for (int64_t i = 0; i < bytes; i++)
        room += data[i] == '\n';
    weft_free(data);
    *prompt = weft_arena_alloc(arena, (room + 1) * (int64_t)sizeof **prompt);
    *count = 0;
    if (!copy || !*prompt)
        return weft_fail(WEFT_E_MEMORY, "out of memory for prompts");
    for (char *line; (line = strtok_r(rest, "\r\n", &rest));)
        if (*line != '#')
            (*prompt)[(*count)++] = line;
    return *count ? WEFT_OK : weft_fail(WEFT_E_FORMAT, "%s: no prompt in it", path);
}

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static void print_rows(const json_t *result)
{
    size_t i;
    json_t *row;
    char psnr[2][32];
    printf("%-34s %9s %8s %7s %9s %8s %8s %9s %7s %7s\n", "", "s/video", "speed-up", "reused",
           "predicted", "PSNR", "least", "identical", "SSIM", "LPIPS");
    printf("%-34s %9.3f\n", "all steps", number(result, "seconds"));
    json_array_foreach(json_object_get(result, "each"), i, row)
    {
        printf("%-34s %9.3f %7.2fx", json_string_value(json_object_get(row, "name")),
               number(row, "seconds"), number(row, "speedup"));
        if (json_object_get(row, "predicted"))
            printf(" %5.0f %% %8.2fx", 100 * number(row, "reused"), number(row, "predicted"));
        else
            printf(" %7s %9s", "", "");
        printf(" %8s %8s %9.0f %7.4f", weft_psnr_text(json_object_get(row, "psnr"), psnr[0]),
               weft_psnr_text(json_object_get(row, "psnr_least"), psnr[1]),
               number(row, "identical"), number(row, "ssim"));
        if (json_object_get(row, "lpips"))
            printf(" %7.4f", number(row, "lpips"));
        printf("\n");
    }
}

static weft_status read_lpips(const char *text, weft_arena *arena, weft_saving_eval_options *o)
{
    if (!text)
        return WEFT_OK;
    char *trunk = weft_arena_strdup(arena, text), *comma = trunk ? strchr(trunk, ',') : NULL;
    if (!trunk)
        return weft_fail(WEFT_E_MEMORY, "out of memory for --lpips");
    if (!comma)
        return weft_fail(WEFT_E_ARG,
                         "--lpips %s: TRUNK,HEADS: torchvision's net and lpips' heads for it, as "
                         "in alexnet.pth,alex.pth",
                         text);
    *comma = '\0';
    o->lpips_trunk = trunk;
    o->lpips_heads = comma + 1;
    return WEFT_OK;
}

static weft_status read_savings(const weft_args *args, weft_arena *arena,
                                weft_saving_eval_options *o)
{
    int count;
    const char *const *text = weft_args_list(args, "--try", &count);
    if (count == 0) {
        text = usual;
        count = sizeof usual / sizeof *usual;
    }
    weft_saving *saving = weft_arena_alloc(arena, count * (int64_t)sizeof *saving);
    if (!saving)
        return weft_fail(WEFT_E_MEMORY, "out of memory for --try");
    for (int i = 0; i < count; i++)
        WEFT_TRY(read_saving(text[i], arena, &o->plain, &saving[i]));
    o->saving = saving;
    o->savings = count;
    return WEFT_OK;
}

static weft_status evaluate(const weft_args *args, weft_arena *arena, json_t **result)
{
    const char *prompts = weft_args_string(args, "--prompts");
    weft_saving_eval_options o = {.model = weft_args_string(args, "--model"),
                                  .plain = {.batch = 1}};
    const char **prompt;
    if (!prompts)
        return weft_fail(WEFT_E_ARG, "eval cache needs --prompts FILE, one a line");
    WEFT_TRY(read_prompts(prompts, arena, &prompt, &o.count));
    o.prompt = prompt;
    WEFT_TRY(weft_args_i64(args, "--seed", 0, INT64_MAX / 2, &o.seed));
    WEFT_TRY(weft_args_i64(args, "--steps", 1, 10000, &o.plain.steps));
    WEFT_TRY(weft_args_f64(args, "--guidance", 0, 100, &o.plain.guidance));
    char *own = weft_path_join(o.model, "weft.json");
    const bool sized = own && weft_path_exists(own);
    weft_free(own);
    if (!sized) {
        WEFT_TRY(weft_args_i64(args, "--frames", 1, 100000, &o.plain.frames));
        WEFT_TRY(weft_args_i64(args, "--height", 8, 16384, &o.plain.height));
        WEFT_TRY(weft_args_i64(args, "--width", 8, 16384, &o.plain.width));
    }
    WEFT_TRY(weft_args_i64(args, "--least", 1, 100, &o.least));
    WEFT_TRY(read_lpips(weft_args_string(args, "--lpips"), arena, &o));
    WEFT_TRY(read_savings(args, arena, &o));
    return weft_evaluate_savings(&o, result);
}

weft_status weft_eval_savings(const weft_args *args, json_t **result)
{
    weft_arena *arena = weft_arena_create();
    const weft_status_code status =
        arena ? evaluate(args, arena, result) : weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_arena_free(arena);
    if (status == WEFT_OK)
        print_rows(*result);
    return status;
}
