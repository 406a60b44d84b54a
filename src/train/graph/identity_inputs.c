#include "train/graph/identity_inputs.h"

#include "graph/builder_helpers.h"
#include "model/encoders/identity_encoder.h"
#include "train/config/run_model.h"
#include "train/graph/sample_dropout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const weft_call forward = {WEFT_CALL_FORWARD, WEFT_STREAM_ALONE};

/* Images of a sample: data sets, or the first frame. */
static int64_t images_of(const weft_run *run)
{
    return run->identity.images.count ? run->identity.images.count : 1;
}

bool weft_identity_inputs_given(const weft_run *run, const weft_run_models *m)
{
    return weft_run_uses_identity(m) &&
           (run->identity.images.count || m->identity_image_encoder.family);
}

weft_image_features_kind weft_identity_inputs_features(const weft_run_models *m)
{
    switch (weft_identity_encoder_features(&m->identity)) {
    case WEFT_IDENTITY_PATCHES: return WEFT_FEATURES_PATCHES;
    case WEFT_IDENTITY_EMBEDDING: return WEFT_FEATURES_EMBEDDING;
    default: return WEFT_FEATURES_OF_FRAME;
    }
}

/* ---- graph ---------------------------------------------------------------------------------- */

/* The images of the sets: latents of the size of the clip, or features. */
static weft_value images(weft_graph *g, const weft_run *run, const weft_run_models *m,
                         weft_shape latents)
{
    const bool seen = m->identity_image_encoder.family;
    const double scale = weft_noise_process_scale(weft_run_process(run), &run->noise);
    weft_shape shape = seen ? m->identity_features : latents;
    shape.dim[0] = latents.dim[0];
    shape.dim[1] = images_of(run);
    const weft_value x = weft_input(g, WEFT_IDENTITY_INPUT, WEFT_F32, shape);
    return seen || scale == 1 ? x : weft_affine(g, x, 1 / scale, 0);
}

/* Zeros in the tokens (B,T K,W) of images that samples do not have. */
static weft_value keep_given(weft_graph *g, weft_value tokens, int64_t count)
{
    const int64_t *d = weft_value_get(g, tokens)->shape.dim;
    const weft_shape whole = WEFT_SHAPE(d[0], d[1], d[2]),
                     apart = WEFT_SHAPE(d[0], count, d[1] / count, d[2]);
    const weft_value given =
        weft_input(g, WEFT_IDENTITY_GIVEN, WEFT_F32, WEFT_SHAPE(whole.dim[0], count));
    tokens = weft_mul(g, weft_reshape(g, tokens, apart),
                      weft_reshape(g, given, WEFT_SHAPE(whole.dim[0], count, 1, 1)));
    return weft_reshape(g, tokens, whole);
}

void weft_identity_inputs_append(weft_graph *g, const weft_run *run, const weft_run_models *m,
                                 weft_value latents, weft_value key, weft_ports *p)
{
    const double scale = weft_noise_process_scale(weft_run_process(run), &run->noise);
    const int64_t count = images_of(run), most = weft_identity_encoder_images(&m->identity);
    weft_ports seen = weft_ports_none();
    if (!weft_value_ok(latents))
        return;
    seen.at[WEFT_PORT_CONDITION] =
        weft_identity_inputs_given(run, m)
            ? images(g, run, m, weft_value_get(g, latents)->shape)
            : weft_affine(g, weft_slice(g, latents, 1, 0, 1), 1 / scale, 0);
    weft_model_call(g, &m->identity, forward, true, &seen);
    weft_value tokens = seen.at[WEFT_PORT_IMAGE];
    if (weft_graph_check(g) != WEFT_OK)
        return;
    if (count > 1)
        tokens = keep_given(g, tokens, count);
    weft_shape rest = weft_value_get(g, tokens)->shape;
    rest.dim[1] = rest.dim[1] / count * (most - count);
    if (rest.dim[1])
        tokens = weft_concat(g, (weft_value[]){tokens, weft_fill(g, WEFT_F32, rest, 0)}, 2, 1);
    if (run->identity.dropout > 0)
        tokens = weft_mul(g, tokens,
                          weft_sample_kept(g, key, WEFT_RNG_IDENTITY, run->identity.dropout, 3));
    weft_text_conditioning_append(g, tokens, p);
}

