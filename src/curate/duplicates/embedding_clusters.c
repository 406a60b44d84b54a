#include "curate/duplicates/embedding_clusters.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { MOST_ROUNDS = 50, PARTS = 8 };

/* Sums in a fixed order, so that results do not depend on the vector units. */
static float dot(const float *a, const float *b, int64_t width)
{
    float part[PARTS] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + PARTS <= width; i += PARTS)
        for (int k = 0; k < PARTS; k++)
            part[k] += a[i + k] * b[i + k];
    for (; i < width; i++)
        sum += a[i] * b[i];
    for (int k = 0; k < PARTS; k++)
        sum += part[k];
    return sum;
}

double weft_embedding_cosine(const float *a, const float *b, int64_t width)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < width; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

/* ---- k-means ------------------------------------------------------------------------------- */

typedef struct kmeans {
    weft_embedding_set *set;
    float *centre;  /* [clusters, width], unit vectors */
    double *sum;    /* [clusters, width] */
    float *nearest; /* [count] cosine with the nearest centre */
    int64_t *members;
    uint64_t random;
} kmeans;

/* splitmix64, in [0,1) */
static double next_random(kmeans *k)
{
    uint64_t x = k->random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) / 9007199254740992.0;
}

static const float *vector_at(const kmeans *k, int64_t i)
{
    return k->set->vector + i * k->set->width;
}

/* The index that a random share of all distances selects; with no distance, the first vector. */
static int64_t draw(kmeans *k)
{
    double total = 0, at = 0;
    for (int64_t i = 0; i < k->set->count; i++)
        total += fmax(0, 1 - k->nearest[i]);
    const double wanted = next_random(k) * total;
    for (int64_t i = 0; i < k->set->count; i++) {
        at += fmax(0, 1 - k->nearest[i]);
        if (at > wanted)
            return i;
    }
    return 0;
}

/* k-means++: each further centre is a vector drawn by its distance from the centres so far. */
static void place_centres(kmeans *k)
{
    const int64_t width = k->set->width;
    for (int64_t i = 0; i < k->set->count; i++)
        k->nearest[i] = -1;
    for (int64_t c = 0; c < k->set->clusters; c++) {
        memcpy(k->centre + c * width, vector_at(k, c ? draw(k) : 0), (size_t)width * 4);
        for (int64_t i = 0; i < k->set->count; i++)
            k->nearest[i] =
                fmaxf(k->nearest[i], dot(vector_at(k, i), k->centre + c * width, width));
    }
}

/* Assigns all vectors; the number that changed their cluster. */
static int64_t assign(kmeans *k)
{
    int64_t changed = 0;
    for (int64_t i = 0; i < k->set->count; i++) {
        int32_t best = 0;
        float most = -2;
        for (int64_t c = 0; c < k->set->clusters; c++) {
            const float cosine = dot(vector_at(k, i), k->centre + c * k->set->width, k->set->width);
            if (cosine > most) {
                most = cosine;
                best = (int32_t)c;
            }
        }
        changed += k->set->cluster[i] != best;
        k->set->cluster[i] = best;
        k->nearest[i] = most;
    }
    return changed;
}

/* Moves each centre to the direction of its members' mean. A cluster without members takes the
 * vector that is farthest from its own centre. */
static void move_centres(kmeans *k)
{
    const int64_t width = k->set->width, clusters = k->set->clusters;
    memset(k->sum, 0, (size_t)(clusters * width) * sizeof *k->sum);
    memset(k->members, 0, (size_t)clusters * sizeof *k->members);
    for (int64_t i = 0; i < k->set->count; i++) {
        k->members[k->set->cluster[i]]++;
        for (int64_t d = 0; d < width; d++)
            k->sum[k->set->cluster[i] * width + d] += vector_at(k, i)[d];
    }
    for (int64_t c = 0; c < clusters; c++) {
        double length = 0;
        int64_t far = 0;
        for (int64_t d = 0; d < width; d++)
            length += k->sum[c * width + d] * k->sum[c * width + d];
        for (int64_t i = 1; i < k->set->count; i++)
            far = k->nearest[i] < k->nearest[far] ? i : far;
        for (int64_t d = 0; d < width; d++)
            k->centre[c * width + d] = k->members[c] && length > 0
                                           ? (float)(k->sum[c * width + d] / sqrt(length))
                                           : vector_at(k, far)[d];
        if (!k->members[c])
            k->nearest[far] = 1;
    }
}

weft_status weft_embedding_clusters_find(weft_embedding_set *set)
{
    kmeans k = {.set = set, .random = 7};
    weft_status_code status = WEFT_OK;
    set->clusters = set->clusters < set->count ? set->clusters : set->count;
    for (int64_t i = 0; i < set->count; i++)
        set->cluster[i] = 0;
    if (set->clusters <= 1)
        return WEFT_OK;
    WEFT_GO(WEFT_NEW(k.centre, set->clusters * set->width, "clusters"));
    WEFT_GO(WEFT_NEW(k.sum, set->clusters * set->width, "clusters"));
    WEFT_GO(WEFT_NEW(k.nearest, set->count, "clusters"));
    WEFT_GO(WEFT_NEW(k.members, set->clusters, "clusters"));
    place_centres(&k);
    for (int round = 0; round < MOST_ROUNDS && (assign(&k) > 0 || round == 0); round++)
        move_centres(&k);
out:
    weft_free(k.centre);
    weft_free(k.sum);
    weft_free(k.nearest);
    weft_free(k.members);
    return status;
}

/* ---- duplicates ---------------------------------------------------------------------------- */

weft_status weft_embedding_duplicates_find(const weft_embedding_set *set, double similarity,
                                           int64_t *of, float *cosine)
{
    int64_t *last = NULL, *before = NULL; /* retained vectors of each cluster, latest first */
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(last, set->clusters + 1, "clusters"));
    WEFT_GO(WEFT_NEW(before, set->count + 1, "clusters"));
    for (int64_t c = 0; c < set->clusters; c++)
        last[c] = -1;
    for (int64_t i = 0; i < set->count; i++) {
        of[i] = -1;
        cosine[i] = -2;
        for (int64_t k = last[set->cluster[i]]; k >= 0; k = before[k]) {
            const float now =
                dot(set->vector + i * set->width, set->vector + k * set->width, set->width);
            if ((double)now >= similarity && now >= cosine[i]) {
                cosine[i] = now;
                of[i] = k;
            }
        }
        if (of[i] < 0) {
            before[i] = last[set->cluster[i]];
            last[set->cluster[i]] = i;
        }
    }
out:
    weft_free(last);
    weft_free(before);
    return status;
}
