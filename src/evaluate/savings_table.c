/* weft eval savings: time saved and quality lost by fewer and cheaper steps. */
#include "evaluate/savings_table.h"
#include "base/fs.h"
#include "cli/options/args.h"
#include "cli/options/backend_option.h"
#include "cli/options/videos_option.h"
#include "cli/options/weights_option.h"
#include "evaluate/evaluate.h"
#include "evaluate/image_metrics.h"
#include "evaluate/setting_comparison.h"
#include "generate/generator/own_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const usual[] = {"feature-cache=conservative",
                                    "feature-cache=fast",
                                    "feature-cache=every:2",
                                    "feature-cache=every:3",
                                    "feature-cache=attention:2",
                                    "guidance-start=0.2",
                                    "guidance-end=0.6",
                                    "guidance-end=0.6 feature-cache=fast",
                                    "sampler=unipc steps=20",
                                    "sampler=unipc steps=10",
                                    "sampler=dpmpp steps=20",
                                    "sampler=dpmpp steps=10",
                                    "sampler=euler steps=15",
                                    "sampler=unipc steps=20 feature-cache=fast",
                                    "precision=bf16",
                                    "weights=int8",
                                    "weights=int8 precision=bf16"};

static weft_status refuse(const char *text, const char *part)
{
    return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--setting", .value = text),
                      "'%.80s' in '%.80s' is not one of feature-cache=RULE, steps=N, sampler=NAME, "
                      "guidance-start=S, guidance-end=S, weights=TYPE and precision=TYPE; separate "
                      "them with blanks",
                      part, text);
}

/* Accepts the key's current or earlier name. */
static bool is_key(const char *part, const char *name, const char *earlier)
{
    return !strcmp(part, name) || !strcmp(part, earlier);
}

static weft_status read_part(const char *text, char *part, weft_generator_options *o)
{
    char *value = strchr(part, '='), *end = NULL;
    if (!value)
        return refuse(text, part);
    *value++ = '\0';
    const double number = strtod(value, &end);
    const bool numeric = end != value && !*end && number >= 0;
    if (is_key(part, "feature-cache", "cache"))
        o->cache = value;
    else if (!strcmp(part, "sampler") && weft_sampler_find(value))
        o->sampler = weft_sampler_find(value);
    else if (!strcmp(part, "steps") && numeric && number >= 1 && number <= 10000)
        o->steps = (int64_t)number;
    else if (is_key(part, "guidance-start", "guidance-from") && numeric && number < 1)
        o->guided[0] = number;
    else if (is_key(part, "guidance-end", "guidance-until") && numeric && number <= 1)
        o->guided[1] = number;
    else if (!strcmp(part, "weights"))
        return weft_weights_option(value, o);
    else if (!strcmp(part, "precision"))
        return weft_precision_option(value, o);
    else
        return refuse(text, part);
    return WEFT_OK;
}

static weft_status read_saving(const char *text, weft_arena *arena,
                               const weft_generator_options *plain, weft_saving *saving)
{
    *saving = (weft_saving){.name = text, .options = *plain};
    char *copy = weft_arena_strdup(arena, text), *rest = copy;
    WEFT_TRY(WEFT_ALLOCATED(copy, "--setting"));
    for (char *part; (part = strtok_r(rest, " ", &rest));)
        WEFT_TRY(read_part(text, part, &saving->options));
    double *guided = saving->options.guided;
    if (guided[0] > 0 && !(guided[1] > 0))
        guided[1] = 1;
    if (guided[0] >= guided[1] && guided[1] > 0)
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--setting", .value = text),
                          "'%.80s' leaves no step with guidance: guidance-start=%g must be below "
                          "guidance-end=%g",
                          text, guided[0], guided[1]);
    return WEFT_OK;
}

