#include "train/graph/optimizer.h"

#include "graph/autodiff.h"
#include "graph/builder_helpers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static weft_value scalar_input(weft_graph *g, const char *name)
{
    return weft_input(g, name, WEFT_F32, WEFT_SCALAR);
}

/* ---- tensor shards of this rank (ZeRO) ------------------------------------------------------- */

/* Converts a gradient that is replicated on an axis into equal contributions. */
static weft_value as_term_on(weft_graph *g, weft_value term, int axis)
{
    weft_layout layout[WEFT_MAX_AXES];
    memcpy(layout, weft_value_get(g, term)->layout, sizeof layout);
    if (layout[axis].kind != WEFT_R)
        return term;
    layout[axis] = (weft_layout){.kind = WEFT_P};
    term = weft_affine(g, term, 1.0 / weft_graph_mesh(g)->axis[axis].size, 0);
    if (weft_value_ok(term))
        weft_graph_set_layout(g, term, layout);
    return term;
}

/* Converts replicated gradients into equal contributions on the axes that split samples. A batch of
 * one sample may leave a gradient replicated where another batch leaves it pending. As
 * contributions, both can be added in one state. With c->own this applies to all axes. */
static weft_value as_term(weft_graph *g, weft_value param, weft_value term,
                          const weft_optimizer_config *c)
{
    static const char *const axes[] = {"dp", "fsdp", "ep"};
    const weft_mesh *mesh = weft_graph_mesh(g);
    for (int axis = 0; mesh && axis < mesh->axis_count && weft_value_ok(term); axis++) {
        bool splits_samples = false;
        for (int i = 0; i < WEFT_COUNT(axes); i++)
            splits_samples |= axis == weft_mesh_axis(mesh, axes[i]);
        const bool own_part =
            weft_value_ok(param) && weft_value_get(g, param)->layout[axis].kind == WEFT_S;
        if ((splits_samples || c->own) && mesh->axis[axis].size > 1 && !own_part)
            term = as_term_on(g, term, axis);
    }
    return term;
}

/* The dim along which the ranks of zero.axis share the update of `param`. -1: each rank updates the
 * complete parameter. `terms` is the gradient before the reduction. */
static int shared_dim(const weft_graph *g, weft_value param, weft_value terms, weft_zero zero)
{
    const weft_value_info *info = weft_value_get(g, param);
    const bool pending = weft_value_get(g, terms)->layout[zero.axis].kind == WEFT_P;
    return zero.level > 0 && pending
               ? weft_part_dim(&info->shape, weft_graph_mesh(g)->axis[zero.axis].size)
               : -1;
}

/* This rank's shard along `dim` of a value that is replicated or pending on the axis. `op` slices
 * or reduces. */
static weft_value own_part(weft_graph *g, weft_op op, weft_value whole, int dim, weft_zero zero)
{
    const weft_attr_comm attr = {
        .axis = zero.axis, .dim = dim, .global = weft_value_get(g, whole)->shape.dim[dim]};
    return weft_emit(g, op, &whole, 1, &attr);
}

/* The state "<kind>.<param>" for this rank's shard of the parameter. */
static weft_value state_of(weft_graph *g, const char *kind, weft_value param, int dim,
                           weft_zero zero, weft_init init)
{
    char name[512];
    snprintf(name, sizeof name, "%s.%s", kind, weft_value_get(g, param)->name);
    return weft_state_like(g, name, param, zero.axis, dim, init);
}

static const weft_init zeros = {.kind = WEFT_INIT_ZERO};

/* Initial values of an EMA state. The caller that fills the store copies the weights into the
 * state. */
static weft_init init_of(const weft_graph *g, weft_value param)
{
    const weft_node *node = weft_graph_node(g, weft_value_get(g, param)->node);
    return ((const weft_attr_source *)node->attr)->init;
}

/* ---- the update ------------------------------------------------------------------------------ */

/* A parameter to update. */
typedef struct stepped {
    weft_value param;
    weft_value grad; /* reduced over ranks: complete, or this rank's shard along dim */
    int dim;         /* -1: this rank updates all that it holds */
} stepped;

typedef struct scalars {
    weft_value lr, step, scale, ema_decay, target_decay;
} scalars;

/* The name of a parameter's copy in the target network, in name[512]. */
static const char *target_name(const char *param, char name[512])
{
    const char *dot = strchr(param, '.');
    snprintf(name, 512, WEFT_TARGET_SCOPE "%s", dot ? dot : "");
    return name;
}

/* Moves the target network's copy of a parameter towards the new value `all`. */
static void update_target(weft_graph *g, weft_value param, weft_value all, const scalars *s)
{
    char name[512];
    const weft_value target =
        weft_value_ok(s->target_decay)
            ? weft_graph_find(g, target_name(weft_value_get(g, param)->name, name))
            : WEFT_NONE;
    if (weft_value_ok(target))
        weft_update(g, target,
                    weft_emit(g, WEFT_OP_EMA,
                              (weft_value[]){target, all, s->target_decay, s->scale}, 4, NULL));
}

