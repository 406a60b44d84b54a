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

static weft_status step(tracer *x, const char *name, weft_trace_kind kind, weft_trace_stream stream,
                        int32_t group, int32_t owner, double seconds, double bytes, double repeat,
                        const int32_t *after, int64_t after_count, int32_t *out)
{
    weft_trace_step s = {.kind = (uint8_t)kind,
                         .stream = (uint8_t)stream,
                         .group = group,
                         .owner = owner,
                         .seconds = seconds,
                         .bytes = bytes,
                         .repeat = repeat};
    WEFT_TRY(weft_trace_add_name(x->t, name, &s.name));
    return weft_trace_add_step(x->t, s, after, after_count, out);
}

/* Adds one pass over the layers in `folds` parts. A backward pass includes recompute and
 * gradients. */
static weft_status pass(tracer *x, int32_t owner, int32_t group, bool backward,
                        const weft_dit_cost *d, double dense, double attention, double share,
                        int64_t degree, int32_t *last)
{
    const double layers = (double)x->costs->model->layers, per_fold = layers / (double)x->folds;
    const double passes = backward ? 2 : 1; /* exchanges: recompute and gradient */
    for (int64_t f = 0; f < x->folds; f++) {
        int32_t here, attend, both[2];
        WEFT_TRY(step(x, backward ? "dit backward" : "dit forward", WEFT_TRACE_COMPUTE,
                      WEFT_STREAM_COMPUTE, group, owner, dense / layers, 0, per_fold, last, 1,
                      &here));
        if (degree == 1) {
            WEFT_TRY(step(x, "attention", WEFT_TRACE_COMPUTE, WEFT_STREAM_COMPUTE, group, owner,
                          attention / layers, 0, per_fold, &here, 1, last));
        } else if (d->method == WEFT_SP_ULYSSES) {
            WEFT_TRY(step(x, "all-to-all qkv", WEFT_TRACE_ALL_TO_ALL, WEFT_STREAM_COMM, group,
                          owner, 0, 3 * share, passes * per_fold, &here, 1, &here));
            WEFT_TRY(step(x, "attention", WEFT_TRACE_COMPUTE, WEFT_STREAM_COMPUTE, group, owner,
                          attention / layers, 0, per_fold, &here, 1, &attend));
            WEFT_TRY(step(x, "all-to-all out", WEFT_TRACE_ALL_TO_ALL, WEFT_STREAM_COMM, group,
                          owner, 0, share, passes * per_fold, &attend, 1, last));
        } else { /* keys and values circulate during the attention */
            WEFT_TRY(step(x, "ring kv", WEFT_TRACE_RING_SHIFT, WEFT_STREAM_COMM, group, owner, 0,
                          (backward ? 3 : 2) * share, passes * per_fold * (double)(degree - 1),
                          &here, 1, &both[0]));
            WEFT_TRY(step(x, "attention", WEFT_TRACE_COMPUTE, WEFT_STREAM_COMPUTE, group, owner,
                          attention / layers, 0, per_fold, &here, 1, &both[1]));
            WEFT_TRY(step(x, "wait", WEFT_TRACE_COMPUTE, WEFT_STREAM_COMPUTE, group, owner, 0, 0, 1,
                          both, 2, last));
        }
    }
    return WEFT_OK;
}

/* Adds a copy to or from the host. `bytes`: maximum over the devices of the group. */
static weft_status copy_step(tracer *x, const weft_assigned *group, bool to_host, int32_t owner,
                             double bytes, const int32_t *after, int64_t after_count, int32_t *out)
{
    int32_t index;
    WEFT_TRY(weft_trace_add_group(x->t, group->device, group->degree, &index));
    return step(x, to_host ? "hand-off to host" : "hand-off from host",
                to_host ? WEFT_TRACE_OFFLOAD : WEFT_TRACE_FETCH, WEFT_STREAM_HOST, index, owner, 0,
                bytes, 1, after, after_count, out);
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
        int32_t group;
        for (; other < end && other->from == m->from && other->to == m->to; other++)
            units += (double)(other->clips.count * other->units.count);
        next = other - h->send;
        if (m->from == m->to)
            continue;
        WEFT_TRY(weft_trace_add_group(x->t, pair, 2, &group));
        WEFT_TRY(step(x, "hand-off", WEFT_TRACE_SEND, WEFT_STREAM_HOST, group, owner, 0,
                      units * unit_bytes, 1, h->step, 1, &h->step[h->steps]));
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
        h.read[k] = weft_hand_read(row.units, tokens > 0 ? tokens : 1, parts, k % parts);
        most = h.read[k].count > most ? h.read[k].count : most;
    }
    h.sends = weft_hand_moves(a, b, method, &row, h.read, clips, h.send);
    WEFT_GO(copy_step(x, a, true, to, (double)(made.clips.count * made.units.count) * unit,
                      &x->last[from], 1, h.step));
    WEFT_GO(send_all(x, &h, to, unit));
    WEFT_GO(
        copy_step(x, b, false, to, (double)(clips / shares * most) * unit, h.step, h.steps, last));
