/* Layouts of models of equal layers. Every term below is one line of docs/planning-pipelines.md. */
#include "plan/pipeline/degrees.h"

#include "plan/cost/model_work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 32 };

/* Hidden communication takes this share of its time from the compute it hides behind (reduction
 * kernels and copies use processors and memory too), and hides behind at most this much of it. */
static const double overlap_tax = 0.1, overlap_reach = 0.9;
/* Edge of a GEMM at which tiles and pipelines run at half speed. */
static const double half_edge = 64, half_rows = 128;

/* Operators of one name, per layer and sample on one device. */
typedef struct group {
    const char *name;
    weft_work kind;
    double times;                                                        /* per layer */
    double forward_flops, backward_flops, forward_moved, backward_moved; /* without the weights */
    double weights;                                                      /* elements */
    double kept;                                                         /* bytes */
    double forward_seconds, backward_seconds; /* as measured, on one device; 0: by its figures */
    bool expert, input;
} group;

typedef struct model {
    const weft_op_list *list;
    weft_state_bytes bytes; /* per weight; gradients travel in the type of the weights */
    double wide;            /* bytes of an activation */
    group group[NAMES];
    int count;
    int64_t experts;
    int attention; /* the group of self-attention, -1: none */
    double sublayers;
} model;

static weft_status model_init(const weft_op_list *list, int64_t experts, model *m)
{
    *m = (model){.list = list,
                 .bytes = weft_state_bytes_of(list->dtype_bytes),
                 .wide = (double)list->dtype_bytes,
                 .experts = experts > 1 ? experts : 1,
                 .attention = -1};
    if (list->layers < 1 || list->hidden < 1 || list->heads < 1 || list->tokens < 1 ||
        list->count < 1)
        return weft_fail(WEFT_E_ARG,
                         "%s: layers, width, heads and tokens must be known to lay it out",
                         list->name ? list->name : "model");
    for (int64_t i = 0; i < list->count; i++) {
        const weft_op_cost *op = &list->op[i];
        int at = 0;
        while (at < m->count && strcmp(m->group[at].name, op->name) != 0)
            at++;
        if (at == NAMES)
            return weft_fail(WEFT_E_UNSUPPORTED, "%s has more than %d kinds of operators",
                             list->name, NAMES);
        group *g = &m->group[at];
        if (at == m->count) {
            m->count++;
            *g = (group){.name = op->name,
                         .kind = op->kind,
                         .input = strcmp(op->name, "layer input") == 0,
                         .expert = experts > 1 && strncmp(op->name, "ffn linear", 10) == 0};
        }
        const double share = 1 / (double)list->layers;
        g->times += share;
        g->forward_flops += share * op->forward_flops;
        g->backward_flops += share * op->backward_flops;
        g->forward_moved += share * fmax(0, op->forward_bytes - op->param_bytes);
        g->backward_moved += share * fmax(0, op->backward_bytes - 2 * op->param_bytes);
        g->weights += share * op->param_bytes / m->bytes.weight;
        g->kept += share * op->activation_bytes;
        g->forward_seconds += share * op->forward_seconds;
        g->backward_seconds += share * op->backward_seconds;
    }
    m->sublayers = 1; /* the MLP */
    for (int i = 0; i < m->count; i++)
        if (m->group[i].kind == WEFT_WORK_ATTENTION) {
            m->sublayers += m->group[i].times;
            if (m->attention < 0 ||
                m->group[i].forward_flops > m->group[m->attention].forward_flops)
                m->attention = i;
        }
    return WEFT_OK;
}

/* What pricing works on. */
typedef struct pricing {
    const model *m;
    const weft_fabric *f;
    weft_degrees l;
    double b, tp, cp, ep, pp, dp, shards; /* shards: dp cp, over which ZeRO divides */
    int64_t shards_together;
    double layers;                          /* of the fullest stage */
    double in_flight;                       /* layers whose activations are held there */
    double forward[NAMES], backward[NAMES]; /* seconds per layer and microbatch */
    double layer_forward, layer_backward;   /* with exposed tp, cp and ep */
    double layer_weights;                   /* elements per rank, unsharded by ZeRO */
} pricing;

