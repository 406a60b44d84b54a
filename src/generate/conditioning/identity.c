#include "generate/conditioning/identity.h"

#include "base/fs.h"
#include "exec/execute.h"
#include "exec/store/weights.h"
#include "generate/conditioning/clip_preprocess.h"
#include "generate/conditioning/image_encoder.h"
#include "latent/vae_chunks.h"
#include "model/encoders/identity_encoder.h"
#include "model/key_mapping.h"
#include "prompt/text_conditioning.h"

#include <string.h>

typedef struct weft_identity_condition_workspace {
    weft_identity_inputs files;
    weft_grid grid;
    weft_canvas canvas; /* canvas of one frame */
    weft_model model;
    weft_graph *graph;
    weft_program *program;
    weft_store *store;
    weft_vae *vae; /* encodes one frame; NULL: `seer` does */
    weft_image_encoder seer;
    int64_t tokens; /* of an image */
} work;

static weft_status no_module(const weft_identity_inputs *files,
                             const weft_visual_condition_setup *setup)
{
    return weft_error(
        WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
        WEFT_AT(.file = setup->folder, .key = "--identity-image", .value = *files->image),
        "the model was not trained with identity images: it has no folder identity. "
        "Train it with identity: {class: WeftIdentityEncoder, config: {}}, or give "
        "the folder of a trained encoder with --identity-encoder.");
}

/* Finds the encoder's folder, if any. */
static weft_status find_module(const weft_identity_inputs *files,
                               const weft_visual_condition_setup *setup, weft_identity_condition *l)
{
    l->folder =
        files->module ? weft_strdup(files->module) : weft_path_join(setup->folder, "identity");
    WEFT_TRY(WEFT_ALLOCATED(l->folder, "a path"));
    if (files->module || weft_path_is_dir(l->folder))
        return WEFT_OK;
    weft_free(l->folder);
    l->folder = NULL;
    return files->images ? no_module(files, setup) : WEFT_OK;
}

static bool reads_latents(const work *w)
{
    return weft_identity_encoder_features(&w->model) == WEFT_IDENTITY_LATENTS;
}

static weft_status check_images(const work *w, const weft_identity_condition *l)
{
    const int64_t most = weft_identity_encoder_images(&w->model);
    return w->files.images <= most
               ? WEFT_OK
               : weft_error(WEFT_MSG_OPTION_INVALID,
                            WEFT_AT(.file = l->folder, .key = "--identity-image",
                                    WEFT_NUMBER(w->files.images)),
                            "%d images are given, and the identity encoder was trained with up to "
                            "%" PRId64 " (num_images). Give fewer images.",
                            w->files.images, most);
}

static weft_status check_module(const weft_visual_condition_setup *setup, work *w,
                                weft_identity_condition *l)
{
    const weft_model_size one = {1, 1, 1, 1, 1};
    WEFT_TRY(weft_model_open_as(l->folder, WEFT_ROLE_IDENTITY_ENCODER, &w->model));
    const weft_shape tokens = weft_model_shape(&w->model, &one, WEFT_PORT_IMAGE),
                     takes = weft_model_shape(&w->model, &one, WEFT_PORT_CONDITION);
    if (reads_latents(w) && takes.dim[4] != w->grid.channels)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = l->folder, WEFT_NUMBER(takes.dim[4])),
            "the identity encoder takes latents of %" PRId64 " channels, and %s has %" PRId64
            ". Use the autoencoder with which the identity encoder was trained.",
            takes.dim[4], setup->vae_folder, w->grid.channels);
    w->tokens = tokens.dim[1];
    l->tokens = w->tokens * weft_identity_encoder_images(&w->model);
    l->width = tokens.dim[2];
    WEFT_TRY(check_images(w, l));
    return weft_text_conditioning_check_append(setup->denoiser, l->width, l->folder);
}