/* Reads one prompt per line; skips empty lines. */
static weft_status read_prompts(const char *path, weft_arena *arena, const char ***prompt,
                                int64_t *count)
{
    char *data;
    int64_t bytes, capacity = 0;
    WEFT_TRY(weft_file_read(path, 1 << 24, &data, &bytes));
    char *copy = weft_arena_strdup(arena, data), *rest = copy;
    for (int64_t i = 0; i < bytes; i++)
        capacity += data[i] == '\n';
    weft_free(data);
    *prompt = weft_arena_calloc(arena, capacity + 1, sizeof **prompt);
    *count = 0;
    WEFT_TRY(WEFT_ALLOCATED(copy && *prompt, "prompts"));
    for (char *line; (line = strtok_r(rest, "\r\n", &rest));)
        if (*line != '#')
            (*prompt)[(*count)++] = line;
    return *count ? WEFT_OK
                  : weft_error(WEFT_MSG_TEXT_DAMAGED, WEFT_AT(.file = path),
                               "the file has no prompt; write one on each line");
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
    WEFT_TRY(WEFT_ALLOCATED(trunk, "--lpips"));
    if (!comma)
        return weft_error(
            WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--lpips", .value = text),
            "'%.80s' is not BACKBONE,HEADS: the network of torchvision and its heads of "
            "lpips, as in alexnet.pth,alex.pth",
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
    const char *const *text = weft_args_list(args, "--setting", &count);
    if (count == 0) {
        text = usual;
        count = sizeof usual / sizeof *usual;
    }
    weft_saving *saving;
    WEFT_TRY(WEFT_ARENA_NEW(arena, saving, count, "--setting"));
    for (int i = 0; i < count; i++)
        WEFT_TRY(read_saving(text[i], arena, &o->plain, &saving[i]));
    o->saving = saving;
    o->savings = count;
    return WEFT_OK;
}

weft_status weft_eval_read_settings(const weft_args *args, const char *model,
                                    weft_generator_options *o)
{
    o->own_guidance = false;
    WEFT_TRY(weft_args_i64(args, "--steps", 0, 10000, &o->steps));
    WEFT_TRY(weft_args_guidance(args, &o->guidance));
    WEFT_TRY(weft_own_settings_take(model, true, WEFT_EVAL_STEPS, o));
    char *own = weft_path_join(model, "weft.json");
    const bool sized = own && weft_path_exists(own);
    weft_free(own);
    if (!sized) {
        WEFT_TRY(weft_args_i64(args, "--frames", 1, 100000, &o->frames));
        WEFT_TRY(weft_args_i64(args, "--height", 8, 16384, &o->height));
        WEFT_TRY(weft_args_i64(args, "--width", 8, 16384, &o->width));
    }
    return WEFT_OK;
}

weft_status weft_eval_read_videos(const weft_args *args, weft_arena *arena,
                                  const char *const *usual_prompts, weft_saving_eval_options *o)
{
    const char *prompts = weft_args_string(args, "--prompts");
    const char **prompt;
    *o = (weft_saving_eval_options){
        .model = weft_args_string(args, "--model"), .plain = {.batch = 1}, .prompt = usual_prompts};
    while (!prompts && usual_prompts && usual_prompts[o->count])
        o->count++;
    if (!prompts && !usual_prompts)
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--prompts"),
                          "weft eval savings needs --prompts FILE, with one prompt on each line");
    WEFT_TRY(weft_args_backend(args, &o->plain.backend));
    if (prompts) {
        WEFT_TRY(read_prompts(prompts, arena, &prompt, &o->count));
        o->prompt = prompt;
    }
    o->plain.visual.image = weft_args_string(args, "--image");
    o->plain.visual.last_image = weft_args_string(args, "--last-image");
    o->plain.visual.control = weft_args_string(args, "--control");
    o->plain.visual.face = weft_args_string(args, "--face");
    o->plain.visual.mask = weft_args_string(args, "--mask");
    WEFT_TRY(weft_args_i64(args, "--seed", 0, INT64_MAX / 2, &o->seed));
    return weft_eval_read_settings(args, o->model, &o->plain);
}

static weft_status evaluate(const weft_args *args, weft_arena *arena, json_t **result)
{
    weft_saving_eval_options o;
    WEFT_TRY(weft_eval_read_videos(args, arena, NULL, &o));
    WEFT_TRY(weft_args_i64(args, "--timing-runs", 1, 100, &o.least));
    WEFT_TRY(read_lpips(weft_args_string(args, "--lpips"), arena, &o));
    WEFT_TRY(read_savings(args, arena, &o));
    return weft_evaluate_savings(&o, result);
}

weft_status weft_eval_savings(const weft_args *args, json_t **result)
{
    weft_arena *arena = weft_arena_create();
    weft_status_code status = WEFT_OK;
    WEFT_GO(arena ? evaluate(args, arena, result) : weft_no_memory("the evaluation"));
    print_rows(*result);
out:
    weft_arena_free(arena);
    return status;
}
