/* Mixed precision: models compute in bf16, sums and ops that need precision in f32.
 *
 *   param f32 ──[gather, vary]──> cast bf16 ──> linear bf16 ──> ... ──> prediction bf16
 *   sinusoids of times f32 ─────> cast bf16 ──────^                        |
 *   data, noise, target f32 ──────────────────────────────────> cast f32 ──> loss f32
 *
 * Parameters stay in f32 in the store, checkpoints, moments and EMA, and every step rounds them
 * again. A node computes in bf16 under three conditions. It is in a model's scope, it reads a
 * weight or a bf16 value, and its op computes in bf16 (column `mixed` of graph/op.def). Values
 * between nodes of both types are cast, once each. Autodiff then creates gradients in the types of
 * their values, and the backward of the cast converts a parameter's gradient to f32. So ranks
 * all-reduce gradients in f32. With `bf16_reduce` they all-reduce in bf16, because the cast then
 * precedes gather and vary.
 *
 * For generation, weights may be bf16 or quantized in the store. They are read as they are, or
 * rounded after each unpack. The ends of a denoiser stay in f32:
 *
 *   latents ──> patch embedding f32 ──> blocks bf16 ──> norm, projection f32 ──> prediction */
#include "transform/numeric/mixed_precision.h"

#include "graph/builder_helpers.h"
#include "graph/rewrite.h"
#include "transform/memory/saved_activations.h"

typedef struct narrowing {
    weft_rewrite r;
    bool bf16_reduce;
    weft_value *wide, *bf16; /* per value of r.from: its copies in f32 and bf16 */
    bool *made_bf16;         /* per value: computed in bf16 */
    bool *weight;            /* per value: a parameter, or one passed on in f32 */
    bool *read_wide;         /* per value: a consumer reads it in f32 */
    bool *stays;             /* per node: stays in f32 */
} narrowing;

/* Returns true if the op's row declares f32: logarithms, angles, expert scores and the
 * optimizer. */
static bool is_wide(weft_op op)
{
    return !(weft_op_get(op)->mixed & WEFT_MIXED_COMPUTES);
}

static bool passes_through(weft_op op)
{
    return (weft_op_get(op)->mixed & WEFT_MIXED_PASSES_ON) != 0;
}

/* Keeps the scores that choose experts in f32, back to the linear layer that computes them. */
static void keep_scores_f32(const narrowing *c)
{
    const weft_graph *g = c->r.from;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        bool scores = node->op == WEFT_OP_TOP_K;
        while (scores) {
            const int32_t made = weft_value_get(g, node->in[0])->node;
            node = weft_graph_node(g, made);
            scores = node->op == WEFT_OP_SOFTMAX || node->op == WEFT_OP_SIGMOID;
            if (scores || node->op == WEFT_OP_LINEAR)
                c->stays[made] = true;
        }
    }
}

/* Keeps the nodes outside of blocks in f32. A model without blocks has no ends. */
static void keep_ends_f32(const narrowing *c)
{
    const weft_graph *g = c->r.from;
    bool blocks = false;
    for (int32_t n = 0; n < weft_graph_node_count(g) && !blocks; n++)
        blocks = weft_scope_block(weft_graph_node(g, n)->scope) > 0;
    for (int32_t n = 0; n < weft_graph_node_count(g) && blocks; n++)
        if (!weft_scope_block(weft_graph_node(g, n)->scope))
            c->stays[n] = true;
}

/* Marks weights that some consumer reads in f32. Nodes that pass such a weight on must not round
 * it.
 *
 *   param f32 ──> vary f32 ──> bias of a linear layer, row of a norm, scores of experts
 *   param f32 ──> cast bf16 ──> vary bf16 ──> weight of a linear layer      (bf16_reduce) */
static void find_wide_reads(narrowing *c)
{
    const weft_graph *g = c->r.from;
    for (int32_t n = weft_graph_node_count(g) - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(g, n);
        const bool stays = !node->scope[0] || c->stays[n] || is_wide(node->op);
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]) &&
                (passes_through(node->op) ? c->read_wide[node->out[0].id]
                                          : stays || weft_op_takes_f32(node->op, i)))
                c->read_wide[node->in[i].id] = true;
    }
}

/* The copy of `v` in `dtype`. A new cast is in the scope of its consumer. */
static weft_value in_type(narrowing *c, weft_value v, weft_dtype dtype, const char *scope)
{
    weft_value *made = dtype == WEFT_BF16 ? &c->bf16[v.id] : &c->wide[v.id];
    if (weft_value_ok(*made))
        return *made;
    weft_graph_push(c->r.to, "%s", scope);
    *made = weft_cast(c->r.to, dtype == WEFT_BF16 ? c->wide[v.id] : c->bf16[v.id], dtype);
    weft_graph_pop(c->r.to);
    if (weft_value_ok(*made))
        weft_graph_set_layout(c->r.to, *made, weft_value_get(c->r.from, v)->layout);
    return *made;
}

static bool is_float(const narrowing *c, weft_value v)
{
    return weft_value_ok(v) && weft_value_get(c->r.from, v)->dtype == WEFT_F32;
}

