/* Verifies that a pass preserves rounding. Every output and update must be the same expression as
 * before: the same ops and attributes on the same operands, with the same types.
 *
 * Each value gets a signature of its expression. An offload or a fetch has the signature of its
 * operand. A fused linear layer has the signature of its activation applied to the rounded result.
 * A pointwise node has the signatures of its steps.
 * So a pass may reorder, repeat, drop, offload and fuse nodes, and nothing else. */

#include "transform/numeric/rounding.h"

#include "base/rng.h"
#include "graph/graph.h"

#include <string.h>
#include <xxhash.h>

typedef struct signer {
    const weft_graph *g;
    uint64_t *sign; /* one per value */
    weft_buf text;
    /* the attributes of each op that were printed last, and their signature */
    const void *printed[WEFT_OP_COUNT];
    uint64_t printed_sign[WEFT_OP_COUNT];
} signer;

static uint64_t sign_type(uint64_t sign, weft_dtype dtype, const weft_shape *shape)
{
    sign = weft_seed_mix(sign, (uint64_t)dtype);
    for (int d = 0; d < shape->rank; d++)
        sign = weft_seed_mix(sign, (uint64_t)shape->dim[d]);
    return sign;
}

/* Signature of a node's attributes: the name of a source, the data pointer of a constant (graphs
 * share constants), or the printed attributes. */
static uint64_t sign_attr(signer *s, const weft_node *node)
{
    if (weft_op_has(node->op, WEFT_TRAIT_NAMED)) {
        const weft_value_info *out = weft_value_get(s->g, node->out[0]);
        return XXH3_64bits(out->name, strlen(out->name));
    }
    if (node->op == WEFT_OP_CONSTANT)
        return (uint64_t)(uintptr_t)((const weft_attr_constant *)node->attr)->data;
    if (node->op == WEFT_OP_LINEAR)
        return weft_op_is_tf32(node->op, node->attr); /* sign_node signs the activation */
    const weft_op_info *op = weft_op_get(node->op);
    const void *last = s->printed[node->op];
    /* equal attributes have equal text, except that a permutation is printed up to its rank */
    if (last && node->op != WEFT_OP_PERMUTE && !memcmp(last, node->attr, (size_t)op->attr_bytes))
        return s->printed_sign[node->op];
    s->text.len = 0;
    op->print(s->g, node, &s->text);
    s->printed[node->op] = node->attr;
    s->printed_sign[node->op] = s->text.len ? XXH3_64bits(s->text.data, (size_t)s->text.len) : 0;
    return s->printed_sign[node->op];
}

static uint64_t sign_op(weft_op op, uint64_t attr)
{
    return weft_seed_mix((uint64_t)op + 1, attr);
}

/* Signature of a fused activation, equal to that of a separate node. */
static uint64_t sign_act(weft_act act, uint64_t operand)
{
    static const char tanh_form[] = " {tanh}";
    const uint64_t sign = act == WEFT_ACT_SILU ? sign_op(WEFT_OP_SILU, 0)
                                               : sign_op(WEFT_OP_GELU, XXH3_64bits(tanh_form, 7));
    return weft_seed_mix(sign, operand);
}

/* Signs each step as the node that it replaces. */
static void sign_steps(signer *s, const weft_node *node)
{
    const weft_attr_pointwise *attr = node->attr;
    const weft_shape *shape = &weft_value_get(s->g, node->out[0])->shape;
    uint64_t sign[WEFT_POINTWISE_STEPS];
    for (int i = 0; i < attr->count; i++) {
        const weft_pointwise_step *step = &attr->step[i];
        sign[i] =
            sign_op(step->op, sign_attr(s, &(weft_node){.op = step->op, .attr = &step->attr}));
        for (int k = 0; k < step->in_count; k++)
            sign[i] = weft_seed_mix(sign[i], step->in[k] < WEFT_POINTWISE_STEP
                                                 ? s->sign[node->in[step->in[k]].id]
                                                 : sign[step->in[k] - WEFT_POINTWISE_STEP]);
        sign[i] = sign_type(weft_seed_mix(sign[i], 1), step->dtype, shape);
        if (step->out >= 0)
            s->sign[node->out[step->out].id] = sign[i];
    }
}

