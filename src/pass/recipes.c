/* Recipes: which layouts make a parallelism.
 *
 * A recipe may name more axes than a mesh has; the mesh decides what is used. Axes split in the
 * order in which they appear here, and the order matters where two split one dim: heads are split
 * by tp first and by cp inside. */
#include "pass/pass.h"
#include "pass/rewrite.h"

#include <stdio.h>
#include <string.h>

#define SPLIT(d)                                                                                   \
    {                                                                                              \
        WEFT_S, d                                                                                  \
    }
#define WHOLE                                                                                      \
    {                                                                                              \
        WEFT_R, 0                                                                                  \
    }

#define DATA_PARALLEL                                                                              \
    {                                                                                              \
        "batch.*", "dp", SPLIT(0)                                                                  \
    }

static const weft_recipe_row dp_rows[] = {
    DATA_PARALLEL,
};
const weft_recipe weft_recipe_dp = {"dp", dp_rows, sizeof dp_rows / sizeof *dp_rows};

/* Parameters, and with them gradients and optimizer states, are split over the ranks that split the
 * batch, gathered where they are used, and their gradients reduce-scattered (ZeRO-3; Rajbhandari et
 * al., SC'20). */
static const weft_recipe_row fsdp_rows[] = {
    {"batch.*", "fsdp", SPLIT(0)},
    {"*.weight", "fsdp", SPLIT(0), .gather = true},
    {"*.bias", "fsdp", SPLIT(0), .gather = true, .optional = true}, /* some models have none */
    DATA_PARALLEL,
};
const weft_recipe weft_recipe_fsdp = {"fsdp", fsdp_rows, sizeof fsdp_rows / sizeof *fsdp_rows};

/* Tensor parallel (Shoeybi et al., Megatron-LM): q, k, v and the first linear of the feed-forward
 * by columns, the ones behind them by rows. The norms of q and k run over all heads: with their
 * weights split they become a sum over ranks. */
#define TENSOR_PARALLEL                                                                            \
    {"*.to_q.weight", "tp", SPLIT(0)}, {"*.to_q.bias", "tp", SPLIT(0)},                            \
        {"*.to_k.weight", "tp", SPLIT(0)}, {"*.to_k.bias", "tp", SPLIT(0)},                        \
        {"*.to_v.weight", "tp", SPLIT(0)}, {"*.to_v.bias", "tp", SPLIT(0)},                        \
        {"*.norm_q.weight", "tp", SPLIT(0)}, {"*.norm_k.weight", "tp", SPLIT(0)},                  \
        {"*.to_out.0.weight", "tp", SPLIT(1)}, {"*.ffn.net.0.proj.weight", "tp", SPLIT(0)},        \
        {"*.ffn.net.0.proj.bias", "tp", SPLIT(0)},                                                 \
    {                                                                                              \
        "*.ffn.net.2.weight", "tp", SPLIT(1)                                                       \
    }

/* Context parallel (Jacobs et al., DeepSpeed-Ulysses): tokens are split from the first norm on;
 * around self-attention an all-to-all turns the split of tokens into one of heads and back. */
#define CONTEXT_PARALLEL                                                                           \
    {"*blocks.*:layer_norm", "cp", SPLIT(1)},                                                      \
    {                                                                                              \
        "*attn*:attention", "cp", SPLIT(1)                                                         \
    }

static const weft_recipe_row wan_rows[] = {
    DATA_PARALLEL,
    TENSOR_PARALLEL,
    {"*.to_out.0:linear", "tp", WHOLE},
    {"*.ffn.net.2:linear", "tp", WHOLE},
    CONTEXT_PARALLEL,
};
const weft_recipe weft_recipe_wan = {"wan", wan_rows, sizeof wan_rows / sizeof *wan_rows};

/* With sequence parallelism between the tensor-parallel regions (Korthikanti et al., MLSys'23):
 * norms and residuals work on the own tokens; the sum behind a row-split linear is scattered, and
 * gathered before the next. */
