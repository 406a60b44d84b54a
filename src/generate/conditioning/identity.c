#include "generate/conditioning/identity.h"

#include "base/fs.h"
#include "exec/execute.h"
#include "exec/store/weights.h"
#include "latent/vae_chunks.h"
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
    weft_vae *vae; /* encodes one frame */
} work;

static weft_status no_module(const weft_identity_inputs *files,
                             const weft_visual_condition_setup *setup)
{
    return weft_error(
        WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
        WEFT_AT(.file = setup->folder, .key = "--identity-image", .value = files->image),
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
    return files->image ? no_module(files, setup) : WEFT_OK;
}

static weft_status check_module(const weft_visual_condition_setup *setup, work *w,
                                weft_identity_condition *l)
{
    const weft_model_size one = {1, 1, 1, 1, 1};
    WEFT_TRY(weft_model_open_as(l->folder, WEFT_ROLE_IDENTITY_ENCODER, &w->model));
    const weft_shape tokens = weft_model_shape(&w->model, &one, WEFT_PORT_IMAGE),
                     takes = weft_model_shape(&w->model, &one, WEFT_PORT_CONDITION);
    if (takes.dim[4] != w->grid.channels)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = l->folder, WEFT_NUMBER(takes.dim[4])),
            "the identity encoder takes latents of %" PRId64 " channels, and %s has %" PRId64
            ". Use the autoencoder with which the identity encoder was trained.",
            takes.dim[4], setup->vae_folder, w->grid.channels);
    l->tokens = tokens.dim[1];
    l->width = tokens.dim[2];
    return weft_text_conditioning_check_append(setup->denoiser, l->width, l->folder);
}

static weft_status lay_program(const weft_visual_condition_setup *setup, work *w,
                               const weft_identity_condition *l)
{
    const weft_model_size size = {.batch = 1,
                                  .frames = 1,
                                  .height = w->canvas.height / w->grid.factor[1],
                                  .width = w->canvas.width / w->grid.factor[2]};
    w->graph = weft_graph_create();
    w->store = weft_store_create_for(setup->backend);
    WEFT_TRY(WEFT_ALLOCATED(w->graph && w->store, "%s", l->folder));
    weft_model_build(w->graph, &w->model, &size, false);
    WEFT_TRY(weft_graph_check(w->graph));
    return weft_program_compile(w->graph, &(weft_program_options){.backend = setup->backend},
                                &w->program);
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
    if (files->image && !weft_grid_takes_frames(&w->grid, 1))
        WEFT_GO(weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                           WEFT_AT(.key = "--identity-image", .value = files->image),
                           "this autoencoder encodes several frames at a time, not one image"));
    if (files->image && !setup->silent)
        WEFT_GO(weft_picture_warn_resized(files->image, &w->canvas));
    if (files->image)
        WEFT_GO(
            weft_visual_condition_encoder(setup, 1, w->canvas.height, w->canvas.width, &w->vae));
    if (files->image)
        WEFT_GO(lay_program(setup, w, &l));
    *identity = l;
out:
    if (status != WEFT_OK)
        weft_identity_condition_free(&l);
    return status;
}

int64_t weft_identity_condition_workspace_bytes(const weft_identity_condition *l)
{
    const work *w = l->work;
    if (!w || !w->vae)
        return 0;
    return weft_vae_bytes(w->vae) + w->canvas.height * w->canvas.width * 12 +
           weft_programs_bytes((weft_program *[]){w->program}, 1) +
           weft_program_plan(w->program)->source_bytes;
}

/* Encodes the image to normalised latents in the encoder's input. */
static weft_status see(work *w)
{
    float *video = weft_alloc(w->canvas.height * w->canvas.width * 3 * 4);
    weft_tensor *to = weft_program_input(w->program, weft_port_name(WEFT_PORT_CONDITION));
    float *x = to->data;
    weft_status_code status = WEFT_OK;
    WEFT_GO(video ? weft_pictures_read(w->files.image, &w->canvas, video)
                  : weft_no_memory("%s: an image", w->files.image));
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

static weft_status encode(work *w, weft_identity_condition *l)
{
    weft_tensors *file;
    const int64_t count = l->tokens * l->width;
    WEFT_TRY(WEFT_NEW(l->tokens_data, count, "an identity"));
    WEFT_TRY(weft_store_init(w->store, w->graph, 0));
    WEFT_TRY(weft_key_mapping_open(w->model.family, w->graph, "", l->folder, &file));
    WEFT_TRY(weft_weights_load(w->store, w->graph, "", file, false));
    WEFT_TRY(weft_programs_bind(&w->program, 1, w->store, NULL));
    WEFT_TRY(see(w));
    WEFT_TRY(weft_program_run(w->program));
    const float *made = weft_program_output(w->program, weft_port_name(WEFT_PORT_IMAGE))->data;
    for (int64_t i = 0; i < count; i++)
        l->tokens_data[i] = (float)w->files.scale * made[i];
    return WEFT_OK;
}

static void free_work(weft_identity_condition *l)
{
    work *w = l->work;
    if (!w)
        return;
    weft_vae_free(w->vae);
    weft_program_free(w->program);
    weft_graph_free(w->graph);
    weft_store_free(w->store);
    weft_free(w);
    l->work = NULL;
}

weft_status weft_identity_condition_read(weft_identity_condition *l)
{
    const weft_status_code status = l->work && l->work->files.image ? encode(l->work, l) : WEFT_OK;
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
