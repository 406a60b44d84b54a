#include "plan/cascade/workload.h"

#include "base/rng.h"
#include "plan/cluster/cluster_path.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FAR_DEGREE = 4096 }; /* largest degree to try beyond the cluster */

static const weft_key bucket_keys[] = {
    {"batch", WEFT_KEY_I64, offsetof(weft_plan_bucket, batch), "1", "", "clips per sample",
     .min = 1, .max = 65536},
    {"frames", WEFT_KEY_I64, offsetof(weft_plan_bucket, frames), NULL, "", "frames per clip",
     .min = 1, .max = 1e6},
    {"height", WEFT_KEY_I64, offsetof(weft_plan_bucket, height), NULL, "pixels", "", .min = 1,
     .max = 65536},
    {"width", WEFT_KEY_I64, offsetof(weft_plan_bucket, width), NULL, "pixels", "", .min = 1,
     .max = 65536},
    {"weight", WEFT_KEY_F64, offsetof(weft_plan_bucket, weight), "1", "",
     "weight of this shape when samples are drawn", .min = 0, .max = 1e9},
    {"count", WEFT_KEY_I64, offsetof(weft_plan_bucket, count), "0", "",
     "samples of this shape in every iteration; 0: drawn by weight", .min = 0, .max = 1e6},
};
const weft_section weft_plan_bucket_section = {"buckets", "clips of one shape",
                                               sizeof(weft_plan_bucket), bucket_keys,
                                               WEFT_COUNT(bucket_keys)};

typedef struct train_stage {
    const char *name;
    int64_t height, width, budget,
        cap; /* batch: clips of up to `budget` tokens of 16 x 16 x 4 pixels, at most `cap` */
    struct {
        int64_t frames;
        double weight;
    } length[16];
} train_stage;

/* Lengths are discrete, shifted right and concentrated (Arachne §III). At 720p the shares up to 53,
 * 81 and 105 frames are those of §V-C: 10.8, 46.9 and 70.4 %. At 1080p memory caps clips at 57
 * frames and skews towards short ones (§V-B). The other values are estimated from the text and
 * figures. */
static const train_stage train_stages[] = {
    {"360p",
     360,
     640,
     120000,
     8,
     {{17, 5}, {33, 10}, {49, 12}, {65, 15}, {81, 16}, {97, 14}, {113, 13}, {129, 15}}},
    {"720p",
     720,
     1280,
     45000,
     3,
     {{13, 2.6},
      {29, 2.6},
      {37, 2.6},
      {53, 3.0},
      {61, 11.7},
      {69, 11.7},
      {81, 12.7},
      {93, 11.7},
      {105, 11.8},
      {113, 10.6},
      {121, 8},
      {129, 11}}},
    {"1080p",
     1080,
     1920,
     45000,
     3,
     {{5, 10}, {9, 16}, {13, 17}, {17, 15}, {25, 14}, {33, 10}, {41, 8}, {49, 5}, {57, 5}}},
};

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

weft_status weft_workload_stage(weft_arena *arena, const char *name, weft_workload *out)
{
    for (int i = 0; i < WEFT_COUNT(train_stages); i++) {
        const train_stage *s = &train_stages[i];
        if (strcmp(s->name, name))
            continue;
        weft_workload w = {.bucket = weft_arena_calloc(arena, 16, sizeof *w.bucket)};
        WEFT_TRY(WEFT_ALLOCATED(w.bucket, "the buckets"));
        for (int k = 0; k < 16 && s->length[k].frames; k++) {
            const int64_t tokens = (1 + divide_up(s->length[k].frames - 1, 4)) *
                                   divide_up(s->height, 16) * divide_up(s->width, 16);
            int64_t batch = s->budget / tokens;
            batch = batch < 1 ? 1 : batch > s->cap ? s->cap : batch;
            w.bucket[w.count++] = (weft_plan_bucket){batch,    s->length[k].frames, s->height,
                                                     s->width, s->length[k].weight, 0};
        }
        *out = w;
        return WEFT_OK;
    }
    return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = "stage", .value = name),
                      "\"%s\" is not one of 360p, 720p, 1080p", name);
}