static const weft_recipe_row wan_sp_rows[] = {
    DATA_PARALLEL,
    CONTEXT_PARALLEL,
    TENSOR_PARALLEL,
    {"*blocks.*:layer_norm", "tp", SPLIT(1)},
    {"*.to_out.0:linear", "tp", SPLIT(1)},
    {"*.ffn.net.2:linear", "tp", SPLIT(1)},
};
const weft_recipe weft_recipe_wan_sp = {"wan-sp", wan_sp_rows,
                                        sizeof wan_sp_rows / sizeof *wan_sp_rows};

const weft_recipe *weft_recipe_find(const char *name)
{
    static const weft_recipe *const all[] = {&weft_recipe_dp, &weft_recipe_fsdp, &weft_recipe_wan,
                                             &weft_recipe_wan_sp};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i]->name, name))
            return all[i];
    return NULL;
}

/* ---- which row is about what --------------------------------------------------------------- */

static bool is_about(const weft_recipe_row *row, const char *axis, const char *name)
{
    return !strcmp(row->axis, axis) &&
           (strchr(row->pattern, ':') != NULL) == (strchr(name, ':') != NULL) &&
           weft_name_matches(row->pattern, name);
}

const weft_recipe_row *weft_recipe_row_for(const weft_recipe *recipe, const char *axis,
                                           const char *name)
{
    for (int i = 0; i < recipe->count; i++)
        if (is_about(&recipe->row[i], axis, name))
            return &recipe->row[i];
    return NULL;
}

typedef struct row_search {
    const weft_recipe *recipe;
    const weft_recipe_row *row;
    bool decides;                  /* it is the first for some name */
    const weft_recipe_row *before; /* one that took a name from it */
} row_search;

static void try_name(row_search *s, const char *name)
{
    if (s->decides || !name || !is_about(s->row, s->row->axis, name))
        return;
    const weft_recipe_row *first = weft_recipe_row_for(s->recipe, s->row->axis, name);
    s->decides = first == s->row;
    s->before = s->decides ? NULL : first;
}

static row_search search_names(const weft_recipe *recipe, const weft_recipe_row *row,
                               const weft_graph *g)
{
    row_search s = {.recipe = recipe, .row = row};
    int count;
    const weft_named *output = weft_graph_outputs(g, &count);
    for (int i = 0; i < count; i++)
        try_name(&s, output[i].name);
    for (int32_t n = 0; n < weft_graph_node_count(g) && !s.decides; n++) {
        const weft_node *node = weft_graph_node(g, n);
        char name[512];
        snprintf(name, sizeof name, "%s:%s", node->scope, weft_op_get(node->op)->name);
        const bool named = weft_op_has(node->op, WEFT_TRAIT_NAMED);
        try_name(&s, named ? weft_value_get(g, node->out[0])->name : name);
    }
    return s;
}

weft_status weft_recipe_check(const weft_recipe *recipe, const weft_graph *g, const weft_mesh *mesh)
{
    for (int i = 0; i < recipe->count; i++) {
        const weft_recipe_row *row = &recipe->row[i];
        const int axis = weft_mesh_axis(mesh, row->axis);
        if (row->optional || axis < 0 || mesh->axis[axis].size == 1)
            continue;
        const row_search s = search_names(recipe, row, g);
        if (!s.decides && !s.before)
            return weft_fail(WEFT_E_ARG,
                             "recipe %s: row %d, \"%s\" on axis %s, matches no %s of this graph; "
                             "mend the pattern, leave the "
                             "row out, or mark it as optional",
                             recipe->name, i + 1, row->pattern, row->axis,
                             strchr(row->pattern, ':') ? "node (scope:op)"
                                                       : "input, parameter, state or output");
        if (!s.decides)
            return weft_fail(WEFT_E_ARG,
                             "recipe %s: row %d, \"%s\" on axis %s, decides nothing: rows before "
                             "it, like \"%s\", take all that "
                             "it matches",
                             recipe->name, i + 1, row->pattern, row->axis, s.before->pattern);
    }
    return WEFT_OK;
}
