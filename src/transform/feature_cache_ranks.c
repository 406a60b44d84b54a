/* Shards the graphs of a feature cache over the ranks of a layout.
 *
 * Each graph is sharded separately, and states connect the graphs. A rank stores a state in one
 * layout only: the layout of the value that one of the graphs writes to the state. The shard pass
 * chooses this layout. Rows of the recipe apply this layout in the graphs that read the state:
 *
 *     PROBE     writes reuse.front.*, reuse.now
 *     REFRESH   reads reuse.front.*, writes reuse.kept.*
 *     REUSE     reads both
 *
 * Without PROBE, a layer that the shard pass slices has one state per slice (slice_slots in
 * transform/sharding/recipes.h). A complete state would be exchanged in both graphs. States stay
 * complete if REUSE would read a state that REFRESH does not write.
 *
 * PROBE is sharded twice, so that reuse.before gets the layout of reuse.now. REFRESH is sharded
 * twice, so that PROBE computes only the parts of reuse.front.* that its rank reads. */
#include "transform/feature_cache_ranks.h"

#include "transform/numeric/feature_cache_graphs.h"
#include "transform/passes.h"
#include "transform/sharding/layer_slices.h"

#include <stdio.h>
#include <string.h>

typedef struct state_rows {
    const weft_pass_setup *setup;
    weft_recipe recipe; /* rows of the setup, then one row per state and axis */
    weft_recipe_row *row;
    int64_t capacity;
    weft_arena *names;
} state_rows;

static weft_status no_memory(void)
{
    return weft_no_memory("the layouts of a feature cache");
}

static weft_status add_row(state_rows *s, const char *name, const char *axis, weft_layout layout)
{
    const int64_t bytes = (int64_t)strlen(name) + 1;
    char *own;
    WEFT_TRY(WEFT_ARENA_NEW(s->names, own, bytes, "the layouts of a feature cache"));
    memcpy(own, name, (size_t)bytes);
    WEFT_TRY(weft_grow((void **)&s->row, s->recipe.count, &s->capacity, sizeof *s->row));
    s->row[s->recipe.count++] =
        (weft_recipe_row){.pattern = own, .axis = axis, .layout = layout, .optional = true};
    s->recipe.row = s->row;
    return WEFT_OK;
}

static bool is_slot(const weft_graph *g, weft_value v)
{
    const weft_node *n = weft_graph_node(g, weft_value_get(g, v)->node);
    return n->op == WEFT_OP_STATE && ((const weft_attr_source *)n->attr)->slot;
}

/* Adds the row of the complete state of which `name` is a slice. Axes before the axis of slices
 * split the complete state. */
static weft_status add_complete_row(state_rows *s, const char *name, const char *axis,
                                    weft_layout layout)
{
    char complete[256];
    const char *end = strstr(name, WEFT_SLOT_SLICE);
    if (!end)
        return WEFT_OK;
    snprintf(complete, sizeof complete, "%.*s", (int)(end - name), name);
    return weft_recipe_row_for(&s->recipe, axis, complete, false)
               ? WEFT_OK
               : add_row(s, complete, axis, layout);
}

/* Adds rows for the states that `g`, a graph of one rank, writes. */
static weft_status_code add_written(state_rows *s, const weft_graph *g)
{
    const weft_mesh *mesh = s->setup->mesh;
    int count;
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++) {
        const weft_value_info *info = weft_value_get(g, update[i].source);
        if (!is_slot(g, update[i].source))
            continue;
        for (int a = 0; a < mesh->axis_count; a++) {
            if (mesh->axis[a].size == 1)
                continue;
            WEFT_TRY(add_row(s, info->name, mesh->axis[a].name, info->layout[a]));
            WEFT_TRY(add_complete_row(s, info->name, mesh->axis[a].name, info->layout[a]));
            if (!strcmp(info->name, "reuse.now"))
                WEFT_TRY(add_row(s, "reuse.before", mesh->axis[a].name, info->layout[a]));
        }
    }
    return WEFT_OK;
}

/* The only node that reads `v`, or NULL. */
static const weft_node *only_reader(const weft_graph *g, weft_value v)
{
    const weft_node *reader = NULL;
    for (int32_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_node *n = weft_graph_node(g, i);
        for (int k = 0; k < n->in_count; k++)
            if (n->in[k].id == v.id) {
                if (reader)
                    return NULL;
                reader = n;
            }
    }
    return reader;
}

/* Adds rows for the states of which `g`, a graph of one rank, reads only the rank's part. The
 * graph that writes them then computes only this part, in the shapes of the uncached graph. */