static double kernel_seconds(const pricing *p, const group *g, bool backward)
{
    const weft_fabric *f = p->f;
    const double split = p->tp * p->cp, hidden = (double)p->m->list->hidden;
    const double measured = backward ? g->backward_seconds : g->forward_seconds;
    if (measured > 0) /* whole; splitting finer is taken to cost no efficiency */
        return measured * p->b / split;
    const double flops = (backward ? g->backward_flops : g->forward_flops) * p->b / split;
    double fraction = g->kind == WEFT_WORK_ATTENTION ? f->attention
                      : g->kind == WEFT_WORK_CONV    ? f->conv
                                                     : f->gemm;
    if (g->kind == WEFT_WORK_GEMM) {
        /* tensor parallelism narrows one edge of every product, context parallelism its rows */
        const double rows = p->b * (double)p->m->list->tokens / p->cp;
        fraction /=
            (1 + half_edge / (hidden / p->tp)) * (1 + half_edge / hidden) * (1 + half_rows / rows);
    }
    const double weights = g->weights / p->tp / (g->expert ? p->ep : 1);
    const double bytes = (backward ? g->backward_moved : g->forward_moved) * p->b / split +
                         (backward ? 2 : 1) * p->m->bytes.weight * weights;
    const double seconds = fmax(flops / (f->flops * fraction), bytes / f->memory_rate);
    if (g->input)
        return 0;
    return fmax(seconds, f->launch * g->times * (backward ? 2 : 1));
}

/* Communication of `seconds` that may hide behind `compute`: what shows. */
static double exposed(double seconds, double compute)
{
    const double reach = overlap_reach * compute, hidden = fmin(seconds, reach);
    return seconds - hidden + overlap_tax * hidden;
}

/* Ring attention (NeMo §4.4): cp - 1 times the keys and values of a block pass on while a block is
 * computed; partial results are merged in f32. */
static void price_cp(pricing *p, double *forward, double *backward)
{
    *forward = *backward = 0;
    if (p->l.cp == 1 || p->m->attention < 0)
        return;
    const weft_fabric *f = p->f;
    const bool inside = p->l.tp * p->l.cp <= f->per_node;
    const double rows = p->b * (double)p->m->list->tokens / p->cp,
                 width = (double)p->m->list->hidden / p->tp;
    const double hop = 2 * rows * width * p->m->wide / (inside ? f->intra : f->inter) +
                       (inside ? f->intra_latency : f->inter_latency);
    const double step = p->forward[p->m->attention] / p->cp, steps = p->cp - 1;
    const double merge = steps * (rows * width * 12 / f->memory_rate + f->launch);
    *forward = steps * exposed(hop, step) + merge;
    *backward = steps * exposed(2 * hop, p->backward[p->m->attention] / p->cp) + 2 * merge;
}

/* Tensor with sequence parallelism: each sub-layer gathers its input and scatters its output;
 * backward the same and the input once more for the weight gradient. AdaLN stands between, so
 * nothing hides (NeMo §4.5.2). */
static void price_tp(const pricing *p, double *forward, double *backward)
{
    const double bytes =
        p->b * (double)p->m->list->tokens / p->cp * (double)p->m->list->hidden * p->m->wide;
    const double once = weft_fabric_gather(
        p->f, p->l.tp, p->l.tp < p->f->per_node ? p->l.tp : p->f->per_node, bytes);
    *forward = 2 * p->m->sublayers * once;
    *backward = 3 * p->m->sublayers * once;
}

/* Experts: tokens go to their experts and come back, forward and backward. */
static double price_ep(const pricing *p)
{
    if (p->l.ep == 1)
        return 0;
    const bool inside = p->l.tp * p->l.ep <= p->f->per_node;
    const double bytes =
        p->b * (double)p->m->list->tokens / p->cp / p->tp * (double)p->m->list->hidden * p->m->wide;
    return 2 * (bytes * (p->ep - 1) / p->ep / (inside ? p->f->intra : p->f->inter) +
                (inside ? p->f->intra_latency : p->f->inter_latency));
}