/* ---- models --------------------------------------------------------------------------------- */

/* The features of an image by the encoder: shape (1,1,1,rows,width). */
static weft_status shape_of_features(const weft_run_models *m, weft_shape *features)
{
    const weft_model_size one = {.batch = 1, .frames = 1, .height = 1, .width = 1, .image = 1};
    const weft_model *encoder = &m->identity_image_encoder;
    weft_graph *g = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(g, "the image encoder"));
    weft_ports ports = weft_ports_none();
    ports.at[WEFT_PORT_VIDEO] =
        weft_input(g, "in", WEFT_F32, weft_model_shape(encoder, &one, WEFT_PORT_VIDEO));
    weft_model_call(g, encoder, forward, false, &ports);
    const weft_status_code status = weft_graph_check(g);
    if (status == WEFT_OK) {
        const weft_value patches = ports.at[WEFT_PORT_IMAGE], vector = ports.at[WEFT_PORT_POOLED];
        features[WEFT_FEATURES_PATCHES] =
            WEFT_SHAPE(1, 1, 1, weft_dim(g, patches, 1), weft_dim(g, patches, 2));
        features[WEFT_FEATURES_EMBEDDING] = WEFT_SHAPE(1, 1, 1, 1, weft_dim(g, vector, 1));
    }
    weft_graph_free(g);
    return status;
}

/* Reads the image encoder, whose features have a shape by kind. */
static weft_status read_image_encoder(const weft_run *run, const char *path, weft_run_models *m,
                                      weft_shape *features)
{
    const char *folder = run->identity.image_encoder;
    const weft_model *encoder = &m->identity_image_encoder;
    if (!folder[0])
        return WEFT_OK;
    WEFT_TRY(weft_error_at(
        weft_model_open_as(folder, WEFT_ROLE_IMAGE_ENCODER, &m->identity_image_encoder),
        WEFT_AT(.file = path, .key = "identity.image_encoder")));
    if (strncmp(encoder->family->class_name, "CLIPVisionModel", 15) != 0)
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.file = path, .key = "identity.image_encoder", .value = folder),
                          "%s has a %s, and the images are read by CLIPVisionModel or "
                          "CLIPVisionModelWithProjection. Give the folder of a CLIP image encoder.",
                          folder, encoder->family->class_name);
    return shape_of_features(m, features);
}

/* Adds the fields of a new encoder that follow from the other keys of the section. */
static weft_status complete_config(const weft_run *run, const char *path, weft_config_tree *tree,
                                   weft_buf *text)
{
    json_t *json;
    const char *own = tree->json ? tree->json : "{}";
    tree->where = tree->json ? tree->where : path;
    WEFT_TRY(weft_json_parse(own, (int64_t)strlen(own), tree->where, &json));
    if (run->identity.image_encoder[0] && !json_object_get(json, "features"))
        json_object_set_new(json, "features", json_string("patches"));
    if (!json_object_get(json, "num_images"))
        json_object_set_new(json, "num_images", json_integer(images_of(run)));
    char *made = json_dumps(json, 0);
    json_decref(json);
    weft_buf_printf(text, "%s", made ? made : "");
    free(made);
    WEFT_TRY(weft_buf_check(text));
    tree->json = text->data;
    return WEFT_OK;
}

