/* Layouts of models of equal layers. Each term below is one line of
 * docs/explanation/planning-pipelines.md. */
#include "plan/pipeline/degree_search.h"

#include "plan/ops/model_work.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAMES = 32 };

/* overlap_tax: share of hidden communication by which compute slows down, because reduction kernels
 * and copies need cores and memory too. overlap_reach: share of compute that can hide
 * communication. */
static const double overlap_tax = 0.1, overlap_reach = 0.9;
/* edge of a GEMM at which it runs at half speed */
static const double half_edge = 64, half_rows = 128;

/* Operators of one name; costs per layer and sample on one device. */
typedef struct group {
    const char *name;
    weft_work kind;
    double times; /* per layer */
    double forward_flops, backward_flops, forward_traffic,
        backward_traffic;                     /* traffic without weights */
    double weights;                           /* elements */
    double saved;                             /* bytes */
    double forward_seconds, backward_seconds; /* measured on one device; 0: use its figures */
    bool expert, input;
} group;

typedef struct model {
    const weft_op_list *list;
    weft_state_bytes bytes; /* per weight; gradients are sent in the dtype of the weights */
    double wide;            /* bytes of an activation */
    group group[NAMES];
    int count;
    int64_t experts;
    int attention; /* group of the self-attention; -1: none */
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
        return weft_error(
            WEFT_MSG_COSTS_INVALID, WEFT_NOWHERE,
            "%s: layers, width, heads and tokens must be at least 1 to choose a layout",
            list->name ? list->name : "model");
    for (int64_t i = 0; i < list->count; i++) {
        const weft_op_cost *op = &list->op[i];
        int at = 0;
        while (at < m->count && strcmp(m->group[at].name, op->name) != 0)
            at++;
        if (at == NAMES)
            return weft_error(WEFT_MSG_PLAN_UNSUPPORTED, WEFT_NOWHERE,
                              "%s has more than %d kinds of operators, the limit for layouts",
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
        g->forward_traffic += share * fmax(0, op->forward_bytes - op->param_bytes);
        g->backward_traffic += share * fmax(0, op->backward_bytes - 2 * op->param_bytes);
        g->weights += share * op->param_bytes / m->bytes.weight;
        g->saved += share * op->activation_bytes;
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

/* State of the estimate of one layout. */
typedef struct estimation {
    const model *m;
    const weft_fabric *f;
    weft_degrees l;
    double b, tp, cp, ep, pp, dp, shards; /* shards: dp cp, the ranks that ZeRO shards over */
    int64_t shards_together;
    double layers;                          /* layers of the fullest stage */
    double in_flight;                       /* layers whose activations the fullest stage holds */
    double forward[NAMES], backward[NAMES]; /* seconds per layer and microbatch */
    double layer_forward, layer_backward;   /* including exposed tp, cp and ep */
    double layer_weights;                   /* elements per rank, unsharded by ZeRO */
} estimation;

static double kernel_seconds(const estimation *p, const group *g, bool backward)
{
    const weft_fabric *f = p->f;
    const double split = p->tp * p->cp, hidden = (double)p->m->list->hidden;
    const double measured = backward ? g->backward_seconds : g->forward_seconds;
    if (measured > 0) /* unsharded; assumes that sharding loses no efficiency */
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
    const double bytes = (backward ? g->backward_traffic : g->forward_traffic) * p->b / split +
                         (backward ? 2 : 1) * p->m->bytes.weight * weights;
    const double seconds = fmax(flops / (f->flops * fraction), bytes / f->memory_rate);
    if (g->input)
        return 0;
    return fmax(seconds, f->launch * g->times * (backward ? 2 : 1));
}

/* Exposed part of `seconds` of communication that `compute` can hide. */
static double exposed(double seconds, double compute)
{
    const double reach = overlap_reach * compute, hidden = fmin(seconds, reach);
    return seconds - hidden + overlap_tax * hidden;
}

/* Ring attention (NeMo §4.4): the keys and values of a block are passed on cp - 1 times, each time
 * while a block is computed. Partial results are merged in f32. */
static void estimate_cp(estimation *p, double *forward, double *backward)
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

/* Tensor with sequence parallelism: each sub-layer gathers its input and scatters its output. The
 * backward does the same and gathers the input once more for the weight gradient. AdaLN is in
 * between, so no communication is hidden (NeMo §4.5.2). */
static void estimate_tp(const estimation *p, double *forward, double *backward)
{
    const double bytes =
        p->b * (double)p->m->list->tokens / p->cp * (double)p->m->list->hidden * p->m->wide;
    const double once = weft_fabric_gather(
        p->f, p->l.tp, p->l.tp < p->f->per_node ? p->l.tp : p->f->per_node, bytes);
    *forward = 2 * p->m->sublayers * once;
    *backward = 3 * p->m->sublayers * once;
}

/* Experts: tokens are sent to their experts and back, forward and backward. */
static double estimate_ep(const estimation *p)
{
    if (p->l.ep == 1)
        return 0;
    const bool inside = p->l.tp * p->l.ep <= p->f->per_node;
    const double bytes =
        p->b * (double)p->m->list->tokens / p->cp / p->tp * (double)p->m->list->hidden * p->m->wide;
    return 2 * (bytes * (p->ep - 1) / p->ep / (inside ? p->f->intra : p->f->inter) +
                (inside ? p->f->intra_latency : p->f->inter_latency));
}

/* Gradient and weight traffic of the data parallel group per iteration. */
static double estimate_dp(const estimation *p, double micro_forward, double micro_backward)
{
    const double M = (double)p->l.accumulation;
    if (p->shards <= 1)
        return 0;
    const double layer = weft_fabric_gather(p->f, (int64_t)p->shards, p->shards_together,
                                            p->m->bytes.weight * p->layer_weights);
    const double gather = weft_fabric_gather(p->f, (int64_t)p->shards, p->shards_together,
                                             p->m->bytes.weight * p->layer_weights * p->layers);
    if (p->l.zero == 3) /* every microbatch gathers each layer twice and scatters its gradient */
        return M * p->layers *
                   (exposed(layer, p->layer_forward) + exposed(2 * layer, p->layer_backward)) +
               layer;
    if (p->l.zero == 2) /* every microbatch scatters its gradients */
        return M * exposed(gather, micro_backward) + exposed(gather, micro_forward);
    if (p->l.zero == 1)
        return exposed(gather, micro_backward) + exposed(gather, micro_forward);
    return exposed(2 * gather, micro_backward);
}

/* Continuous knapsack over `need` bytes: offloads the bytes that fit the transfer window, and
 * recomputes the cheapest others. Bytes left after recompute are offloaded with exposed transfers.
 * Sets recompute and offload seconds for the layers in flight. Returns false if this does not free
 * `need` bytes. */
static bool drop_activations(const estimation *p, double need, double window, weft_degrees_terms *t)
{
    double free_bytes = 0, total = 0;
    int order[NAMES], count = 0;
    for (int i = 0; i < p->m->count; i++) {
        const group *g = &p->m->group[i];
        if (g->saved <= 0)
            continue;
        const double bytes = g->saved * p->b / (p->tp * p->cp) * p->in_flight;
        total += bytes;
        if (g->input)
            continue;
        free_bytes += bytes;
        int at = count++;
        for (; at > 0 && p->m->group[order[at - 1]].saved / p->forward[order[at - 1]] <
                             g->saved / p->forward[i];
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    /* free host memory */
    const double host_free = fmax(0, p->f->host_memory - t->host);
    const bool transfer = p->l.offload && p->f->host > 0 && host_free > 0;
    if (need > free_bytes && !(transfer && need <= total))
        return false;
    double left = need, out = 0;
    if (transfer) {
        out = fmin(fmin(need, host_free), window * p->f->host / 2);
        left -= out;
    }
    for (int k = 0; k < count && left > 0; k++) {
        const group *g = &p->m->group[order[k]];
        const double bytes = g->saved * p->b / (p->tp * p->cp) * p->in_flight,
                     take = fmin(left, bytes);
        t->recompute += p->forward[order[k]] * p->in_flight * take / bytes;
        left -= take;
    }
    if (left > 0) {
        if (out + left > host_free)
            return false;
        t->offload += 2 * left / p->f->host;
        out += left;
    }
    t->offload += transfer ? overlap_tax * 2 * out / p->f->host : 0;
    t->host += out;
    t->dropped = total > 0 ? need / total : 0;
    return true;
}

/* Sets the memory terms and the seconds per iteration of recompute and offload. */
static bool estimate_memory(const estimation *p, double micro, weft_degrees_terms *t)
{
    const weft_fabric *f = p->f;
    const double weights = p->layer_weights * p->layers, zero = (double)p->l.zero;
    double saved = 0;
    for (int i = 0; i < p->m->count; i++)
        saved += p->m->group[i].saved * p->b / (p->tp * p->cp);
    t->weights = p->m->bytes.weight * weights / (zero >= 3 ? p->shards : 1);
    t->gradients = p->m->bytes.gradient * weights / (zero >= 2 ? p->shards : 1);
    t->states = p->m->bytes.optimizer * weights / (zero >= 1 ? p->shards : 1);
    /* activations of one layer during its backward, its gathered inputs, and two layers of
     * weights */
    t->workspace =
        saved +
        (p->l.tp > 1 ? 2 : 0) * p->b * (double)p->m->list->tokens / p->cp *
            (double)p->m->list->hidden * p->m->wide +
        (p->l.zero == 3 ? 2 * (p->m->bytes.weight + p->m->bytes.weight) * p->layer_weights : 0);
    t->activations = saved * p->in_flight;
    const double limit = weft_fabric_usable(f);
    double fixed = t->weights + t->gradients + t->states + t->workspace;
    if (fixed + t->activations > limit && p->l.offload && f->host > 0 &&
        t->states <= f->host_memory) {
        /* optimizer states are on the host between updates (Aquarius §5.2) */
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
    if (!fits) { /* bytes needed after dropping all activations that can be dropped */
        double input = 0;
        for (int i = 0; i < p->m->count; i++)
            input += p->m->group[i].input
                         ? p->m->group[i].saved * p->b / (p->tp * p->cp) * p->in_flight
                         : 0;
        t->memory = fixed + input;
    }
    return fits;
}

/* The layouts of the model on the devices of the fabric. */
static weft_degree_space space_of(const model *m, const weft_degrees_job *job)
{
    return (weft_degree_space){
        .ranks = job->fabric->nodes * job->fabric->per_node,
        .axis = {WEFT_DEGREE_TP, WEFT_DEGREE_CP, WEFT_DEGREE_PP, WEFT_DEGREE_DP},
        .axes = 4,
        .heads = m->list->heads,
        .layers = m->list->layers,
        .experts = m->experts,
        .batch = job->batch,
        .most_zero = 3};
}

/* Seconds of the update of this device's part of the weights: measured, or from its memory
 * traffic. */
static double optimizer_seconds(const estimation *p)
{
    const weft_state_bytes b = p->m->bytes;
    const double own = p->layer_weights * p->layers / (p->l.zero >= 1 ? p->shards : 1);
    if (p->m->list->update_seconds > 0) {
        const double all = weft_op_list_total(p->m->list).param_bytes / b.weight;
        return all > 0 ? p->m->list->update_seconds * own / all : 0;
    }
    return own * (2 * b.optimizer + b.gradient + b.weight) / p->f->memory_rate;
}

static void estimate(estimation *p, weft_degrees_terms *t, bool *fits)
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
    estimate_tp(p, &tp_forward, &tp_backward);
    estimate_cp(p, &cp_forward, &cp_backward);
    const double ep = estimate_ep(p);
    p->layer_forward = forward + tp_forward + cp_forward + ep;
    p->layer_backward = backward + tp_backward + cp_backward + ep;
    const double gather = M * p->layers;
    t->gemm = gather * gemm;
    t->attention = gather * attention;
    t->pointwise = gather * pointwise;
    t->tp = gather * (tp_forward + tp_backward);
    t->cp = gather * (cp_forward + cp_backward);
    t->ep = gather * 2 * ep;
    const double micro_forward = p->layers * p->layer_forward,
                 micro_backward = p->layers * p->layer_backward;
    t->dp = estimate_dp(p, micro_forward, micro_backward);
    *fits = estimate_memory(p, micro_forward + micro_backward, t);
    if (p->l.pp > 1) {
        const double bytes =
            p->b * (double)m->list->tokens / p->cp / p->tp * (double)m->list->hidden * m->wide;
        /* stages are tp cp dp devices apart: one hop that leaves a node decides */
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

static void estimate_model(const model *m, const weft_fabric *f, const weft_degrees *l,
                           weft_degrees_terms *out, bool *fits)
{
    estimation p = {.m = m,
                    .f = f,
                    .l = *l,
                    .b = (double)l->microbatch,
                    .tp = (double)l->tp,
                    .cp = (double)l->cp,
                    .ep = (double)l->ep,
                    .pp = (double)l->pp,
                    .dp = (double)l->dp};
    p.shards = p.dp * p.cp;
    const int64_t groups_per_node = f->per_node / l->tp > 0 ? f->per_node / l->tp : 1;
    p.shards_together = groups_per_node < (int64_t)p.shards ? groups_per_node : (int64_t)p.shards;
    p.layers = (double)((m->list->layers + l->pp - 1) / l->pp);
    double rounds = 1; /* microbatches in flight on the first stage */
    if (l->pp > 1)
        rounds = fmin((double)l->accumulation,
                      l->interleave == 1 ? p.pp : p.pp + (p.pp - 1) / (double)l->interleave);
    p.in_flight = p.layers * rounds;
    *out = (weft_degrees_terms){0};
    estimate(&p, out, fits);
}

weft_status weft_degrees_estimate(const weft_degrees_job *job, const weft_degrees *layout,
                                  weft_degrees_terms *out, bool *fits)
{
    model m;
    WEFT_TRY(model_init(job->model, job->experts, &m));
    const weft_degree_space space = space_of(&m, job);
    WEFT_TRY(weft_degree_space_check(&space, layout));
    estimate_model(&m, job->fabric, layout, out, fits);
    return WEFT_OK;
}

/* ---- search ---------------------------------------------------------------------------------- */

/* Memory decides only among layouts that do not fit. */
static weft_layout_score score_of(const weft_degrees_candidate *c)
{
    return (weft_layout_score){true, c->fits, c->terms.seconds, c->fits ? 0 : c->terms.memory};
}

static bool is_better(const weft_degrees_candidate *a, const weft_degrees_candidate *b)
{
    const weft_layout_score x = score_of(a), y = score_of(b);
    return weft_layout_compare(&x, &y) < 0;
}

/* Number of mechanisms of a layout in addition to the collectives of a layer. It decides among
 * layouts within 1 % of the fastest. */
static int complexity(const weft_degrees *l)
{
    return l->offload + (l->ep > 1) + (l->pp > 1) + (l->interleave > 1);
}
enum { COMPLEXITIES = 5 };
static const double as_fast = 1.01;

typedef struct search {
    const model *m;
    const weft_fabric *f;
    int64_t tried;
    weft_degree_space space;
    weft_layout_list *list;
    weft_degrees_candidate best[COMPLEXITIES]; /* best of the current degrees, by complexity */
    bool any[COMPLEXITIES];
} search;

static void try_layout(search *s, const weft_degrees *l)
{
    weft_degrees_candidate c = {.layout = *l};
    estimate_model(s->m, s->f, l, &c.terms, &c.fits);
    s->tried++;
    const int k = complexity(l);
    if (!s->any[k] || is_better(&c, &s->best[k]))
        s->best[k] = c;
    s->any[k] = true;
}

/* Tries a layout with and without offload. */
static weft_status_code try_offloads(void *user, const weft_degrees *degrees)
{
    weft_degrees l = *degrees;
    for (int offload = 0; offload < 2; offload++) {
        l.offload = offload;
        try_layout(user, &l);
    }
    return WEFT_OK;
}

static const char *const cause_names[WEFT_DEGREES_CAUSES] = {
    "matrix products",
    "attention",
    "pointwise operators",
    "tensor parallel communication",
    "exposed context parallel communication",
    "expert exchange",
    "exposed weights and gradients",
    "pipeline sends",
    "pipeline bubble",
    "recompute",
    "offload",
    "optimizer"};

/* Seconds by cause, in the order of cause_names. */
static void causes_of(const weft_degrees_terms *t, double cause[WEFT_DEGREES_CAUSES])
{
    const double own[] = {t->gemm,   t->attention, t->pointwise, t->tp,
                          t->cp,     t->ep,        t->dp,        t->send,
                          t->bubble, t->recompute, t->offload,   t->optimizer};
    memcpy(cause, own, sizeof own);
}

double weft_degrees_cause(const weft_degrees_terms *terms, int cause, const char **name)
{
    double all[WEFT_DEGREES_CAUSES];
    causes_of(terms, all);
    if (name)
        *name = cause_names[cause];
    return all[cause];
}

void weft_degrees_text(const weft_degrees *l, char text[96])
{
    int at = snprintf(text, 96,
                      "tp %" PRId64 " cp %" PRId64 " pp %" PRId64 " dp %" PRId64 " zero %" PRId64,
                      l->tp, l->cp, l->pp, l->dp, l->zero);
    if (l->ep > 1 && at < 96)
        at += snprintf(text + at, (size_t)(96 - at), " ep %" PRId64, l->ep);
    if (at < 96)
        at += snprintf(text + at, (size_t)(96 - at), " micro %" PRId64 " x %" PRId64, l->microbatch,
                       l->accumulation);
    if (l->interleave > 1 && at < 96)
        at += snprintf(text + at, (size_t)(96 - at), " v %" PRId64, l->interleave);
    if (l->offload && at < 96)
        snprintf(text + at, (size_t)(96 - at), " offload");
}

/* Returns the simplest layout among those within `as_fast` of the fastest; false: none. */
static bool simplest(const search *s, weft_degrees_candidate *out)
{
    int best = -1;
    for (int k = 0; k < COMPLEXITIES; k++)
        if (s->any[k] && (best < 0 || is_better(&s->best[k], &s->best[best])))
            best = k;
    for (int k = 0; k < best; k++)
        if (s->any[k] && s->best[k].fits &&
            s->best[k].terms.seconds <= as_fast * s->best[best].terms.seconds)
            best = k;
    if (best >= 0)
        *out = s->best[best];
    return best >= 0;
}

static weft_status add(search *s, const weft_degrees_candidate *c)
{
    weft_arena *arena = s->list->arena;
    double cause[WEFT_DEGREES_CAUSES];
    char name[96], need[32], limit[32];
    weft_degrees_candidate *own;
    WEFT_TRY(WEFT_ARENA_NEW(arena, own, 1, "layouts"));
    *own = *c;
    weft_degrees_text(&c->layout, name);
    causes_of(&c->terms, cause);
    const weft_layout_candidate candidate = {
        .score = score_of(c),
        .name = name,
        .why = c->fits ? NULL
                       : weft_arena_printf(
                             arena,
                             "needs %s per device with everything recomputed that can be, limit %s",
                             weft_format_bytes((int64_t)fmin(c->terms.memory, 9e18), need),
                             weft_format_bytes((int64_t)weft_fabric_usable(s->f), limit)),
        .cause = cause,
        .estimate = own};
    return weft_layout_list_add(s->list, &candidate);
}

/* Adds the best layout of the degrees and the ZeRO stage. */
static weft_status_code try_degrees(void *user, const weft_degrees *degrees)
{
    search *s = user;
    weft_degrees_candidate best;
    memset(s->any, 0, sizeof s->any);
    WEFT_TRY(weft_degree_space_rounds(&s->space, degrees, try_offloads, s));
    return simplest(s, &best) ? add(s, &best) : WEFT_OK;
}

static const weft_degrees_candidate *candidate_at(const weft_layout_list *list, int64_t index)
{
    return list->item[index].estimate;
}

/* Moves the simplest layout that is as fast as the fastest to the front. */
static void prefer_simplest(weft_layout_list *list)
{
    int64_t pick = 0;
    for (int64_t i = 1; i < list->count && candidate_at(list, i)->fits; i++)
        if (candidate_at(list, i)->terms.seconds <=
                as_fast * candidate_at(list, 0)->terms.seconds &&
            complexity(&candidate_at(list, i)->layout) <
                complexity(&candidate_at(list, pick)->layout))
            pick = i;
    weft_layout_list_prefer(list, pick);
}

static weft_status finish(const weft_layout_list *list, const weft_fabric *fabric, int64_t tried,
                          weft_degrees_plan *out)
{
    const weft_degrees_candidate *best = candidate_at(list, 0);
    weft_degrees_candidate *c;
    if (!best->fits) {
        char need[32], limit[32];
        return weft_error(
            WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.value = list->item[0].name),
            "no layout fits: the smallest (%s) needs %s per device, limit %s; use more devices",
            list->item[0].name, weft_format_bytes((int64_t)fmin(best->terms.memory, 9e18), need),
            weft_format_bytes((int64_t)(weft_fabric_usable(fabric)), limit));
    }
    WEFT_TRY(WEFT_ARENA_NEW(list->arena, c, list->count, "layouts"));
    for (int64_t i = 0; i < list->count; i++) {
        weft_buf why = {0};
        c[i] = *candidate_at(list, i);
        weft_layout_list_explain(list, i, &why);
        c[i].why = why.len ? weft_arena_strdup(list->arena, why.data) : NULL;
        const weft_status_code status = WEFT_ALLOCATED(c[i].why || !why.len, "layouts");
        weft_buf_free(&why);
        WEFT_TRY(status);
    }
    *out = (weft_degrees_plan){.candidate = c, .count = list->count, .tried = tried, .list = *list};
    return WEFT_OK;
}

weft_status weft_degrees_search(weft_arena *arena, const weft_degrees_job *job,
                                const weft_degrees_limits *limits, weft_degrees_plan *out)
{
    static const weft_degrees_limits none = {0};
    const int64_t devices = job->fabric->nodes * job->fabric->per_node, batch = job->batch;
    model m;
    weft_layout_list list = {.arena = arena, .cause = cause_names, .causes = WEFT_DEGREES_CAUSES};
    search s = {.m = &m, .f = job->fabric, .list = &list};
    WEFT_TRY(model_init(job->model, job->experts, &m));
    if (batch < 1 || devices < 1)
        return weft_error(WEFT_MSG_COSTS_INVALID,
                          WEFT_AT(.key = batch < 1 ? "batch" : "devices",
                                  WEFT_NUMBER(batch < 1 ? batch : devices)),
                          "a layout needs at least one sample and one device; got %" PRId64
                          " samples on %" PRId64 " devices",
                          batch, devices);
    limits = limits ? limits : &none;
    s.space = space_of(&m, job);
    s.space.most[WEFT_DEGREE_TP] = limits->tp;
    s.space.most[WEFT_DEGREE_CP] = limits->cp;
    s.space.most[WEFT_DEGREE_PP] = limits->pp;
    s.space.most[WEFT_DEGREE_EP] = limits->ep;
    s.space.least_zero = limits->zero_min;
    WEFT_TRY(weft_degree_space_visit(&s.space, try_degrees, &s));
    if (list.count == 0)
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_NOWHERE,
                          "no degrees within the limits divide %" PRId64 " devices, %" PRId64
                          " heads and a batch of %" PRId64,
                          devices, job->model->heads, batch);
    weft_layout_list_sort(&list);
    prefer_simplest(&list);
    return finish(&list, job->fabric, s.tried, out);
}
