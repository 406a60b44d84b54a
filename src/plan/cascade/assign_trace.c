/* Converts placed plans to traces. */
#include "plan/cascade/assign_trace.h"

#include "plan/cascade/transfer_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct tracer {
    weft_trace *t;
    const weft_cascade_costs *costs;
    const weft_workload *samples;
    const weft_assigned *item;
    int32_t *last; /* per cascade: its last step */
    int64_t folds;
    weft_arena *arena;
} tracer;

/* Returns a step that computes for `seconds`. */
static weft_trace_step compute(int32_t group, int32_t owner, double seconds)
{
    return (weft_trace_step){.kind = WEFT_TRACE_COMPUTE,
                             .stream = WEFT_STREAM_COMPUTE,
                             .group = group,
                             .owner = owner,
                             .seconds = seconds,
                             .repeat = 1};
}

/* Returns a collective of `bytes`. */
static weft_trace_step collective(weft_trace_kind kind, int32_t group, int32_t owner, double bytes)
{
    return (weft_trace_step){.kind = (uint8_t)kind,
                             .stream = WEFT_STREAM_COMM,
                             .group = group,
                             .owner = owner,
                             .bytes = bytes,
                             .repeat = 1};
}

static weft_trace_step repeated(weft_trace_step s, double times)
{
    s.repeat = times;
    return s;
}

static weft_status step(tracer *x, const char *name, weft_trace_step s, const int32_t *after,
                        int64_t after_count, int32_t *out)
{
    WEFT_TRY(weft_trace_add_name(x->t, name, &s.name));
    return weft_trace_add_step(x->t, s, after, after_count, out);
}

/* The layers of a DiT cascade. */
typedef struct layers {
    int32_t owner, group;
    weft_sp_method method;
    int64_t degree;
    double dense, attention; /* seconds of all passes */
    double share;            /* bytes of a device's tokens */
} layers;

/* Adds one pass over the layers in `folds` parts. A backward pass includes recompute and
 * gradients. Forward, recompute and backward are 1 : 1 : 2 of dense products and 1 : 1 : 2.5 of
 * attention. */
static weft_status pass(tracer *x, const layers *l, bool backward, int32_t *last)
{
    const double count = (double)x->costs->model->layers, per_fold = count / (double)x->folds;
    const double passes = backward ? 2 : 1; /* exchanges: recompute and gradient */
    const double dense = backward ? l->dense * 3 / 4 : l->dense / 4,
                 attention = backward ? l->attention * 3.5 / 4.5 : l->attention / 4.5;
    const weft_trace_step products = repeated(compute(l->group, l->owner, dense / count), per_fold),
                          attend =
                              repeated(compute(l->group, l->owner, attention / count), per_fold);
    for (int64_t f = 0; f < x->folds; f++) {
        int32_t here, attended, both[2];
        WEFT_TRY(step(x, backward ? "dit backward" : "dit forward", products, last, 1, &here));
        if (l->degree == 1) {
            WEFT_TRY(step(x, "attention", attend, &here, 1, last));
        } else if (l->method == WEFT_SP_ULYSSES) {
            const weft_trace_step in = collective(WEFT_TRACE_ALL_TO_ALL, l->group, l->owner,
                                                  3 * l->share),
                                  out = collective(WEFT_TRACE_ALL_TO_ALL, l->group, l->owner,
                                                   l->share);
            WEFT_TRY(step(x, "all-to-all qkv", repeated(in, passes * per_fold), &here, 1, &here));
            WEFT_TRY(step(x, "attention", attend, &here, 1, &attended));
            WEFT_TRY(
                step(x, "all-to-all out", repeated(out, passes * per_fold), &attended, 1, last));
        } else { /* keys and values circulate during the attention */
            const weft_trace_step ring = collective(WEFT_TRACE_RING_SHIFT, l->group, l->owner,
                                                    (backward ? 3 : 2) * l->share);
            WEFT_TRY(step(x, "ring kv", repeated(ring, passes * per_fold * (double)(l->degree - 1)),
                          &here, 1, &both[0]));
            WEFT_TRY(step(x, "attention", attend, &here, 1, &both[1]));
            WEFT_TRY(step(x, "wait", compute(l->group, l->owner, 0), both, 2, last));
        }
    }
    return WEFT_OK;
}

static weft_trace_step host_copy(weft_trace_kind kind, int32_t owner, double bytes)
{
    return (weft_trace_step){.kind = (uint8_t)kind,
                             .stream = WEFT_STREAM_HOST,
                             .owner = owner,
                             .bytes = bytes,
                             .repeat = 1};
}

/* Adds a copy to or from the host. s.bytes: maximum over the devices of the group. */
static weft_status copy_step(tracer *x, const weft_assigned *group, weft_trace_step s,
                             const int32_t *after, int64_t after_count, int32_t *out)
{
    WEFT_TRY(weft_trace_add_group(x->t, group->device, group->degree, &s.group));
    return step(x, s.kind == WEFT_TRACE_OFFLOAD ? "hand-off to host" : "hand-off from host", s,
                after, after_count, out);
}

