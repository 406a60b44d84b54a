#include "generate/generator/causal_blocks.h"

#include "base/given.h"
#include "exec/store/tensor_copy.h"
#include "generate/generator/generator_parts.h"

#include <string.h>

static weft_status check_options(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    const weft_given other[] = {{"--batch-size", o->batch > 1},
                                {"--feature-cache", o->cache && strcmp(o->cache, "off") != 0},
                                {"--guidance-end", o->guided[1] > 0},
                                {"--preview-interval", o->preview > 0},
                                {"--window", o->window || o->continues || o->chains},
                                {"--window-overlap", o->window_overlap != 0},
                                {"--frame-lag", o->frame_lag != 0},
                                {"--strength", o->strength > 0},
                                {"--video", o->visual.video != NULL}};
    const char *given = weft_first_given(other, WEFT_COUNT(other));
    if (given)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = given),
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
    p->model.context_noise = weft_given_or(p->options.context_noise, p->model.context_noise);
    s->cached = !p->options.no_kv_cache;
    s->cache = weft_frame_cache_of(grid, s->latent[0] / grid->factor[0]);
    s->sections =
        (weft_video_sections){.count = s->latent[0] / block, .frames = block, .blocks = true};
    s->sampled_frames = block;
    s->sampled_floats = s->latent_floats / s->latent[0] * block;
    s->windows = weft_temporal_windows_arrange(block, block, 0);
    return WEFT_OK;
}

/* Whether the ranks pass keys round in a ring, whose parts all have the same size. */
static weft_status find_ring(const weft_generator *p, bool *found)
{
    const weft_parallel *layout = p->options.parallel;
    const int64_t branches = layout && layout->cfg > 1 ? layout->cfg : 1;
    weft_mesh mesh;
    *found = false;
    if (!layout)
        return WEFT_OK;
    WEFT_TRY(weft_parallel_mesh_denoise(layout, p->comm ? weft_comm_ranks(p->comm) : 1,
                                        (int)branches, "--parallel", &mesh));
    const int at = weft_mesh_axis(&mesh, "ring");
    *found = at >= 0 && mesh.axis[at].size > 1;
    return WEFT_OK;
}

weft_status weft_causal_blocks_keep_given(weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    weft_generator_shape *s = &p->shape;
    const int64_t given = s->refinement.frames ? s->refinement.given
                          : o->visual.before
                              ? weft_grid_latent_frames(&p->model.grid, o->visual.before_frames)
                              : 0;
    bool ring;
    WEFT_TRY(find_ring(p, &ring));
    const bool whole = o->batch > 1 || (o->cache && strcmp(o->cache, "off") != 0) ||
                       o->guided[1] > 0 || o->preview > 0 || s->windows.count > 1 ||
                       p->model.experts > 1 || p->model.guider.averages;
    if (!weft_model_takes_port(p->model.denoiser).caches_given || given < 1 ||
        given >= s->latent[0] || o->no_kv_cache || ring || whole)
        return WEFT_OK;
    s->causal = s->cached = true;
    s->kept = given;
    s->sampled_frames = s->latent[0] - given;
    s->sampled_floats = s->latent_floats / s->latent[0] * s->sampled_frames;
    s->cache = (weft_frame_cache_size){.block = s->sampled_frames, .rest = given};
    s->sections = (weft_video_sections){
        .count = 1, .frames = s->sampled_frames, .first = given, .blocks = true};
    s->windows = weft_temporal_windows_arrange(s->sampled_frames, s->sampled_frames, 0);
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

int64_t weft_causal_blocks_frames_of(const weft_generator *p, const weft_denoiser_query *a)
{
    return p->shape.kept && a->program == p->parts.context.program ? p->shape.kept
                                                                   : p->shape.cache.block;
}

/* First latent frame of the call. */
static int64_t first_frame(const weft_generator *p, const weft_denoiser_query *a)
{
    if (!p->shape.kept)
        return p->sampling.section * p->shape.cache.block;
    return a->program == p->parts.context.program ? 0 : p->shape.kept;
}

void weft_causal_blocks_fill_places(const weft_generator *p, const weft_denoiser_query *a)
{
    static const char *const name[3] = {"block.frame", "block.row", "block.column"};
    const weft_generator_shape *s = &p->shape;
    const int64_t *patch = p->model.patch.factor, rows = s->latent[1] / patch[1],
                  columns = s->latent[2] / patch[2], frames = weft_causal_blocks_frames_of(p, a),
                  first = first_frame(p, a);
    for (int d = 0; d < 3; d++) {
        const weft_tensor *t = weft_program_input(a->program, name[d]);
        for (int64_t i = 0; t && i < frames * rows * columns; i++)
            ((int32_t *)t->data)[i] = (int32_t)(d == 2   ? i % columns
                                                : d == 1 ? i / columns % rows
                                                         : i / (rows * columns) + first);
    }
    const weft_tensor *turn = weft_program_input(a->program, "block.turn");
    for (int i = 0; turn && i < 3; i++)
        ((float *)turn->data)[i] = weft_frame_cache_turn(&s->cache, p->sampling.section) == i;
}

/* First frame of the cache that exists for the call. */
static int64_t first_key(const weft_generator *p, const weft_denoiser_query *a)
{
    const weft_generator_shape *s = &p->shape;
    if (!s->kept)
        return weft_frame_cache_begin(&s->cache, p->sampling.section);
    return a->program == p->parts.context.program ? s->kept : 0;
}

/* The keys that the block sees: its own, and keys of frames that exist. */
static void fill_keys(const weft_generator *p, const weft_denoiser_query *a, int64_t r)
{
    const weft_generator_shape *s = &p->shape;
    const weft_tensor *t = weft_program_input(a->program, "batch.block_keys");
    const int64_t *patch = p->model.patch.factor,
                  frame = s->latent[1] / patch[1] * (s->latent[2] / patch[2]),
                  frames = weft_causal_blocks_frames_of(p, a);
    if (!t)
        return;
    int32_t *keys = (int32_t *)t->data + 4 * r;
    keys[0] = 0;
    keys[1] = (int32_t)(frames * frame);
    keys[2] = (int32_t)(first_key(p, a) * frame);
    keys[3] = (int32_t)((s->cache.rest + s->cache.sink + frames) * frame);
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
    if (p->shape.cached)
        fill_keys(p, a, r);
    else
        fill_all(p, a, r, x);
}
