#include "nn/experts.h"

#include "graph/builder_helpers.h"
#include "nn/nn.h"

#include <math.h>

weft_value weft_nn_swiglu(weft_graph *g, weft_value x, int64_t inner)
{
    const weft_value_info *info = weft_value_ok(x) ? weft_value_get(g, x) : NULL;
    const int64_t width = info ? info->shape.dim[info->shape.rank - 1] : 1;
    const weft_value gate = weft_unary(g, WEFT_OP_SILU, weft_nn_linear_plain(g, "w1", x, inner));
    const weft_value h = weft_mul(g, gate, weft_nn_linear_plain(g, "w3", x, inner));
    return weft_nn_linear_plain(g, "w2", h, width);
}

/* ---- the gate ------------------------------------------------------------------------------ */

/* Computes scores (B,S,E) and returns the ids (B,S,k) of the chosen experts. */
static weft_value choose(weft_graph *g, const weft_nn_experts *c, weft_value x, weft_value *scores)
{
    const int64_t width = weft_dim(g, x, 2);
    const weft_init normal = {.kind = WEFT_INIT_NORMAL, .value = 1 / sqrt((double)width)};
    weft_value in[2];
    weft_graph_push(g, "gate");
    const weft_value w = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(c->experts, width), normal);
    const weft_value logits =
        weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){x, w}, 2, &(weft_attr_linear){0});
    *scores = in[0] = weft_unary(g, c->sigmoid ? WEFT_OP_SIGMOID : WEFT_OP_SOFTMAX, logits);
    if (c->corrected)
        in[1] = weft_buffer(g, "e_score_correction_bias", WEFT_F32, WEFT_SHAPE(c->experts),
                            (weft_init){.kind = WEFT_INIT_ZERO});
    const weft_attr_top_k attr = {c->active, c->groups, c->groups ? c->top_groups : 0};
    const weft_value ids = weft_emit(g, WEFT_OP_TOP_K, in, c->corrected ? 2 : 1, &attr);
    weft_graph_pop(g);
    return ids;
}

/* Weights (B,S,k,1) of the chosen experts. */
static weft_value weights_of(weft_graph *g, const weft_nn_experts *c, weft_value scores,
                             weft_value ids)
{
    weft_value w = weft_emit(g, WEFT_OP_PICK, (weft_value[]){scores, ids}, 2, NULL);
    if (c->normalised && c->active > 1)
        w = weft_div(g, w, weft_affine(g, weft_sum(g, w, 1u << 2), 1, 1e-20));
    if (c->scale != 1)
        w = weft_affine(g, w, c->scale, 0);
    return weft_reshape(g, w, WEFT_SHAPE(weft_dim(g, ids, 0), weft_dim(g, ids, 1), c->active, 1));
}

/* ---- the experts --------------------------------------------------------------------------- */

/* Multiplies each row by the weight of its expert, from a stack (E,out,in). */
static weft_value project(weft_graph *g, const weft_nn_experts *c, const char *name, weft_value x,
                          int64_t out, weft_value ids, bool by_expert)
{
    const int64_t in = weft_dim(g, x, 3);
    const weft_init xavier = {.kind = WEFT_INIT_UNIFORM, .value = sqrt(6.0 / (double)(in + out))};
    const weft_attr_expert_matmul attr = {.by_expert = by_expert, .trans_b = true};
    weft_graph_push(g, "experts.*.%s", name);
    const weft_value w = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(c->experts, out, in), xavier);
    const weft_value y = weft_emit(g, WEFT_OP_EXPERT_MATMUL, (weft_value[]){x, w, ids}, 3, &attr);
    weft_graph_pop(g);
    return y;
}

/* Slots of one expert for a sample of `tokens` tokens. 0: a slot for every token. */
static int64_t slots_of(const weft_nn_experts *c, int64_t tokens)
{
    const double even = (double)(c->active * tokens) / (double)c->experts;
    const int64_t slots = c->capacity > 0 ? (int64_t)ceil(c->capacity * even) : tokens;
    return slots < tokens ? slots : 0;
}

