#include "base/json.h"
#include "curate/duplicates/embedding_clusters.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 24, GROUPS = 6, EACH = 20, COUNT = GROUPS * EACH };

static float noise(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return (float)(*state >> 8) / 8388608.0f - 1;
}

static void make_unit(float *v)
{
    double length = 0;
    for (int d = 0; d < WIDTH; d++)
        length += (double)v[d] * v[d];
    for (int d = 0; d < WIDTH; d++)
        v[d] = (float)(v[d] / sqrt(length));
}

/* Vectors around GROUPS directions; vector i belongs to group i % GROUPS. */
static void make_groups(float vector[COUNT][WIDTH], float spread)
{
    float direction[GROUPS][WIDTH];
    uint32_t state = 5;
    for (int g = 0; g < GROUPS; g++)
        for (int d = 0; d < WIDTH; d++)
            direction[g][d] = noise(&state);
    for (int i = 0; i < COUNT; i++) {
        for (int d = 0; d < WIDTH; d++)
            vector[i][d] = direction[i % GROUPS][d] + spread * noise(&state);
        make_unit(vector[i]);
    }
}

Test(embedding_clusters, groups_are_found)
{
    static float vector[COUNT][WIDTH];
    int32_t cluster[COUNT], again[COUNT];
    make_groups(vector, 0.2f);
    weft_embedding_set set = {.vector = vector[0],
                              .count = COUNT,
                              .width = WIDTH,
                              .clusters = GROUPS,
                              .cluster = cluster};
    cr_assert_eq(weft_embedding_clusters_find(&set), WEFT_OK);
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < i; k++)
            cr_assert_eq(cluster[i] == cluster[k], i % GROUPS == k % GROUPS, "%d and %d", i, k);
    set.cluster = again;
    cr_assert_eq(weft_embedding_clusters_find(&set), WEFT_OK);
    cr_assert_arr_eq(cluster, again, sizeof cluster);
}

Test(embedding_clusters, more_clusters_than_vectors)
{
    static float vector[COUNT][WIDTH];
    int32_t cluster[COUNT];
    make_groups(vector, 0.2f);
    weft_embedding_set set = {
        .vector = vector[0], .count = 3, .width = WIDTH, .clusters = 9, .cluster = cluster};
    cr_assert_eq(weft_embedding_clusters_find(&set), WEFT_OK);
    cr_assert_eq(set.clusters, 3);
    cr_assert(cluster[0] != cluster[1] && cluster[1] != cluster[2] && cluster[0] != cluster[2]);
    memcpy(vector[1], vector[0], sizeof vector[0]); /* equal vectors cannot fill all clusters */
    memcpy(vector[2], vector[0], sizeof vector[0]);
    cr_assert_eq(weft_embedding_clusters_find(&set), WEFT_OK);
    for (int i = 0; i < 3; i++)
        cr_assert(cluster[i] >= 0 && cluster[i] < 3);
}

/* The search equals a comparison of all pairs, written without its lists. */
Test(embedding_clusters, duplicates_equal_all_pairs)
{
    static float vector[COUNT][WIDTH];
    int32_t cluster[COUNT];
    int64_t of[COUNT], expected[COUNT];
    float cosine[COUNT];
    int64_t duplicates = 0;
    make_groups(vector, 0.33f);
    for (int clusters = 1; clusters <= GROUPS; clusters += GROUPS - 1) {
        weft_embedding_set set = {.vector = vector[0],
                                  .count = COUNT,
                                  .width = WIDTH,
                                  .clusters = clusters,
                                  .cluster = cluster};
        cr_assert_eq(weft_embedding_clusters_find(&set), WEFT_OK);
        cr_assert_eq(weft_embedding_duplicates_find(&set, 0.9, of, cosine), WEFT_OK);
        for (int i = 0; i < COUNT; i++) {
            double best = 0.9;
            expected[i] = -1;
            for (int k = i - 1; k >= 0; k--) {
                const double now = weft_embedding_cosine(vector[i], vector[k], WIDTH);
                cr_assert(fabs(now - 0.9) > 1e-6, "the data have a pair at the limit");
                if (expected[k] < 0 && cluster[i] == cluster[k] && now >= best) {
                    best = now;
                    expected[i] = k;
                }
            }
            cr_assert_eq(of[i], expected[i], "vector %d", i);
            cr_assert(of[i] < 0 || fabs(cosine[i] - best) < 1e-5);
            duplicates += of[i] >= 0;
        }
    }
    cr_assert(duplicates > 20 && duplicates < 2 * COUNT - 20, "%d", (int)duplicates);
}

