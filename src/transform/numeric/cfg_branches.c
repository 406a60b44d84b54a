/* Splits the products of a denoising batch into CFG branches: rows with text, then the same rows
 * without text.
 *
 *   before   x (2B,S,K) ── linear ── y
 *   after    x[:B] ── linear ── y[:B]        rows stay in place: slices and the concat
 *            x[B:] ── linear ── y[B:]        copy nothing
 *
 * Libraries sum in another order if a product has another number of rows. After the split, results
 * are bitwise those of ranks with one branch each.
 *
 * Rows of both branches are equal up to the first layer that reads the text. They are computed
 * once:
 *
 *   latents (2B,..), both halves equal ── [:B] ── patches ── q, k, v ── attention ── x (B,S,C)
 *   first layer with text:  concat of x and x ── ...
 *
 * The layout rules determine what can be computed for one branch: the branches are an axis of two
 * ranks that splits dim 0. */
#include "transform/numeric/cfg_branches.h"

#include "graph/builder_helpers.h"
#include "graph/conversion.h"
#include "graph/rewrite.h"

#include <string.h>

typedef struct branch_splitter {
    weft_rewrite r;
    const weft_graph *g;
    const weft_cfg_inputs *inputs;
    bool *batched; /* per value: depends on an input per row, or on a feature cache */
    bool *equal;   /* per value: the halves of dim 0 are equal */
    bool *once;    /* per node: its outputs are computed for one branch */
    /* Per node: other nodes read its outputs, or outputs of the graph are among them */
    int32_t *readers;
    weft_value *half; /* per value: rows of one branch; WEFT_NONE: not emitted */
} branch_splitter;

static const weft_shape *shape_of(const branch_splitter *h, weft_value v)
{
    return &weft_value_get(h->g, v)->shape;
}

static bool can_split(const weft_graph *g, weft_value v)
{
    const weft_shape *s = &weft_value_get(g, v)->shape;
    return s->rank > 0 && s->dim[0] > 0 && s->dim[0] % 2 == 0;
}

/* Sets cut[] by input: true if the input is split. Returns false if the node stays unsplit. */
static bool cuts(const branch_splitter *h, const weft_node *node, bool cut[2])
{
    const weft_op_cfg cfg = weft_op_get(node->op)->cfg;
    const bool linear = cfg == WEFT_CFG_weights;
    if (cfg == WEFT_CFG_whole)
        return false;
    const weft_value a = node->in[0], b = node->in[1];
    const int rank = weft_value_get(h->g, b)->shape.rank;
    cut[0] = h->batched[a.id];
    cut[1] = !linear && h->batched[b.id];
    if (!linear && (weft_value_get(h->g, a)->shape.rank < 3 || (cut[1] && rank < 3) || !cut[0]))
        return false;
    return cut[0] && can_split(h->g, a) && (!cut[1] || can_split(h->g, b)) &&
           can_split(h->g, node->out[0]) && (!linear || !h->batched[b.id]);
}

/* ---- rows that are equal in both branches --------------------------------------------------- */

static bool is_equal_input(const branch_splitter *h, const char *name)
{
    for (int i = 0; h->inputs && i < h->inputs->equal_count; i++)
        if (!strcmp(h->inputs->equal[i], name))
            return true;
    return false;
}

/* Whether every row of a value without batch is the same. */
static bool repeats_rows(const branch_splitter *h, const weft_node *node)
{
    return node->op == WEFT_OP_FILL ||
           (node->op == WEFT_OP_BROADCAST && shape_of(h, node->in[0])->dim[0] == 1);
}

