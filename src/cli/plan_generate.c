/* weft plan generate: how ranks split the making of a video, by its own programs. */
#include "cli/plan.h"
#include "cli/weights_option.h"
#include "generate/layouts_priced.h"

#include <string.h>

typedef struct plan_generate {
    const char *model, *weights;
    int64_t frames, height, width, steps, batch, window, window_overlap;
    double guidance;
} plan_generate;

#define AT(member) offsetof(plan_generate, member)
static const weft_key keys[] = {
    {"model", WEFT_KEY_STRING, AT(model), "", "", "model folder, as weft generate takes it"},
    {"frames", WEFT_KEY_I64, AT(frames), "0", "", "of a video; 0: as trained", .max = 100000},
    {"height", WEFT_KEY_I64, AT(height), "0", "pixels", "0: as trained", .max = 16384},
    {"width", WEFT_KEY_I64, AT(width), "0", "pixels", "0: as trained", .max = 16384},
    {"steps", WEFT_KEY_I64, AT(steps), "30", "", "denoising steps", .min = 1, .max = 10000},
    {"batch", WEFT_KEY_I64, AT(batch), "1", "", "prompts denoised together", .min = 1, .max = 4096},
    {"guidance", WEFT_KEY_F64, AT(guidance), "4", "",
     "scale; 1: one half of the batch and no other", .min = 0, .max = 100},
    {"window", WEFT_KEY_I64, AT(window), "0", "frames", "denoised together; 0: all", .max = 100000},
    {"window_overlap", WEFT_KEY_I64, AT(window_overlap), "0", "frames",
     "that two windows share; 0: about a quarter", .max = 100000},
    {"weights", WEFT_KEY_STRING, AT(weights), "stored", "",
     "as --weights of weft generate; where they do not fit, stream is tried too"},
};
const weft_section weft_plan_generate_section = {"generate", "the videos that are made",
                                                 sizeof(plan_generate), keys, WEFT_COUNT(keys)};

static weft_status none_fits(const weft_generation_pricer *p, const weft_generation_prices *l)
{
    const weft_generation_price *nearest = &l->item[0];
    weft_buf name = {0};
    if (l->count)
        weft_generation_layout_name(nearest, &name);
    const weft_status_code status =
        weft_fail(WEFT_E_INFEASIBLE, "%s: no layout of %d ranks %s; the nearest, %s: %s", p->folder,
                  p->ranks, l->legal ? "fits" : "can be", name.data ? name.data : "none",
                  l->count && nearest->why ? nearest->why : "?");
    weft_buf_free(&name);
    return status;
}

static json_t *json_of(const weft_generation_prices *l, int64_t i)
{
    const weft_generation_price *x = &l->item[i];
    weft_buf name = {0}, why = {0};
    weft_generation_layout_name(x, &name);
    weft_generation_why(l, i, &why);
    json_t *json = json_pack("{s:s, s:b, s:s}", "layout", name.data ? name.data : "", "fits",
                             x->fits, "why", why.data ? why.data : "");
    if (json && x->fits)
        json_object_update_new(
            json, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:s, s:b}", "video",
                            x->video, "step", x->step, "compute", x->compute, "waiting",
                            x->exchange, "hidden", x->hidden, "text", x->text, "first", x->first,
                            "decode", x->decode, "sent_bytes", (json_int_t)x->wire, "peak_bytes",
                            (json_int_t)x->peak, "tiles", x->tiles, "stream", x->stream));
    weft_buf_free(&name);
    weft_buf_free(&why);
    return json;
}

static json_t *json_of_all(const weft_generation_pricer *p, const char *spec,
                           const weft_generation_prices *l)
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
        return weft_fail(WEFT_E_ARG, "weft plan generate: of which model? --set model=DIR");
    return weft_weights_option(c->weights, o);
}

static weft_status plan(const weft_args *args, weft_arena *arena, const char *path)
{
    plan_generate config;
    weft_generator_options options;
    weft_cluster cluster;
    weft_generation_prices prices;
    weft_buf text = {0};
    int64_t memory;
    int count, ranks;
    const char *const *set = weft_args_list(args, "--set", &count),
                      *spec = weft_args_string(args, "--cluster");
    WEFT_TRY(weft_args_i64(args, "--memory", 0, INT64_MAX, &memory));
    WEFT_TRY(weft_config_load(arena, path, set, count, &weft_plan_generate_section, &config));
    WEFT_TRY(read_options(&config, &options));
    WEFT_TRY(weft_cluster_load(arena, spec, &cluster));
    const int64_t all = weft_cluster_devices(&cluster);
    WEFT_TRY(weft_plan_ranks(args, all, 1 << 12, &ranks));
    const int64_t each = (ranks + all - 1) / all;
    options.memory = memory ? memory : cluster.device.memory / each;
    const weft_generation_pricer p = {.folder = config.model,
                                      .options = &options,
                                      .cluster = &cluster,
                                      .ranks = ranks,
                                      .arena = arena};
    WEFT_TRY(weft_generation_search(&p, &prices));
    if (prices.fitting == 0)
        return none_fits(&p, &prices);
    weft_generation_print(&p, &prices, weft_args_flag(args, "--explain"), &text);
    return weft_plan_finish(args, json_of_all(&p, spec, &prices), &text, NULL);
}

weft_status weft_plan_generate_run(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    weft_arena *arena = weft_arena_create();
    if (!arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    const weft_status_code status = plan(args, arena, count > 1 ? words[1] : NULL);
    weft_arena_free(arena);
    return status;
}
