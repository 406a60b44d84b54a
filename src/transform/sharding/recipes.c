/* Composes recipes from one list of rows per axis. */
#include "transform/sharding/recipes.h"

#include "graph/rewrite.h"
#include "transform/numeric/trainable.h"
#include "transform/sharding/pp_stages.h"

#include <stdio.h>
#include <string.h>

/* ---- lists that need no model -------------------------------------------------------------- */

/* clang-format off */
static const weft_recipe_row dp_rows[] = {
    {"batch.*", "dp", {WEFT_S, 0}},
};

/* Parameters, gradients and optimizer states are sharded over the ranks that split the batch.
 * Parameters are gathered for use, and gradients are reduce-scattered (ZeRO-3; Rajbhandari et al.,
 * SC'20). */
static const weft_recipe_row fsdp_rows[] = {
    {"batch.*", "fsdp", {WEFT_S, 0}},
    {"*",       "fsdp", {WEFT_S, WEFT_ANY_DIM}, .gather = true, .params = true},
};

static const weft_recipe_row pp_stage_rows[] = {
    {"*", WEFT_PP_STAGES_AXIS, {WEFT_R, 0}, .optional = true},
};

const weft_recipe_list
    weft_recipe_list_stages = {WEFT_PP_STAGES_AXIS, "stages of a pipeline", pp_stage_rows, 1},
    weft_recipe_list_dp   = {"dp",   "samples over ranks",                dp_rows,   1},
    weft_recipe_list_fsdp = {"fsdp", "samples and parameters over ranks", fsdp_rows, 2};
const weft_recipe weft_recipe_dp = {"dp", dp_rows, 1};
/* clang-format on */

/* ---- composition --------------------------------------------------------------------------- */

static bool splits(const weft_mesh *mesh, const char *name)
{
    const int axis = weft_mesh_axis(mesh, name);
    return axis >= 0 && mesh->axis[axis].size > 1;
}

static const weft_recipe_list *list_at(const weft_recipe_list *const *lists, int count, int i)
{
    return i == 0 ? &weft_recipe_list_dp : i <= count ? lists[i - 1] : &weft_recipe_list_fsdp;
}

const weft_recipe_list *weft_recipe_list_find(const weft_recipe_list *const *lists, int count,
                                              const char *axis)
{
    for (int i = 0; i < count + 2; i++)
        if (!strcmp(list_at(lists, count, i)->axis, axis))
            return list_at(lists, count, i);
    return NULL;
}

/* Config keys that select an axis whose name differs from its key. */
static const char *asked_as(const char *axis)
{
    return !strcmp(axis, "sp")      ? " (tp with sequence: true)"
           : !strcmp(axis, "ring")  ? " (cp with context: ring)"
           : !strcmp(axis, "heads") ? " (cp with context: heads)"
                                    : "";
}

