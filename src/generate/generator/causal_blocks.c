#include "generate/generator/causal_blocks.h"

#include "exec/store/tensor_copy.h"
#include "generate/generator/generator_parts.h"

#include <string.h>

static weft_status check_options(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    const struct {
        const char *key;
        bool given;
    } other[] = {{"--batch-size", o->batch > 1},
                 {"--feature-cache", o->cache && strcmp(o->cache, "off") != 0},
                 {"--guidance-end", o->guided[1] > 0},
                 {"--preview-interval", o->preview > 0},
                 {"--window", o->window || o->continues || o->chains},
                 {"--window-overlap", o->window_overlap != 0},
                 {"--frame-lag", o->frame_lag != 0},
                 {"--strength", o->strength > 0},
                 {"--video", o->visual.video != NULL}};
    for (int i = 0; i < WEFT_COUNT(other); i++)
        if (other[i].given)
            return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = other[i].key),
                              "%s generates one video at a time, block by block, which is not "
                              "possible with this option. Omit it.",
                              weft_model_class(p->model.denoiser));
    return p->model.experts == 1
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = p->model.folder),
                            "a causal model has one transformer, and the folder has a "
                            "transformer_2");
}

weft_status weft_causal_blocks_lay(weft_generator *p)
{
    weft_generator_shape *s = &p->shape;
    const weft_grid *grid = &p->model.patch;
    const int64_t block = (grid->block > 1 ? grid->block : 1) * grid->factor[0];
    WEFT_TRY(check_options(p));
    s->causal = true;
    if (p->options.context_noise > 0)
        p->model.context_noise = p->options.context_noise;
    s->cached = !p->options.no_kv_cache;
    s->cache = weft_frame_cache_of(grid, s->latent[0] / grid->factor[0]);
    s->sections =
        (weft_video_sections){.count = s->latent[0] / block, .frames = block, .blocks = true};
    s->sampled_frames = block;
    s->sampled_floats = s->latent_floats / s->latent[0] * block;
    s->windows = weft_temporal_windows_arrange(block, block, 0);
    return WEFT_OK;
}

weft_status weft_causal_blocks_check_ranks(const weft_generator *p)
{
    static const char *const axes[] = {"ring", "pp"};
    for (int i = 0; i < WEFT_COUNT(axes) && p->shape.cached; i++) {
        const int at = weft_mesh_axis(&p->layout.mesh, axes[i]);
        if (at >= 0 && p->layout.mesh.axis[at].size > 1)
            return weft_error(WEFT_MSG_OPTION_CONFLICT,
                              WEFT_AT(.key = "--parallel", .value = axes[i]),
                              "the number of keys that a block sees changes, and a ring needs the "
                              "same parts on all ranks. Use cp or tp, or --kv-cache off.");
    }
    return WEFT_OK;
}

weft_status weft_causal_blocks_forget(const weft_generator *p)
{
    weft_store *store = p->parts.store;
    for (int64_t i = 0; p->shape.cached && i < weft_store_count(store); i++) {
        const weft_tensor *t = weft_store_at(store, i);
        if (!strncmp(t->name, WEFT_FRAME_CACHE_STATES, strlen(WEFT_FRAME_CACHE_STATES)))
            WEFT_TRY(weft_tensor_clear(t));
    }
    return WEFT_OK;
}

int64_t weft_causal_blocks_frames(const weft_generator *p)
{
    return p->shape.cached ? p->shape.sampled_frames : p->shape.latent[0];
}

int64_t weft_causal_blocks_begin(const weft_generator *p)
{
    return !p->shape.causal || p->shape.cached ? 0 : p->sampling.section * p->shape.sampled_floats;
}

/* Places of the tokens of the block. */
static void fill_places(const weft_generator *p, const weft_denoiser_query *a)
{
    static const char *const name[3] = {"block.frame", "block.row", "block.column"};
    const weft_generator_shape *s = &p->shape;
    const int64_t *patch = p->model.patch.factor, rows = s->latent[1] / patch[1],
                  columns = s->latent[2] / patch[2], tokens = s->cache.block * rows * columns;
    for (int d = 0; d < 3; d++) {
        const weft_tensor *t = weft_program_input(a->program, name[d]);
        for (int64_t i = 0; t && i < tokens; i++)
            ((int32_t *)t->data)[i] =
                (int32_t)(d == 2   ? i % columns
                          : d == 1 ? i / columns % rows
                                   : i / (rows * columns) + p->sampling.section * s->cache.block);
    }
    const weft_tensor *turn = weft_program_input(a->program, "block.turn");
    for (int i = 0; turn && i < 3; i++)
        ((float *)turn->data)[i] = weft_frame_cache_turn(&s->cache, p->sampling.section) == i;
}

/* The keys that the block sees: its own, and keys of frames that exist. */
static void fill_keys(const weft_generator *p, const weft_denoiser_query *a, int64_t r)
{
    const weft_generator_shape *s = &p->shape;
    const weft_tensor *t = weft_program_input(a->program, "batch.block_keys");
    const int64_t *patch = p->model.patch.factor,
                  frame = s->latent[1] / patch[1] * (s->latent[2] / patch[2]);
    if (!t)
        return;
    int32_t *keys = (int32_t *)t->data + 4 * r;
    keys[0] = 0;
    keys[1] = (int32_t)(s->cache.block * frame);
    keys[2] = (int32_t)(weft_frame_cache_begin(&s->cache, p->sampling.section) * frame);
    keys[3] = (int32_t)((s->cache.rest + s->cache.sink + s->cache.block) * frame);
}

/* All frames: finished blocks, at the timestep of the cache, this block, and later ones, which this
 * block does not see. */
static void fill_all(const weft_generator *p, const weft_denoiser_query *a, int64_t r,
                     const float *x)
{
    const weft_generator_shape *s = &p->shape;
    float *latents = (float *)weft_program_input(a->program, "batch.latents")->data,
          *times = (float *)weft_program_input(a->program, "batch.timestep")->data;
    const int64_t frames = s->latent[0] / p->model.patch.factor[0],
                  first = p->sampling.section * s->cache.block, at = weft_causal_blocks_begin(p);
    latents += r * s->latent_floats;
    times += r * frames;
    memcpy(latents, p->memory.x, (size_t)s->latent_floats * sizeof *latents);
    memcpy(latents + at, x, (size_t)s->sampled_floats * sizeof *latents);
    for (int64_t i = 0; i < s->sampled_floats; i++)
        latents[at + i] *= (float)a->level->in;
    for (int64_t i = 0; i < frames; i++)
        times[i] = (float)(i < first ? p->model.context_noise : a->level->time);
}

void weft_causal_blocks_fill_row(const weft_generator *p, const weft_denoiser_query *a, int64_t r,
                                 const float *x)
{
    if (!p->shape.cached) {
        fill_all(p, a, r, x);
        return;
    }
    fill_places(p, a);
    fill_keys(p, a, r);
}
