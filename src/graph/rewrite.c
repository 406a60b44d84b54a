#include "graph/rewrite.h"

#include "graph/dump.h"

#include <stdio.h>

weft_status weft_rewrite_begin(const weft_graph *from, weft_rewrite *r)
{
    WEFT_TRY(weft_graph_check(from));
    const int64_t values = weft_graph_value_count(from);
    *r = (weft_rewrite){
        .from = from, .to = weft_graph_create(), .map = weft_calloc(values + 1, sizeof *r->map)};
    if (!r->to || !r->map) {
        weft_rewrite_abandon(r);
        return weft_no_memory("rewriting a graph of %" PRId64 " values", values);
    }
    for (int64_t v = 0; v < values; v++)
        r->map[v] = WEFT_NONE;
    weft_graph_set_mesh(r->to, weft_graph_mesh(from), weft_graph_rank(from));
    return WEFT_OK;
}

void weft_rewrite_abandon(weft_rewrite *r)
{
    weft_graph_free(r->to);
    weft_free(r->map);
    *r = (weft_rewrite){0};
}

void weft_rewrite_node(weft_rewrite *r, int32_t n, weft_value *map)
{
    const weft_node *node = weft_graph_node(r->from, n);
    map = map ? map : r->map;
    weft_graph_copy_node(r->to, r->from, n, map);
    for (int o = 0; o < node->out_count; o++)
        if (weft_value_ok(node->out[o]) && weft_value_ok(map[node->out[o].id]))
            weft_graph_set_layout(r->to, map[node->out[o].id],
                                  weft_value_get(r->from, node->out[o])->layout);
}

weft_status weft_rewrite_finish(weft_rewrite *r, const char *pass, weft_graph **out)
{
    int count;
    const weft_named *output = weft_graph_outputs(r->from, &count);
    for (int i = 0; i < count; i++)
        weft_output(r->to, output[i].name, r->map[output[i].value.id]);
    const weft_pair *update = weft_graph_updates(r->from, &count);
    for (int i = 0; i < count; i++)
        weft_update(r->to, r->map[update[i].source.id], r->map[update[i].value.id]);
    return weft_rewrite_check(r, pass, out);
}

static weft_status with_pass(weft_status_code status, const char *pass)
{
    char key[64];
    snprintf(key, sizeof key, "pass %s", pass);
    return weft_error_at(status, WEFT_AT(.key = key));
}

weft_status weft_rewrite_check(weft_rewrite *r, const char *pass, weft_graph **out)
{
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_graph_check(r->to));
#ifndef NDEBUG
    WEFT_GO(weft_graph_verify(r->to));
#endif
    *out = r->to;
    r->to = NULL;
out:
    weft_rewrite_abandon(r);
    return status == WEFT_OK ? WEFT_OK : with_pass(status, pass);
}

weft_value weft_rewrite_slot(weft_graph *to, const char *name, const weft_value_info *like,
                             bool offloaded)
{
    const weft_attr_source attr = {.dtype = like->dtype,
                                   .shape = like->shape,
                                   .global = like->shape,
                                   .slot = true,
                                   .offloaded = offloaded};
    const weft_value v = weft_source(to, WEFT_OP_STATE, name, &attr);
    if (weft_value_ok(v))
        weft_graph_set_layout(to, v, like->layout);
    return v;
}

int64_t weft_value_bytes(const weft_graph *g, weft_value v)
{
    const weft_value_info *info = weft_value_get(g, v);
    return weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype);
}

bool weft_name_matches(const char *pattern, const char *name)
{
    for (; *pattern; pattern++, name++) {
        if (*pattern == '*') {
            for (;; name++) {
                if (weft_name_matches(pattern + 1, name))
                    return true;
                if (!*name)
                    return false;
            }
        }
        if (*pattern != *name)
            return false;
    }
    return !*name;
}