Test(embedding_clusters, cosine_of_zeros_is_zero)
{
    const float zero[3] = {0}, one[3] = {1, 2, 2}, turned[3] = {-2, -4, -4};
    cr_assert_float_eq(weft_embedding_cosine(zero, one, 3), 0, 0);
    cr_assert_float_eq(weft_embedding_cosine(one, turned, 3), -1, 1e-12);
}

/* ---- scikit-learn's results for the same vectors (tools/golden_clusters.py) ------------------- */

typedef struct golden {
    json_t *file;
    float *vector;
    int32_t *cluster;
    int64_t *of;
    float *cosine;
    weft_embedding_set set;
} golden;

static void read_golden(golden *g)
{
    size_t i;
    json_t *x;
    cr_assert_eq(weft_json_load("tests/golden/clusters/embedding_clusters.json", &g->file), WEFT_OK,
                 "%s", weft_error_message());
    const json_t *vectors = json_object_get(g->file, "vectors");
    const int64_t width = json_integer_value(json_object_get(g->file, "width")),
                  count = (int64_t)json_array_size(vectors) / width;
    g->vector = calloc((size_t)(count * width), sizeof *g->vector);
    g->cluster = calloc((size_t)count, sizeof *g->cluster);
    g->of = calloc((size_t)count, sizeof *g->of);
    g->cosine = calloc((size_t)count, sizeof *g->cosine);
    cr_assert(g->vector && g->cluster && g->of && g->cosine);
    json_array_foreach(vectors, i, x) g->vector[i] = (float)json_number_value(x);
    g->set =
        (weft_embedding_set){.vector = g->vector,
                             .count = count,
                             .width = width,
                             .clusters = json_integer_value(json_object_get(g->file, "clusters")),
                             .cluster = g->cluster};
}

static void free_golden(golden *g)
{
    json_decref(g->file);
    free(g->vector);
    free(g->cluster);
    free(g->of);
    free(g->cosine);
}

/* Sum of the cosines with the direction of the cluster's mean. */
static double objective(const golden *g)
{
    double sum = 0;
    for (int64_t c = 0; c < g->set.clusters; c++) {
        double length = 0;
        for (int64_t d = 0; d < g->set.width; d++) {
            double total = 0;
            for (int64_t i = 0; i < g->set.count; i++)
                total += g->cluster[i] == c ? g->vector[i * g->set.width + d] : 0;
            length += total * total;
        }
        sum += sqrt(length);
    }
    return sum;
}

Test(embedding_clusters, clusters_are_as_good_as_those_of_sklearn)
{
    golden g = {0};
    read_golden(&g);
    const double median = json_number_value(json_object_get(g.file, "median_objective")),
                 best = json_number_value(json_object_get(g.file, "objective"));
    cr_assert_eq(weft_embedding_clusters_find(&g.set), WEFT_OK);
    cr_expect_geq(objective(&g), median, "%g, sklearn's median %g", objective(&g), median);
    cr_expect_leq(objective(&g), best + 1e-4, "%g, sklearn's best %g", objective(&g), best);
    free_golden(&g);
}

Test(embedding_clusters, duplicates_are_those_of_sklearn)
{
    golden g = {0};
    size_t i;
    json_t *x;
    read_golden(&g);
    const double similarity = json_number_value(json_object_get(g.file, "similarity"));
    json_array_foreach(json_object_get(g.file, "labels"), i, x) g.cluster[i] =
        (int32_t)json_integer_value(x);
    cr_assert_eq(weft_embedding_duplicates_find(&g.set, similarity, g.of, g.cosine), WEFT_OK);
    json_array_foreach(json_object_get(g.file, "duplicate_of"), i, x)
        cr_expect_eq(g.of[i], json_integer_value(x), "%zu", i);
    memset(g.cluster, 0, (size_t)g.set.count * sizeof *g.cluster);
    g.set.clusters = 1;
    cr_assert_eq(weft_embedding_duplicates_find(&g.set, similarity, g.of, g.cosine), WEFT_OK);
    json_array_foreach(json_object_get(g.file, "duplicate_of_any"), i, x)
        cr_expect_eq(g.of[i], json_integer_value(x), "%zu", i);
    free_golden(&g);
}
