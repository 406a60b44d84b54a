#include "curate/curate_clusters.h"

#include "curate/curate_bucket.h"

#include "base/fs.h"
#include "base/memory.h"
#include "curate/analyse.h"
#include "curate/curate_embeddings.h"
#include "curate/duplicates/embedding_clusters.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SHOTS_PER_CLUSTER = 1000 };

/* The shots that have an embedding. */
typedef struct choice {
    const weft_cluster_shot **shot; /* owned, and so all arrays */
    float *unit;
    int32_t *cluster;
    int64_t *of;
    float *cosine;
    int64_t *kept, *shots, *similar; /* per cluster */
    weft_embedding_set set;
} choice;

static void free_choice(choice *c)
{
    weft_free(c->shot);
    weft_free(c->unit);
    weft_free(c->cluster);
    weft_free(c->of);
    weft_free(c->cosine);
    weft_free(c->kept);
    weft_free(c->shots);
    weft_free(c->similar);
}

/* Takes the embeddings as unit vectors. */
static weft_status take_vectors(const weft_cluster_shot *shots, int64_t count, choice *c)
{
    WEFT_TRY(WEFT_NEW(c->shot, count + 1, "clusters"));
    for (int64_t i = 0; i < count; i++) {
        const weft_curate_source *s = shots[i].source;
        const float *v = weft_curate_embedding_of(s, shots[i].shot);
        double length = 0;
        if (!v)
            continue;
        if (!c->unit) {
            c->set.width = s->embeddings.width;
            WEFT_TRY(WEFT_NEW(c->unit, count * c->set.width, "clusters"));
        }
        if (s->embeddings.width != c->set.width)
            return weft_error(WEFT_MSG_MODEL_SERVER,
                              WEFT_AT(.file = s->name, WEFT_NUMBER(s->embeddings.width)),
                              "the embeddings of this video have %" PRId64 " numbers, and the "
                              "others have %" PRId64
                              ". Remove state/%s.embeddings.safetensors to request them again.",
                              s->embeddings.width, c->set.width, s->id);
        for (int64_t d = 0; d < c->set.width; d++)
            length += (double)v[d] * v[d];
        for (int64_t d = 0; d < c->set.width; d++)
            c->unit[c->set.count * c->set.width + d] =
                length > 0 ? (float)(v[d] / sqrt(length)) : 0;
        c->shot[c->set.count++] = &shots[i];
    }
    return WEFT_OK;
}

static weft_status find(const weft_curate_plan *p, choice *c)
{
    const weft_embeddings_config *o = &p->config->embeddings;
    const int64_t n = c->set.count;
    WEFT_TRY(WEFT_NEW(c->cluster, n, "clusters"));
    WEFT_TRY(WEFT_NEW(c->of, n, "clusters"));
    WEFT_TRY(WEFT_NEW(c->cosine, n, "clusters"));
    c->set.vector = c->unit;
    c->set.cluster = c->cluster;
    c->set.clusters =
        o->clusters > 0 ? o->clusters : (n + SHOTS_PER_CLUSTER - 1) / SHOTS_PER_CLUSTER;
    WEFT_TRY(weft_embedding_clusters_find(&c->set));
    WEFT_TRY(WEFT_NEW(c->kept, c->set.clusters, "clusters"));
    WEFT_TRY(WEFT_NEW(c->shots, c->set.clusters, "clusters"));
    WEFT_TRY(WEFT_NEW(c->similar, c->set.clusters, "clusters"));
    return weft_embedding_duplicates_find(&c->set, o->duplicate > 0 ? o->duplicate : 3, c->of,
                                          c->cosine);
}

static void reject_similar(const weft_curate_plan *p, const choice *c, int64_t i)
{
    const weft_cluster_shot *like = c->shot[c->of[i]];
    weft_buf reason = {0};
    weft_buf_printf(&reason, "similar to %s, frames %lld to %lld", like->source->name,
                    json_integer_value(json_object_get(like->shot, "start")),
                    json_integer_value(json_object_get(like->shot, "end")));
    json_t *reject =
        weft_curate_reject("similar", fmin(c->cosine[i], 1), p->config->embeddings.duplicate,
                           reason.data ? reason.data : "");
    json_object_set_new(reject, "duplicate_of", json_string(like->source->name));
    json_object_set_new(c->shot[i]->shot, "reject", reject);
    weft_buf_free(&reason);
}