static void update_param(weft_graph *g, const stepped *p, const weft_optimizer_config *c,
                         const scalars *s)
{
    const weft_zero zero = c->zero;
    const weft_value_info *info = weft_value_get(g, p->param);
    const int64_t length = p->dim >= 0 ? info->shape.dim[p->dim] : 0;
    const bool decays = c->decay_all || info->shape.rank >= 2;
    const weft_attr_adamw attr = {.beta1 = c->beta1,
                                  .beta2 = c->beta2,
                                  .eps = c->eps,
                                  .weight_decay = decays ? c->weight_decay : 0};
    const weft_value m = state_of(g, "adamw.m", p->param, p->dim, zero, zeros),
                     v = state_of(g, "adamw.v", p->param, p->dim, zero, zeros),
                     own = p->dim < 0 ? p->param
                                      : own_part(g, WEFT_OP_SLICE_OWN, p->param, p->dim, zero);
    const weft_value in[7] = {own, p->grad, m, v, s->lr, s->step, s->scale};
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_ADAMW, in, 7, &attr, out);
    const weft_attr_comm gather = {
        .axis = zero.axis, .dim = p->dim, .global = length, .invariant = true};
    const weft_value all =
        p->dim < 0 ? out[0] : weft_emit(g, WEFT_OP_ALL_GATHER, &out[0], 1, &gather);
    weft_update(g, p->param, all);
    update_target(g, p->param, all, s);
    weft_update(g, m, out[1]);
    weft_update(g, v, out[2]);
    if (!(c->ema_decay > 0))
        return;
    const weft_value e = state_of(g, "ema", p->param, p->dim, zero, init_of(g, p->param));
    weft_update(
        g, e,
        weft_emit(g, WEFT_OP_EMA, (weft_value[]){e, out[0], s->ema_decay, s->scale}, 4, NULL));
}

static weft_value *new_values(weft_graph *g, int64_t count)
{
    weft_value *values = weft_arena_calloc(weft_graph_arena(g), count + 1, sizeof *values);
    if (!values)
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for %" PRId64 " gradients",
                        count);
    return values;
}

static stepped *new_stepped(weft_graph *g, int64_t count)
{
    stepped *p = weft_arena_calloc(weft_graph_arena(g), count + 1, sizeof *p);
    if (!p)
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for %" PRId64 " parameters",
                        count);
    return p;
}

/* Computes the clipping scale of a set of gradients (out[0]) and their norm (out[1]). */
static void clip_all(weft_graph *g, const stepped *p, int count, weft_value loss, double most,
                     weft_value loss_limit, weft_value norm_limit, weft_value *out)
{
    weft_value *grads = new_values(g, count);
    out[0] = out[1] = WEFT_NONE;
    if (!grads)
        return;
    for (int i = 0; i < count; i++)
        grads[i] = p[i].grad;
    const weft_value squares = weft_sum_squares_all(g, grads, count);
    const weft_value limit = weft_fill(g, WEFT_F32, WEFT_SCALAR, most > 0 ? most : INFINITY);
    weft_emit_all(g, WEFT_OP_CLIP_SCALE,
                  (weft_value[]){squares, loss, limit, loss_limit, norm_limit}, 5, NULL, out);
}

/* A network with its own clipping and update. A run has at most one. */
typedef struct apart_network {
    const char *scope;
    const char *step;  /* input: number of its update, from 1 */
    const char *limit; /* input: below 0, no update; NULL: none */
    const char *norm;  /* output */
    const char *gate;  /* input: 0 keeps the main model as it is; NULL: none */
    size_t config;     /* offset in weft_optimizer_config */
} apart_network;
static const apart_network apart_networks[] = {
    {WEFT_DISCRIMINATOR_SCOPE, "optimizer.discriminator_step", "optimizer.discriminator_limit",
     "discriminator_norm", NULL, offsetof(weft_optimizer_config, discriminator)},
    {WEFT_FAKE_SCOPE, "optimizer.fake_step", NULL, "fake_norm", "optimizer.generator",
     offsetof(weft_optimizer_config, fake)},
};

/* The separately updated network of a parameter; NULL: the main model. */
static const apart_network *apart_of(const weft_graph *g, weft_value param)
{
    const char *name = weft_value_ok(param) ? weft_value_get(g, param)->name : "";
    for (int i = 0; i < WEFT_COUNT(apart_networks); i++) {
        const size_t length = strlen(apart_networks[i].scope);
        if (!strncmp(name, apart_networks[i].scope, length) && name[length] == '.')
            return &apart_networks[i];
    }
    return NULL;
}

/* Moves the parameters of the separately updated network to the end. Returns their number. */
static int put_apart(weft_graph *g, stepped *p, int count)
{
    stepped *sorted = new_stepped(g, count);
    int own = 0, apart = 0;
    if (!sorted)
        return 0;
    for (int i = 0; i < count; i++)
        apart += apart_of(g, p[i].param) != NULL;
    for (int i = 0, at = count - apart; i < count; i++)
        sorted[apart_of(g, p[i].param) ? at++ : own++] = p[i];
    memcpy(p, sorted, (size_t)count * sizeof *p);
    return apart;
}

