#include "curate/operators/aesthetics_head.h"

#include "base/memory.h"
#include "format/tensors/tensors.h"
#include "format/tensors/tensors_finite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_LAYERS = 32, MOST_WIDTH = 1 << 16 };

typedef struct layer {
    int64_t in, out;
    float *weight, *bias; /* owned; [out, in], [out] */
} layer;

struct weft_aesthetics_head {
    char *path; /* owned */
    layer layer[MOST_LAYERS];
    int layers;
    double *value[2]; /* owned; of two layers, in turn */
};

void weft_aesthetics_head_close(weft_aesthetics_head *h)
{
    if (!h)
        return;
    for (int i = 0; i < h->layers; i++) {
        weft_free(h->layer[i].weight);
        weft_free(h->layer[i].bias);
    }
    weft_free(h->value[0]);
    weft_free(h->value[1]);
    weft_free(h->path);
    weft_free(h);
}

static weft_status not_a_head(const weft_aesthetics_head *h, const char *name, const char *why)
{
    return weft_error(WEFT_MSG_FORMAT_UNKNOWN, WEFT_AT(.file = h->path, .value = name),
                      "the tensor %s %s", name, why);
}

/* Adds the layer `prefix`weight, `prefix`bias, whose input is the output of the layer before. */
static weft_status add_layer(weft_aesthetics_head *h, const weft_tensors *file, const char *prefix)
{
    char name[64];
    layer *l = &h->layer[h->layers];
    snprintf(name, sizeof name, "%sbias", prefix);
    const weft_stored_tensor *bias = weft_tensors_find(file, name);
    snprintf(name, sizeof name, "%sweight", prefix);
    const weft_stored_tensor *weight = weft_tensors_find(file, name);
    if (weight->rank != 2 || weight->dim[0] > MOST_WIDTH || weight->dim[1] > MOST_WIDTH ||
        (h->layers > 0 && weight->dim[1] != l[-1].out))
        return not_a_head(h, name, "does not follow the layer before");
    if (!bias || bias->count != weight->dim[0])
        return not_a_head(h, name, "has no bias of its size");
    WEFT_TRY(weft_stored_check_finite(weight));
    WEFT_TRY(weft_stored_check_finite(bias));
    *l = (layer){.in = weight->dim[1], .out = weight->dim[0]};
    h->layers++;
    WEFT_TRY(WEFT_NEW(l->weight, l->in * l->out, "an aesthetics head"));
    WEFT_TRY(WEFT_NEW(l->bias, l->out, "an aesthetics head"));
    weft_tensor_to_f32(weight, l->weight);
    weft_tensor_to_f32(bias, l->bias);
    return WEFT_OK;
}

static weft_status read_layers(weft_aesthetics_head *h, const weft_tensors *file)
{
    int64_t widest = 1;
    if (weft_tensors_find(file, "weight"))
        WEFT_TRY(add_layer(h, file, ""));
    for (int i = 0; i < MOST_LAYERS; i++) {
        char prefix[32], name[48];
        snprintf(prefix, sizeof prefix, "layers.%d.", i);
        snprintf(name, sizeof name, "%sweight", prefix);
        if (weft_tensors_find(file, name))
            WEFT_TRY(add_layer(h, file, prefix));
    }
    if (h->layers == 0)
        return not_a_head(h, "weight", "and layers.0.weight are missing");
    if (h->layer[h->layers - 1].out != 1)
        return not_a_head(h, "weight", "of the last layer has more than one output");
    for (int i = 0; i < h->layers; i++)
        widest = h->layer[i].out > widest ? h->layer[i].out : widest;
    WEFT_TRY(WEFT_NEW(h->value[0], widest, "an aesthetics head"));
    return WEFT_NEW(h->value[1], widest, "an aesthetics head");
}

weft_status weft_aesthetics_head_open(const char *path, weft_aesthetics_head **head)
{
    weft_aesthetics_head *h;
    weft_tensors *file = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(h, 1, "an aesthetics head"));
    WEFT_GO(WEFT_ALLOCATED((h->path = weft_strdup(path)), "an aesthetics head"));
    WEFT_GO(weft_tensors_open(path, &file));
    WEFT_GO(read_layers(h, file));
    *head = h;
    h = NULL;
out:
    weft_tensors_close(file);
    weft_aesthetics_head_close(h);
    return status;
}

weft_status weft_aesthetics_head_score(const weft_aesthetics_head *h, const float *embedding,
                                       int64_t width, double *score)
{
    if (width != h->layer[0].in)
        return weft_error(WEFT_MSG_FORMAT_UNKNOWN, WEFT_AT(.file = h->path, WEFT_NUMBER(width)),
                          "the head is for embeddings of %" PRId64 " numbers, and these have "
                          "%" PRId64,
                          h->layer[0].in, width);
    for (int i = 0; i < h->layers; i++) {
        const layer *l = &h->layer[i];
        const double *from = h->value[(i + 1) % 2];
        for (int64_t o = 0; o < l->out; o++) {
            double sum = l->bias[o];
            for (int64_t k = 0; k < l->in; k++)
                sum += (double)l->weight[o * l->in + k] * (i ? from[k] : embedding[k]);
            h->value[i % 2][o] = sum;
        }
    }
    *score = h->value[(h->layers - 1) % 2][0];
    return WEFT_OK;
}