/* Whether the inputs have the layouts of a row, with S(0) for values with equal halves. */
static bool fits(const branch_splitter *h, const weft_node *node, const weft_layout_choice *row)
{
    if (row->expansion)
        return false;
    for (int o = 0; o < node->out_count; o++)
        if (weft_value_ok(node->out[o]) &&
            (row->out[o].kind != WEFT_S || row->out[o].dim != 0 || !can_split(h->g, node->out[o])))
            return false;
    for (int i = 0; i < node->in_count; i++) {
        const weft_layout need = weft_layout_need(row, i);
        const weft_value v = node->in[i];
        if (!weft_value_ok(v))
            continue;
        const bool rows = need.kind == WEFT_S && need.dim == 0 && h->equal[v.id],
                   whole = need.kind == WEFT_R && !h->batched[v.id];
        if (!rows && !whole)
            return false;
    }
    return true;
}

/* Finds the layouts in which one branch is computed alone. */
static bool find_row(const branch_splitter *h, const weft_node *node, weft_layout_choice *row)
{
    const weft_op_info *info = weft_op_get(node->op);
    weft_layout_choice choice[WEFT_MAX_CHOICES];
    bool cut[2];
    const uint32_t never = WEFT_TRAIT_NAMED | WEFT_TRAIT_MOVES | WEFT_TRAIT_ANYWHERE; /* random */
    if (info->traits & never || node->in_count == 0 ||
        (info->cfg != WEFT_CFG_whole && !cuts(h, node, cut)))
        return false;
    if (info->traits & WEFT_TRAIT_CONVERTS) {
        *row = (weft_layout_choice){.need = {{WEFT_S, 0}}, .out = {{WEFT_S, 0}}};
        return !(info->traits & WEFT_TRAIT_GIVES) && !weft_conversion_moves_dim(node, 0) &&
               fits(h, node, row);
    }
    const int count = info->layout(h->g, node, 2, choice);
    for (int i = 0; i < count; i++)
        if (fits(h, node, &choice[i])) {
            *row = choice[i];
            return true;
        }
    return false;
}

/* Sets batched, equal and once for node n. */
static void find_equal(branch_splitter *h, int32_t n)
{
    const weft_node *node = weft_graph_node(h->g, n);
    const char *name = node->op == WEFT_OP_INPUT || node->op == WEFT_OP_STATE
                           ? weft_value_get(h->g, node->out[0])->name
                           : NULL;
    weft_layout_choice row;
    bool any = name && (!strncmp(name, "batch.", 6) || !strncmp(name, "reuse.", 6));
    for (int i = 0; i < node->in_count; i++)
        any = any || (weft_value_ok(node->in[i]) && h->batched[node->in[i].id]);
    h->once[n] = any && h->inputs && find_row(h, node, &row);
    const bool equal = h->once[n] || (!any && repeats_rows(h, node)) ||
                       (node->op == WEFT_OP_INPUT && is_equal_input(h, name));
    for (int k = 0; k < node->out_count; k++)
        if (weft_value_ok(node->out[k])) {
            h->batched[node->out[k].id] = any;
            h->equal[node->out[k].id] = equal && can_split(h->g, node->out[k]);
        }
}

/* Producer of a value if it is computed for one branch; -1: another value. */
static int32_t once_of(const branch_splitter *h, weft_value v)
{
    const int32_t n = weft_value_ok(v) ? weft_value_get(h->g, v)->node : -1;
    return n >= 0 && h->once[n] ? n : -1;
}

/* Whether node n only continues values that nothing else reads, without making them larger: then
 * the concat moves after it. */
static bool continues(const branch_splitter *h, const weft_node *node)
{
    int64_t most = 0;
    for (int i = 0; i < node->in_count; i++) {
        const int32_t from = once_of(h, node->in[i]);
        if (!weft_value_ok(node->in[i]) || !h->batched[node->in[i].id])
            continue;
        if (from < 0 || h->readers[from] != 1)
            return false;
        const int64_t count = weft_shape_count(shape_of(h, node->in[i]));
        most = count > most ? count : most;
    }
    return node->out_count == 1 && weft_shape_count(shape_of(h, node->out[0])) <= most;
}