/* ---- load balance -------------------------------------------------------------------------- */

/* Mean over samples of the largest item of x (B,1,E). */
static weft_value mean_of_largest(weft_graph *g, weft_value x)
{
    const weft_attr_top_k one = {.count = 1};
    const weft_value best = weft_emit(g, WEFT_OP_TOP_K, &x, 1, &one);
    return weft_mean_all(g, weft_emit(g, WEFT_OP_PICK, (weft_value[]){x, best}, 2, NULL));
}

static void measure(weft_graph *g, const weft_nn_experts *c, weft_value scores, weft_value ids,
                    weft_value slots, weft_nn_load *load)
{
    const int64_t batch = weft_dim(g, ids, 0), tokens = weft_dim(g, ids, 1);
    const double even = (double)c->experts / (double)c->active;
    const weft_attr_experts attr = {.experts = c->experts};
    const weft_value ones = weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, tokens, c->active), 1);
    const weft_value taken =
        weft_emit(g, WEFT_OP_PICK_GRAD, (weft_value[]){ids, ones}, 2, &attr);       /* (B,S,E) */
    const weft_value share = weft_affine(g, weft_mean(g, taken, 1u << 1), even, 0); /* (B,1,E) */
    if (c->sigmoid)
        scores = weft_div(g, scores, weft_affine(g, weft_sum(g, scores, 1u << 2), 1, 1e-20));
    const weft_value product = weft_mul(g, share, weft_mean(g, scores, 1u << 1));
    load->balance = weft_affine(g, weft_mean_all(g, product), (double)c->experts, 0);
    load->fullest = mean_of_largest(g, share);
    load->dropped = weft_fill(g, WEFT_F32, WEFT_SCALAR, 0);
    if (!weft_value_ok(slots))
        return;
    const weft_value full =
        weft_clamp(g, weft_affine(g, weft_cast(g, slots, WEFT_F32), 1, 1), 0, 1);
    load->dropped =
        weft_affine(g, weft_sum_all(g, full), -1 / (double)(batch * tokens * c->active), 1);
}

weft_value weft_nn_experts_of(weft_graph *g, const weft_nn_experts *c, weft_value x,
                              weft_nn_load *load)
{
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const int64_t batch = weft_dim(g, x, 0), tokens = weft_dim(g, x, 1), width = weft_dim(g, x, 2);
    const weft_attr_experts attr = {c->experts, slots_of(c, tokens)};
    weft_value scores, slots = WEFT_NONE;
    const weft_value ids = choose(g, c, x, &scores), weights = weights_of(g, c, scores, ids);
    weft_value rows = weft_reshape(g, x, WEFT_SHAPE(batch, tokens, 1, width));
    const bool limited = attr.slots > 0;
    if (limited) {
        slots = weft_emit(g, WEFT_OP_EXPERT_SLOTS, &ids, 1, &attr);
        rows = weft_emit(g, WEFT_OP_DISPATCH, (weft_value[]){rows, ids}, 2, &attr);
    }
    const weft_value by = limited ? slots : ids;
    const weft_value gate =
        weft_unary(g, WEFT_OP_SILU, project(g, c, "w1", rows, c->inner, by, limited));
    const weft_value h = weft_mul(g, gate, project(g, c, "w3", rows, c->inner, by, limited));
    weft_value y = project(g, c, "w2", h, width, by, limited);
    if (limited)
        y = weft_emit(g, WEFT_OP_COLLECT, (weft_value[]){y, ids}, 2, &attr);
    y = weft_sum(g, weft_mul(g, y, weights), 1u << 2);
    y = weft_reshape(g, y, WEFT_SHAPE(batch, tokens, width));
    if (load)
        measure(g, c, scores, ids, slots, load);
    if (!c->shared)
        return y;
    weft_graph_push(g, "shared_experts");
    y = weft_add(g, y, weft_nn_swiglu(g, x, c->shared));
    weft_graph_pop(g);
    return y;
}