/* Buffers of a latent transfer. */
typedef struct transfer {
    weft_item_range *read; /* [degree] by member of the consumer */
    weft_latent_send *send;
    int64_t sends;
    int32_t *step; /* the copy to the host, then the sends */
    int64_t steps;
} transfer;

static weft_status send_all(tracer *x, transfer *h, int32_t owner, double unit_bytes)
{
    for (int64_t i = 0, next; i < h->sends; i = next) {
        const weft_latent_send *m = &h->send[i], *end = h->send + h->sends, *other = m;
        const int32_t pair[2] = {m->from, m->to};
        double units = 0;
        for (; other < end && other->from == m->from && other->to == m->to; other++)
            units += (double)(other->clips.count * other->units.count);
        next = other - h->send;
        if (m->from == m->to)
            continue;
        weft_trace_step s = host_copy(WEFT_TRACE_SEND, owner, units * unit_bytes);
        WEFT_TRY(weft_trace_add_group(x->t, pair, 2, &s.group));
        WEFT_TRY(step(x, "hand-off", s, h->step, 1, &h->step[h->steps]));
        h->steps++;
    }
    return WEFT_OK;
}

/* Adds a latent transfer as the executor does it (latent_transfer.h), through host memory. Each
 * latent frame is sent once from its producer to each device that reads but did not produce it
 * (§IV-D). */
static weft_status transfer_latents(tracer *x, int32_t from, int32_t to,
                                    const weft_plan_bucket *bucket, weft_sp_method method,
                                    int32_t *last)
{
    const weft_assigned *a = &x->item[from], *b = &x->item[to];
    const bool text = strstr(a->id, ".text") != NULL;
    const weft_clip_work *clip;
    WEFT_TRY(weft_model_work_clip(x->costs->model, bucket->frames, bucket->height, bucket->width,
                                  &clip));
    const weft_cascade_row row = {.units = text ? 1 : clip->latent_frames, .piece = 1};
    const double unit = (text ? clip->text_bytes : clip->latent_bytes) / (double)row.units;
    const int64_t clips = bucket->batch, shares = weft_cascade_shares(method, clips, b->degree),
                  parts = b->degree / shares, pairs = a->degree * b->degree;
    const int64_t tokens = clip->denoiser.tokens / row.units;
    const weft_cascade_share made = weft_cascade_share_of(&row, clips, a->degree, 0);
    transfer h = {.read = weft_calloc(b->degree, sizeof *h.read),
                  .send = weft_calloc(pairs * clips, sizeof *h.send),
                  .step = weft_calloc(pairs + 1, sizeof *h.step),
                  .steps = 1};
    weft_status_code status = WEFT_ALLOCATED(h.read && h.send && h.step, "the trace");
    WEFT_GO(status);
    int64_t most = 0;
    for (int64_t k = 0; k < b->degree; k++) {
        h.read[k] = weft_latent_units_read(row.units, tokens > 0 ? tokens : 1, parts, k % parts);
        most = h.read[k].count > most ? h.read[k].count : most;
    }
    h.sends = weft_latent_sends_list(a, b, method, &row, h.read, clips, h.send);
    const weft_trace_step store = host_copy(WEFT_TRACE_OFFLOAD, to,
                                            (double)(made.clips.count * made.units.count) * unit),
                          load = host_copy(WEFT_TRACE_FETCH, to,
                                           (double)(clips / shares * most) * unit);
    WEFT_GO(copy_step(x, a, store, &x->last[from], 1, h.step));
    WEFT_GO(send_all(x, &h, to, unit));
    WEFT_GO(copy_step(x, b, load, h.step, h.steps, last));
out:
    weft_free(h.read);
    weft_free(h.send);
    weft_free(h.step);
    return status;
}

/* Adds the passes of a DiT cascade after step *at. */
static weft_status dit(tracer *x, int32_t index, int32_t group, const weft_plan_bucket *b,
                       const weft_dit_cost *d, int32_t at)
{
    const weft_assigned *c = &x->item[index];
    layers l = {.owner = index, .group = group, .method = d->method, .degree = c->degree};
    WEFT_TRY(weft_dit_parts(x->costs, b, c->degree, d->method, &l.dense, &l.attention));
    const weft_clip_work *clip;
    WEFT_TRY(weft_model_work_clip(x->costs->model, b->frames, b->height, b->width, &clip));
    l.share = (double)b->batch * (double)clip->denoiser.tokens / (double)c->degree *
              (double)(x->costs->model->hidden * clip->denoiser.dtype_bytes);
    const double held = d->bytes - weft_model_state_bytes(x->costs);
    x->t->step[at].memory += held;
    WEFT_TRY(pass(x, &l, false, &at));
    WEFT_TRY(pass(x, &l, true, &at));
    WEFT_TRY(step(x, "done", compute(group, index, 0), &at, 1, &x->last[index]));
    x->t->step[x->last[index]].memory -= held;
    return WEFT_OK;
}