/* Reads a new encoder or a trained one. */
static weft_status read_encoder(const weft_run *run, const char *path, const weft_shape *features,
                                weft_run_models *m)
{
    const weft_model_size one = {1, 1, 1, 1, 1};
    const int64_t width = weft_model_takes(&m->denoiser, WEFT_PORT_TEXT)
                              ? weft_model_shape(&m->denoiser, &one, WEFT_PORT_TEXT).dim[2]
                              : 0;
    weft_model_use use = {WEFT_ROLE_IDENTITY_ENCODER, path, "identity",
                          weft_model_grid(&m->autoencoder).channels, width};
    weft_run_model from = run->identity;
    weft_buf text = {0};
    weft_status_code status = WEFT_OK;
    if (!from.weights[0])
        WEFT_GO(complete_config(run, path, &from.config, &text));
    if (m->identity_image_encoder.family) {
        /* the kind of features determines their width: read the config twice */
        WEFT_GO(weft_run_model_read(&from, &use, &m->identity));
        use.channels = features[weft_identity_inputs_features(m)].dim[4];
    }
    WEFT_GO(weft_run_model_read(&from, &use, &m->identity));
out:
    weft_buf_free(&text);
    return status;
}

/* Checks that the encoder reads what the run gives. */
static weft_status check_source(const weft_run *run, const char *path, const weft_run_models *m)
{
    const bool latents = weft_identity_encoder_features(&m->identity) == WEFT_IDENTITY_LATENTS,
               seen = m->identity_image_encoder.family;
    const int64_t most = weft_identity_encoder_images(&m->identity);
    if (latents && seen)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                          WEFT_AT(.file = path, .key = "identity.image_encoder",
                                  .value = run->identity.image_encoder),
                          "the identity encoder reads latents (features in its config). Remove "
                          "the key, or train an encoder with features: patches or embedding.");
    if (!latents && !seen)
        return weft_error(
            WEFT_MSG_CONFIG_MISSING_KEY, WEFT_AT(.file = path, .key = "identity.image_encoder"),
            "the identity encoder reads the %s of an image encoder. Give the folder "
            "of the CLIP encoder with which it is trained.",
            weft_identity_encoder_features(&m->identity) == WEFT_IDENTITY_PATCHES ? "patches"
                                                                                  : "embedding");
    if (images_of(run) > most)
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.file = path, .key = "identity.images",
                                  WEFT_NUMBER(run->identity.images.count)),
                          "%" PRId64 " sets are given, and the identity encoder takes up to "
                          "%" PRId64 " image%s of a sample (num_images). Give fewer sets, or "
                          "another num_images.",
                          run->identity.images.count, most, most > 1 ? "s" : "");
    return WEFT_OK;
}

/* Checks the channels of the encoder's input. */
static weft_status check_channels(const char *path, const weft_run_models *m)
{
    const weft_grid grid = weft_model_grid(&m->autoencoder);
    const weft_model_size one = {1, 1, 1, 1, 1};
    const bool seen = m->identity_image_encoder.family;
    const int64_t takes = weft_model_shape(&m->identity, &one, WEFT_PORT_CONDITION).dim[4],
                  has = seen ? m->identity_features.dim[4] : grid.channels;
    if (takes != has)
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "identity", WEFT_NUMBER(takes)),
            "the model takes %s of %" PRId64 " channels, and the %s has %" PRId64 " channels",
            seen ? "features" : "latents", takes, seen ? "image encoder" : "autoencoder", has);
    return seen || weft_grid_takes_frames(&grid, 1)
               ? WEFT_OK
               : weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "identity"),
                            "an image is one frame, and a latent frame of this autoencoder is of "
                            "%" PRId64 "; use a causal autoencoder, such as AutoencoderKLWan, or "
                            "identity.image_encoder",
                            grid.factor[0]);
}

weft_status weft_identity_inputs_read(const weft_run *run, const char *path, weft_run_models *m)
{
    const weft_model_size one = {1, 1, 1, 1, 1};
    weft_shape features[3] = {{0}};
    char who[600];
    snprintf(who, sizeof who, "%.500s: identity", path);
    WEFT_TRY(read_image_encoder(run, path, m, features));
    WEFT_TRY(read_encoder(run, path, features, m));
    WEFT_TRY(check_source(run, path, m));
    if (m->identity_image_encoder.family)
        m->identity_features = features[weft_identity_inputs_features(m)];
    WEFT_TRY(check_channels(path, m));
    return weft_text_conditioning_check_append(
        &m->denoiser, weft_model_shape(&m->identity, &one, WEFT_PORT_IMAGE).dim[2], who);
}