/* Counts the readers of each node's outputs. */
static void count_readers(branch_splitter *h)
{
    int count;
    const weft_named *output = weft_graph_outputs(h->g, &count);
    for (int i = 0; i < count; i++)
        h->readers[weft_value_get(h->g, output[i].value)->node]++;
    const weft_pair *update = weft_graph_updates(h->g, &count);
    for (int i = 0; i < count; i++)
        h->readers[weft_value_get(h->g, update[i].value)->node]++;
    for (int32_t n = 0; n < weft_graph_node_count(h->g); n++) {
        const weft_node *node = weft_graph_node(h->g, n);
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]))
                h->readers[weft_value_get(h->g, node->in[i])->node]++;
    }
}

/* Keeps `once` for products and attention, and for nodes before and directly after products.
 * Other values, as the modulation of later blocks, are small: their concats would cost more. */
static void keep_worthwhile(branch_splitter *h, bool *leads)
{
    for (int32_t n = weft_graph_node_count(h->g) - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(h->g, n);
        leads[n] = h->once[n] && (leads[n] || weft_op_has(node->op, WEFT_TRAIT_HEAVY));
        for (int i = 0; leads[n] && i < node->in_count; i++)
            if (once_of(h, node->in[i]) >= 0)
                leads[once_of(h, node->in[i])] = true;
    }
    for (int32_t n = 0; n < weft_graph_node_count(h->g); n++)
        h->once[n] = h->once[n] && (leads[n] || continues(h, weft_graph_node(h->g, n)));
}

/* ---- emission -------------------------------------------------------------------------------- */

static weft_value with_layout(branch_splitter *h, weft_value made, weft_value like)
{
    if (weft_value_ok(made))
        weft_graph_set_layout(h->r.to, made, weft_value_get(h->g, like)->layout);
    return made;
}

/* All rows of a value. */
static weft_value all_of(branch_splitter *h, weft_value v)
{
    weft_value *all = &h->r.map[v.id];
    if (!weft_value_ok(*all) && weft_value_ok(h->half[v.id]))
        *all = with_layout(
            h, weft_concat(h->r.to, (weft_value[]){h->half[v.id], h->half[v.id]}, 2, 0), v);
    return *all;
}

/* Rows of branch `which`. */
static weft_value half_of(branch_splitter *h, weft_value v, int which)
{
    const int64_t rows = shape_of(h, v)->dim[0] / 2;
    if (!h->equal[v.id])
        return with_layout(h, weft_slice(h->r.to, all_of(h, v), 0, which * rows, rows), v);
    if (!weft_value_ok(h->half[v.id]))
        h->half[v.id] = with_layout(h, weft_slice(h->r.to, all_of(h, v), 0, 0, rows), v);
    return h->half[v.id];
}

static void emit_branches(branch_splitter *h, const weft_node *node, const bool cut[2])
{
    weft_graph *to = h->r.to;
    weft_value made[2];
    weft_graph_push(to, "%s", node->scope);
    for (int k = 0; k < 2; k++) {
        weft_value in[WEFT_MAX_INPUTS];
        for (int i = 0; i < node->in_count; i++)
            in[i] = !weft_value_ok(node->in[i]) ? WEFT_NONE
                    : i < 2 && cut[i]           ? half_of(h, node->in[i], k)
                                                : all_of(h, node->in[i]);
        made[k] =
            with_layout(h, weft_emit(to, node->op, in, node->in_count, node->attr), node->out[0]);
    }
    h->r.map[node->out[0].id] = with_layout(h, weft_concat(to, made, 2, 0), node->out[0]);
    weft_graph_pop(to);
}

