/* weft plan generate: searches the parallel layouts of a generation, with the model's programs. */
#include "cli/plan_generate.h"

#include "base/location.h"
#include "cli/options/args.h"
#include "cli/options/weights_option.h"
#include "cli/plan.h"
#include "estimate/generation/generation_layouts.h"
#include "generate/generator/own_settings.h"
#include "storage/input_copy.h"

#include <string.h>

typedef struct plan_generate {
    const char *model, *weights, *precision;
    int64_t frames, height, width, steps, batch, window, window_overlap;
    double guidance;
} plan_generate;

#define AT(member) offsetof(plan_generate, member)
static const weft_key keys[] = {
    {"model", WEFT_KEY_STRING, AT(model), "", "", "model folder, as for weft generate (required)"},
    {"frames", WEFT_KEY_I64, AT(frames), "0", "", "frames of a video; 0 (default): as trained",
     .max = 100000},
    {"height", WEFT_KEY_I64, AT(height), "0", "pixels", "rows of a video; 0 (default): as trained",
     .max = 16384},
    {"width", WEFT_KEY_I64, AT(width), "0", "pixels", "columns of a video; 0 (default): as trained",
     .max = 16384},
    {"steps", WEFT_KEY_I64, AT(steps), "0", "",
     "denoising steps; 0 (default): of a distilled model, or 30", .max = 10000},
    {"batch", WEFT_KEY_I64, AT(batch), "1", "", "prompts denoised together", .min = 1, .max = 4096},
    {"guidance", WEFT_KEY_F64, AT(guidance), "-1", "",
     "guidance scale; 1: no guidance, one model evaluation per step in place of two. -1 (default): "
     "the model's own, or 4",
     .min = -1, .max = 100},
    {"window", WEFT_KEY_I64, AT(window), "0", "frames",
     "frames denoised together; 0 (default): all", .max = 100000},
    {"window_overlap", WEFT_KEY_I64, AT(window_overlap), "0", "frames",
     "frames that two windows share; 0 (default): about a quarter", .max = 100000},
    {"weights", WEFT_KEY_STRING, AT(weights), "stored", "",
     "storage of the weights, as --weights of weft generate; stream is also tried if the weights "
     "do not fit"},
    {"precision", WEFT_KEY_STRING, AT(precision), "f32", "",
     "type in which the model computes, f32 or bf16, as --precision of weft generate"},
};
const weft_section weft_plan_generate_section = {"generate", "the videos to generate",
                                                 sizeof(plan_generate), keys, WEFT_COUNT(keys)};

static json_t *json_of(const weft_layout_list *l, int64_t i)
{
    const weft_generation_estimate *x = l->item[i].estimate;
    weft_buf why = {0};
    weft_layout_list_explain(l, i, &why);
    json_t *json = json_pack("{s:s, s:b, s:s}", "layout", l->item[i].name, "fits", x->fits, "why",
                             why.data ? why.data : "");
    if (json && x->fits)
        json_object_update_new(
            json, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:s, s:b}", "video",
                            x->video, "step", x->step, "compute", x->compute, "waiting", x->exposed,
                            "hidden", x->hidden, "text", x->text, "first", x->first, "decode",
                            x->decode, "sent_bytes", (json_int_t)x->wire, "peak_bytes",
                            (json_int_t)x->peak, "tiles", x->tiles, "stream", x->stream));
    weft_buf_free(&why);
    return json;
}

static json_t *json_of_all(const weft_generation_estimator *p, const char *spec,
                           const weft_layout_list *l)
{
    json_t *all = json_array(),
           *json = json_pack("{s:s, s:s, s:s, s:i}", "format", "weft.generation-layouts/1", "model",
                             p->folder, "cluster", spec, "ranks", p->ranks);
    for (int64_t i = 0; all && i < l->count; i++)
        json_array_append_new(all, json_of(l, i));
    if (json)
        json_object_set_new(json, "candidates", all);
    return json;
}

static weft_status read_options(const plan_generate *c, weft_generator_options *o)
{
    *o = (weft_generator_options){.frames = c->frames,
                                  .height = c->height,
                                  .width = c->width,
                                  .steps = c->steps,
                                  .batch = c->batch,
                                  .guidance = c->guidance,
                                  .negative = "",
                                  .window = c->window,
                                  .window_overlap = c->window_overlap};
    if (!c->model[0])
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY, WEFT_AT(.key = "model"),
                          "weft plan generate needs a model; give --set model=DIR");
    WEFT_TRY(weft_weights_option(c->weights, o));
    return weft_precision_option(c->precision, o);
}

/* Copies a model of a bucket. */
static weft_status copy_model(const char **model, weft_input_copy **copy)
{
    if (!weft_location_is_remote(*model))
        return WEFT_OK;
    WEFT_TRY(weft_input_copy_open(*model, copy));
    *model = weft_input_copy_path(*copy);
    return WEFT_OK;
}

static weft_status plan(const weft_args *args, weft_arena *arena, const char *path,
                        weft_input_copy **copy)
{
    plan_generate config;
    weft_generator_options options;
    weft_cluster cluster;
    weft_layout_list estimates;
    weft_buf text = {0};
    int64_t memory;
    int count, ranks;
    const char *const *set = weft_args_list(args, "--set", &count),
                      *spec = weft_args_string(args, "--on");
    WEFT_TRY(weft_args_i64(args, "--memory-limit", 0, INT64_MAX, &memory));
    WEFT_TRY(weft_config_load(arena, path, set, count, &weft_plan_generate_section, &config));
    WEFT_TRY(copy_model(&config.model, copy));
    WEFT_TRY(read_options(&config, &options));
    WEFT_TRY(weft_own_settings_take(config.model, false, WEFT_USUAL_STEPS, &options));
    WEFT_TRY(weft_cluster_load(arena, spec, &cluster));
    const int64_t all = weft_cluster_devices(&cluster);
    WEFT_TRY(weft_plan_ranks(args, all, 1 << 12, &ranks));
    const int64_t each = (ranks + all - 1) / all;
    options.memory = memory ? memory : cluster.device.memory / each;
    const weft_generation_estimator p = {.folder = config.model,
                                         .options = &options,
                                         .cluster = &cluster,
                                         .ranks = ranks,
                                         .arena = arena};
    WEFT_TRY(weft_generation_search(&p, &estimates));
    if (estimates.fitting == 0)
        return weft_layout_list_infeasible(&estimates, ranks, WEFT_AT(.file = config.model));
    weft_generation_print(&p, &estimates, weft_args_flag(args, "--explain"), &text);
    return weft_plan_finish(args, json_of_all(&p, spec, &estimates), &text, NULL);
}

weft_status weft_plan_generate_run(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the layouts"));
    weft_input_copy *copy = NULL;
    const weft_status_code status = plan(args, arena, count > 1 ? words[1] : NULL, &copy);
    weft_input_copy_close(copy);
    weft_arena_free(arena);
    return status;
}
