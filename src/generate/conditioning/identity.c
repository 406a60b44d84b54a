#include "generate/likeness.h"

#include "base/fs.h"
#include "latent/vae_stream.h"
#include "model/dialect.h"
#include "prompt/captions.h"
#include "runtime/weights.h"

#include <string.h>

typedef struct weft_likeness_work {
    weft_likeness_files files;
    weft_grid grid;
    weft_canvas canvas; /* of one frame */
    weft_model model;
    weft_graph *graph;
    weft_program *program;
    weft_store *store;
    weft_vae *vae; /* encodes one frame */
} work;

static weft_status no_module(const weft_likeness_files *files, const weft_given_place *place)
{
    return weft_fail(
        WEFT_E_UNSUPPORTED,
        "--identity %s: this model was not trained to be told one (%s has no folder identity); "
        "train it with identity: {class: WeftIdentityEncoder, config: {}}, or name the folder of a "
        "trained encoder with --identity-module",
        files->picture, place->folder);
}

/* The encoder's folder, if there is one. */
static weft_status find_module(const weft_likeness_files *files, const weft_given_place *place,
                               weft_likeness *l)
{
    l->folder =
        files->module ? weft_strdup(files->module) : weft_path_join(place->folder, "identity");
    if (!l->folder)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a path");
    if (files->module || weft_path_is_dir(l->folder))
        return WEFT_OK;
    weft_free(l->folder);
    l->folder = NULL;
    return files->picture ? no_module(files, place) : WEFT_OK;
}

static weft_status check_module(const weft_given_place *place, work *w, weft_likeness *l)
{
    const weft_model_size one = {1, 1, 1, 1, 1};
    WEFT_TRY(weft_model_open_as(l->folder, WEFT_ROLE_IDENTITY_ENCODER, &w->model));
    const weft_shape tokens = weft_model_shape(&w->model, &one, WEFT_PORT_IMAGE),
                     takes = weft_model_shape(&w->model, &one, WEFT_PORT_CONDITION);
    if (takes.dim[4] != w->grid.channels)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: it takes latents of %lld channels, those of %s have %lld: it was "
                         "trained with another autoencoder",
                         l->folder, (long long)takes.dim[4], place->vae_folder,
                         (long long)w->grid.channels);
    l->tokens = tokens.dim[1];
    l->width = tokens.dim[2];
    return weft_captions_takes_more(place->denoiser, l->width, l->folder);
}

static weft_status lay_program(work *w, const weft_likeness *l)
{
    const weft_model_size size = {.batch = 1,
                                  .frames = 1,
                                  .height = w->canvas.height / w->grid.factor[1],
                                  .width = w->canvas.width / w->grid.factor[2]};
    w->graph = weft_graph_create();
    w->store = weft_store_create();
    if (!w->graph || !w->store)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %s", l->folder);
    weft_model_build(w->graph, &w->model, &size, false);
    WEFT_TRY(weft_graph_check(w->graph));
    return weft_program_compile(w->graph, &(weft_program_options){0}, &w->program);
}

weft_status weft_likeness_open(const weft_likeness_files *files, const weft_given_place *place,
                               int fit, weft_likeness *likeness)
{
    weft_likeness l = {0};
    work *w = l.work = weft_alloc(sizeof *w);
    if (!w)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    w->files = *files;
    w->grid = *place->grid;
    w->canvas = (weft_canvas){
        .frames = 1, .height = place->height, .width = place->width, .fit = (weft_fit)fit};
    weft_status_code status = find_module(files, place, &l);
    if (status == WEFT_OK && l.folder)
        status = check_module(place, w, &l);
    if (status == WEFT_OK && files->picture && !weft_grid_takes_frames(&w->grid, 1))
        status =
            weft_fail(WEFT_E_UNSUPPORTED,
                      "--identity: this autoencoder makes latents of several frames at a time, "
                      "and a picture is one");
    if (status == WEFT_OK && files->picture && !place->silent)
        status = weft_picture_tell(files->picture, &w->canvas);
    if (status == WEFT_OK && files->picture)
        status = weft_given_encoder(place, 1, w->canvas.height, w->canvas.width, &w->vae);
    if (status == WEFT_OK && files->picture)
        status = lay_program(w, &l);
    if (status == WEFT_OK)
        *likeness = l;
    else
        weft_likeness_free(&l);
    return status;
}

int64_t weft_likeness_work_bytes(const weft_likeness *l)
{
    const work *w = l->work;
    if (!w || !w->vae)
        return 0;
    return weft_vae_bytes(w->vae) + w->canvas.height * w->canvas.width * 12 +
           weft_programs_bytes((weft_program *[]){w->program}, 1) +
           weft_program_plan(w->program)->source_bytes;
}

/* Its latents, normalised, into the encoder's input. */
static weft_status see(work *w)
{
    float *video = weft_alloc(w->canvas.height * w->canvas.width * 3 * 4);
    weft_tensor *to = weft_program_input(w->program, weft_port_name(WEFT_PORT_CONDITION));
    float *x = to->data;
    weft_status_code status =
        video ? weft_pictures_read(w->files.picture, &w->canvas, video)
              : weft_fail(WEFT_E_MEMORY, "%s: out of memory for a picture", w->files.picture);
    if (status == WEFT_OK)
        status = weft_vae_bind(w->vae);
    if (status == WEFT_OK)
        status = weft_vae_encode(w->vae, video, 1, x);
    for (int64_t i = 0; status == WEFT_OK && i < weft_shape_count(&to->shape); i++) {
        const int64_t c = i % w->grid.channels;
        x[i] = (float)((x[i] - w->grid.mean[c]) / w->grid.deviation[c]);
    }
    weft_free(video);
    return status;
}

static weft_status encode(work *w, weft_likeness *l)
{
    weft_tensors *file;
    const int64_t count = l->tokens * l->width;
    l->told = weft_alloc(count * 4);
    if (!l->told)
        return weft_fail(WEFT_E_MEMORY, "out of memory for an identity");
    WEFT_TRY(weft_store_init(w->store, w->graph, 0));
    WEFT_TRY(weft_dialect_open(w->model.family, w->graph, "", l->folder, &file));
    WEFT_TRY(weft_weights_load(w->store, w->graph, "", file, false));
    WEFT_TRY(weft_programs_bind(&w->program, 1, w->store, NULL));
    WEFT_TRY(see(w));
    WEFT_TRY(weft_program_run(w->program));
    const float *made = weft_program_output(w->program, weft_port_name(WEFT_PORT_IMAGE))->data;
    for (int64_t i = 0; i < count; i++)
        l->told[i] = (float)w->files.scale * made[i];
    return WEFT_OK;
}

static void free_work(weft_likeness *l)
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

weft_status weft_likeness_read(weft_likeness *l)
{
    const weft_status_code status =
        l->work && l->work->files.picture ? encode(l->work, l) : WEFT_OK;
    free_work(l);
    return status;
}

void weft_likeness_free(weft_likeness *l)
{
    free_work(l);
    weft_free(l->told);
    weft_free(l->folder);
    *l = (weft_likeness){0};
}
