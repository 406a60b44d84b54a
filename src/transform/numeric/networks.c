#include "transform/numeric/networks.h"

#include "graph/rewrite.h"
#include "transform/numeric/trainable.h"

#include <stdio.h>
#include <string.h>

/* The network of parameter `name`; NULL: none. *rest is the name in the network. */
static const weft_network *network_of(const weft_network *network, int count, const char *name,
                                      const char **rest)
{
    size_t module;
    for (int i = 0; i < count; i++) {
        size_t length = strlen(network[i].scope);
        if (strncmp(name, network[i].scope, length) || weft_param_is_lora(name, &module))
            continue;
        while (network[i].numbered && name[length] >= '0' && name[length] <= '9')
            length++;
        if (name[length] != '.')
            continue;
        *rest = name + length;
        return &network[i];
    }
    return NULL;
}

static void put_param(weft_rewrite *r, const weft_node *node, const weft_network *network,
                      const char *rest)
{
    char name[700];
    const weft_value from = node->out[0];
    if (!network->shares) {
        weft_attr_source attr = *(const weft_attr_source *)node->attr;
        attr.frozen = true;
        r->map[from.id] =
            weft_source(r->to, WEFT_OP_PARAM, weft_value_get(r->from, from)->name, &attr);
        return;
    }
    snprintf(name, sizeof name, "%s%s", network->shares, rest);
    r->map[from.id] = weft_graph_find(r->to, name);
    if (!weft_value_ok(r->map[from.id]))
        weft_graph_fail(r->to, WEFT_MSG_INTERNAL_ERROR, "%s is shared before its network is called",
                        name);
}

weft_status weft_pass_networks(const weft_graph *g, const weft_network *network, int count,
                               weft_graph **out)
{
    weft_rewrite r;
    WEFT_TRY(weft_graph_check(g));
    WEFT_TRY(weft_rewrite_begin(g, &r));
    for (int32_t n = 0; n < weft_graph_node_count(g) && weft_graph_check(r.to) == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(g, n);
        const char *rest;
        const weft_network *own =
            node->op == WEFT_OP_PARAM
                ? network_of(network, count, weft_value_get(g, node->out[0])->name, &rest)
                : NULL;
        if (own)
            put_param(&r, node, own, rest);
        else
            weft_rewrite_node(&r, n, NULL);
    }
    return weft_rewrite_finish(&r, "networks", out);
}