/* Updates the separate network, unless the step is skipped. `others_scale` is NaN in this case. */
static void update_apart(weft_graph *g, const stepped *p, int count, weft_value others_scale,
                         weft_value lr, const weft_optimizer_config *c)
{
    const apart_network *network = apart_of(g, p->param);
    const weft_optimizer_apart *a =
        (const weft_optimizer_apart *)((const char *)c + network->config);
    weft_optimizer_config own = *c;
    weft_value scale[WEFT_MAX_OUTPUTS];
    own.beta1 = a->beta1;
    own.beta2 = a->beta2;
    own.weight_decay = a->weight_decay;
    own.ema_decay = 0;
    clip_all(g, p, count, weft_affine(g, others_scale, 0, 0), a->clip_norm,
             network->limit ? scalar_input(g, network->limit)
                            : weft_fill(g, WEFT_F32, WEFT_SCALAR, INFINITY),
             weft_fill(g, WEFT_F32, WEFT_SCALAR, INFINITY), scale);
    const scalars s = {.lr = weft_affine(g, lr, a->lr, 0),
                       .step = scalar_input(g, network->step),
                       .scale = scale[0],
                       .ema_decay = WEFT_NONE,
                       .target_decay = WEFT_NONE};
    for (int i = 0; i < count && weft_graph_check(g) == WEFT_OK; i++)
        update_param(g, &p[i], &own, &s);
    weft_output(g, network->norm, scale[1]);
}

/* The scale, or NaN (no update) if the input `gate` is 0 and not 1. */
static weft_value gated(weft_graph *g, weft_value scale, const char *gate)
{
    const weft_value open = scalar_input(g, gate);
    return weft_div(g, weft_mul(g, scale, open), open);
}

/* Clips, updates every parameter that has a gradient, and adds the outputs that the trainer
 * reads. */
static void update_all(weft_graph *g, stepped *p, int count, weft_value loss,
                       const weft_optimizer_config *c)
{
    const int apart = put_apart(g, p, count), own = count - apart;
    weft_value scale[WEFT_MAX_OUTPUTS];
    if (weft_graph_check(g) != WEFT_OK)
        return;
    clip_all(g, p, own, loss, c->clip_norm, scalar_input(g, "optimizer.loss_limit"),
             scalar_input(g, "optimizer.norm_limit"), scale);
    const apart_network *network = apart ? apart_of(g, p[own].param) : NULL;
    const scalars s = {
        .lr = scalar_input(g, "optimizer.lr"),
        .step = scalar_input(g, "optimizer.step"),
        .scale = network && network->gate ? gated(g, scale[0], network->gate) : scale[0],
        .ema_decay =
            c->ema_decay > 0 ? weft_fill(g, WEFT_F32, WEFT_SCALAR, c->ema_decay) : WEFT_NONE,
        .target_decay =
            c->target_decay > 0 ? weft_fill(g, WEFT_F32, WEFT_SCALAR, c->target_decay) : WEFT_NONE};
    for (int i = 0; i < own && weft_graph_check(g) == WEFT_OK; i++)
        update_param(g, &p[i], c, &s);
    if (apart)
        update_apart(g, p + own, apart, scale[0], s.lr, c);
    weft_output(g, "loss", loss);
    weft_output(g, "grad_norm", scale[1]);
    weft_output(g, "grad_scale", scale[0]);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static const char grad_prefix[] = "grad.", loss_state[] = "grad.loss";
/* States of accumulated metrics. No parameter has a colon in its name. */
static const char metric_prefix[] = "grad.metric:";
enum { METRIC_NAME = 64 };

/* The single user node of each value; -1: none; -2: several. */
static int32_t *find_users(weft_graph *g)
{
    const int32_t values = weft_graph_value_count(g);
    int32_t *user = weft_arena_calloc(weft_graph_arena(g), values + 1, sizeof *user);
    if (!user)
        return NULL;
    for (int32_t v = 0; v < values; v++)
        user[v] = -1;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]))
                user[node->in[i].id] = user[node->in[i].id] == -1 ? n : -2;
    }
    return user;
}

/* The value through which all uses of a parameter pass. This is the parameter, or the last of its
 * conversions (VARY marks axes with local gradients, CAST is the bf16 copy). Its gradient is this
 * rank's contribution. */
static weft_value varied(const weft_graph *g, const int32_t *user, weft_value param)
{
    weft_value v = param;
    while (user[v.id] >= 0) {
        const weft_node *node = weft_graph_node(g, user[v.id]);
        if (node->op != WEFT_OP_VARY && node->op != WEFT_OP_CAST)
            break;
        v = node->out[0];
    }
    return v;
}

/* No pipeline: nothing is sent or received. */
static const weft_pp_stage_graph alone = {0};

