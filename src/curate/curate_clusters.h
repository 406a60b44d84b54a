/* Selection by embeddings: clusters of the accepted shots, near-duplicates by meaning, and a limit
 * of shots per cluster. Private to curate/. */
#ifndef WEFT_CURATE_CURATE_CLUSTERS_H
#define WEFT_CURATE_CURATE_CLUSTERS_H

#include "curate/curate_plan.h"

/* An accepted shot; both are borrowed. */
typedef struct weft_cluster_shot {
    weft_curate_source *source;
    json_t *shot;
} weft_cluster_shot;

/* Assigns the shots, best first, to clusters ("cluster" of a shot). Rejects near-duplicates
 * (operator similar), then shots beyond the limit of their cluster (operator cluster). Sets
 * plan->clusters. Shots without an embedding stay. */
weft_status weft_curate_clusters_choose(weft_curate_plan *plan, const weft_cluster_shot *shots,
                                        int64_t count);
/* Writes OUT/clusters.json, or removes the one of an earlier run. */
weft_status weft_curate_clusters_write(weft_curate_plan *plan);

#endif