/* Gradient and weight traffic of the data parallel group, per iteration. */
static double price_dp(const pricing *p, double micro_forward, double micro_backward)
{
    const double M = (double)p->l.accumulation;
    if (p->shards <= 1)
        return 0;
    const double layer = weft_fabric_gather(p->f, (int64_t)p->shards, p->shards_together,
                                            p->m->bytes.weight * p->layer_weights);
    const double stage = weft_fabric_gather(p->f, (int64_t)p->shards, p->shards_together,
                                            p->m->bytes.weight * p->layer_weights * p->layers);
    if (p->l.zero == 3) /* every microbatch gathers each layer twice and scatters its gradient */
        return M * p->layers *
                   (exposed(layer, p->layer_forward) + exposed(2 * layer, p->layer_backward)) +
               layer;
    if (p->l.zero == 2) /* gradients are scattered by every microbatch */
        return M * exposed(stage, micro_backward) + exposed(stage, micro_forward);
    if (p->l.zero == 1)
        return exposed(stage, micro_backward) + exposed(stage, micro_forward);
    return exposed(2 * stage, micro_backward);
}

/* Continuous knapsack: the cheapest bytes are recomputed, and what the transfer window takes of the
 * others is offloaded. `need` bytes must go. Fills recompute and offload seconds for the layers in
 * flight; false: even that is not enough. */