/* Lists the values with known gradients: the loss, and values sent to other pipeline stages. */
static int seed_from(weft_graph *g, weft_value loss, const weft_pp_stage_graph *pp_stage,
                     weft_value *from, weft_value *seed)
{
    int count = 0;
    for (; count < pp_stage->sends; count++) {
        from[count] = pp_stage->sent[count];
        seed[count] = pp_stage->sent_grad[count];
    }
    if (!weft_value_ok(loss))
        return count;
    from[count] = loss;
    seed[count] = weft_fill(g, weft_value_get(g, loss)->dtype, weft_value_get(g, loss)->shape, 1);
    return count + weft_value_ok(seed[count]);
}

/* Writes the gradients of values received from other pipeline stages to their slots. Values without
 * a gradient get zeros. */
static void send_back(weft_graph *g, const weft_pp_stage_graph *pp_stage, const weft_value *grad)
{
    for (int i = 0; i < pp_stage->receives && weft_graph_check(g) == WEFT_OK; i++) {
        const weft_value_info to = *weft_value_get(g, pp_stage->received_grad[i]);
        weft_value v = grad[i];
        if (!weft_value_ok(v)) {
            v = weft_fill(g, to.dtype, to.shape, 0);
            if (weft_value_ok(v))
                weft_graph_node_mut(g, weft_value_get(g, v)->node)->backward = true;
        }
        weft_update(g, pp_stage->received_grad[i], v);
    }
}

static bool is_shared(const weft_pp_stage_graph *pp_stage, weft_value param)
{
    for (int i = 0; i < pp_stage->shares; i++)
        if (pp_stage->shared[i].id == param.id)
            return true;
    return false;
}

/* Finds this rank's gradient contributions and their parameters. `of` is the loss; WEFT_NONE: only
 * the values that the pipeline stage sends. Parameters that every pipeline device has come first
 * and may have no contribution. */
static int find_terms(weft_graph *g, weft_value of, const weft_pp_stage_graph *pp_stage,
                      weft_value **params, weft_value **terms)
{
    int count, found = 0;
    const weft_value *all = weft_graph_params(g, &count);
    const int64_t most = count + pp_stage->receives + pp_stage->sends + 1;
    weft_value *wrt = all ? new_values(g, most) : NULL, *grad = wrt ? new_values(g, most) : NULL,
               *from = grad ? new_values(g, most) : NULL, *seed = from ? new_values(g, most) : NULL;
    const int32_t *user = seed ? find_users(g) : NULL;
    *params = user ? new_values(g, count) : NULL;
    *terms = *params ? new_values(g, count) : NULL;
    if (!*terms) {
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for %d gradients", count);
        return 0;
    }
    for (int i = 0; i < count; i++)
        wrt[i] = varied(g, user, all[i]);
    for (int i = 0; i < pp_stage->receives; i++)
        wrt[count + i] = pp_stage->received[i];
    const int seeds = seed_from(g, of, pp_stage, from, seed);
    weft_autodiff_from(g, from, seed, seeds, wrt, count + pp_stage->receives, grad);
    send_back(g, pp_stage, grad + count);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < count && weft_graph_check(g) == WEFT_OK; i++) {
            const bool shared = is_shared(pp_stage, all[i]);
            if (shared != (pass == 0) || !(shared || weft_value_ok(grad[i])))
                continue;
            (*params)[found] = all[i];
            (*terms)[found++] = grad[i];
        }
    return found;
}

/* Casts pending contributions to the type of the reduction. */
static weft_value for_sum(weft_graph *g, weft_value terms, const weft_optimizer_config *c)
{
    bool pending = false;
    const weft_value_info *info = weft_value_get(g, terms);
    for (int a = 0; a < WEFT_MAX_AXES; a++)
        pending |= info->layout[a].kind == WEFT_P;
    return pending && !c->bf16_reduce && info->dtype != WEFT_F32 ? weft_cast(g, terms, WEFT_F32)
                                                                 : terms;
}

/* Reduces contributions over the axes on which they are pending. With `dim` >= 0, reduces to this
 * rank's shard along `dim` first, so that the other axes reduce less. The nodes get the scope of
 * the node that computes the contributions. */
static weft_value reduce(weft_graph *g, weft_value terms, int dim, weft_zero zero)
{
    const weft_node *maker = weft_graph_node(g, weft_value_get(g, terms)->node);
    weft_graph_push(g, "%s", maker->scope);
    weft_value sum = dim < 0 ? terms : own_part(g, WEFT_OP_REDUCE_SCATTER, terms, dim, zero);
    for (int a = 0; weft_value_ok(sum) && a < WEFT_MAX_AXES; a++)
        if (weft_value_get(g, sum)->layout[a].kind == WEFT_P)
            sum = weft_emit(g, WEFT_OP_ALL_REDUCE, &sum, 1, &(weft_attr_comm){.axis = a});
    weft_graph_pop(g);
    return sum;
}

