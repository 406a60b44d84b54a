#include "curate/embeddings/image_embedder.h"

#include "base/memory.h"
#include "curate/embeddings/embedding_client.h"
#include "curate/operators/onnx_model.h"
#include "kernel/host.h"
#include "prompt/pooled_encoder.h"
#include "video/resample.h"

#include <math.h>
#include <string.h>

struct weft_image_embedder {
    const weft_embeddings_config *config;
    weft_pooled_encoder *encoder; /* one of the three */
    weft_onnx_model *onnx;
    weft_embedding_client *client;
    int64_t width, height; /* of its images */
    int threads;
    float *input, *mean; /* owned: an image; the embedding */
    int64_t capacity;    /* of `mean` */
};

static weft_status open_model(weft_image_embedder *e)
{
    const weft_embeddings_config *c = e->config;
    e->width = e->height = c->side;
    if (c->url[0])
        return weft_embedding_client_open(c, &e->client);
    if (c->model[0]) {
        WEFT_TRY(weft_pooled_encoder_open(c->model, WEFT_ROLE_IMAGE_ENCODER, &e->encoder));
        e->width = e->height = weft_pooled_encoder_side(e->encoder);
        return WEFT_OK;
    }
    int64_t w, h;
    WEFT_TRY(weft_onnx_model_open(c->onnx, &e->onnx));
    weft_onnx_model_size(e->onnx, &w, &h);
    e->width = w ? w : e->width;
    e->height = h ? h : e->height;
    return WEFT_OK;
}

weft_status weft_image_embedder_open(const weft_embeddings_config *config, int threads,
                                     weft_image_embedder **embedder)
{
    weft_image_embedder *e;
    WEFT_TRY(WEFT_NEW(e, 1, "the embeddings"));
    e->config = config;
    e->threads = threads;
    const int before = weft_host_set_threads(threads);
    weft_status_code status = open_model(e);
    weft_host_set_threads(before);
    WEFT_GO(status);
    WEFT_GO(WEFT_NEW(e->input, e->width * e->height * 3, "an image"));
    *embedder = e;
out:
    if (status != WEFT_OK)
        weft_image_embedder_close(e);
    return status;
}

void weft_image_embedder_close(weft_image_embedder *e)
{
    if (!e)
        return;
    weft_pooled_encoder_close(e->encoder);
    weft_onnx_model_close(e->onnx);
    weft_embedding_client_close(e->client);
    weft_free(e->input);
    weft_free(e->mean);
    weft_free(e);
}

void weft_image_embedder_set_threads(weft_image_embedder *e, int threads)
{
    e->threads = threads;
}

int64_t weft_image_embedder_side(const weft_image_embedder *e)
{
    return e->width < e->height ? e->width : e->height;
}

bool weft_image_embedder_is_refused(const weft_image_embedder *e)
{
    return e->client && weft_embedding_client_is_refused(e->client);
}

/* Resizes a frame so that it covers the model's size, and takes the centre. */
static weft_status crop_centre(const weft_image_embedder *e, const uint8_t *rgb, int64_t fw,
                               int64_t fh, uint8_t *to)
{
    const bool wide = fw * e->height > fh * e->width;
    const int64_t w = wide ? fw * e->height / fh : e->width,
                  h = wide ? e->height : fh * e->width / fw, left = (w - e->width) / 2,
                  top = (h - e->height) / 2;
    uint8_t *sized;
    WEFT_TRY(WEFT_NEW(sized, w * h * 3, "an image"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_image_resample(WEFT_RESAMPLE_BICUBIC, rgb, fw, fh, 3, sized, w, h));
    for (int64_t y = 0; y < e->height; y++)
        memcpy(to + y * e->width * 3, sized + ((top + y) * w + left) * 3, (size_t)(e->width * 3));
out:
    weft_free(sized);
    return status;
}

/* The input of a model: [height, width, 3] for CLIP, [3, height, width] for ONNX. */
static void normalise(const weft_image_embedder *e, const uint8_t *rgb)
{
    const double *mean = e->config->mean.item, *std = e->config->std.item;
    const int64_t area = e->width * e->height;
    for (int64_t i = 0; i < 3 * area; i++)
        e->input[e->onnx ? i % 3 * area + i / 3 : i] =
            (float)((rgb[i] / 255.0 - mean[i % 3]) / std[i % 3]);
}

/* Adds a vector, scaled to length 1, to the mean of `count`. */
static weft_status add_unit(weft_image_embedder *e, const float *v, int64_t width, int64_t count)
{
    double length = 0;
    for (int64_t i = 0; i < width; i++)
        length += (double)v[i] * v[i];
    length = sqrt(length);
    if (!isfinite(length) || length == 0)
        return weft_error(WEFT_MSG_ONNX_MODEL, WEFT_AT(.key = "embeddings"),
                          "the embedding is not a finite vector, or is zero");
    if (e->capacity < width) {
        weft_free(e->mean);
        WEFT_TRY(WEFT_NEW(e->mean, width, "an embedding"));
        e->capacity = width;
    }
    for (int64_t i = 0; i < width; i++)
        e->mean[i] += (float)(v[i] / (length * (double)count));
    return WEFT_OK;
}

static weft_status run_server(weft_image_embedder *e, const uint8_t *images, int64_t count,
                              int64_t *width)
{
    const weft_embedding_images im = {images, count, e->width};
    float *vectors;
    WEFT_TRY(weft_embedding_client_send(e->client, &im, &vectors, width));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < count; i++)
        WEFT_GO(add_unit(e, vectors + i * *width, *width, count));
out:
    weft_free(vectors);
    return status;
}

static weft_status run_model(weft_image_embedder *e, const uint8_t *image, int64_t count,
                             int64_t *width)
{
    const float *output = NULL;
    normalise(e, image);
    if (e->encoder)
        WEFT_TRY(weft_pooled_encoder_image(e->encoder, e->input, &output, width));
    else
        WEFT_TRY(weft_onnx_model_run(e->onnx, e->input, e->width, e->height, &output, width));
    return add_unit(e, output, *width, count);
}

static weft_status embed(weft_image_embedder *e, const weft_shot_frames *f, int64_t *width)
{
    const int64_t bytes = e->width * e->height * 3;
    uint8_t *images;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(images, f->count * bytes, "images"));
    for (int64_t i = 0; i < f->count; i++) {
        WEFT_GO(crop_centre(e, f->rgb + i * f->width * f->height * 3, f->width, f->height,
                            images + i * bytes));
        if (!e->client)
            WEFT_GO(run_model(e, images + i * bytes, f->count, width));
    }
    if (e->client)
        status = run_server(e, images, f->count, width);
out:
    weft_free(images);
    return status;
}

weft_status weft_image_embedder_shot(weft_image_embedder *e, const weft_shot_frames *f,
                                     const float **vector, int64_t *width)
{
    if (e->mean)
        memset(e->mean, 0, (size_t)e->capacity * sizeof *e->mean);
    const int before = weft_host_set_threads(e->threads);
    const weft_status_code status = embed(e, f, width);
    weft_host_set_threads(before);
    *vector = e->mean;
    return status;
}