static bool drop_activations(const pricing *p, double need, double window, weft_degrees_terms *t)
{
    double free_bytes = 0, total = 0;
    int order[NAMES], count = 0;
    for (int i = 0; i < p->m->count; i++) {
        const group *g = &p->m->group[i];
        if (g->kept <= 0)
            continue;
        const double bytes = g->kept * p->b / (p->tp * p->cp) * p->in_flight;
        total += bytes;
        if (g->input)
            continue;
        free_bytes += bytes;
        int at = count++;
        for (; at > 0 && p->m->group[order[at - 1]].kept / p->forward[order[at - 1]] <
                             g->kept / p->forward[i];
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    /* what the host still has room for */
    const double room = fmax(0, p->f->host_memory - t->host);
    const bool transfer = p->l.offload && p->f->host > 0 && room > 0;
    if (need > free_bytes && !(transfer && need <= total))
        return false;
    double left = need, out = 0;
    if (transfer) {
        out = fmin(fmin(need, room), window * p->f->host / 2);
        left -= out;
    }
    for (int k = 0; k < count && left > 0; k++) {
        const group *g = &p->m->group[order[k]];
        const double bytes = g->kept * p->b / (p->tp * p->cp) * p->in_flight,
                     take = fmin(left, bytes);
        t->recompute += p->forward[order[k]] * p->in_flight * take / bytes;
        left -= take;
    }
    if (left > 0) {
        if (out + left > room)
            return false;
        t->offload += 2 * left / p->f->host;
        out += left;
    }
    t->offload += transfer ? overlap_tax * 2 * out / p->f->host : 0;
    t->host += out;
    t->dropped = total > 0 ? need / total : 0;
    return true;
}

/* Fills the memory terms and what dropping activations costs per iteration. */
static bool price_memory(const pricing *p, double micro, weft_degrees_terms *t)
{
    const weft_fabric *f = p->f;
    const double weights = p->layer_weights * p->layers, zero = (double)p->l.zero;
    double kept = 0;
    for (int i = 0; i < p->m->count; i++)
        kept += p->m->group[i].kept * p->b / (p->tp * p->cp);
    t->weights = p->m->bytes.weight * weights / (zero >= 3 ? p->shards : 1);
    t->gradients = p->m->bytes.gradient * weights / (zero >= 2 ? p->shards : 1);
    t->states = p->m->bytes.optimizer * weights / (zero >= 1 ? p->shards : 1);
    /* one layer in full while its backward runs, its gathered inputs, and two layers of weights */
    t->workspace =
        kept +
        (p->l.tp > 1 ? 2 : 0) * p->b * (double)p->m->list->tokens / p->cp *
            (double)p->m->list->hidden * p->m->wide +
        (p->l.zero == 3 ? 2 * (p->m->bytes.weight + p->m->bytes.weight) * p->layer_weights : 0);
    t->activations = kept * p->in_flight;
    const double limit = weft_fabric_usable(f);
    double fixed = t->weights + t->gradients + t->states + t->workspace;
    if (fixed + t->activations > limit && p->l.offload && f->host > 0 &&
        t->states <= f->host_memory) {
        /* optimizer states live on the host between updates (Aquarius §5.2) */
        fixed -= t->states;
        t->offload += 2 * t->states / f->host;
        t->host = t->states;
        t->states = 0;
    }
    const double need = fixed + t->activations - limit;
    bool fits = true;
    if (need > 0) {
        const double rounds = (double)p->l.accumulation * p->layers / p->in_flight;
        weft_degrees_terms drop = {.host = t->host};
        fits = fixed < limit &&
               drop_activations(p, need, overlap_reach * micro * p->in_flight / p->layers, &drop);
        t->recompute += drop.recompute * rounds;
        t->offload += drop.offload * rounds;
        t->dropped = drop.dropped;
        t->host = drop.host;
        if (fits)
            t->activations -= need;
    }
    t->memory = fixed + t->activations;
    if (!fits) { /* what it needs when all that may go is gone */
        double input = 0;
        for (int i = 0; i < p->m->count; i++)
            input += p->m->group[i].input
                         ? p->m->group[i].kept * p->b / (p->tp * p->cp) * p->in_flight
                         : 0;
        t->memory = fixed + input;
    }
    return fits;
}

static weft_status check_layout(const model *m, const weft_fabric *f, int64_t batch,
                                const weft_degrees *l)
{
    const int64_t devices = f->nodes * f->per_node;
    if (l->tp < 1 || l->cp < 1 || l->ep < 1 || l->pp < 1 || l->dp < 1 || l->microbatch < 1 ||
        l->accumulation < 1 || l->interleave < 1 || l->zero < 0 || l->zero > 3)
        return weft_fail(WEFT_E_ARG, "every degree of a layout is at least 1, ZeRO 0 to 3");
    if (l->tp * l->cp * l->pp * l->dp != devices)
        return weft_fail(WEFT_E_INFEASIBLE,
                         "tp %lld x cp %lld x pp %lld x dp %lld are not the %lld devices",
                         (long long)l->tp, (long long)l->cp, (long long)l->pp, (long long)l->dp,
                         (long long)devices);
    if (m->list->heads % l->tp != 0)
        return weft_fail(WEFT_E_INFEASIBLE, "tp %lld does not divide the %lld heads",
                         (long long)l->tp, (long long)m->list->heads);
    if (l->pp * l->interleave > m->list->layers)
        return weft_fail(WEFT_E_INFEASIBLE, "pp %lld x interleave %lld for %lld layers",
                         (long long)l->pp, (long long)l->interleave, (long long)m->list->layers);
    if (l->interleave > 1 && m->list->layers % (l->pp * l->interleave) != 0)
        return weft_fail(WEFT_E_INFEASIBLE,
                         "pp %lld x interleave %lld does not divide the %lld layers",
                         (long long)l->pp, (long long)l->interleave, (long long)m->list->layers);
    if (m->experts % l->ep != 0 || (l->dp * l->cp) % l->ep != 0)
        return weft_fail(WEFT_E_INFEASIBLE, "ep %lld must divide the %lld experts and dp x cp",
                         (long long)l->ep, (long long)m->experts);
    if (l->dp * l->microbatch * l->accumulation != batch)
        return weft_fail(WEFT_E_INFEASIBLE,
                         "dp %lld x microbatch %lld x accumulation %lld is not the batch of %lld",
                         (long long)l->dp, (long long)l->microbatch, (long long)l->accumulation,
                         (long long)batch);
    if (l->interleave > 1 && (l->pp == 1 || l->accumulation % l->pp != 0))
        return weft_fail(WEFT_E_INFEASIBLE,
                         "interleaving needs microbatches in multiples of pp %lld",
                         (long long)l->pp);
    return WEFT_OK;
}

/* The update of this device's part of the weights: as measured, or the bytes that it moves. */
static double optimizer_seconds(const pricing *p)
{
    const weft_state_bytes b = p->m->bytes;
    const double own = p->layer_weights * p->layers / (p->l.zero >= 1 ? p->shards : 1);
    if (p->m->list->update_seconds > 0) {
        const double all = weft_op_list_total(p->m->list).param_bytes / b.weight;
        return all > 0 ? p->m->list->update_seconds * own / all : 0;
    }
    return own * (2 * b.optimizer + b.gradient + b.weight) / p->f->memory_rate;
}

static void price(pricing *p, weft_degrees_terms *t, bool *fits)
{
    const model *m = p->m;
    const double M = (double)p->l.accumulation, v = (double)p->l.interleave;
    double gemm = 0, attention = 0, pointwise = 0, forward = 0, backward = 0;
    for (int i = 0; i < m->count; i++) {
        const group *g = &m->group[i];
        p->forward[i] = kernel_seconds(p, g, false);
        p->backward[i] = kernel_seconds(p, g, true);
        const double both = p->forward[i] + p->backward[i];
        *(g->kind == WEFT_WORK_ATTENTION ? &attention
          : g->kind == WEFT_WORK_MEMORY  ? &pointwise
                                         : &gemm) += both;
        forward += p->forward[i];
        backward += p->backward[i];
        p->layer_weights += g->weights / p->tp / (g->expert ? p->ep : 1);
    }
    double tp_forward, tp_backward, cp_forward, cp_backward;
    price_tp(p, &tp_forward, &tp_backward);
    price_cp(p, &cp_forward, &cp_backward);
    const double ep = price_ep(p);
    p->layer_forward = forward + tp_forward + cp_forward + ep;
    p->layer_backward = backward + tp_backward + cp_backward + ep;
    const double stage = M * p->layers;
    t->gemm = stage * gemm;
    t->attention = stage * attention;
    t->pointwise = stage * pointwise;
    t->tp = stage * (tp_forward + tp_backward);
    t->cp = stage * (cp_forward + cp_backward);
    t->ep = stage * 2 * ep;
    const double micro_forward = p->layers * p->layer_forward,
                 micro_backward = p->layers * p->layer_backward;
    t->dp = price_dp(p, micro_forward, micro_backward);
    *fits = price_memory(p, micro_forward + micro_backward, t);
    if (p->l.pp > 1) {
        const double bytes =
            p->b * (double)m->list->tokens / p->cp / p->tp * (double)m->list->hidden * m->wide;
        /* stages are tp cp dp devices apart: one hop that leaves a node sets the pace */
        const bool inside = p->l.tp * p->l.cp * p->l.dp * p->l.pp <= p->f->per_node;
        const double send = bytes / (inside ? p->f->intra : p->f->inter) +
                            (inside ? p->f->intra_latency : p->f->inter_latency);
        t->send = 2 * (p->pp - 1) * send + overlap_tax * 2 * M * v * send;
        t->bubble = (p->pp - 1) / v * (micro_forward + micro_backward + t->recompute / M);
    }
    t->optimizer = optimizer_seconds(p);
    t->seconds = t->gemm + t->attention + t->pointwise + t->tp + t->cp + t->ep + t->dp + t->send +
                 t->bubble + t->recompute + t->offload + t->optimizer;
    const weft_op_cost total = weft_op_list_total(m->list);
    t->mfu = 3 * total.forward_flops * (double)(p->l.dp * p->l.microbatch) * M /
             (t->seconds * p->f->flops * (double)(p->f->nodes * p->f->per_node));
}

static void price_model(const model *m, const weft_fabric *f, const weft_degrees *l,
                        weft_degrees_terms *out, bool *fits)
{
    pricing p = {.m = m,
                 .f = f,
                 .l = *l,
                 .b = (double)l->microbatch,
                 .tp = (double)l->tp,
                 .cp = (double)l->cp,
                 .ep = (double)l->ep,
                 .pp = (double)l->pp,
                 .dp = (double)l->dp};
    p.shards = p.dp * p.cp;
    const int64_t places = f->per_node / l->tp > 0 ? f->per_node / l->tp : 1;
    p.shards_together = places < (int64_t)p.shards ? places : (int64_t)p.shards;
    p.layers = (double)((m->list->layers + l->pp - 1) / l->pp);
    double rounds = 1; /* microbatches in flight on the first stage */
    if (l->pp > 1)
        rounds = fmin((double)l->accumulation,
                      l->interleave == 1 ? p.pp : p.pp + (p.pp - 1) / (double)l->interleave);
    p.in_flight = p.layers * rounds;
    *out = (weft_degrees_terms){0};
    price(&p, out, fits);
}

weft_status weft_degrees_price(const weft_op_list *list, int64_t experts, const weft_fabric *fabric,
                               int64_t batch, const weft_degrees *layout, weft_degrees_terms *out,
                               bool *fits)
{
    model m;
    WEFT_TRY(model_init(list, experts, &m));
    WEFT_TRY(check_layout(&m, fabric, batch, layout));
    price_model(&m, fabric, layout, out, fits);
    return WEFT_OK;
}

/* ---- search -------------------------------------------------------------------------------- */

static int by_seconds(const void *left, const void *right)
{
    const weft_degrees_candidate *a = left, *b = right;
    if (a->fits != b->fits)
        return a->fits ? -1 : 1;
    const double x = a->fits ? a->terms.seconds : a->terms.memory,
                 y = b->fits ? b->terms.seconds : b->terms.memory;
    if (x != y)
        return x < y ? -1 : 1;
    return memcmp(&a->layout, &b->layout, 6 * sizeof(int64_t));
}

/* What a layout needs beside the collectives of a layer: within a hundredth of the fastest, that
 * decides. */
static int complexity(const weft_degrees *l)
{
    return l->offload + (l->ep > 1) + (l->pp > 1) + (l->interleave > 1);
}
enum { COMPLEXITIES = 5 };
static const double as_fast = 1.01;

typedef struct search {
    const model *m;
    const weft_fabric *f;
    int64_t batch, tried;
    const weft_degrees_limits *limits;
    weft_degrees_candidate best[COMPLEXITIES]; /* of the degrees at hand, by complexity */
    bool any[COMPLEXITIES];
} search;

static void try_layout(search *s, weft_degrees l)
{
    if (check_layout(s->m, s->f, s->batch, &l) != WEFT_OK)
        return;
    weft_degrees_candidate c = {.layout = l};
    price_model(s->m, s->f, &l, &c.terms, &c.fits);
    s->tried++;
    const int k = complexity(&l);
    if (!s->any[k] || by_seconds(&c, &s->best[k]) < 0)
        s->best[k] = c;
    s->any[k] = true;
}

/* All microbatches, interleavings and offloads of the degrees. */
static void try_degrees(search *s, weft_degrees l)
{
    const int64_t per_replica = s->batch / l.dp;
    for (l.microbatch = 1; l.microbatch <= per_replica; l.microbatch *= 2) {
        if (per_replica % l.microbatch != 0)
            break;
        l.accumulation = per_replica / l.microbatch;
        for (l.interleave = 1; l.interleave <= (l.pp > 1 ? 8 : 1); l.interleave *= 2)
            for (int offload = 0; offload < 2; offload++) {
                l.offload = offload;
                try_layout(s, l);
            }
    }
}

static const struct {
    const char *name;
    size_t at;
} causes[] = {
    {"matrix products", offsetof(weft_degrees_terms, gemm)},
    {"attention", offsetof(weft_degrees_terms, attention)},
    {"pointwise operators", offsetof(weft_degrees_terms, pointwise)},
    {"tensor parallel communication", offsetof(weft_degrees_terms, tp)},
    {"exposed context parallel communication", offsetof(weft_degrees_terms, cp)},
    {"expert exchange", offsetof(weft_degrees_terms, ep)},
    {"exposed weights and gradients", offsetof(weft_degrees_terms, dp)},
    {"pipeline sends", offsetof(weft_degrees_terms, send)},
    {"pipeline bubble", offsetof(weft_degrees_terms, bubble)},
    {"recompute", offsetof(weft_degrees_terms, recompute)},
    {"offload", offsetof(weft_degrees_terms, offload)},
    {"optimizer", offsetof(weft_degrees_terms, optimizer)},
};
_Static_assert(sizeof causes / sizeof *causes == WEFT_DEGREES_CAUSES, "one row per cause");
enum { CAUSES = WEFT_DEGREES_CAUSES };

static double cause_seconds(const weft_degrees_terms *t, int k)
{
    return *(const double *)((const char *)t + causes[k].at);
}

double weft_degrees_cause(const weft_degrees_terms *terms, int cause, const char **name)
{
    if (name)
        *name = causes[cause].name;
    return cause_seconds(terms, cause);
}

void weft_degrees_text(const weft_degrees *l, char text[96])
{
    int at = snprintf(text, 96, "tp %lld cp %lld pp %lld dp %lld zero %lld", (long long)l->tp,
                      (long long)l->cp, (long long)l->pp, (long long)l->dp, (long long)l->zero);
    if (l->ep > 1 && at < 96)
        at += snprintf(text + at, (size_t)(96 - at), " ep %lld", (long long)l->ep);
    if (at < 96)
        at += snprintf(text + at, (size_t)(96 - at), " micro %lld x %lld", (long long)l->microbatch,
                       (long long)l->accumulation);
    if (l->interleave > 1 && at < 96)
        at += snprintf(text + at, (size_t)(96 - at), " v %lld", (long long)l->interleave);
    if (l->offload && at < 96)
        snprintf(text + at, (size_t)(96 - at), " offload");
}

static const char *explain(weft_arena *arena, const weft_degrees_candidate *best,
                           const weft_degrees_candidate *c, const weft_fabric *f)
{
    char a[32], b[32];
    if (!c->fits)
        return weft_arena_printf(
            arena, "needs %s per device with everything recomputed that can be, limit %s",
            weft_format_bytes((int64_t)fmin(c->terms.memory, 9e18), a),
            weft_format_bytes((int64_t)(weft_fabric_usable(f)), b));
    if (c->terms.seconds < best->terms.seconds * (1 - 1e-9))
        return weft_arena_printf(arena, "%.1f %% faster, but less simple",
                                 100 * (1 - c->terms.seconds / best->terms.seconds));
    if (c->terms.seconds <= best->terms.seconds * (1 + 1e-9))
        return weft_arena_printf(arena, "as fast; the best comes first in the order of degrees");
    int most = 0;
    double more = -INFINITY;
    for (int k = 0; k < CAUSES; k++) {
        const double delta = cause_seconds(&c->terms, k) - cause_seconds(&best->terms, k);
        if (delta > more) {
            more = delta;
            most = k;
        }
    }
    return weft_arena_printf(arena, "%.1f %% slower: %s more for %s",
                             100 * (c->terms.seconds / best->terms.seconds - 1),
                             weft_format_seconds(more, a), causes[most].name);
}

/* The simplest of those that are as fast as the fastest; false: there is none. */
static bool simplest(const search *s, weft_degrees_candidate *out)
{
    int best = -1;
    for (int k = 0; k < COMPLEXITIES; k++)
        if (s->any[k] && (best < 0 || by_seconds(&s->best[k], &s->best[best]) < 0))
            best = k;
    for (int k = 0; k < best; k++)
        if (s->any[k] && s->best[k].fits &&
            s->best[k].terms.seconds <= as_fast * s->best[best].terms.seconds)
            best = k;
    if (best >= 0)
        *out = s->best[best];
    return best >= 0;
}

/* Candidates with room for one more; NULL: out of memory. */
static weft_degrees_candidate *make_room(weft_arena *arena, weft_degrees_candidate *list,
                                         int64_t count, int64_t *room)
{
    if (count < *room)
        return list;
    *room = *room ? 2 * *room : 256;
    weft_degrees_candidate *more = weft_arena_alloc(arena, *room * (int64_t)sizeof *more);
    if (more && count)
        memcpy(more, list, (size_t)count * sizeof *more);
    return more;
}

static bool over(int64_t value, int64_t limit)
{
    return limit > 0 && value > limit;
}

weft_status weft_degrees_tune(weft_arena *arena, const weft_op_list *list, int64_t experts,
                              const weft_fabric *fabric, int64_t batch,
                              const weft_degrees_limits *limits, weft_degrees_plan *out)
{
    model m;
    WEFT_TRY(model_init(list, experts, &m));
    const int64_t devices = fabric->nodes * fabric->per_node;
    if (batch < 1 || devices < 1)
        return weft_fail(WEFT_E_ARG, "a batch of %lld samples on %lld devices", (long long)batch,
                         (long long)devices);
    weft_degrees_candidate *c = NULL;
    static const weft_degrees_limits none = {0};
    search s = {.m = &m, .f = fabric, .batch = batch, .limits = limits ? limits : &none};
    int64_t count = 0, room = 0;
    for (int64_t tp = 1; tp <= devices; tp++)
        for (int64_t cp = 1; cp <= devices / tp; cp++)
            for (int64_t pp = 1; pp <= devices / tp / cp; pp++) {
                if (devices % (tp * cp * pp) != 0 || list->heads % tp != 0 ||
                    over(tp, s.limits->tp) || over(cp, s.limits->cp) || over(pp, s.limits->pp))
                    continue;
                const int64_t dp = devices / (tp * cp * pp);
                for (int64_t ep = 1; ep <= m.experts && !over(ep, s.limits->ep); ep++)
                    for (int64_t zero = s.limits->zero_min; m.experts % ep == 0 && zero <= 3;
                         zero++) {
                        c = make_room(arena, c, count, &room);
                        if (!c)
                            return weft_fail(WEFT_E_MEMORY, "out of memory for layouts");
                        memset(s.any, 0, sizeof s.any);
                        try_degrees(
                            &s,
                            (weft_degrees){
                                .tp = tp, .cp = cp, .ep = ep, .pp = pp, .dp = dp, .zero = zero});
                        count += simplest(&s, &c[count]);
                    }
            }
    if (count == 0)
        return weft_fail(WEFT_E_INFEASIBLE,
                         "no degrees divide %lld devices, %lld heads and a batch of %lld",
                         (long long)devices, (long long)list->heads, (long long)batch);
    qsort(c, (size_t)count, sizeof *c, by_seconds);
    int64_t pick = 0;
    for (int64_t i = 1; i < count && c[i].fits; i++)
        if (c[i].terms.seconds <= as_fast * c[0].terms.seconds &&
            complexity(&c[i].layout) < complexity(&c[pick].layout))
            pick = i;
    const weft_degrees_candidate chosen = c[pick];
    memmove(&c[1], &c[0], (size_t)pick * sizeof *c);
    c[0] = chosen;
    if (!c[0].fits) {
        char need[32], limit[32], layout[96];
        weft_degrees_text(&c[0].layout, layout);
        return weft_fail(
            WEFT_E_INFEASIBLE,
            "nothing fits: the smallest layout (%s) needs %s per device, limit %s; use "
            "more devices",
            layout, weft_format_bytes((int64_t)fmin(c[0].terms.memory, 9e18), need),
            weft_format_bytes((int64_t)(weft_fabric_usable(fabric)), limit));
    }
    for (int64_t i = 1; i < count; i++) {
        c[i].why = explain(arena, &c[0], &c[i], fabric);
        if (!c[i].why)
            return weft_fail(WEFT_E_MEMORY, "out of memory for layouts");
    }
    *out = (weft_degrees_plan){.candidate = c, .count = count, .tried = s.tried};
    return WEFT_OK;
}