static weft_status cascade(tracer *x, int32_t index, int32_t first)
{
    const weft_assigned *c = &x->item[index];
    int32_t group, at, *after = weft_arena_calloc(x->arena, c->after_count + 1, sizeof *after);
    int64_t waits = 0;
    WEFT_TRY(WEFT_ALLOCATED(after, "the trace"));
    after[waits++] = first;
    WEFT_TRY(weft_trace_add_group(x->t, c->device, c->degree, &group));
    int sample = -1;
    char module[16] = "";
    if (x->costs && (sscanf(c->id, "s%d.%15s", &sample, module) != 2 || sample < 0 ||
                     sample >= x->samples->count))
        return weft_error(
            WEFT_MSG_PLAN_INVALID, WEFT_AT(.key = c->id),
            "the cascade belongs to no sample of the plan's workload, which has %" PRId64
            " samples",
            x->samples->count);
    const weft_plan_bucket *b = x->costs ? &x->samples->bucket[sample] : NULL;
    weft_dit_cost d = {0};
    if (b && !strcmp(module, "dit"))
        WEFT_TRY(weft_dit_cost_of(x->costs, b, c->degree, WEFT_SP_NONE, 0, &d));
    for (int32_t i = 0; i < c->after_count; i++) {
        int32_t last = x->last[c->after[i]];
        if (b)
            WEFT_TRY(transfer_latents(x, c->after[i], index, b, d.method, &last));
        after[waits++] = last;
    }
    if (!b)
        return step(x, c->id, compute(group, index, c->seconds), after, waits, &x->last[index]);
    if (!strcmp(module, "dit")) {
        WEFT_TRY(step(x, "begin", compute(group, index, 0), after, waits, &at));
        return dit(x, index, group, b, &d, at);
    }
    double seconds;
    if (!strcmp(module, "vae"))
        WEFT_TRY(weft_vae_seconds(x->costs, b, c->degree, &seconds));
    else
        WEFT_TRY(weft_text_seconds(x->costs, b, &seconds));
    return step(x, !strcmp(module, "vae") ? "vae" : "text encoder", compute(group, index, seconds),
                after, waits, &x->last[index]);
}

typedef struct begin {
    double start;
    int32_t index;
} begin;

static int by_start(const void *a, const void *b)
{
    const begin *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static weft_status build(tracer *x, int64_t count, int64_t devices, begin *order, int32_t *everyone)
{
    int32_t all, first, at;
    for (int64_t d = 0; d < devices; d++)
        everyone[d] = (int32_t)d;
    WEFT_TRY(weft_trace_add_group(x->t, everyone, devices, &all));
    WEFT_TRY(step(x, "begin", compute(all, -1, 0), NULL, 0, &first));
    x->t->step[first].memory = x->costs ? weft_model_state_bytes(x->costs) : 0;
    for (int64_t i = 0; i < count; i++)
        order[i] = (begin){x->item[i].start, (int32_t)i};
    qsort(order, (size_t)count, sizeof *order, by_start);
    for (int64_t i = 0; i < count; i++)
        WEFT_TRY(cascade(x, order[i].index, first));
    if (!x->costs || devices == 1)
        return WEFT_OK;
    const double bytes =
        x->costs->model->parameters * (double)x->costs->model->clip[0].denoiser.dtype_bytes;
    WEFT_TRY(step(x, "all cascades done", compute(all, -1, 0), NULL, 0, &at));
    WEFT_TRY(
        step(x, "gradients", collective(WEFT_TRACE_REDUCE_SCATTER, all, -1, bytes), &at, 1, &at));
    return step(x, "weights", collective(WEFT_TRACE_ALL_GATHER, all, -1, bytes), &at, 1, NULL);
}

weft_status weft_assign_trace(const weft_assigned *item, int64_t count, int64_t devices,
                              const weft_cascade_costs *costs, const weft_workload *samples,
                              int64_t folds, weft_trace *out)
{
    weft_trace t = {.devices = devices};
    tracer x = {.t = &t, .costs = costs, .samples = samples, .item = item};
    x.folds = folds > 0 ? folds : devices <= 128 ? 10 : devices <= 1024 ? 5 : 3;
    x.arena = weft_arena_create();
    begin *order = x.arena ? weft_arena_calloc(x.arena, count, sizeof *order) : NULL;
    int32_t *everyone = x.arena ? weft_arena_calloc(x.arena, devices, sizeof *everyone) : NULL;
    x.last = x.arena ? weft_arena_calloc(x.arena, count, sizeof *x.last) : NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(order && everyone && x.last, "the trace"));
    WEFT_GO(build(&x, count, devices, order, everyone));
    *out = t;
    t = (weft_trace){0};
out:
    weft_arena_free(x.arena);
    weft_trace_free(&t);
    return status;
}
