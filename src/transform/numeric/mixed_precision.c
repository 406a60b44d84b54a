/* Narrowing: what a model computes is kept in bf16, sums and what needs many digits in f32.
 *
 *   param f32 ──[gather, vary]──> cast bf16 ──> linear bf16 ──> ... ──> prediction bf16
 *   sinusoids of times f32 ─────> cast bf16 ──────^                        |
 *   data, noise, target f32 ──────────────────────────────────> cast f32 ──> loss f32
 *
 * Parameters stay as they are: the store, checkpoints, moments and averages hold f32, and every
 * step rounds them anew. A node is narrow if it is in a model's scope, reads a weight or a narrow
 * value, and its op computes in bf16 (column `mixed` of graph/op.def); values between it and others
 * are cast, once each.
 * Autodiff then makes gradients in the types of their values, and that of a parameter is widened
 * behind the cast: what ranks add up is f32, unless `sums` is narrow too: then the cast stands
 * before the conversions. */
#include "pass/rewrite.h"

typedef struct narrowing {
    weft_rewrite r;
    bool sums;
    weft_value *wide, *narrow; /* by value of r.from: its copy in f32, in bf16 */
    bool *made_narrow;         /* by value: it is computed in bf16 */
    bool *weight;              /* by value: a parameter, or one that was only handed on */
    bool *read_wide;           /* by value: of a weight, that somebody reads it in f32 */
    bool *stays;               /* by node: computed as it was */
} narrowing;

/* The op's row says it: logarithms, angles, scores that choose and the optimizer stay f32. */
static bool is_wide(weft_op op)
{
    return !(weft_op_get(op)->mixed & WEFT_MIXED_COMPUTES);
}

static bool hands_on(weft_op op)
{
    return (weft_op_get(op)->mixed & WEFT_MIXED_PASSES_ON) != 0;
}

/* What experts are chosen by stays wide, back to the layer that makes the scores. */
static void keep_scores(const narrowing *c)
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

/* Whoever reads a weight in f32 reads its own digits: what hands it on must not round it before.
 *
 *   param f32 ──> vary f32 ──> bias of a linear layer, row of a norm, scores of experts
 *   param f32 ──> cast bf16 ──> vary bf16 ──> weight of a linear layer      (sums are narrow) */
static void find_wide_reads(narrowing *c)
{
    const weft_graph *g = c->r.from;
    for (int32_t n = weft_graph_node_count(g) - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(g, n);
        const bool stays = !node->scope[0] || c->stays[n] || is_wide(node->op);
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]) &&
                (hands_on(node->op) ? c->read_wide[node->out[0].id]
                                    : stays || weft_op_takes_f32(node->op, i)))
                c->read_wide[node->in[i].id] = true;
    }
}

/* The copy of `v` in `dtype`, cast in the scope of who reads it. */
static weft_value in_type(narrowing *c, weft_value v, weft_dtype dtype, const char *scope)
{
    weft_value *made = dtype == WEFT_BF16 ? &c->narrow[v.id] : &c->wide[v.id];
    if (weft_value_ok(*made))
        return *made;
    weft_graph_push(c->r.to, "%s", scope);
    *made = weft_cast(c->r.to, dtype == WEFT_BF16 ? c->wide[v.id] : c->narrow[v.id], dtype);
    weft_graph_pop(c->r.to);
    if (weft_value_ok(*made))
        weft_graph_set_layout(c->r.to, *made, weft_value_get(c->r.from, v)->layout);
    return *made;
}

static bool is_float(const narrowing *c, weft_value v)
{
    return weft_value_ok(v) && weft_value_get(c->r.from, v)->dtype == WEFT_F32;
}

static bool becomes_narrow(const narrowing *c, int32_t n)
{
    const weft_node *node = weft_graph_node(c->r.from, n);
    if (!node->scope[0] || c->stays[n] || is_wide(node->op))
        return false;
    const bool moves_weight = hands_on(node->op) && (!c->sums || c->read_wide[node->out[0].id]);
    for (int i = 0; i < node->in_count; i++) {
        const weft_value v = node->in[i];
        if (!is_float(c, v) || weft_op_takes_f32(node->op, i))
            continue;
        if (c->weight[v.id] ? !moves_weight : c->made_narrow[v.id])
            return true;
    }
    return false;
}

static void copy_node(narrowing *c, int32_t n)
{
    const weft_graph *from = c->r.from;
    const weft_node *node = weft_graph_node(from, n);
    const bool narrow = becomes_narrow(c, n);
    for (int i = 0; i < node->in_count; i++) {
        const weft_value v = node->in[i];
        if (is_float(c, v))
            c->r.map[v.id] =
                narrow && !weft_op_takes_f32(node->op, i) ? in_type(c, v, WEFT_BF16, node->scope)
                : narrow && c->made_narrow[v.id]          ? c->narrow[v.id]
                                                          : in_type(c, v, WEFT_F32, node->scope);
    }
    weft_rewrite_node(&c->r, n, NULL);
    const bool handed =
        node->op == WEFT_OP_PARAM || (hands_on(node->op) && c->weight[node->in[0].id] && !narrow);
    for (int o = 0; o < node->out_count; o++) {
        const weft_value v = node->out[o];
        if (!is_float(c, v) || !weft_value_ok(c->r.map[v.id]))
            continue;
        const bool is_narrow = weft_value_get(c->r.to, c->r.map[v.id])->dtype == WEFT_BF16;
        (is_narrow ? c->narrow : c->wide)[v.id] = c->r.map[v.id];
        c->made_narrow[v.id] = is_narrow;
        c->weight[v.id] = handed && !is_narrow;
    }
}

/* Outputs and updates are of the types that they had. */
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

weft_status weft_pass_narrow(const weft_graph *g, bool sums, weft_graph **out)
{
    narrowing c = {.sums = sums};
    const int64_t values = weft_graph_value_count(g) + 1, nodes = weft_graph_node_count(g) + 1;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_rewrite_begin(g, &c.r));
    c.wide = weft_alloc(values * (int64_t)sizeof *c.wide);
    c.narrow = weft_alloc(values * (int64_t)sizeof *c.narrow);
    c.made_narrow = weft_alloc(values);
    c.weight = weft_alloc(values);
    c.read_wide = weft_alloc(values);
    c.stays = weft_alloc(nodes);
    if (!c.wide || !c.narrow || !c.made_narrow || !c.weight || !c.read_wide || !c.stays) {
        weft_rewrite_abandon(&c.r);
        status = weft_fail(WEFT_E_MEMORY, "no memory for pass narrow");
        goto out;
    }
    for (int64_t v = 0; v < values; v++)
        c.wide[v] = c.narrow[v] = WEFT_NONE;
    keep_scores(&c);
    find_wide_reads(&c);
    for (int32_t n = 0; n < weft_graph_node_count(g) && weft_graph_check(c.r.to) == WEFT_OK; n++)
        copy_node(&c, n);
    if (weft_graph_check(c.r.to) == WEFT_OK)
        widen_ends(&c);
    status = weft_rewrite_finish(&c.r, "narrow", out);
out:
    weft_free(c.wide);
    weft_free(c.narrow);
    weft_free(c.made_narrow);
    weft_free(c.weight);
    weft_free(c.read_wide);
    weft_free(c.stays);
    return status;
}