weft_status weft_workload_draw(weft_arena *arena, const weft_workload *from, int64_t samples,
                               uint64_t seed, weft_workload *out)
{
    int64_t fixed = 0;
    double weights = 0;
    for (int64_t i = 0; i < from->count; i++) {
        fixed += from->bucket[i].count;
        weights += from->bucket[i].weight;
    }
    const int64_t total = fixed ? fixed : samples;
    if (total < 1 || from->count < 1 || (!fixed && !(weights > 0)))
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_NOWHERE,
                          "the workload is empty: it has %" PRId64 " buckets and %" PRId64
                          " samples",
                          from->count, total);
    weft_workload w = {.bucket = weft_arena_calloc(arena, total, sizeof *w.bucket)};
    WEFT_TRY(WEFT_ALLOCATED(w.bucket, "%" PRId64 " samples", total));
    weft_rng rng = weft_rng_make(seed, WEFT_RNG_PLAN);
    for (int64_t i = 0; fixed && i < from->count; i++)
        for (int64_t k = 0; k < from->bucket[i].count; k++)
            w.bucket[w.count++] = from->bucket[i];
    while (w.count < total) {
        double at = weft_rng_f64(&rng) * weights;
        int64_t pick = 0;
        while (pick + 1 < from->count && at >= from->bucket[pick].weight)
            at -= from->bucket[pick++].weight;
        w.bucket[w.count++] = from->bucket[pick];
    }
    *out = w;
    return WEFT_OK;
}

static double dtype_bytes(const weft_cascade_costs *c)
{
    return (double)c->model->clip[0].denoiser.dtype_bytes;
}

double weft_model_state_bytes(const weft_cascade_costs *c)
{
    return c->model->parameters *
           weft_state_bytes_on(weft_state_bytes_of(c->model->clip[0].denoiser.dtype_bytes), c->zero,
                               (double)weft_cluster_devices(c->cluster));
}

double weft_sync_seconds(const weft_cascade_costs *c)
{
    const double bytes = dtype_bytes(c) * c->model->parameters;
    const int64_t n = weft_cluster_devices(c->cluster);
    return 2 * weft_cluster_collective_seconds(c->cluster, WEFT_COLL_ALL_GATHER, n,
                                               c->cluster->devices, bytes);
}

/* Cost of one clip's operators on one device. */
typedef struct clip_cost {
    double dense, attention, attention_forward; /* seconds: forward + recompute + backward */
    /* saved, block: bytes of activations with block recompute, and inside one block */
    double flops, saved, block;
    double tokens;
} clip_cost;

static weft_status sum_up(const weft_cascade_costs *c, const weft_plan_bucket *b, clip_cost *out)
{
    const weft_clip_work *clip;
    WEFT_TRY(weft_model_work_clip(c->model, b->frames, b->height, b->width, &clip));
    const weft_op_list *list = &clip->denoiser;
    clip_cost s = {.tokens = (double)list->tokens};
    const weft_device_type *d = &c->cluster->device;
    for (int64_t i = 0; i < list->count; i++) {
        const weft_op_cost *op = &list->op[i];
        const double forward = weft_op_forward_seconds(d, op);
        const double seconds = 2 * forward + weft_op_backward_seconds(d, op);
        if (op->kind == WEFT_WORK_ATTENTION) {
            s.attention += seconds;
            s.attention_forward += forward;
        } else {
            s.dense += seconds;
        }
        s.flops += op->forward_flops + op->backward_flops;
        s.block += op->activation_bytes;
    }
    s.block /= (double)list->layers;
    s.saved = (double)list->layers * s.tokens * (double)list->hidden * dtype_bytes(c);
    *out = s;
    return WEFT_OK;
}