static void sign_node(signer *s, const weft_node *node)
{
    if (node->op == WEFT_OP_POINTWISE) {
        sign_steps(s, node);
        return;
    }
    if (weft_op_has(node->op, WEFT_TRAIT_MOVES)) {
        s->sign[node->out[0].id] = s->sign[node->in[0].id];
        return;
    }
    const weft_attr_linear *linear = node->op == WEFT_OP_LINEAR ? node->attr : NULL;
    const bool fused = linear && linear->act != WEFT_ACT_NONE;
    uint64_t sign = sign_op(node->op, sign_attr(s, node));
    for (int i = 0; i < node->in_count; i++)
        sign = weft_seed_mix(sign, weft_value_ok(node->in[i]) ? s->sign[node->in[i].id] : 0);
    for (int o = 0; o < node->out_count; o++) {
        if (!weft_value_ok(node->out[o]))
            continue;
        const weft_value_info *info = weft_value_get(s->g, node->out[o]);
        const weft_dtype dtype = fused ? linear->round : info->dtype;
        uint64_t *out = &s->sign[node->out[o].id];
        *out = sign_type(weft_seed_mix(sign, (uint64_t)o + 1), dtype, &info->shape);
        if (fused)
            *out =
                sign_type(weft_seed_mix(sign_act(linear->act, *out), 1), info->dtype, &info->shape);
    }
}

static weft_status sign_graph(const weft_graph *g, signer *s)
{
    *s = (signer){.g = g, .sign = weft_calloc(weft_graph_value_count(g) + 1, sizeof *s->sign)};
    WEFT_TRY(WEFT_ALLOCATED(s->sign, "verifying the rounding of a pass"));
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        sign_node(s, weft_graph_node(g, n));
    return weft_buf_check(&s->text);
}

static void signer_free(signer *s)
{
    weft_free(s->sign);
    weft_buf_free(&s->text);
}

static weft_status differs(const char *pass, const char *kind, const char *name)
{
    return weft_error(
        WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.value = name),
        "pass %s must preserve rounding, but it changes the expression that computes %s \"%s\"",
        pass, kind, name);
}

static weft_status compare(const signer *a, const signer *b, const char *pass)
{
    int count[2];
    const weft_named *was = weft_graph_outputs(a->g, &count[0]),
                     *is = weft_graph_outputs(b->g, &count[1]);
    for (int i = 0; i < count[0]; i++)
        if (i >= count[1] || a->sign[was[i].value.id] != b->sign[is[i].value.id])
            return differs(pass, "output", was[i].name);
    const weft_pair *before = weft_graph_updates(a->g, &count[0]),
                    *after = weft_graph_updates(b->g, &count[1]);
    for (int i = 0; i < count[0]; i++)
        if (i >= count[1] || a->sign[before[i].source.id] != b->sign[after[i].source.id] ||
            a->sign[before[i].value.id] != b->sign[after[i].value.id])
            return differs(pass, "update of", weft_value_get(a->g, before[i].source)->name);
    return WEFT_OK;
}

weft_status weft_rounding_check(const weft_graph *before, const weft_graph *after, const char *pass)
{
    signer a = {0}, b = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(sign_graph(before, &a));
    WEFT_GO(sign_graph(after, &b));
    WEFT_GO(compare(&a, &b, pass));
out:
    signer_free(&a);
    signer_free(&b);
    return status;
}

/* ---- precision ------------------------------------------------------------------------------ */

static bool is_bf16(const weft_graph *g, weft_value v)
{
    return weft_value_ok(v) && weft_value_get(g, v)->dtype == WEFT_BF16;
}

weft_status weft_precision_check(const weft_graph *g)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const weft_op_info *info = weft_op_get(node->op);
        const bool f32 = !(info->mixed & WEFT_MIXED_COMPUTES);
        bool wrong = f32 && is_bf16(g, node->out[0]);
        for (int i = 0; i < node->in_count; i++)
            wrong = wrong || (is_bf16(g, node->in[i]) && (f32 || weft_op_takes_f32(node->op, i)));
        if (wrong && node->op != WEFT_OP_CAST && !weft_op_has(node->op, WEFT_TRAIT_GIVEN))
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.value = info->name),
                              "pass narrow: %s in %s reads or returns bf16, but its row in "
                              "graph/op.def declares f32",
                              info->name, node->scope);
    }
    return WEFT_OK;
}