void weft_optimizer_build(weft_graph *g, weft_value loss, const weft_optimizer_config *c)
{
    weft_value *params, *terms;
    const int count = find_terms(g, loss, &alone, &params, &terms);
    stepped *p = new_stepped(g, count);
    for (int i = 0; i < count && weft_graph_check(g) == WEFT_OK; i++) {
        const weft_value term = c->zero.level ? as_term(g, params[i], terms[i], c) : terms[i];
        const weft_value own = for_sum(g, term, c);
        if (!weft_value_ok(own))
            return;
        const int dim = shared_dim(g, params[i], own, c->zero);
        p[i] = (stepped){params[i], reduce(g, own, dim, c->zero), dim};
    }
    if (weft_graph_check(g) == WEFT_OK)
        update_all(g, p, count, loss, c);
}

/* Adds the source `name` of `from` to `g`. */
static weft_value take_source(weft_graph *g, const weft_graph *from, const char *name)
{
    const weft_value there = weft_graph_find(from, name);
    if (!weft_value_ok(there))
        return weft_graph_fail(g, WEFT_MSG_INTERNAL_ERROR, "a gradient without \"%s\"", name);
    const weft_value_info *info = weft_value_get(from, there);
    const weft_node *node = weft_graph_node(from, info->node);
    const weft_value v = weft_source(g, node->op, name, node->attr);
    if (weft_value_ok(v))
        weft_graph_set_layout(g, v, info->layout);
    return v;
}

/* ---- accumulated contributions -------------------------------------------------------------- */

/* Gives a gradient state the layout of its contribution `like`. On the pipeline axis the layout is
 * `pp_axis_layout`: S for own parameters, P for shared parameters. */
static void lay_out_state(weft_graph *g, weft_value state, weft_value like, int pp_axis,
                          weft_layout pp_axis_layout)
{
    weft_layout layout[WEFT_MAX_AXES];
    memcpy(layout, weft_value_get(g, like)->layout, sizeof layout);
    if (pp_axis >= 0)
        layout[pp_axis] = pp_axis_layout;
    weft_graph_set_layout(g, state, layout);
}

static const weft_layout pending = {.kind = WEFT_P}, pp_sharded = {.kind = WEFT_S};

/* Adds `term` to the gradient state of the parameter. With zero: 2 the state is this rank's
 * shard. */
static void add_term(weft_graph *g, weft_value param, weft_value term, weft_zero zero, int pp_axis,
                     bool shared)
{
    const int dim = weft_value_ok(term) && zero.level > 1 ? shared_dim(g, param, term, zero) : -1;
    const weft_value own = dim < 0 ? term : own_part(g, WEFT_OP_REDUCE_SCATTER, term, dim, zero);
    const weft_value state = state_of(g, "grad", param, dim, zero, zeros);
    if (!weft_value_ok(own) || !weft_value_ok(state))
        return;
    const weft_layout pp_axis_layout = shared ? pending : pp_sharded;
    lay_out_state(g, state, own, pp_axis, pp_axis_layout);
    const weft_value sum = weft_add(g, state, own);
    if (weft_value_ok(sum))
        lay_out_state(g, sum, own, pp_axis, pp_axis_layout);
    weft_update(g, state, sum);
}

/* Adds a zero contribution for a shared parameter that this pipeline stage does not read. The state
 * has the layout of the stages that read the parameter, and their contributions are reduced into
 * it. */
static void add_nothing(weft_graph *g, weft_value param, weft_zero zero, int pp_axis)
{
    const weft_value_info *info = weft_value_get(g, param);
    weft_value none = weft_fill(g, WEFT_F32, info->shape, 0);
    if (!weft_value_ok(none))
        return;
    weft_layout layout[WEFT_MAX_AXES] = {0};
    const weft_mesh *mesh = weft_graph_mesh(g);
    for (int a = 0; a < mesh->axis_count; a++)
        layout[a] = weft_value_get(g, param)->layout[a].kind == WEFT_S
                        ? weft_value_get(g, param)->layout[a]
                        : (weft_layout){mesh->axis[a].size > 1 ? WEFT_P : WEFT_R, 0};
    layout[pp_axis] = (weft_layout){0};
    weft_graph_set_layout(g, none, layout);
    weft_graph_node_mut(g, weft_value_get(g, none)->node)->backward = true;
    add_term(g, param, none, zero, pp_axis, true);
}

/* Adds the weighted loss or metric to the state `name`. `pp_axis`: pipeline axis, where one stage
 * has the value; -1: none. */
static void add_scalar(weft_graph *g, const char *name, weft_value share, int pp_axis)
{
    const weft_value state =
        weft_state(g, name, WEFT_F32, WEFT_SCALAR, (weft_init){.kind = WEFT_INIT_ZERO});
    if (weft_value_ok(state))
        lay_out_state(g, state, weft_value_ok(share) ? share : state, pp_axis, pending);
    if (!weft_value_ok(share) || !weft_value_ok(state))
        return;
    const weft_value sum = weft_add(g, state, share);
    if (pp_axis >= 0 && weft_value_ok(sum))
        lay_out_state(g, sum, state, pp_axis, pending);
    weft_update(g, state, sum);
}

/* Adds the weighted metrics of the graph `of` to their states. A pipeline stage `g` computes a
 * part, and has the states of all. */
