#include "cli/estimate_model.h"

#include "base/fs.h"
#include "cli/estimate_run.h"
#include "cli/options/args.h"
#include "cli/options/method_options.h"
#include "cli/options/parallel_option.h"
#include "cli/options/tile_option.h"
#include "cli/options/weights_option.h"
#include "cli/text_output.h"
#include "estimate/generation/generation_layouts.h"
#include "estimate/generation/generation_precision.h"
#include "estimate/generation/generation_report.h"
#include "generate/generator/own_settings.h"
#include "inspect/inspect_model.h"

#include <stdio.h>

/* ---- one model ------------------------------------------------------------------------------- */

static weft_status read_size(const weft_args *args, const char *option, int64_t fallback,
                             int64_t *out)
{
    WEFT_TRY(weft_args_i64(args, option, 0, 1 << 20, out));
    *out = *out ? *out : fallback;
    return WEFT_OK;
}

static weft_status estimate_one(const weft_args *args, const char *path)
{
    static const char *const none[] = {
        "--ranks",        "--steps",         "--guidance-scale", "--parallel",
        "--memory-limit", "--weights",       "--image",          "--last-image",
        "--video",        "--strength",      "--control",        "--mask",
        "--precision",    "--vae-precision", "--face",           "--refine"};
    weft_inspect_model_options o = {.video = {.text = 512},
                                    .train = weft_args_flag(args, "--training-step"),
                                    .json = weft_args_flag(args, "--json"),
                                    .backend =
                                        weft_args_flag(args, "--execute") ? "virtual" : "cpu",
                                    .overlap = weft_comm_overlap_default};
    const weft_verb *verb = weft_verb_find("estimate");
    const char *idle = weft_args_method_given(args, verb->options, verb->option_count);
    for (int i = 0; i < WEFT_COUNT(none) && !idle; i++)
        idle = weft_args_flag(args, none[i]) ? none[i] : NULL;
    if (idle)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = idle),
                          "%s is one model, and this option is for a generation, which needs "
                          "a complete model folder; remove the option",
                          path);
    if (weft_args_flag(args, "--on"))
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--on"),
                          "%s is one model; --execute gives its seconds on a virtual device", path);
    WEFT_TRY(weft_args_i64(args, "--batch-size", 1, 1 << 20, &o.video.batch));
    WEFT_TRY(read_size(args, "--frames", 81, &o.video.frames));
    WEFT_TRY(read_size(args, "--height", 480, &o.video.height));
    WEFT_TRY(read_size(args, "--width", 832, &o.video.width));
    return weft_inspect_model(&o, path);
}

/* ---- a generation ---------------------------------------------------------------------------- */

static weft_status read_options(const weft_args *args, weft_arena *arena, weft_generator_options *o)
{
    *o = (weft_generator_options){.negative = ""};
    WEFT_TRY(weft_args_method(args, arena, o));
    WEFT_TRY(weft_args_i64(args, "--memory-limit", 0, INT64_MAX, &o->memory));
    if (o->memory == 0)
        o->memory = INT64_MAX;
    return weft_vae_precision_option(weft_args_string(args, "--vae-precision"), &o->vae_products);
}

/* Sets *ranks to --ranks; 0: the product of the degrees. */
static weft_status find_ranks(const weft_args *args, const weft_parallel *parallel, int *ranks)
{
    weft_mesh mesh;
    int64_t given;
    weft_parallel p = *parallel;
    WEFT_TRY(weft_args_i64(args, "--ranks", 0, 1 << 12, &given));
    const int64_t cfg = p.cfg ? p.cfg : 1;
    *ranks = (int)given;
    if (given)
        return WEFT_OK;
    p.dp = p.dp ? p.dp : 1;
    WEFT_TRY(weft_parallel_mesh_denoise(&p, 0, (int)cfg, "--parallel", &mesh));
    *ranks = weft_mesh_ranks(&mesh);
    return WEFT_OK;
}

/* Estimates the layout with the fewest seconds of a video. */
static weft_status choose_layout(const weft_args *args, weft_generation_estimator *p,
                                 weft_generation_estimate *made)
{
    weft_layout_list layouts;
    int64_t ranks;
    WEFT_TRY(weft_args_i64(args, "--ranks", 0, 1 << 12, &ranks));
    if (!ranks)
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--ranks"),
                          "--parallel auto needs the number of ranks; give --ranks");
    p->ranks = (int)ranks;
    WEFT_TRY(weft_generation_search(p, &layouts));
    if (!layouts.fitting)
        return weft_layout_list_infeasible(&layouts, p->ranks,
                                           WEFT_AT(.key = "--parallel", .value = "auto"));
    *made = *(const weft_generation_estimate *)layouts.item[0].estimate;
    return WEFT_OK;
}

static weft_status print(const weft_args *args, const weft_generation_estimator *p,
                         const char *cluster, const weft_generation_estimate *made)
{
    weft_buf text = {0};
    if (weft_args_flag(args, "--json"))
        return weft_estimate_print_json(weft_generation_report_json(p, cluster, made));
    weft_generation_report_print(p, cluster, made, &text);
    return weft_text_output(&text);
}

static weft_status estimate_generation(const weft_args *args, weft_arena *arena, const char *path)
{
    const char *spec = weft_args_string(args, "--on");
    weft_parallel parallel = weft_parallel_default;
    weft_generator_options options;
    weft_generation_estimate made;
    weft_cluster cluster;
    weft_generation_estimator p = {
        .folder = path, .options = &options, .cluster = &cluster, .arena = arena};
    bool is_auto;
    WEFT_TRY(read_options(args, arena, &options));
    WEFT_TRY(weft_own_settings_take(path, false, WEFT_USUAL_STEPS, &options));
    WEFT_TRY(weft_args_parallel_is_auto(args, &is_auto));
    if (!is_auto)
        WEFT_TRY(weft_args_parallel(args, arena, &parallel));
    WEFT_TRY(find_ranks(args, &parallel, &p.ranks));
    options.parallel = &parallel;
    WEFT_TRY(weft_cluster_load(arena, spec, &cluster));
    if (options.precision_auto)
        WEFT_TRY(weft_generation_choose_precision(&p, spec, &options.bf16));
    options.precision_auto = false;
    if (is_auto)
        WEFT_TRY(choose_layout(args, &p, &made));
    else
        WEFT_TRY(weft_generation_estimate_own(&p, &made));
    return print(args, &p, spec, &made);
}

weft_status weft_estimate_model(const weft_args *args, const char *path)
{
    if (!weft_model_is_pipeline(path) || weft_args_flag(args, "--training-step"))
        return estimate_one(args, path);
    if (weft_args_flag(args, "--execute"))
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--execute"),
                          "a generation is not executed; remove the option, or name one model of "
                          "%s",
                          path);
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the estimate"));
    const weft_status_code status = estimate_generation(args, arena, path);
    weft_arena_free(arena);
    return status;
}
