/* Several networks of one architecture in one graph, each called in its own scope. A network has
 * parameters of its own, or reads the parameters of another network:
 *
 *     transformer.blocks.0.weight ──> trained call ──> ...
 *                 └── teacher.blocks.0.weight (shared) ──> call without gradient ──> ... */
#ifndef WEFT_TRANSFORM_NUMERIC_NETWORKS_H
#define WEFT_TRANSFORM_NUMERIC_NETWORKS_H

#include "graph/op.h"

typedef struct weft_network {
    const char *scope;  /* prefix of its parameters' names, "teacher" */
    const char *shares; /* scope whose parameters it reads; NULL: own parameters, frozen */
    bool numbered;      /* several calls: "rollout0", "rollout1", ... for the scope "rollout" */
} weft_network;

/* Replaces the parameters of each network with the parameters of the same names in `shares`, or
 * freezes them. LoRA matrices are not replaced and not frozen. The other network must be called
 * first. `g` must be the graph before the shard pass. */
weft_status weft_pass_networks(const weft_graph *g, const weft_network *network, int count,
                               weft_graph **out);

#endif