static void add_metrics(weft_graph *g, const weft_graph *of, weft_value weight, int pp_axis)
{
    int count;
    const weft_named *output = weft_graph_outputs(of, &count);
    for (int i = 0; i < count && weft_graph_check(g) == WEFT_OK; i++) {
        char name[METRIC_NAME];
        if (!strcmp(output[i].name, "objective") ||
            weft_shape_count(&weft_value_get(of, output[i].value)->shape) != 1)
            continue;
        snprintf(name, sizeof name, "%s%s", metric_prefix, output[i].name);
        const weft_value own = weft_graph_find(g, output[i].name);
        add_scalar(g, name,
                   weft_value_ok(own) ? weft_mul(g, weft_cast(g, own, WEFT_F32), weight)
                                      : WEFT_NONE,
                   pp_axis);
    }
}

static void accumulate(weft_graph *g, weft_value loss, const weft_graph *metrics,
                       const weft_pp_stage_graph *pp_stage, int pp_axis,
                       const weft_optimizer_config *c)
{
    weft_value *params, *terms;
    const weft_value weight =
        weft_value_ok(loss) || metrics ? scalar_input(g, "optimizer.weight") : WEFT_NONE;
    const weft_value share = weft_value_ok(loss) ? weft_mul(g, loss, weight) : WEFT_NONE;
    if (metrics)
        add_metrics(g, metrics, weight, pp_axis);
    const int count = find_terms(g, share, pp_stage, &params, &terms);
    for (int i = 0; i < count && weft_graph_check(g) == WEFT_OK; i++)
        if (weft_value_ok(terms[i])) {
            const weft_value term = as_term(g, params[i], terms[i], c);
            add_term(g, params[i], c->zero.level > 1 ? for_sum(g, term, c) : term, c->zero, pp_axis,
                     is_shared(pp_stage, params[i]));
        } else {
            add_nothing(g, params[i], c->zero, pp_axis);
        }
    const weft_value whole =
        c->own && weft_value_ok(share) ? as_term(g, WEFT_NONE, share, c) : share;
    add_scalar(g, loss_state, whole, pp_axis);
    if (weft_value_ok(loss))
        weft_output(g, "loss", loss);
}

void weft_optimizer_accumulate(weft_graph *g, weft_value loss, const weft_graph *metrics,
                               const weft_optimizer_config *c)
{
    accumulate(g, loss, metrics, &alone, -1, c);
}

void weft_optimizer_accumulate_stage(const weft_pp_stage_graph *pp_stage, const weft_graph *metrics,
                                     int axis, const weft_optimizer_config *c)
{
    weft_graph *g = pp_stage->graph;
    int count;
    accumulate(g, weft_graph_find(g, "objective"), metrics, pp_stage, axis, c);
    const weft_value *param = weft_graph_params(g, &count);
    for (int i = 0; param && i < count && weft_graph_check(g) == WEFT_OK; i++)
        if (!is_shared(pp_stage, param[i]))
            lay_out_state(g, param[i], param[i], axis, pp_sharded);
}

static void clear(weft_graph *g, weft_value state)
{
    weft_value zero = WEFT_NONE;
    if (weft_value_ok(state))
        zero = weft_fill(g, WEFT_F32, weft_value_get(g, state)->shape, 0);
    if (weft_value_ok(zero))
        weft_update(g, state, zero);
}

static bool is_gradient(const weft_graph *from, int32_t n, const char **param)
{
    const weft_node *node = weft_graph_node(from, n);
    const size_t length = sizeof grad_prefix - 1;
    if (node->op != WEFT_OP_STATE)
        return false;
    const char *name = weft_value_get(from, node->out[0])->name;
    *param = name + length;
    return !strncmp(name, grad_prefix, length) && strcmp(name, loss_state) != 0 &&
           strncmp(name, metric_prefix, sizeof metric_prefix - 1) != 0;
}

/* The parameter and its reduced gradient. With zero: 2 the state already holds the reduced
 * shard. */
static stepped step_from(weft_graph *g, weft_value param, weft_value state, weft_zero zero)
{
    if (!weft_value_ok(param) || !weft_value_ok(state))
        return (stepped){param, WEFT_NONE, -1};
    const weft_layout of_state = weft_value_get(g, state)->layout[zero.axis];
    const bool summed = zero.level > 1 && of_state.kind == WEFT_S &&
                        weft_value_get(g, param)->layout[zero.axis].kind != WEFT_S;
    const int dim = summed ? of_state.dim : shared_dim(g, param, state, zero);
    return (stepped){param, reduce(g, state, summed ? -1 : dim, zero), dim};
}

/* The pipeline axis if the state is pending on it; otherwise -1. */
static int shared_axis(const weft_graph *g, weft_value state)
{
    const weft_mesh *mesh = weft_graph_mesh(g);
    const int axis = mesh ? weft_mesh_axis(mesh, WEFT_PP_STAGES_AXIS) : -1;
    return axis >= 0 && weft_value_get(g, state)->layout[axis].kind == WEFT_P ? axis : -1;
}

