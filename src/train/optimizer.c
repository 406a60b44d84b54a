#include "train/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const weft_key optimizer_keys[] = {
    {"beta1", WEFT_KEY_F64, offsetof(weft_optimizer_config, beta1), "0.9", "",
     "decay of the first moment", .min = 0, .max = 0.9999},
    {"beta2", WEFT_KEY_F64, offsetof(weft_optimizer_config, beta2), "0.99", "",
     "decay of the second moment", .min = 0, .max = 0.999999},
    {"eps", WEFT_KEY_F64, offsetof(weft_optimizer_config, eps), "1e-8", "",
     "added to the root of the second moment", .min = 0, .max = 1},
    {"weight_decay", WEFT_KEY_F64, offsetof(weft_optimizer_config, weight_decay), "0.01", "",
     "decoupled weight decay", .min = 0, .max = 1},
    {"clip_norm", WEFT_KEY_F64, offsetof(weft_optimizer_config, clip_norm), "1", "",
     "largest norm of the whole gradient; 0 switches clipping off", .min = 0, .max = 1e9},
    {"decay_all", WEFT_KEY_BOOL, offsetof(weft_optimizer_config, decay_all), "false", "",
     "decay also biases, norms and other parameters of rank below 2"},
    {"ema_decay", WEFT_KEY_F64, offsetof(weft_optimizer_config, ema_decay), "0", "",
     "decay of the moving average of the weights per step; 0 keeps none", .min = 0,
     .max = 0.999999},
};
const weft_section weft_optimizer_section = {
    "optimizer", "AdamW, clipping and the moving average of the weights",
    sizeof(weft_optimizer_config), optimizer_keys, WEFT_COUNT(optimizer_keys)};

static weft_value scalar_input(weft_graph *g, const char *name)
{
    return weft_input(g, name, WEFT_F32, WEFT_SCALAR);
}

static weft_value moment(weft_graph *g, const char *kind, weft_value param)
{
    const weft_value_info *info = weft_value_get(g, param);
    char name[512];
    snprintf(name, sizeof name, "%s.%s", kind, info->name);
    return weft_state_like(g, name, WEFT_F32, param, (weft_init){.kind = WEFT_INIT_ZERO});
}

/* Begins as a copy of the weights, which whoever fills the store makes (weft_optimizer_begin). */
static weft_value average(weft_graph *g, weft_value param)
{
    const weft_value_info *info = weft_value_get(g, param);
    const weft_attr_source *source = weft_graph_node(g, info->node)->attr;
    char name[512];
    snprintf(name, sizeof name, "ema.%s", info->name);
    return weft_state_like(g, name, WEFT_F32, param, source->init);
}

typedef struct scalars {
    weft_value lr, step, scale, ema_decay;
} scalars;

static void update_param(weft_graph *g, weft_value param, weft_value grad,
                         const weft_optimizer_config *c, const scalars *s)
{
    const weft_value_info *info = weft_value_get(g, param);
    const bool decays = c->decay_all || info->shape.rank >= 2;
    const weft_attr_adamw attr = {.beta1 = c->beta1,
                                  .beta2 = c->beta2,
                                  .eps = c->eps,
                                  .weight_decay = decays ? c->weight_decay : 0};
    const weft_value m = moment(g, "adamw.m", param), v = moment(g, "adamw.v", param);
    const weft_value in[7] = {param, grad, m, v, s->lr, s->step, s->scale};
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_ADAMW, in, 7, &attr, out);
    weft_update(g, param, out[0]);
    weft_update(g, m, out[1]);
    weft_update(g, v, out[2]);
    if (!(c->ema_decay > 0))
        return;
    const weft_value e = average(g, param);
    weft_update(
        g, e,
        weft_emit(g, WEFT_OP_EMA, (weft_value[]){e, out[0], s->ema_decay, s->scale}, 4, NULL));
}

