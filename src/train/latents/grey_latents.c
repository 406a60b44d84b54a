#include "train/latents/grey_latents.h"

#include "base/fs.h"
#include "comm/comm_world.h"
#include "format/tensors/npy.h"
#include "latent/vae_chunks.h"
#include "train/latents/latent_cache_folder.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 96 };

static const char *name_of(const weft_bucket *size, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "grey-%" PRId64 "x%" PRId64 "x%" PRId64 ".npy", size->frames,
             size->height, size->width);
    return name;
}

/* (T',Y',X',Z) */
static weft_shape shape_of(const weft_run_models *m, const weft_bucket *size)
{
    const weft_model_size latent = weft_run_latent_size(m, size);
    return WEFT_SHAPE(latent.frames, latent.height, latent.width, m->grid.channels);
}

static weft_status_code grey(void *user, const int64_t first[3], const int64_t size[3], float *to)
{
    (void)user, (void)first;
    memset(to, 0, (size_t)(size[0] * size[1] * size[2] * 3) * sizeof *to);
    return WEFT_OK;
}

static weft_status write_latents(const char *folder, const char *name, const weft_shape *shape,
                                 const float *latents)
{
    weft_buf data = {0};
    weft_npy_format(WEFT_F32, shape->rank, shape->dim, latents, &data);
    return weft_latent_cache_put(folder, name, &data);
}

static weft_status encode(const weft_run *run, const weft_run_models *m,
                          const weft_exec_config *exec, const weft_bucket *size, const char *folder,
                          const char *name)
{
    const weft_tile tile = weft_latent_tile(run);
    const weft_vae_options options = {.backend = exec->backend,
                                      .halves = WEFT_VAE_ENCODER,
                                      .frames = size->frames,
                                      .height = size->height,
                                      .width = size->width,
                                      .tile = &tile,
                                      .products = exec->tf32_compute ? WEFT_PRODUCTS_TF32
                                                                     : WEFT_PRODUCTS_F32};
    const weft_shape shape = shape_of(m, size);
    weft_vae *vae = NULL;
    float *latents = weft_alloc(weft_shape_count(&shape) * (int64_t)sizeof *latents);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(latents, "the latents of grey frames"));
    WEFT_GO(weft_vae_open(run->autoencoder.weights, &options, &vae));
    WEFT_GO(weft_vae_bind(vae));
    WEFT_GO(weft_vae_encode_boxes(vae, grey, NULL, size->frames, latents));
    WEFT_GO(write_latents(folder, name, &shape, latents));
out:
    weft_vae_free(vae);
    weft_free(latents);
    return status;
}

weft_status weft_grey_latents_ensure(const weft_run *run, const weft_run_models *models,
                                     const weft_train_stage *train_stage,
                                     const weft_exec_config *exec, const char *folder)
{
    char name[NAME_BYTES];
    weft_status_code status = WEFT_OK;
    if (weft_comm_rank(exec->comm) == 0) {
        weft_comm_set_busy(exec->comm, "encoding grey frames");
        for (int i = 0; i < weft_train_stage_bucket_count(train_stage) && status == WEFT_OK; i++) {
            const weft_bucket *size = weft_train_stage_bucket(train_stage, i);
            bool has = false;
            status = weft_latent_cache_has(folder, name_of(size, name), &has);
            if (status == WEFT_OK && !has)
                status = encode(run, models, exec, size, folder, name);
        }
        weft_comm_set_busy(exec->comm, NULL);
    }
    WEFT_TRY(status);
    return weft_comm_barrier(exec->comm);
}

weft_status weft_grey_latents_read(const weft_run_models *models, const char *folder,
                                   const weft_bucket *size, float **latents)
{
    const weft_shape shape = shape_of(models, size);
    char name[NAME_BYTES];
    name_of(size, name);
    return weft_latent_cache_array(folder, name, name, weft_shape_count(&shape), latents);
}