/* The state `name`. weft_optimizer_share has already reduced states of shared parameters. */
static weft_value take_state(weft_graph *g, const weft_graph *from, const char *name)
{
    const weft_value state = take_source(g, from, name);
    if (!weft_value_ok(state) || shared_axis(g, state) < 0)
        return state;
    weft_layout layout[WEFT_MAX_AXES];
    for (int a = 0; a < WEFT_MAX_AXES; a++) {
        layout[a] = weft_value_get(g, state)->layout[a];
        layout[a].kind = layout[a].kind == WEFT_P ? WEFT_R : layout[a].kind;
    }
    weft_graph_set_layout(g, state, layout);
    return state;
}

/* Sets the layout on the one axis of weft_optimizer_update_own: pending or replicated. */
static weft_value lay_out_own(weft_graph *g, weft_value v, bool term)
{
    const weft_layout layout[WEFT_MAX_AXES] = {{.kind = term ? WEFT_P : WEFT_R}};
    if (weft_value_ok(v) && weft_mesh_ranks(weft_graph_mesh(g)) > 1)
        weft_graph_set_layout(g, v, layout);
    return v;
}

/* Parameters and gradient states that an update finds in its graphs. */
typedef struct summed {
    stepped *p;
    weft_value *state;
    int64_t count;
} summed;

static summed new_summed(weft_graph *g, const weft_graph *const *from, int graphs)
{
    int64_t capacity = 0;
    for (int k = 0; k < graphs; k++)
        capacity += weft_graph_node_count(from[k]);
    return (summed){.p = new_stepped(g, capacity), .state = new_values(g, capacity)};
}

static void add_summed(weft_graph *g, summed *s, weft_value param, weft_value state, weft_zero zero)
{
    s->state[s->count] = state;
    s->p[s->count++] = step_from(g, param, state, zero);
}

/* Updates all parameters and resets the accumulated gradients. `total` is the loss of all ranks. */
static void step_summed(weft_graph *g, const summed *s, weft_value loss, weft_value total,
                        const weft_optimizer_config *c)
{
    update_all(g, s->p, (int)s->count, total, c);
    for (int64_t i = 0; i < s->count; i++)
        clear(g, s->state[i]);
    clear(g, loss);
}

static void build_update_own(weft_graph *g, const weft_graph *const *from, int graphs,
                             const weft_optimizer_config *c)
{
    summed all = new_summed(g, from, graphs);
    const weft_value loss = lay_out_own(g, take_source(g, from[0], loss_state), c->own);
    for (int k = 0; k < graphs; k++)
        for (int32_t n = 0; n < weft_graph_node_count(from[k]); n++) {
            const weft_node *node = weft_graph_node(from[k], n);
            const char *own = weft_value_get(from[k], node->out[0])->name, *name = own;
            const bool gradient = is_gradient(from[k], n, &name);
            if (weft_graph_check(g) != WEFT_OK)
                return;
            if ((node->op != WEFT_OP_PARAM && !gradient) || !strcmp(own, loss_state))
                continue;
            weft_value param = weft_graph_find(g, gradient ? name : own);
            if (!weft_value_ok(param))
                param = lay_out_own(g, take_source(g, from[k], gradient ? name : own), false);
            if (!gradient || weft_value_ok(weft_graph_find(g, own)))
                continue;
            add_summed(g, &all, param, lay_out_own(g, take_source(g, from[k], own), c->own),
                       c->zero);
        }
    step_summed(g, &all, loss, reduce(g, weft_affine(g, loss, 1, 0), -1, c->zero), c);
}

weft_graph *weft_optimizer_update_own(const weft_graph *const *gradients, int count,
                                      const weft_mesh *mesh, int rank,
                                      const weft_optimizer_config *config)
{
    weft_graph *g = weft_graph_create();
    if (!g)
        return NULL;
    weft_graph_set_mesh(g, mesh, rank);
    build_update_own(g, gradients, count, config);
    return g;
}

/* Outputs the accumulated metrics of a graph and resets them. */
static void take_metrics(weft_graph *g, const weft_graph *from)
{
    const size_t length = sizeof metric_prefix - 1;
    for (int32_t n = 0; n < weft_graph_node_count(from) && weft_graph_check(g) == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(from, n);
        const char *name = weft_value_get(from, node->out[0])->name;
        if (node->op != WEFT_OP_STATE || strncmp(name, metric_prefix, length) != 0 ||
            weft_value_ok(weft_graph_find(g, name)))
            continue;
        const weft_value state = take_state(g, from, name);
        if (weft_value_ok(state))
            weft_output(g, name + length, weft_affine(g, state, 1, 0));
        clear(g, state);
    }
}

/* Adds the target network's copy of a parameter, if the graph has one. */
static void take_target(weft_graph *g, const weft_graph *from, const char *param)
{
    char name[512];
    if (weft_value_ok(weft_graph_find(from, target_name(param, name))))
        take_source(g, from, name);
}