static weft_status_code add_read_in_parts(state_rows *s, const weft_graph *g)
{
    const weft_mesh *mesh = s->setup->mesh;
    for (int32_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_node *n = weft_graph_node(g, i);
        if (n->op != WEFT_OP_STATE || !is_slot(g, n->out[0]))
            continue;
        const char *name = weft_value_get(g, n->out[0])->name;
        n = only_reader(g, n->out[0]);
        for (; n && n->op == WEFT_OP_SLICE_OWN; n = only_reader(g, n->out[0])) {
            const weft_attr_comm *attr = n->attr;
            WEFT_TRY(add_row(s, name, mesh->axis[attr->axis].name,
                             (weft_layout){WEFT_S, (int8_t)attr->dim}));
        }
    }
    return WEFT_OK;
}

/* Replaces *graph by the graph of one rank. `keep_input`: the input graph is not freed. */
static weft_status shard(const state_rows *s, bool keep_input, weft_graph **graph)
{
    weft_pass_setup own = *s->setup;
    own.recipe = &s->recipe;
    return weft_passes_run(WEFT_PASS_WHOLE, &own, keep_input, graph, NULL);
}

/* Shards a copy of `g`, and adds the rows that `add` derives from the sharded copy. */
static weft_status look_ahead(state_rows *s, weft_graph *g,
                              weft_status_code (*add)(state_rows *, const weft_graph *))
{
    WEFT_TRY(shard(s, true, &g));
    const weft_status_code status = add(s, g);
    weft_graph_free(g);
    return status;
}

static bool writes(const weft_graph *g, const char *state)
{
    int count;
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++)
        if (!strcmp(weft_value_get(g, update[i].source)->name, state))
            return true;
    return false;
}

/* Returns true if `refresh` writes all states that `reuse` reads. Equal on all ranks, because names
 * do not depend on the rank. */
static bool states_match(const weft_graph *refresh, const weft_graph *reuse)
{
    for (int32_t i = 0; i < weft_graph_node_count(reuse); i++) {
        const weft_node *n = weft_graph_node(reuse, i);
        if (n->op == WEFT_OP_STATE && is_slot(reuse, n->out[0]) &&
            !writes(refresh, weft_value_get(reuse, n->out[0])->name))
            return false;
    }
    return true;
}

/* Shards both graphs with one state per slice. *done: their states match; otherwise the graphs and
 * rows are unchanged. */
static weft_status shard_in_slices(state_rows *s, weft_feature_cache_programs *r, bool *done)
{
    weft_status_code status = WEFT_OK;
    weft_graph *refresh = NULL, *reuse = NULL;
    const int rows = s->recipe.count;
    s->recipe.slice_slots = true;
    weft_graph *g = r->refresh;
    WEFT_GO(shard(s, true, &g));
    refresh = g;
    WEFT_GO(add_written(s, refresh));
    g = r->reuse;
    WEFT_GO(shard(s, true, &g));
    reuse = g;
    *done = states_match(refresh, reuse);
out:
    if (status == WEFT_OK && *done) {
        weft_graph_free(r->refresh);
        weft_graph_free(r->reuse);
        r->refresh = refresh;
        r->reuse = reuse;
        return WEFT_OK;
    }
    weft_graph_free(refresh);
    weft_graph_free(reuse);
    s->recipe.slice_slots = false;
    s->recipe.count = rows;
    return status;
}

static weft_status shard_all(state_rows *s, weft_feature_cache_programs *r)
{
    const weft_recipe *base = s->setup->recipe;
    s->capacity = base->count + 64;
    WEFT_TRY(WEFT_NEW(s->row, s->capacity, "the layouts of a feature cache"));
    memcpy(s->row, base->row, (size_t)base->count * sizeof *s->row);
    s->recipe = *base;
    s->recipe.row = s->row;
    if (r->probe) {
        WEFT_TRY(look_ahead(s, r->refresh, add_read_in_parts));
        WEFT_TRY(look_ahead(s, r->probe, add_written));
        WEFT_TRY(shard(s, false, &r->probe));
    } else {
        bool done = false;
        WEFT_TRY(shard_in_slices(s, r, &done));
        if (done)
            return WEFT_OK;
    }
    WEFT_TRY(shard(s, false, &r->refresh));
    WEFT_TRY(add_written(s, r->refresh));
    return shard(s, false, &r->reuse);
}

/* Runs the passes for one rank, without layouts. */
static weft_status run_alone(const weft_pass_setup *setup, weft_feature_cache_programs *r)
{
    weft_graph **graph[] = {&r->probe, &r->refresh, &r->reuse};
    for (int i = 0; i < 3; i++)
        if (*graph[i])
            WEFT_TRY(weft_passes_run(WEFT_PASS_WHOLE, setup, false, graph[i], NULL));
    return WEFT_OK;
}

weft_status weft_feature_cache_programs_shard(weft_feature_cache_programs *r,
                                              const weft_pass_setup *setup)
{
    if (!setup->mesh || weft_mesh_ranks(setup->mesh) == 1)
        return run_alone(setup, r);
    state_rows s = {.setup = setup, .names = weft_arena_create()};
    const weft_status_code status = s.names ? shard_all(&s, r) : no_memory();
    weft_arena_free(s.names);
    weft_free(s.row);
    return status;
}