/* Eq. 9 with the communication of one method. */
static weft_dit_cost one_method(const weft_cascade_costs *c, const weft_plan_bucket *b,
                                const clip_cost *s, int64_t degree, weft_sp_method method,
                                int64_t per_node)
{
    const double k = (double)degree, batch = (double)b->batch, layers = (double)c->model->layers;
    const double heads = (double)c->model->heads;
    const double share = batch * s->tokens / k * (double)c->model->hidden *
                         dtype_bytes(c); /* bytes of one tensor shard */
    weft_dit_cost r = {.method = method, .flops = batch * s->flops / k};
    const double split = degree == 1                 ? 1
                         : method == WEFT_SP_ULYSSES ? ceil(heads / k) * k / heads
                                                     : 1;
    r.compute = batch * (s->dense + s->attention * split) / k;
    if (degree > 1 && method == WEFT_SP_ULYSSES) {
        /* q, k, v to heads, o back; for the forward, the recompute and the gradients */
        r.exposed_comm = 3 * layers *
                         (weft_cluster_collective_seconds(c->cluster, WEFT_COLL_ALL_TO_ALL, degree,
                                                          per_node, 3 * share) +
                          weft_cluster_collective_seconds(c->cluster, WEFT_COLL_ALL_TO_ALL, degree,
                                                          per_node, share));
        r.wire_bytes = 3 * layers * 4 * share * (k - 1) / k;
    } else if (degree > 1) {
        const double step = batch * s->attention_forward / (k * k * layers);
        const int64_t ranks = 2, near = per_node >= degree ? 2 : 1;
        const double send =
            weft_cluster_collective_seconds(c->cluster, WEFT_COLL_SEND, ranks, near, 2 * share);
        const double send_back =
            weft_cluster_collective_seconds(c->cluster, WEFT_COLL_SEND, ranks, near, 4 * share);
        r.exposed_comm =
            layers * (k - 1) * (2 * fmax(0, send - step) + fmax(0, send_back - 2.5 * step));
        r.wire_bytes = layers * (k - 1) * 8 * share;
    }
    r.seconds = r.compute + r.exposed_comm;
    r.bytes = weft_model_state_bytes(c) + batch * (s->saved + s->block) / k +
              2e9; /* 2 GB: library and buffers */
    return r;
}

static weft_dit_cost dit_cost(const weft_cascade_costs *c, const weft_plan_bucket *b,
                              const clip_cost *s, int64_t degree, weft_sp_method method,
                              int64_t per_node)
{
    if (per_node <= 0) { /* the fewest nodes, in equal parts */
        const int64_t nodes = divide_up(degree, c->cluster->devices);
        per_node = divide_up(degree, nodes);
    }
    if (method != WEFT_SP_NONE)
        return one_method(c, b, s, degree, method, per_node);
    const weft_dit_cost u = one_method(c, b, s, degree, WEFT_SP_ULYSSES, per_node);
    const weft_dit_cost r = one_method(c, b, s, degree, WEFT_SP_RING, per_node);
    return r.seconds < u.seconds ? r : u;
}

weft_status weft_dit_cost_of(const weft_cascade_costs *c, const weft_plan_bucket *b, int64_t degree,
                             weft_sp_method method, int64_t per_node, weft_dit_cost *out)
{
    clip_cost s;
    WEFT_TRY(sum_up(c, b, &s));
    *out = dit_cost(c, b, &s, degree, method, per_node);
    return WEFT_OK;
}

weft_status weft_dit_parts(const weft_cascade_costs *c, const weft_plan_bucket *b, int64_t degree,
                           weft_sp_method method, double *dense, double *attention)
{
    clip_cost s;
    WEFT_TRY(sum_up(c, b, &s));
    const double k = (double)degree, batch = (double)b->batch, heads = (double)c->model->heads;
    const double split = degree > 1 && method == WEFT_SP_ULYSSES ? ceil(heads / k) * k / heads : 1;
    *dense = batch * s.dense / k;
    *attention = batch * s.attention * split / k;
    return WEFT_OK;
}

weft_status weft_vae_seconds(const weft_cascade_costs *c, const weft_plan_bucket *b, int64_t degree,
                             double *out)
{
    const weft_clip_work *clip;
    WEFT_TRY(weft_model_work_clip(c->model, b->frames, b->height, b->width, &clip));
    *out = (double)divide_up(b->batch * clip->tiles, degree) *
           weft_device_seconds(&c->cluster->device, WEFT_WORK_CONV, clip->tile_flops, 0);
    return WEFT_OK;
}

weft_status weft_text_seconds(const weft_cascade_costs *c, const weft_plan_bucket *b, double *out)
{
    const weft_clip_work *clip;
    WEFT_TRY(weft_model_work_clip(c->model, b->frames, b->height, b->width, &clip));
    /* reading the weights dominates the time of one short prompt */
    *out = weft_device_seconds(&c->cluster->device, WEFT_WORK_GEMM,
                               (double)b->batch * clip->text_flops, c->model->text_weight_bytes);
    return WEFT_OK;
}

static bool degree_wanted(const weft_cascade_costs *c, int64_t degree)
{
    for (int64_t i = 0; i < c->degrees.count; i++)
        if (c->degrees.item[i] == degree)
            return true;
    if (c->degrees.count)
        return false;
    /* every integer to 64, whole nodes to 256, then powers of two; more degrees only cost planning
     * time */
    const int64_t per_node = c->cluster->devices;
    return degree <= 64 || (degree <= 256 && degree % per_node == 0) ||
           (degree & (degree - 1)) == 0;
}

