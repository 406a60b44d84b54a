/* Clusters of embeddings, and near-duplicates by meaning inside them. Numbers only.
 *
 *     unit vectors ── spherical k-means ──> clusters ── all pairs of each ──> duplicates
 *
 * The search is exact inside a cluster, and over all vectors with one cluster. */
#ifndef WEFT_CURATE_DUPLICATES_EMBEDDING_CLUSTERS_H
#define WEFT_CURATE_DUPLICATES_EMBEDDING_CLUSTERS_H

#include "base/status.h"

#include <stdint.h>

/* Cosine of two vectors of any length; 0 for a vector of zeros. */
double weft_embedding_cosine(const float *a, const float *b, int64_t width);

/* Unit vectors [count, width] and their clusters. */
typedef struct weft_embedding_set {
    const float *vector; /* borrowed */
    int64_t count, width;
    int64_t clusters;
    int32_t *cluster; /* [count], 0 to clusters - 1; owned by the caller */
} weft_embedding_set;

/* Assigns each vector to a cluster: k-means++ from a fixed seed, then iterations until no vector
 * changes its cluster, at most 50. The result depends on the vectors and their order only.
 * set->clusters is at most set->count. WEFT_E_MEMORY. */
weft_status weft_embedding_clusters_find(weft_embedding_set *set);
/* Processes the vectors in order. of[i] is the first earlier retained vector of the same cluster
 * with the largest cosine of at least `similarity`, and -1 if i is retained. `cosine` [count]
 * receives this cosine. WEFT_E_MEMORY. */
weft_status weft_embedding_duplicates_find(const weft_embedding_set *set, double similarity,
                                           int64_t *of, float *cosine);

#endif
