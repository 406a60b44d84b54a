/* Parameters and states of a pipeline's ranks. Each rank stores the tensors of its pipeline stages.
 * All ranks list the same names, so that checkpoints and exports read the store as on any mesh. */
#include "train/pipeline/pp_store.h"

#include "comm/comm_world.h"
#include "exec/store/tensor_shard.h"
#include "train/pipeline/pp_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct param_ref {
    const weft_graph *graph;
    weft_value value;
} param_ref;

typedef struct filler {
    const weft_pp_layout *pp;
    weft_store *store;
    uint64_t seed;
    param_ref *own;
    int64_t count, capacity;
} filler;

static weft_status no_memory(void)
{
    return weft_no_memory("the names of a pipeline's weights");
}

static const char *name_of(const param_ref *k)
{
    return weft_value_get(k->graph, k->value)->name;
}

static weft_status list_graph(filler *f, const weft_graph *g)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (!weft_store_keeps(node))
            continue;
        WEFT_TRY(weft_grow((void **)&f->own, f->count, &f->capacity, sizeof *f->own));
        f->own[f->count++] = (param_ref){g, node->out[0]};
    }
    return WEFT_OK;
}

/* Writes a line per tensor: name, type, unsharded shape. */
static weft_status write_list(const filler *f, weft_buf *text)
{
    for (int64_t i = 0; i < f->count; i++) {
        const weft_tensor t = weft_tensor_of(f->own[i].graph, f->own[i].value);
        weft_buf_printf(text, "%s\t%d\t%d", t.name, (int)t.dtype, t.whole.rank);
        for (int d = 0; d < t.whole.rank; d++)
            weft_buf_printf(text, "\t%" PRId64, t.whole.dim[d]);
        weft_buf_printf(text, "\n");
    }
    return weft_buf_check(text);
}

static const param_ref *find_own(const filler *f, const char *name)
{
    for (int64_t i = 0; i < f->count; i++)
        if (!strcmp(name_of(&f->own[i]), name))
            return &f->own[i];
    return NULL;
}

/* Adds a tensor of this rank. `device` is the first device that lists it. */
static weft_status add_own(filler *f, const param_ref *k, int device)
{
    WEFT_TRY(weft_store_init_value(f->store, k->graph, k->value, f->seed));
    weft_tensor *t = weft_store_find(f->store, name_of(k));
    t->replica = device == f->pp->device
                     ? weft_tensor_replica(k->graph, k->value, f->pp->axis, &t->replicas)
                     : -1;
    return WEFT_OK;
}

/* Adds a tensor of other ranks with no elements. A scalar always has one element; no rank writes
 * this copy. */
static weft_status add_other(filler *f, char *line)
{
    char *at = strchr(line, '\t');
    weft_tensor t = {.name = line}, *made;
    *at++ = 0;
    t.dtype = (weft_dtype)strtol(at, &at, 10);
    t.whole.rank = (int)strtol(at, &at, 10);
    for (int d = 0; d < t.whole.rank; d++)
        t.whole.dim[d] = strtoll(at, &at, 10);
    t.shape.rank = t.whole.rank;
    t.replica = t.whole.rank ? 0 : -1;
    return weft_store_add_like(f->store, &t, &made);
}

static weft_status add_list(filler *f, char *text, int device)
{
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        char name[1024];
        *end = 0;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(line, "\t"), line);
        if (weft_store_find(f->store, name))
            continue;
        const param_ref *own = find_own(f, name);
        WEFT_TRY(own ? add_own(f, own, device) : add_other(f, line));
    }
    return WEFT_OK;
}

static weft_status share_lists(filler *f, weft_comm *comm, weft_buf *text)
{
    const int devices = f->pp->devices;
    const weft_mesh *mesh = weft_graph_mesh(f->own[0].graph);
    weft_group *world, *group;
    int64_t most = 0, own = text->len + 1;
    char *padded = NULL, *all = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_comm_world(comm, &world));
    WEFT_TRY(weft_comm_axis_group(world, mesh, weft_comm_rank(comm), f->pp->axis, &group));
    int64_t *bytes;
    WEFT_TRY(WEFT_NEW(bytes, devices, "the names of a pipeline's weights"));
    WEFT_GO(weft_group_all_gather(group, &own, sizeof own, bytes));
    for (int d = 0; d < devices; d++)
        most = bytes[d] > most ? bytes[d] : most;
    padded = weft_alloc(most);
    all = weft_alloc(most * devices);
    WEFT_GO(WEFT_ALLOCATED(padded && all, "the names of a pipeline's weights"));
    memcpy(padded, text->data, (size_t)text->len);
    WEFT_GO(weft_group_all_gather(group, padded, most, all));
    for (int d = 0; d < devices; d++)
        WEFT_GO(add_list(f, all + d * most, d));
out:
    weft_free(padded);
    weft_free(all);
    weft_free(bytes);
    return status;
}

weft_status weft_pp_params_list(const weft_graph *const *graphs, int count, weft_buf *text)
{
    filler f = {0};
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < count; i++)
        WEFT_GO(list_graph(&f, graphs[i]));
    WEFT_GO(write_list(&f, text));
out:
    weft_free(f.own);
    return status;
}

weft_status weft_pp_store_fill_listed(const weft_pp_layout *pp, const weft_graph *const *graphs,
                                      int count, const weft_buf *lists, weft_store *store,
                                      uint64_t seed)
{
    filler f = {.pp = pp, .store = store, .seed = seed};
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < count; i++)
        WEFT_GO(list_graph(&f, graphs[i]));
    for (int d = 0; d < pp->devices; d++) {
        char *text = weft_strdup(lists[d].data ? lists[d].data : "");
        status = text ? add_list(&f, text, d) : no_memory();
        weft_free(text);
        WEFT_GO(status);
    }
out:
    weft_free(f.own);
    return status;
}

weft_status weft_pp_store_fill(const weft_pp_layout *pp, const weft_graph *const *graphs, int count,
                               weft_comm *comm, weft_store *store, uint64_t seed)
{
    filler f = {.pp = pp, .store = store, .seed = seed};
    weft_buf text = {0};
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < count; i++)
        WEFT_GO(comm ? list_graph(&f, graphs[i]) : weft_store_init(store, graphs[i], seed));
    if (!comm)
        goto out;
    WEFT_GO(write_list(&f, &text));
    WEFT_GO(share_lists(&f, comm, &text));
out:
    weft_buf_free(&text);
    weft_free(f.own);
    return status;
}