/* Opens the encoder of the images and sets the size of one image's features. */
static weft_status open_image_encoder(const weft_visual_condition_setup *setup, work *w,
                                      const weft_identity_condition *l, weft_model_size *features)
{
    const weft_model_size one = {.batch = 1, .frames = 1, .height = 1, .width = 1, .image = 1};
    weft_image_encoder *e = &w->seer;
    weft_shape made;
    e->folder = weft_path_join(l->folder, WEFT_IDENTITY_IMAGE_ENCODER);
    WEFT_TRY(WEFT_ALLOCATED(e->folder, "a path"));
    const weft_status_code found =
        weft_model_open_as(e->folder, WEFT_ROLE_IMAGE_ENCODER, &e->model);
    if (found != WEFT_OK)
        return weft_error_add(found, "The identity encoder reads images by the CLIP encoder in the "
                                     "subfolder " WEFT_IDENTITY_IMAGE_ENCODER ".");
    const weft_shape pixels = weft_model_shape(&e->model, &one, WEFT_PORT_VIDEO);
    e->side = pixels.dim[2];
    e->images = 1;
    e->embeds = weft_identity_encoder_features(&w->model) == WEFT_IDENTITY_EMBEDDING;
    WEFT_TRY(weft_clip_encoder_processor(e->folder, e->side, &e->processor));
    WEFT_TRY(weft_image_encoder_compile(setup->backend, pixels, e, &made));
    features->width = made.dim[1];
    const int64_t takes = weft_model_shape(&w->model, features, WEFT_PORT_CONDITION).dim[4];
    return takes == made.dim[2]
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = e->folder, WEFT_NUMBER(takes)),
                            "the identity encoder takes features of %" PRId64
                            " channels, and the image encoder has %" PRId64
                            ". Use the image encoder with which the identity encoder was trained.",
                            takes, made.dim[2]);
}

/* Compiles the encoder for the features of one image. */
static weft_status lay_program(const weft_visual_condition_setup *setup, work *w,
                               const weft_model_size *features, const weft_identity_condition *l)
{
    w->graph = weft_graph_create();
    w->store = weft_store_create_for(setup->backend);
    WEFT_TRY(WEFT_ALLOCATED(w->graph && w->store, "%s", l->folder));
    weft_model_build(w->graph, &w->model, features, false);
    WEFT_TRY(weft_graph_check(w->graph));
    return weft_program_compile(w->graph, &(weft_program_options){.backend = setup->backend},
                                &w->program);
}

/* Opens the autoencoder for one frame. */
static weft_status open_autoencoder(const weft_visual_condition_setup *setup, work *w)
{
    if (!weft_grid_takes_frames(&w->grid, 1))
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = "--identity-image", .value = *w->files.image),
                          "this autoencoder encodes several frames at a time, not one image");
    for (int i = 0; i < w->files.images && !setup->silent; i++)
        WEFT_TRY(weft_picture_warn_resized(w->files.image[i], &w->canvas));
    return weft_visual_condition_encoder(setup, 1, w->canvas.height, w->canvas.width, &w->vae);
}

/* Plans the programs that encode the images. */
static weft_status plan(const weft_visual_condition_setup *setup, work *w,
                        const weft_identity_condition *l)
{
    weft_model_size features = {.batch = 1, .frames = 1, .height = 1, .width = 1};
    for (int i = 0; i < w->files.images; i++) {
        weft_video_info info;
        WEFT_TRY(weft_error_at(weft_video_probe(w->files.image[i], &info),
                               WEFT_AT(.key = "--identity-image")));
    }
    if (reads_latents(w)) {
        WEFT_TRY(open_autoencoder(setup, w));
        features.height = w->canvas.height / w->grid.factor[1];
        features.width = w->canvas.width / w->grid.factor[2];
    } else {
        WEFT_TRY(open_image_encoder(setup, w, l, &features));
    }
    return lay_program(setup, w, &features, l);
}

weft_status weft_identity_condition_open(const weft_identity_inputs *files,
                                         const weft_visual_condition_setup *setup, int fit,
                                         weft_identity_condition *identity)
{
    weft_identity_condition l = {0};
    work *w = l.work = weft_alloc(sizeof *w);
    WEFT_TRY(WEFT_ALLOCATED(w, "the identity encoder"));
    w->files = *files;
    w->grid = *setup->grid;
    w->canvas = (weft_canvas){
        .frames = 1, .height = setup->height, .width = setup->width, .fit = (weft_fit)fit};
    weft_status_code status = WEFT_OK;
    WEFT_GO(find_module(files, setup, &l));
    if (l.folder)
        WEFT_GO(check_module(setup, w, &l));
    if (files->images)
        WEFT_GO(plan(setup, w, &l));
    *identity = l;
out:
    if (status != WEFT_OK)
        weft_identity_condition_free(&l);
    return status;
}