/* Clips, steps every parameter that has a gradient, and names what the trainer reads. */
static void update_all(weft_graph *g, const weft_value *params, const weft_value *grads, int count,
                       weft_value loss, const weft_optimizer_config *c)
{
    const weft_value squares = weft_sum_squares_all(g, grads, params, count);
    const weft_value limit =
        weft_fill(g, WEFT_F32, WEFT_SCALAR, c->clip_norm > 0 ? c->clip_norm : INFINITY);
    const weft_value clip[5] = {squares, loss, limit, scalar_input(g, "optimizer.loss_limit"),
                                scalar_input(g, "optimizer.norm_limit")};
    weft_value scale[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_CLIP_SCALE, clip, 5, NULL, scale);
    const scalars s = {.lr = scalar_input(g, "optimizer.lr"),
                       .step = scalar_input(g, "optimizer.step"),
                       .scale = scale[0],
                       .ema_decay = c->ema_decay > 0
                                        ? weft_fill(g, WEFT_F32, WEFT_SCALAR, c->ema_decay)
                                        : WEFT_NONE};
    for (int i = 0; i < count; i++)
        if (weft_value_ok(grads[i]) && weft_graph_check(g) == WEFT_OK)
            update_param(g, params[i], grads[i], c, &s);
    weft_output(g, "loss", loss);
    weft_output(g, "grad_norm", scale[1]);
    weft_output(g, "grad_scale", scale[0]);
}

static weft_value *new_values(weft_graph *g, int64_t count)
{
    weft_value *values =
        weft_arena_alloc(weft_graph_arena(g), (count + 1) * (int64_t)sizeof *values);
    if (!values)
        weft_graph_fail(g, WEFT_E_MEMORY, "out of memory for %lld gradients", (long long)count);
    return values;
}

void weft_optimizer_build(weft_graph *g, weft_value loss, const weft_optimizer_config *c)
{
    int count;
    const weft_value *params = weft_graph_params(g, &count);
    weft_value *grads = params ? new_values(g, count) : NULL;
    if (!grads)
        return;
    weft_autodiff(g, loss, params, count, grads);
    if (weft_graph_check(g) == WEFT_OK)
        update_all(g, params, grads, count, loss, c);
}

/* ---- contributions that add up -------------------------------------------------------------- */

static const char grad_prefix[] = "grad.", loss_state[] = "grad.loss";