static void build_update(weft_graph *g, const weft_graph *const *from, int graphs,
                         const weft_optimizer_config *c)
{
    summed all = new_summed(g, from, graphs);
    const weft_value loss = take_state(g, from[0], loss_state);
    for (int k = 0; k < graphs; k++)
        for (int32_t n = 0; n < weft_graph_node_count(from[k]); n++) {
            const char *name;
            if (weft_graph_check(g) != WEFT_OK)
                return;
            if (!is_gradient(from[k], n, &name) || weft_value_ok(weft_graph_find(g, name)))
                continue;
            const weft_value param = take_source(g, from[k], name);
            take_target(g, from[k], name);
            add_summed(g, &all, param, take_state(g, from[k], name - (sizeof grad_prefix - 1)),
                       c->zero);
        }
    step_summed(g, &all, loss, weft_affine(g, loss, 1, 0), c);
    for (int k = 0; k < graphs; k++)
        take_metrics(g, from[k]);
}

weft_graph *weft_optimizer_update(const weft_graph *const *gradients, int count,
                                  const weft_optimizer_config *config)
{
    weft_graph *g = weft_graph_create();
    if (!g)
        return NULL;
    if (weft_graph_mesh(gradients[0]))
        weft_graph_set_mesh(g, weft_graph_mesh(gradients[0]), weft_graph_rank(gradients[0]));
    build_update(g, gradients, count, config);
    return g;
}

weft_graph *weft_optimizer_sum(const weft_graph *update, const weft_mesh *mesh, int rank,
                               bool retain)
{
    weft_graph *g = weft_graph_create();
    if (!g)
        return NULL;
    weft_graph_set_mesh(g, mesh, rank);
    for (int32_t n = 0; n < weft_graph_node_count(update) && weft_graph_check(g) == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(update, n);
        const char *name = weft_value_get(update, node->out[0])->name;
        if (node->op != WEFT_OP_STATE || strncmp(name, grad_prefix, sizeof grad_prefix - 1))
            continue;
        const weft_value state = lay_out_own(g, take_source(g, update, name), true);
        if (!weft_value_ok(state))
            continue;
        const weft_value sum = reduce(g, state, -1, (weft_zero){0});
        /* same nodes on all ranks, so that all coalesce alike */
        weft_update(g, state, weft_affine(g, sum, retain, 0));
    }
    return g;
}

static void share_state(weft_graph *g, const weft_graph *from, const char *name)
{
    const weft_value there = weft_graph_find(from, name);
    if (!weft_value_ok(there) || shared_axis(from, there) < 0 ||
        weft_value_ok(weft_graph_find(g, name)))
        return;
    const weft_value state = take_source(g, from, name);
    if (weft_value_ok(state))
        weft_update(g, state, reduce(g, state, -1, (weft_zero){0}));
}

weft_graph *weft_optimizer_share(const weft_graph *const *gradients, int count)
{
    weft_graph *g = weft_graph_create();
    if (!g)
        return NULL;
    weft_graph_set_mesh(g, weft_graph_mesh(gradients[0]), weft_graph_rank(gradients[0]));
    for (int k = 0; k < count; k++)
        for (int32_t n = 0; n < weft_graph_node_count(gradients[k]); n++) {
            const weft_node *node = weft_graph_node(gradients[k], n);
            const char *name = weft_value_get(gradients[k], node->out[0])->name;
            if (node->op == WEFT_OP_STATE && !strncmp(name, grad_prefix, sizeof grad_prefix - 1))
                share_state(g, gradients[k], name);
        }
    return g;
}

/* ---- EMA ------------------------------------------------------------------------------------ */

/* Replaces a parameter with its EMA. Shards of an EMA are gathered if the parameter is
 * replicated. */
static void replace_by_average(weft_graph *g, const weft_graph *step, const char *average)
{
    const weft_value param = take_source(g, step, average + sizeof "ema." - 1),
                     from = take_source(g, step, average);
    if (!weft_value_ok(param) || !weft_value_ok(from))
        return;
    const weft_value_info *info = weft_value_get(g, param);
    weft_value all = from;
    for (int a = 0; a < WEFT_MAX_AXES && weft_value_ok(all); a++) {
        const weft_layout part = weft_value_get(g, from)->layout[a];
        if (part.kind != WEFT_S || info->layout[a].kind == WEFT_S)
            continue;
        const weft_attr_comm gather = {
            .axis = a, .dim = part.dim, .global = info->shape.dim[part.dim], .invariant = true};
        all = weft_emit(g, WEFT_OP_ALL_GATHER, &all, 1, &gather);
    }
    weft_update(g, param, all.id == from.id ? weft_affine(g, from, 1, 0) : all);
}

weft_graph *weft_optimizer_averages(const weft_graph *step)
{
    weft_graph *g = weft_graph_create();
    if (!g)
        return NULL;
    if (weft_graph_mesh(step))
        weft_graph_set_mesh(g, weft_graph_mesh(step), weft_graph_rank(step));
    for (int32_t n = 0; n < weft_graph_node_count(step) && weft_graph_check(g) == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(step, n);
        const char *name = weft_value_get(step, node->out[0])->name;
        if (node->op == WEFT_OP_STATE && !strncmp(name, "ema.", 4))
            replace_by_average(g, step, name);
    }
    return g;
}