/* Rejects in order: the best shots of each cluster stay. */
static void reject_shots(const weft_curate_plan *p, choice *c)
{
    const int64_t most = p->config->embeddings.max_per_cluster;
    for (int64_t i = 0; i < c->set.count; i++) {
        const int32_t k = c->cluster[i];
        json_t *shot = c->shot[i]->shot;
        json_object_set_new(shot, "cluster", json_integer(k));
        c->shots[k]++;
        if (c->of[i] >= 0) {
            c->similar[k]++;
            reject_similar(p, c, i);
        } else if (most > 0 && c->kept[k] >= most) {
            json_object_set_new(shot, "reject",
                                weft_curate_reject("cluster", (double)(c->kept[k] + 1),
                                                   (double)most,
                                                   "the cluster of the shot is complete"));
        } else {
            c->kept[k]++;
        }
    }
}

/* The retained shot nearest to the mean of its cluster's retained shots. */
static int64_t centre_of(const choice *c, int32_t k, double *mean)
{
    const int64_t width = c->set.width;
    int64_t best = -1;
    double most = -INFINITY;
    memset(mean, 0, (size_t)width * sizeof *mean);
    for (int round = 0; round < 2; round++)
        for (int64_t i = 0; i < c->set.count; i++) {
            double cosine = 0;
            if (c->cluster[i] != k || json_object_get(c->shot[i]->shot, "reject"))
                continue;
            for (int64_t d = 0; d < width; d++) {
                cosine += mean[d] * c->unit[i * width + d];
                mean[d] += round ? 0 : c->unit[i * width + d];
            }
            if (round && cosine > most) {
                most = cosine;
                best = i;
            }
        }
    return best;
}

static weft_status describe(weft_curate_plan *p, const choice *c)
{
    double *mean;
    json_t *list = json_array();
    WEFT_TRY(WEFT_NEW(mean, c->set.width, "clusters"));
    for (int32_t k = 0; k < c->set.clusters; k++) {
        const int64_t at = centre_of(c, k, mean);
        json_t *row =
            json_pack("{s:i,s:I,s:I,s:I,s:I}", "cluster", k, "shots", (json_int_t)c->shots[k],
                      "similar", (json_int_t)c->similar[k], "over_limit",
                      (json_int_t)(c->shots[k] - c->similar[k] - c->kept[k]), "accepted",
                      (json_int_t)c->kept[k]);
        if (at >= 0 && row) {
            json_object_set_new(row, "source", json_string(c->shot[at]->source->name));
            json_object_set(row, "start", json_object_get(c->shot[at]->shot, "start"));
        }
        json_array_append_new(list, row);
    }
    weft_free(mean);
    json_decref(p->clusters);
    p->clusters = json_pack("{s:I,s:I,s:o}", "shots", (json_int_t)c->set.count, "max_per_cluster",
                            (json_int_t)p->config->embeddings.max_per_cluster, "clusters", list);
    return WEFT_ALLOCATED(p->clusters, "clusters");
}

weft_status weft_curate_clusters_choose(weft_curate_plan *p, const weft_cluster_shot *shots,
                                        int64_t count)
{
    choice c = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(take_vectors(shots, count, &c));
    if (c.set.count > 0) {
        WEFT_GO(find(p, &c));
        reject_shots(p, &c);
        WEFT_GO(describe(p, &c));
    }
out:
    free_choice(&c);
    return status;
}

weft_status weft_curate_clusters_write(weft_curate_plan *p)
{
    char *path = weft_path_join(p->out, "clusters.json");
    WEFT_TRY(WEFT_ALLOCATED(path, "the curation"));
    weft_status_code status = WEFT_OK;
    if (p->clusters)
        status = weft_json_save(path, p->clusters);
    else
        status = weft_curate_bucket_remove(p, path);
    weft_free(path);
    return status;
}