/* By value: its one user, -1 for none, -2 for several. */
static int32_t *find_users(weft_graph *g)
{
    const int32_t values = weft_graph_value_count(g);
    int32_t *user = weft_arena_alloc(weft_graph_arena(g), (values + 1) * (int64_t)sizeof *user);
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

/* What every use of a parameter goes through: itself, or behind the conversions that say on which
 * axes it varies. A gradient of that is this rank's own term. */
static weft_value varied(const weft_graph *g, const int32_t *user, weft_value param)
{
    weft_value v = param;
    while (user[v.id] >= 0 && weft_graph_node(g, user[v.id])->op == WEFT_OP_VARY)
        v = weft_graph_node(g, user[v.id])->out[0];
    return v;
}

/* Adds `term`, a gradient of `varied`, to the state of the parameter. */
static void add_term(weft_graph *g, weft_value param, weft_value of, weft_value term)
{
    const weft_mesh *mesh = weft_graph_mesh(g);
    weft_layout layout[WEFT_MAX_AXES];
    char name[512];
    snprintf(name, sizeof name, "%s%s", grad_prefix, weft_value_get(g, param)->name);
    const weft_value state =
        weft_state_like(g, name, WEFT_F32, param, (weft_init){.kind = WEFT_INIT_ZERO});
    if (!weft_value_ok(state))
        return;
    for (int a = 0; a < WEFT_MAX_AXES; a++) {
        layout[a] = weft_value_get(g, of)->layout[a];
        if (mesh && a < mesh->axis_count && layout[a].kind == WEFT_V)
            layout[a].kind = WEFT_P;
    }
    weft_graph_set_layout(g, state, layout);
    const weft_value sum = weft_add(g, state, term);
    weft_graph_set_layout(g, sum, layout);
    weft_update(g, state, sum);
}

void weft_optimizer_accumulate(weft_graph *g, weft_value loss)
{
    int count;
    const weft_value *params = weft_graph_params(g, &count);
    weft_value *grads = params ? new_values(g, count) : NULL;
    weft_value *wrt = grads ? new_values(g, count) : NULL;
    const int32_t *user = wrt ? find_users(g) : NULL;
    if (!user) {
        weft_graph_fail(g, WEFT_E_MEMORY, "out of memory for %d gradients", count);
        return;
    }
    for (int i = 0; i < count; i++)
        wrt[i] = varied(g, user, params[i]);
    const weft_value share = weft_mul(g, loss, scalar_input(g, "optimizer.weight"));
    weft_autodiff(g, share, wrt, count, grads);
    for (int i = 0; i < count && weft_graph_check(g) == WEFT_OK; i++)
        if (weft_value_ok(grads[i]))
            add_term(g, params[i], wrt[i], grads[i]);
    const weft_value sum =
        weft_state(g, loss_state, WEFT_F32, WEFT_SCALAR, (weft_init){.kind = WEFT_INIT_ZERO});
    weft_update(g, sum, weft_add(g, sum, share));
    weft_output(g, "loss", loss);
}

/* The source `name` of `from` in `g` too. */
static weft_value take_source(weft_graph *g, const weft_graph *from, const char *name)
{
    const weft_value there = weft_graph_find(from, name);
    if (!weft_value_ok(there))
        return weft_graph_fail(g, WEFT_E_INTERNAL, "a gradient without \"%s\"", name);
    const weft_value_info *info = weft_value_get(from, there);
    const weft_node *node = weft_graph_node(from, info->node);
    const weft_value v = weft_source(g, node->op, name, node->attr);
    if (weft_value_ok(v))
        weft_graph_set_layout(g, v, info->layout);
    return v;
}

/* The sum over the axes on which the ranks have a term each. */
static weft_value reduce(weft_graph *g, weft_value terms)
{
    weft_value sum = terms;
    for (int a = 0; weft_value_ok(sum) && a < WEFT_MAX_AXES; a++)
        if (weft_value_get(g, terms)->layout[a].kind == WEFT_P)
            sum = weft_emit(g, WEFT_OP_ALL_REDUCE, &sum, 1, &(weft_attr_comm){.axis = a});
    return sum;
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
    return !strncmp(name, grad_prefix, length) && strcmp(name, loss_state) != 0;
}

static void build_update(weft_graph *g, const weft_graph *const *from, int graphs,
                         const weft_optimizer_config *c)
{
    int64_t room = 0, count = 0;
    for (int k = 0; k < graphs; k++)
        room += weft_graph_node_count(from[k]);
    weft_value *params = new_values(g, room), *states = new_values(g, room),
               *grads = new_values(g, room);
    for (int k = 0; k < graphs; k++)
        for (int32_t n = 0; n < weft_graph_node_count(from[k]); n++) {
            const char *name;
            if (weft_graph_check(g) != WEFT_OK)
                return;
            if (!is_gradient(from[k], n, &name) || weft_value_ok(weft_graph_find(g, name)))
                continue;
            params[count] = take_source(g, from[k], name);
            states[count] = take_source(g, from[k], name - (sizeof grad_prefix - 1));
            grads[count] = reduce(g, states[count]);
            count++;
        }
    const weft_value loss = take_source(g, from[0], loss_state);
    update_all(g, params, grads, (int)count, weft_affine(g, loss, 1, 0), c);
    for (int64_t i = 0; i < count; i++)
        clear(g, states[i]);
    clear(g, loss);
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