out:
    weft_free(h.read);
    weft_free(h.send);
    weft_free(h.step);
    return status;
}

static weft_status dit(tracer *x, int32_t index, int32_t group, const weft_plan_bucket *b,
                       const weft_dit_cost *d, int32_t at, int32_t *last)
{
    const weft_assigned *c = &x->item[index];
    double dense, attention;
    WEFT_TRY(weft_dit_parts(x->costs, b, c->degree, d->method, &dense, &attention));
    const weft_clip_work *clip;
    WEFT_TRY(weft_model_work_clip(x->costs->model, b->frames, b->height, b->width, &clip));
    const double share = (double)b->batch * (double)clip->denoiser.tokens / (double)c->degree *
                         (double)(x->costs->model->hidden * clip->denoiser.dtype_bytes);
    const double held = d->bytes - weft_model_state_bytes(x->costs);
    x->t->step[at].memory += held;
    /* forward, recompute and backward: 1 : 1 : 2 of dense products, 1 : 1 : 2.5 of attention */
    WEFT_TRY(pass(x, index, group, false, d, dense / 4, attention / 4.5, share, c->degree, &at));
    WEFT_TRY(pass(x, index, group, true, d, dense * 3 / 4, attention * 3.5 / 4.5, share, c->degree,
                  &at));
    WEFT_TRY(step(x, "done", WEFT_TRACE_COMPUTE, WEFT_STREAM_COMPUTE, group, index, 0, 0, 1, &at, 1,
                  last));
    x->t->step[*last].memory -= held;
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
        return step(x, c->id, WEFT_TRACE_COMPUTE, WEFT_STREAM_COMPUTE, group, index, c->seconds, 0,
                    1, after, waits, &x->last[index]);
    if (!strcmp(module, "dit")) {
        WEFT_TRY(step(x, "begin", WEFT_TRACE_COMPUTE, WEFT_STREAM_COMPUTE, group, index, 0, 0, 1,
                      after, waits, &at));
        return dit(x, index, group, b, &d, at, &x->last[index]);
    }
    double seconds;
    if (!strcmp(module, "vae"))
        WEFT_TRY(weft_vae_seconds(x->costs, b, c->degree, &seconds));
    else
        WEFT_TRY(weft_text_seconds(x->costs, b, &seconds));
    return step(x, !strcmp(module, "vae") ? "vae" : "text encoder", WEFT_TRACE_COMPUTE,
                WEFT_STREAM_COMPUTE, group, index, seconds, 0, 1, after, waits, &x->last[index]);
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
    WEFT_TRY(step(x, "begin", WEFT_TRACE_COMPUTE, WEFT_STREAM_COMPUTE, all, -1, 0, 0, 1, NULL, 0,
                  &first));
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
    WEFT_TRY(step(x, "all cascades done", WEFT_TRACE_COMPUTE, WEFT_STREAM_COMPUTE, all, -1, 0, 0, 1,
                  NULL, 0, &at));
    WEFT_TRY(step(x, "gradients", WEFT_TRACE_REDUCE_SCATTER, WEFT_STREAM_COMM, all, -1, 0, bytes, 1,
                  &at, 1, &at));
    return step(x, "weights", WEFT_TRACE_ALL_GATHER, WEFT_STREAM_COMM, all, -1, 0, bytes, 1, &at, 1,
                NULL);
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
    weft_status_code status = order && everyone && x.last
                                  ? build(&x, count, devices, order, everyone)
                                  : weft_no_memory("the trace");
    weft_arena_free(x.arena);
    if (status != WEFT_OK) {
        weft_trace_free(&t);
        return status;
    }
    *out = t;
    return WEFT_OK;
}