/* Emits the node for one branch, with the attribute of the first of two shards. */
static weft_status emit_once(branch_splitter *h, const weft_node *node)
{
    const weft_op_info *info = weft_op_get(node->op);
    weft_value *in, made[WEFT_MAX_OUTPUTS];
    weft_layout_choice row;
    weft_any_attr own;
    find_row(h, node, &row);
    WEFT_TRY(WEFT_NEW(in, node->in_count + WEFT_MAX_INPUTS, "pass halves"));
    weft_graph_push(h->r.to, "%s", node->scope);
    for (int i = 0; i < node->in_count; i++)
        in[i] = !weft_value_ok(node->in[i])                ? WEFT_NONE
                : weft_layout_need(&row, i).kind == WEFT_S ? half_of(h, node->in[i], 0)
                                                           : all_of(h, node->in[i]);
    memcpy(&own, node->attr, (size_t)info->attr_bytes);
    info->local(h->r.to, &own, 0, 0, shape_of(h, node->out[0])->dim[0] / 2);
    weft_emit_all(h->r.to, node->op, in, node->in_count, &own, made);
    for (int o = 0; o < node->out_count; o++)
        if (weft_value_ok(node->out[o]))
            h->half[node->out[o].id] = with_layout(h, made[o], node->out[o]);
    weft_graph_pop(h->r.to);
    weft_free(in);
    return WEFT_OK;
}

static weft_status emit_node(branch_splitter *h, int32_t n)
{
    const weft_node *node = weft_graph_node(h->g, n);
    bool cut[2];
    if (h->once[n])
        return emit_once(h, node);
    if (cuts(h, node, cut)) {
        emit_branches(h, node, cut);
        return WEFT_OK;
    }
    weft_graph_push(h->r.to, "%s", node->scope);
    for (int i = 0; i < node->in_count; i++)
        if (weft_value_ok(node->in[i]))
            all_of(h, node->in[i]);
    weft_graph_pop(h->r.to);
    weft_rewrite_node(&h->r, n, NULL);
    return WEFT_OK;
}

/* Emits all rows of the values that are read after a run. */
static void finish_ends(branch_splitter *h)
{
    int count;
    const weft_named *output = weft_graph_outputs(h->g, &count);
    for (int i = 0; i < count; i++)
        all_of(h, output[i].value);
    const weft_pair *update = weft_graph_updates(h->g, &count);
    for (int i = 0; i < count; i++)
        all_of(h, update[i].value);
}

static weft_status open_splitter(branch_splitter *h)
{
    const int64_t values = weft_graph_value_count(h->g) + 1,
                  nodes = weft_graph_node_count(h->g) + 1;
    bool *leads = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(h->batched, values, "pass halves"));
    WEFT_GO(WEFT_NEW(h->equal, values, "pass halves"));
    WEFT_GO(WEFT_NEW(h->half, values, "pass halves"));
    WEFT_GO(WEFT_NEW(h->once, nodes, "pass halves"));
    WEFT_GO(WEFT_NEW(h->readers, nodes, "pass halves"));
    WEFT_GO(WEFT_NEW(leads, nodes, "pass halves"));
    for (int64_t v = 0; v < values; v++)
        h->half[v] = WEFT_NONE;
    for (int32_t n = 0; n < nodes - 1; n++)
        find_equal(h, n);
    count_readers(h);
    keep_worthwhile(h, leads);
out:
    weft_free(leads);
    return status;
}

weft_status weft_pass_cfg_branches(const weft_graph *g, const weft_cfg_inputs *inputs,
                                   weft_graph **out)
{
    branch_splitter h = {.g = g, .inputs = inputs};
    weft_status_code status = WEFT_OK;
    WEFT_GO(open_splitter(&h));
    WEFT_GO(weft_rewrite_begin(g, &h.r));
    for (int32_t n = 0; n < weft_graph_node_count(g) && weft_graph_check(h.r.to) == WEFT_OK; n++)
        WEFT_GO(emit_node(&h, n));
    finish_ends(&h);
    status = weft_rewrite_finish(&h.r, "halves", out);
out:
    weft_rewrite_abandon(&h.r);
    weft_free(h.batched);
    weft_free(h.equal);
    weft_free(h.once);
    weft_free(h.readers);
    weft_free(h.half);
    return status;
}