static weft_status add_cascade(weft_arena *arena, weft_cascade *out, int64_t sample,
                               const char *module, int64_t options)
{
    out->id = weft_arena_printf(arena, "s%" PRId64 ".%s", sample, module);
    out->option = weft_arena_calloc(arena, options, sizeof *out->option);
    out->after = weft_arena_calloc(arena, 2, sizeof *out->after);
    WEFT_TRY(WEFT_ALLOCATED(out->id && out->option && out->after, "the cascades"));
    return WEFT_OK;
}

/* If no degree in the cluster fits, adds the smallest larger degree that would, for the error
 * message. */
static void add_feasible(const weft_cascade_costs *c, const weft_plan_bucket *b, const clip_cost *s,
                         int64_t widest, weft_cascade *dit)
{
    const double memory = (double)c->cluster->device.memory;
    if (!dit->option_count || dit->option[dit->option_count - 1].bytes <= memory)
        return;
    for (int64_t k = widest + 1; k <= FAR_DEGREE; k++) {
        const weft_dit_cost d = dit_cost(c, b, s, k, c->method, 0);
        if (d.bytes > memory)
            continue;
        /* for messages only; nodes without a NIC have huge times */
        dit->option[dit->option_count++] = (weft_cascade_option){k, fmin(d.seconds, 1e12), d.bytes};
        return;
    }
}

static weft_status no_degree(const weft_cascade_costs *c, int64_t widest)
{
    weft_buf text = {0};
    for (int64_t i = 0; i < c->degrees.count; i++)
        weft_buf_printf(&text, "%s%" PRId64, i ? ", " : "", c->degrees.item[i]);
    const weft_status_code code =
        weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "degrees"),
                   "none of the degrees %s is within the %" PRId64 " devices of %s",
                   text.data ? text.data : "?", widest, c->cluster->name);
    weft_buf_free(&text);
    return code;
}

weft_status weft_workload_cascades(const weft_cascade_costs *c, const weft_workload *w,
                                   weft_arena *arena, weft_cascade_list *out)
{
    const int64_t devices = weft_cluster_devices(c->cluster);
    const int64_t widest = c->max_degree > 0 && c->max_degree < devices ? c->max_degree : devices;
    const int64_t modules = c->text ? 3 : 2;
    weft_cascade_list list = {.item =
                                  weft_arena_calloc(arena, modules * w->count, sizeof *list.item)};
    WEFT_TRY(WEFT_ALLOCATED(list.item, "%" PRId64 " samples", w->count));
    if (w->count < 1)
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_NOWHERE,
                          "the workload is empty: it has no samples");
    const double states = weft_model_state_bytes(c);
    for (int64_t i = 0; i < w->count; i++) {
        const weft_plan_bucket *b = &w->bucket[i];
        clip_cost s;
        const weft_clip_work *clip;
        WEFT_TRY(sum_up(c, b, &s));
        WEFT_TRY(weft_model_work_clip(c->model, b->frames, b->height, b->width, &clip));
        weft_cascade *text = c->text ? &list.item[list.count++] : NULL;
        const int32_t vae_index = (int32_t)list.count;
        weft_cascade *vae = &list.item[list.count++], *dit = &list.item[list.count++];
        if (text) {
            WEFT_TRY(add_cascade(arena, text, i, "text", 1));
            double seconds;
            WEFT_TRY(weft_text_seconds(c, b, &seconds));
            text->option[text->option_count++] =
                (weft_cascade_option){1, seconds, states + c->model->text_weight_bytes};
        }
        WEFT_TRY(add_cascade(arena, vae, i, "vae", widest));
        WEFT_TRY(add_cascade(arena, dit, i, "dit", widest + 1));
        for (int64_t k = 1; k <= widest; k++) {
            if (!degree_wanted(c, k))
                continue;
            double seconds;
            WEFT_TRY(weft_vae_seconds(c, b, k, &seconds));
            vae->option[vae->option_count++] =
                (weft_cascade_option){k, seconds, states + clip->tile_bytes};
            const weft_dit_cost d = dit_cost(c, b, &s, k, c->method, 0);
            dit->option[dit->option_count++] = (weft_cascade_option){k, d.seconds, d.bytes};
        }
        if (!dit->option_count)
            return no_degree(c, widest);
        add_feasible(c, b, &s, widest, dit);
        dit->after[dit->after_count++] = vae_index;
        if (text)
            dit->after[dit->after_count++] = vae_index - 1;
    }
    *out = list;
    return WEFT_OK;
}