int64_t weft_identity_condition_workspace_bytes(const weft_identity_condition *l)
{
    const work *w = l->work;
    if (!w || !w->program)
        return 0;
    const int64_t own = weft_programs_bytes((weft_program *[]){w->program}, 1) +
                        weft_program_plan(w->program)->source_bytes;
    return own + (w->vae ? weft_vae_bytes(w->vae) + w->canvas.height * w->canvas.width * 12
                         : weft_image_encoder_bytes(&w->seer));
}

/* Encodes an image to normalised latents in the encoder's input. */
static weft_status see_latents(work *w, const char *path, weft_tensor *to)
{
    float *video = weft_alloc(w->canvas.height * w->canvas.width * 3 * 4), *x = to->data;
    weft_status_code status = WEFT_OK;
    WEFT_GO(video ? weft_pictures_read(path, &w->canvas, video)
                  : weft_no_memory("%s: an image", path));
    WEFT_GO(weft_vae_bind(w->vae));
    WEFT_GO(weft_vae_encode(w->vae, video, 1, x));
    for (int64_t i = 0; i < weft_shape_count(&to->shape); i++) {
        const int64_t c = i % w->grid.channels;
        x[i] = (float)((x[i] - w->grid.mean[c]) / w->grid.deviation[c]);
    }
out:
    weft_free(video);
    return status;
}

/* Encodes an image to features in the encoder's input. */
static weft_status see_features(work *w, const char *path, weft_tensor *to)
{
    weft_program *p = w->seer.program;
    WEFT_TRY(weft_image_encoder_bind(&w->seer));
    WEFT_TRY(weft_clip_picture_file(&w->seer.processor, path, weft_program_input(p, "in")->data));
    WEFT_TRY(weft_program_run(p));
    memcpy(to->data, weft_program_output(p, "out")->data,
           (size_t)weft_shape_count(&to->shape) * sizeof(float));
    return WEFT_OK;
}

/* Encodes image i to its tokens. */
static weft_status encode_image(work *w, int i, weft_identity_condition *l)
{
    weft_tensor *in = weft_program_input(w->program, weft_port_name(WEFT_PORT_CONDITION));
    const int64_t count = w->tokens * l->width;
    WEFT_TRY(w->vae ? see_latents(w, w->files.image[i], in)
                    : see_features(w, w->files.image[i], in));
    WEFT_TRY(weft_program_run(w->program));
    const float *made = weft_program_output(w->program, weft_port_name(WEFT_PORT_IMAGE))->data;
    for (int64_t k = 0; k < count; k++)
        l->tokens_data[i * count + k] = (float)w->files.scale * made[k];
    return WEFT_OK;
}

static weft_status encode(work *w, weft_identity_condition *l)
{
    weft_tensors *file;
    WEFT_TRY(WEFT_NEW(l->tokens_data, l->tokens * l->width, "an identity"));
    WEFT_TRY(weft_weights_prepare(w->store, w->graph));
    WEFT_TRY(weft_key_mapping_open(w->model.family, w->graph, "", l->folder, &file));
    WEFT_TRY(weft_weights_load(w->store, w->graph, "", file, false));
    WEFT_TRY(weft_programs_bind(&w->program, 1, w->store, NULL));
    for (int i = 0; i < w->files.images; i++)
        WEFT_TRY(encode_image(w, i, l));
    return WEFT_OK;
}

static void free_work(weft_identity_condition *l)
{
    work *w = l->work;
    if (!w)
        return;
    weft_vae_free(w->vae);
    weft_image_encoder_free(&w->seer);
    weft_program_free(w->program);
    weft_graph_free(w->graph);
    weft_store_free(w->store);
    weft_free(w);
    l->work = NULL;
}

weft_status weft_identity_condition_read(weft_identity_condition *l)
{
    const weft_status_code status = l->work && l->work->files.images ? encode(l->work, l) : WEFT_OK;
    free_work(l);
    return status;
}

void weft_identity_condition_free(weft_identity_condition *l)
{
    free_work(l);
    weft_free(l->tokens_data);
    weft_free(l->folder);
    *l = (weft_identity_condition){0};
}