static weft_status check_axes(const weft_recipe_list *const *lists, int count,
                              const weft_mesh *mesh)
{
    for (int a = 0; a < mesh->axis_count; a++) {
        const bool known =
            mesh->axis[a].size == 1 || weft_recipe_list_find(lists, count, mesh->axis[a].name);
        weft_buf all = {0};
        for (int i = 0; i < count + 2; i++) {
            const weft_recipe_list *list = list_at(lists, count, i);
            if (weft_recipe_list_find(lists, count, list->axis) == list) /* lists each axis once */
                weft_buf_printf(&all, "%s%s (%s)", i ? ", " : "", list->axis, list->what);
        }
        const weft_status_code status =
            known ? WEFT_OK
                  : weft_error(WEFT_MSG_MESH_INVALID,
                               WEFT_AT(.key = mesh->axis[a].name, WEFT_NUMBER(mesh->axis[a].size)),
                               "no rule splits anything over the axis \"%s\"%s of %d ranks, so all "
                               "of them would compute the same; the known axes are %s",
                               mesh->axis[a].name, asked_as(mesh->axis[a].name), mesh->axis[a].size,
                               all.data ? all.data : "");
        weft_buf_free(&all);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

weft_status weft_recipe_compose(const weft_recipe_list *const *lists, int count,
                                const weft_mesh *mesh, weft_recipe *recipe)
{
    WEFT_TRY(check_axes(lists, count, mesh));
    int rows = 0;
    for (int i = 0; i < count + 2; i++)
        rows += list_at(lists, count, i)->count;
    weft_recipe_row *row = weft_calloc(rows, sizeof *row);
    weft_buf name = {0};
    *recipe = (weft_recipe){.row = row};
    for (int i = 0; i < count + 2 && row; i++) {
        const weft_recipe_list *list = list_at(lists, count, i);
        if (!splits(mesh, list->axis))
            continue;
        weft_buf_printf(&name, "%s%s", name.len ? "+" : "", list->axis);
        memcpy(row + recipe->count, list->row, (size_t)list->count * sizeof *row);
        recipe->count += list->count;
    }
    if (!name.len)
        weft_buf_printf(&name, "one rank");
    recipe->name = name.data;
    if (row && weft_buf_check(&name) == WEFT_OK)
        return WEFT_OK;
    weft_recipe_free(recipe);
    return weft_no_memory("a recipe");
}

void weft_recipe_free(weft_recipe *recipe)
{
    weft_free((void *)(uintptr_t)recipe->row);
    weft_free((void *)(uintptr_t)recipe->name);
    *recipe = (weft_recipe){0};
}

/* ---- matching rows ------------------------------------------------------------------------- */

static bool is_about(const weft_recipe_row *row, const char *axis, const char *name, bool is_param)
{
    return !strcmp(row->axis, axis) && (is_param || !row->params) &&
           (strchr(row->pattern, ':') != NULL) == (strchr(name, ':') != NULL) &&
           weft_name_matches(row->pattern, name);
}

/* Row of a LoRA matrix, derived from its layer's weight: lora_A is split like the columns of the
 * weight, lora_B like its rows. A split of the other dim leaves the matrix replicated. */
static const weft_recipe_row *lora_row(const weft_recipe *recipe, const char *axis,
                                       const char *name, size_t module)
{
    char base_name[700];
    const int own = !strncmp(name + module, ".lora_A.", 8);
    snprintf(base_name, sizeof base_name, "%.*s.weight", (int)module, name);
    const weft_recipe_row *row = weft_recipe_row_for(recipe, axis, base_name, true);
    const bool other = row && row->layout.kind == WEFT_S && row->layout.dim != WEFT_ANY_DIM &&
                       row->layout.dim != own;
    return other ? NULL : row;
}

const weft_recipe_row *weft_recipe_row_for(const weft_recipe *recipe, const char *axis,
                                           const char *name, bool is_param)
{
    size_t module;
    if (is_param && weft_param_is_lora(name, &module))
        return lora_row(recipe, axis, name, module);
    for (int i = 0; i < recipe->count; i++)
        if (is_about(&recipe->row[i], axis, name, is_param))
            return &recipe->row[i];
    return NULL;
}

typedef struct row_search {
    const weft_recipe *recipe;
    const weft_recipe_row *row;
    bool decides;                  /* first match of at least one name */
    const weft_recipe_row *before; /* an earlier row that matches one of its names */
} row_search;

static void try_name(row_search *s, const char *name, bool is_param)
{
    if (s->decides || !name || !is_about(s->row, s->row->axis, name, is_param))
        return;
    const weft_recipe_row *first = weft_recipe_row_for(s->recipe, s->row->axis, name, is_param);
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
        try_name(&s, output[i].name, false);
    for (int32_t n = 0; n < weft_graph_node_count(g) && !s.decides; n++) {
        const weft_node *node = weft_graph_node(g, n);
        char name[512];
        snprintf(name, sizeof name, "%s:%s", node->scope, weft_op_get(node->op)->name);
        const bool named = weft_op_has(node->op, WEFT_TRAIT_NAMED);
        try_name(&s, named ? weft_value_get(g, node->out[0])->name : name,
                 node->op == WEFT_OP_PARAM);
    }
    return s;
}

/* Checks that the axis splits something, and that no parameter stays unsharded if the axis gathers
 * parameters. */
static weft_status check_axis(const weft_recipe *recipe, const weft_graph *g, const char *axis,
                              int ranks)
{
    int rows = 0, gathers = 0;
    for (int i = 0; i < recipe->count; i++) {
        rows += !strcmp(recipe->row[i].axis, axis);
        gathers += !strcmp(recipe->row[i].axis, axis) && recipe->row[i].gather;
    }
    if (rows == 0)
        return weft_error(WEFT_MSG_PASS_INVALID, WEFT_AT(.key = axis, WEFT_NUMBER(ranks)),
                          "recipe %s splits nothing over the axis \"%s\" of %d ranks, so all of "
                          "them would compute the same",
                          recipe->name, axis, ranks);
    for (int32_t n = 0; n < weft_graph_node_count(g) && gathers; n++) {
        const weft_node *node = weft_graph_node(g, n);
        const weft_value_info *info = weft_value_get(g, node->out[0]);
        if (node->op == WEFT_OP_PARAM && info->shape.rank > 0 &&
            !weft_recipe_row_for(recipe, axis, info->name, true))
            return weft_error(WEFT_MSG_PASS_INVALID, WEFT_AT(.key = axis, .value = info->name),
                              "recipe %s leaves the parameter \"%s\" whole on each of the %d ranks "
                              "of axis %s; add a row that splits it, or a row with R",
                              recipe->name, info->name, ranks, axis);
    }
    return WEFT_OK;
}

weft_status weft_recipe_check(const weft_recipe *recipe, const weft_graph *g, const weft_mesh *mesh)
{
    for (int a = 0; a < mesh->axis_count; a++)
        if (mesh->axis[a].size > 1)
            WEFT_TRY(check_axis(recipe, g, mesh->axis[a].name, mesh->axis[a].size));
    for (int i = 0; i < recipe->count; i++) {
        const weft_recipe_row *row = &recipe->row[i];
        const int axis = weft_mesh_axis(mesh, row->axis);
        if (row->optional || axis < 0 || mesh->axis[axis].size == 1)
            continue;
        const row_search s = search_names(recipe, row, g);
        if (!s.decides && !s.before)
            return weft_error(WEFT_MSG_PASS_INVALID,
                              WEFT_AT(.key = row->axis, .value = row->pattern),
                              "recipe %s: row %d, \"%s\" on axis %s, matches no %s of this graph; "
                              "correct the pattern, remove the row, or mark it as optional",
                              recipe->name, i + 1, row->pattern, row->axis,
                              strchr(row->pattern, ':') ? "node (scope:op)"
                                                        : "input, parameter, state or output");
        if (!s.decides)
            return weft_error(WEFT_MSG_PASS_INVALID,
                              WEFT_AT(.key = row->axis, .value = row->pattern),
                              "recipe %s: row %d, \"%s\" on axis %s, has no effect: rows before "
                              "it, such as \"%s\", match everything that it matches",
                              recipe->name, i + 1, row->pattern, row->axis, s.before->pattern);
    }
    return WEFT_OK;
}
