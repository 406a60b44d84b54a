#include "estimate/plan_models.h"

#include "base/config.h"
#include "base/fs.h"
#include "graph/builder_helpers.h"
#include "model/model.h"
#include "plan/cost/graph_list.h"
#include "plan/published/dit_list.h"
#include "plan/published/unet_list.h"
#include "plan/published/video_list.h"
#include "train/graph/optimizer.h"

#include <string.h>

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t patches(int64_t length, int64_t patch)
{
    return divide_up(length, patch) * patch;
}

static weft_status no_such_model(const char *word)
{
    enum { MOST = 64 };
    const char *name[MOST];
    int count = 0;
    for (int i = 0; weft_video_preset_at(i) && count < MOST; i++)
        name[count++] = weft_video_preset_at(i)->name;
    for (int i = 0; weft_dit_preset_at(i) && count < MOST; i++)
        name[count++] = weft_dit_preset_at(i)->name;
    for (int i = 0; weft_unet_preset_at(i) && count < MOST; i++)
        name[count++] = weft_unet_preset_at(i)->name;
    weft_buf list = {0};
    for (int i = 0; i < count; i++)
        weft_buf_printf(&list, "%s, ", name[i]);
    const char *near = weft_nearest_name(word, name, count);
    const weft_status_code code =
        weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.value = word),
                   "unknown model '%.80s'%s%s%s; use one of %sor the folder or config.json of a "
                   "model that weft implements",
                   word, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "",
                   list.data ? list.data : "");
    weft_buf_free(&list);
    return code;
}

/* Adds the mean square of the last output as the loss. */
void weft_add_square_loss(weft_graph *g)
{
    int count;
    const weft_named *output = weft_graph_outputs(g, &count);
    if (weft_graph_check(g) != WEFT_OK || count == 0)
        return;
    const weft_value y = output[count - 1].value;
    const weft_value target = weft_input(g, "target", WEFT_F32, weft_value_get(g, y)->shape);
    weft_output(g, "model_loss",
                weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, y, target))));
}

static void add_training(weft_graph *g)
{
    weft_add_square_loss(g);
    weft_optimizer_build(
        g, weft_graph_find(g, "model_loss"),
        &(weft_optimizer_config){.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip_norm = 1});
}

weft_status weft_plan_model_graph(const char *name, int64_t frames, int64_t height, int64_t width,
                                  weft_graph **out)
{
    weft_model model, encoder;
    weft_model_size size = {.batch = 1, .text = 512};
    WEFT_TRY(weft_model_open_as(name, WEFT_ROLE_DENOISER, &model));
    WEFT_TRY(weft_model_default_autoencoder(&model, &encoder));
    const weft_grid pixels = weft_model_grid(&encoder), patch = weft_model_grid(&model);
    size.frames = patches(divide_up(frames - pixels.causal, pixels.factor[0]) + pixels.causal,
                          patch.factor[0]);
    size.height = patches(divide_up(height, pixels.factor[1]), patch.factor[1]);
    size.width = patches(divide_up(width, pixels.factor[2]), patch.factor[2]);
    weft_graph *g = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(g, "a graph"));
    weft_model_build(g, &model, &size, false);
    add_training(g);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_graph_check(g));
    *out = g;
    return WEFT_OK;
out:
    weft_graph_free(g);
    return status;
}

static weft_status graph_list(weft_arena *arena, const char *name, int64_t frames, int64_t height,
                              int64_t width, const weft_device_type *device, weft_op_list *out)
{
    weft_graph *g;
    WEFT_TRY(weft_plan_model_graph(name, frames, height, width, &g));
    /* Rates are of weft's own f32 kernels; a device without rates is assumed to compute in bf16. */
    const weft_status_code status =
        weft_op_list_from_graph(arena, g, device, device->rates ? 4 : 2, out);
    weft_graph_free(g);
    out->name = name;
    return status;
}

weft_status weft_plan_model_list(weft_arena *arena, const char *name, int64_t frames,
                                 int64_t height, int64_t width, const weft_device_type *device,
                                 weft_op_list *out, const char **source)
{
    const weft_dit_shape *dit = weft_dit_preset(name);
    const weft_video_preset *video = weft_video_preset_find(name);
    *source = "hand-made list";
    if (frames < 1 || height < 1 || width < 1)
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_NOWHERE,
                          "a clip of %" PRId64 " frames of %" PRId64 " x %" PRId64
                          " pixels is empty; all three must be positive",
                          frames, height, width);
    if (dit)
        return weft_dit_costs(arena, dit, out);
    if (video && video->kind != WEFT_DIT_GRAPH)
        return weft_video_list(arena, video, frames, height, width, out);
    weft_unet_list unet;
    const weft_status_code status = video ? WEFT_E_NOT_FOUND : weft_unet_costs(arena, name, &unet);
    if (status != WEFT_E_NOT_FOUND) {
        WEFT_TRY(status);
        *out = unet.list;
        return WEFT_OK;
    }
    if (!video && !weft_path_exists(name))
        return no_such_model(name);
    *source = "graph";
    return graph_list(arena, name, frames, height, width, device, out);
}

static double param_bytes(const weft_op_list *list)
{
    return weft_op_list_total(list).param_bytes;
}

weft_status weft_plan_model_work(weft_arena *arena, const char *name, const weft_workload *samples,
                                 const weft_device_type *device, weft_model_work *out)
{
    const weft_video_preset *own = weft_video_preset_find(name);
    if (!own && !weft_path_exists(name))
        return no_such_model(name);
    /* a user's model has the encoders of Wan */
    const weft_video_preset *p = own ? own : weft_video_preset_find("wan-1.3b");
    weft_model_work m = {.name = name, .text_weight_bytes = 2 * (double)p->text_parameters};
    WEFT_TRY(WEFT_ARENA_NEW(arena, m.clip, samples->count, "%" PRId64 " samples", samples->count));
    for (int64_t i = 0; i < samples->count; i++) {
        const weft_plan_bucket *b = &samples->bucket[i];
        bool there = false;
        for (int64_t k = 0; k < m.clips; k++)
            there |= m.clip[k].frames == b->frames && m.clip[k].height == b->height &&
                     m.clip[k].width == b->width;
        if (there)
            continue;
        weft_clip_work *c = &m.clip[m.clips];
        weft_video_clip(p, b->frames, b->height, b->width, c);
        WEFT_TRY(weft_plan_model_list(arena, name, b->frames, b->height, b->width, device,
                                      &c->denoiser, &m.source));
        if (c->denoiser.layers < 1)
            return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = "model", .value = name),
                              "%s is not a denoiser with self-attention, which this plan needs",
                              name);
        m.clips++;
    }
    if (m.clips == 0)
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_NOWHERE, "the workload has no samples");
    const weft_op_list *first = &m.clip[0].denoiser;
    m.layers = first->layers;
    m.heads = first->heads;
    m.hidden = first->hidden;
    m.parameters = param_bytes(first) / (double)first->dtype_bytes;
    *out = m;
    return WEFT_OK;
}