/* Generation: weights that are bf16 already, or int8. */
static bool is_stored_narrow(const narrowing *c, weft_value v)
{
    if (!weft_value_ok(v))
        return false;
    const weft_value_info *info = weft_value_get(c->r.from, v);
    return info->dtype == WEFT_BF16 || weft_int8_elements(info->dtype, &info->shape) > 0;
}

static bool becomes_bf16(const narrowing *c, int32_t n)
{
    const weft_node *node = weft_graph_node(c->r.from, n);
    if (!node->scope[0] || c->stays[n] || is_wide(node->op))
        return false;
    const bool forwards_weight =
        passes_through(node->op) && (!c->bf16_reduce || c->read_wide[node->out[0].id]);
    for (int i = 0; i < node->in_count; i++) {
        const weft_value v = node->in[i];
        if (weft_op_takes_f32(node->op, i))
            continue;
        if (is_stored_narrow(c, v))
            return true;
        if (!is_float(c, v))
            continue;
        if (c->weight[v.id] ? !forwards_weight : c->made_bf16[v.id])
            return true;
    }
    return false;
}

static void copy_node(narrowing *c, int32_t n)
{
    const weft_graph *from = c->r.from;
    const weft_node *node = weft_graph_node(from, n);
    const bool to_bf16 = becomes_bf16(c, n);
    for (int i = 0; i < node->in_count; i++) {
        const weft_value v = node->in[i];
        if (is_float(c, v))
            c->r.map[v.id] = to_bf16 && !weft_op_takes_f32(node->op, i)
                                 ? in_type(c, v, WEFT_BF16, node->scope)
                             : to_bf16 && c->made_bf16[v.id] ? c->bf16[v.id]
                                                             : in_type(c, v, WEFT_F32, node->scope);
    }
    weft_rewrite_node(&c->r, n, NULL);
    const bool is_weight = node->op == WEFT_OP_PARAM || node->op == WEFT_OP_UNPACK ||
                           (passes_through(node->op) && c->weight[node->in[0].id] && !to_bf16);
    for (int o = 0; o < node->out_count; o++) {
        const weft_value v = node->out[o];
        if (!is_float(c, v) || !weft_value_ok(c->r.map[v.id]))
            continue;
        const bool is_bf16 = weft_value_get(c->r.to, c->r.map[v.id])->dtype == WEFT_BF16;
        (is_bf16 ? c->bf16 : c->wide)[v.id] = c->r.map[v.id];
        c->made_bf16[v.id] = is_bf16;
        c->weight[v.id] = is_weight && !is_bf16;
    }
}

/* Casts outputs and updates back to their original types. */
static void widen_ends(narrowing *c)
{
    int count;
    const weft_named *output = weft_graph_outputs(c->r.from, &count);
    for (int i = 0; i < count; i++)
        if (is_float(c, output[i].value))
            c->r.map[output[i].value.id] = in_type(c, output[i].value, WEFT_F32, "");
    const weft_pair *update = weft_graph_updates(c->r.from, &count);
    for (int i = 0; i < count; i++) {
        if (is_float(c, update[i].value))
            c->r.map[update[i].value.id] = in_type(c, update[i].value, WEFT_F32, "");
        if (is_float(c, update[i].source))
            c->r.map[update[i].source.id] = c->wide[update[i].source.id];
    }
}

weft_status weft_pass_mixed_precision(const weft_graph *g, int how, weft_graph **out)
{
    narrowing c = {.bf16_reduce = how & WEFT_MIXED_REDUCE_BF16};
    const int64_t values = weft_graph_value_count(g) + 1, nodes = weft_graph_node_count(g) + 1;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_rewrite_begin(g, &c.r));
    c.wide = weft_calloc(values, sizeof *c.wide);
    c.bf16 = weft_calloc(values, sizeof *c.bf16);
    c.made_bf16 = weft_alloc(values);
    c.weight = weft_alloc(values);
    c.read_wide = weft_alloc(values);
    c.stays = weft_alloc(nodes);
    if (!c.wide || !c.bf16 || !c.made_bf16 || !c.weight || !c.read_wide || !c.stays) {
        weft_rewrite_abandon(&c.r);
        WEFT_GO(weft_no_memory("pass narrow"));
    }
    for (int64_t v = 0; v < values; v++)
        c.wide[v] = c.bf16[v] = WEFT_NONE;
    keep_scores_f32(&c);
    if (how & WEFT_MIXED_ENDS_F32)
        keep_ends_f32(&c);
    find_wide_reads(&c);
    for (int32_t n = 0; n < weft_graph_node_count(g) && weft_graph_check(c.r.to) == WEFT_OK; n++)
        copy_node(&c, n);
    if (weft_graph_check(c.r.to) == WEFT_OK)
        widen_ends(&c);
    status = weft_rewrite_finish(&c.r, "narrow", out);
out:
    weft_free(c.wide);
    weft_free(c.bf16);
    weft_free(c.made_bf16);
    weft_free(c.weight);
    weft_free(c.read_wide);
    weft_free(c.stays);
    return status;
}
