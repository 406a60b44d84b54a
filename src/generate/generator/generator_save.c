#include "generate/generator/generator_save.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/hex.h"
#include "comm/comm_world.h"
#include "format/tensors/safetensors.h"
#include "format/tensors/safetensors_read.h"
#include "format/tensors/safetensors_write.h"
#include "generate/generator/generator_denoise.h"
#include "generate/generator/generator_steps.h"
#include "generate/generator/latent_stages.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- settings ------------------------------------------------------------------------------- */

static weft_status add(json_t *to, const char *key, json_t *value)
{
    return json_object_set_new(to, key, value) ? weft_no_memory("the settings of a run") : WEFT_OK;
}

static weft_status add_schedule(const weft_timestep_schedule *given, json_t *to)
{
    const double *value = given->sigmas ? given->sigmas : given->timesteps;
    json_t *list = json_array();
    if (!given->count)
        return json_decref(list), WEFT_OK;
    for (int64_t i = 0; i < given->count; i++)
        json_array_append_new(list, json_real(value[i]));
    return add(to, given->sigmas ? "sigmas" : "timesteps", list);
}

static weft_status add_stages(const weft_generator *p, json_t *to)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < p->shape.stages; i++)
        json_array_append_new(list, json_integer(weft_latent_stages_steps(p, 1, i)));
    WEFT_TRY(add(to, "stage_steps", list));
    return p->options.doubles_first_section ? add(to, "doubles_first_section", json_true())
                                            : WEFT_OK;
}

typedef struct stored_real {
    const char *key;
    double value;
    bool stored;
} stored_real;

static weft_status add_stored(const stored_real *list, int count, json_t *to)
{
    for (int i = 0; i < count; i++)
        if (list[i].stored)
            WEFT_TRY(add(to, list[i].key, json_real(list[i].value)));
    return WEFT_OK;
}

/* Adds numbers that states of runs without them lack. Scales of weakened branches have no effect
 * without such a branch. */
static weft_status add_given(const weft_generator *p, json_t *to)
{
    const weft_generator_options *o = &p->options;
    const bool weakened = p->shape.branches > p->trajectory.guidance->rows;
    const stored_real list[] = {
        {"audio_guidance", o->audio_guidance.value, o->audio_guidance.given},
        {"audio_guidance_rescale", o->audio_guidance_rescale.value,
         o->audio_guidance_rescale.given},
        {"stg_scale", o->stg_scale, weakened && o->stg_scale > 0},
        {"audio_stg_scale", o->audio_stg_scale.value, weakened && o->audio_stg_scale.given},
        {"modality_scale", weft_given_or(o->modality_scale, 1), weakened},
        {"audio_modality_scale", o->audio_modality_scale.value,
         weakened && o->audio_modality_scale.given},
        {"guidance_low_given", 1, o->guidance_low.given && !(o->guidance_low.value > 0)},
        {"control_scale", o->control_scale, o->control_scale > 0 && o->control_scale != 1},
        {"decode_timestep", o->decode_time.timestep, o->decode_time.timestep > 0},
        {"decode_noise_scale", o->decode_time.noise, o->decode_time.noise > 0}};
    WEFT_TRY(add_stored(list, WEFT_COUNT(list), to));
    if (!p->shape.perturbed_branch)
        return WEFT_OK;
    json_t *blocks = json_array();
    for (const int64_t *block = o->stg_blocks; *block >= 0; block++)
        json_array_append_new(blocks, json_integer(*block));
    return add(to, "stg_blocks", blocks);
}

static weft_status add_refinement(const weft_generator *p, json_t *to)
{
    const weft_refinement *r = &p->shape.refinement;
    const weft_block_sparse sparse = p->options.block_sparse;
    if (sparse != WEFT_BLOCK_SPARSE_CONFIG)
        WEFT_TRY(add(to, "block_sparse", json_boolean(sparse == WEFT_BLOCK_SPARSE_ON)));
    if (!r->frames)
        return WEFT_OK;
    WEFT_TRY(add(to, "refine_level", json_real(p->options.refine_level)));
    WEFT_TRY(add(to, "refined_frames", json_integer(r->frames)));
    WEFT_TRY(add(to, "refined_front", json_integer(r->front)));
    return add(to, "coarse_frames", json_integer(r->coarse));
}

static weft_status add_numbers(const weft_generator *p, json_t *to)
{
    const weft_generator_options *o = &p->options;
    const struct {
        const char *key;
        int64_t value;
    } whole[] = {{"frames", o->frames},
                 {"height", o->height},
                 {"width", o->width},
                 {"steps", o->steps},
                 {"batch", o->batch},
                 {"window", p->shape.windows.count > 1 || p->shape.sections.count ? o->window : 0},
                 {"window_overlap", p->shape.windows.count > 1 ? o->window_overlap : 0},
                 {"weights", o->weights},
                 {"bf16", o->bf16},
                 {"tf32", o->tf32},
                 {"vae_bf16", o->vae_products == WEFT_PRODUCTS_BF16},
                 {"text_length", o->text_length}};
    const struct {
        const char *key;
        double value;
    } real[] = {{"guidance", o->guidance},
                {"true_cfg", o->true_cfg},
                {"guidance_low", o->guidance_low.value},
                {"guidance_rescale", o->guidance_rescale},
                {"boundary", o->boundary.value},
                {"shift", o->shift},
                {"eta", o->eta},
                {"strength", o->strength},
                {"guided_from", o->guided[0]},
                {"guided_to", o->guided[1]},
                {"fps", o->fps}};
    for (int i = 0; i < WEFT_COUNT(whole); i++)
        WEFT_TRY(add(to, whole[i].key, json_integer(whole[i].value)));
    for (int i = 0; i < WEFT_COUNT(real); i++)
        WEFT_TRY(add(to, real[i].key, json_real(real[i].value)));
    WEFT_TRY(add_schedule(&o->timestep_schedule, to));
    if (o->vae_products == WEFT_PRODUCTS_TF32)
        WEFT_TRY(add(to, "vae_tf32", json_true()));
    WEFT_TRY(add_given(p, to));
    if (p->shape.lead)
        WEFT_TRY(add(to, "lead", json_integer(p->shape.lead)));
    if (p->options.frame_lag)
        WEFT_TRY(add(to, "frame_lag", json_integer(p->options.frame_lag)));
    if (p->options.reasoning_steps) {
        WEFT_TRY(add(to, "reasoning_frames", json_integer(p->options.reasoning_frames)));
        WEFT_TRY(add(to, "reasoning_steps", json_integer(p->options.reasoning_steps)));
    }
    if (p->shape.stages)
        WEFT_TRY(add_stages(p, to));
    if (p->trajectory.zero_steps)
        WEFT_TRY(add(to, "zero_steps", json_integer(p->trajectory.zero_steps)));
    WEFT_TRY(add_refinement(p, to));
    if (p->trajectory.tail_steps)
        WEFT_TRY(add(to, "tail_steps", json_integer(p->trajectory.tail_steps)));
    if (p->options.block_frames)
        WEFT_TRY(add(to, "block_frames", json_integer(p->options.block_frames)));
    if (p->shape.sections.shared)
        WEFT_TRY(add(to, "shared", json_integer(p->shape.sections.shared)));
    if (p->model.grid.section)
        WEFT_TRY(add(to, "section", json_integer(p->model.grid.section)));
    if (p->shape.kept)
        WEFT_TRY(add(to, "kept_frames", json_integer(p->shape.kept)));
    if (p->shape.causal && !p->shape.cached)
        WEFT_TRY(add(to, "kv_cache", json_string("off")));
    if (p->shape.causal && p->model.context_noise > 0)
        WEFT_TRY(add(to, "context_noise", json_real(p->model.context_noise)));
    if (p->shape.sections.forward && !p->shape.sections.precedes)
        WEFT_TRY(add(to, "sections", json_string("forward")));
    if (p->parts.int8_layers)
        WEFT_TRY(add(to, "int8_layers", json_incref(p->parts.int8_layers)));
    WEFT_TRY(add(to, "cache", json_string(p->parts.cached ? o->cache : "off")));
    WEFT_TRY(add(to, "sampler", json_string(o->sampler->name)));
    return add(to, "guide", json_string(p->trajectory.guidance->name));
}

static weft_status add_model(const weft_generator *p, json_t *to)
{
    char model[WEFT_HEX_BYTES], vae[WEFT_HEX_BYTES];
    WEFT_TRY(weft_model_identity(p->model.folder, model, vae));
    if (p->options.backend && strcmp(p->options.backend->name, "cpu"))
        WEFT_TRY(add(to, "backend", json_string(p->options.backend->name)));
    WEFT_TRY(add(to, "model", json_string(model)));
    return add(to, "vae", json_string(vae));
}

/* Adds the hash of adapter i. */
static weft_status add_adapter(json_t *to, int i, const weft_adapter_choice *a)
{
    char hex[WEFT_HEX_BYTES];
    weft_buf key = {0};
    weft_status_code status = WEFT_OK;
    weft_buf_printf(&key, "lora.%d", i);
    WEFT_GO(weft_buf_check(&key));
    WEFT_GO(weft_path_is_dir(a->path) ? weft_folder_identity(a->path, hex)
                                      : weft_file_identity(a->path, hex));
    WEFT_GO(add(to, key.data, json_pack("[s,f,i]", hex, a->weight, a->expert)));
out:
    weft_buf_free(&key);
    return status;
}

/* Adds hashes of the input images, videos, masks and adapters. */
static weft_status add_files(const weft_generator *p, json_t *to)
{
    const weft_visual_inputs *g = &p->options.visual;
    const weft_identity_inputs *identity = &p->options.identity;
    const struct {
        const char *key, *path;
    } file[] = {{"image", g->image}, {"last_image", g->last_image},
                {"video", g->video}, {"control", g->control},
                {"face", g->face},   {"before", g->before},
                {"mask", g->mask},   {"coarse", g->coarse.file}};
    char hex[WEFT_HEX_BYTES], key[32];
    for (int i = 0; i < WEFT_COUNT(file); i++)
        if (file[i].path) {
            WEFT_TRY(weft_file_identity(file[i].path, hex));
            WEFT_TRY(add(to, file[i].key, json_string(hex)));
        }
    for (int i = 0; i < g->more_images; i++) {
        snprintf(key, sizeof key, "image_%d", i + 2);
        WEFT_TRY(weft_file_identity(g->more_image[i], hex));
        WEFT_TRY(add(to, key, json_string(hex)));
    }
    for (int i = 0; i < g->references; i++) {
        snprintf(key, sizeof key, "reference_%d", i + 1);
        WEFT_TRY(weft_file_identity(g->reference[i], hex));
        WEFT_TRY(add(to, key, json_string(hex)));
    }
    for (int i = 0; i < identity->images; i++) { /* the first one as in files of earlier versions */
        snprintf(key, sizeof key, i ? "identity_%d" : "identity", i + 1);
        WEFT_TRY(weft_file_identity(identity->image[i], hex));
        WEFT_TRY(add(to, key, json_string(hex)));
    }
    if (identity->images) {
        WEFT_TRY(weft_folder_identity(p->inputs.identity.folder, hex));
        WEFT_TRY(add(to, "identity_module", json_string(hex)));
        WEFT_TRY(add(to, "identity_scale", json_real(identity->scale)));
    }
    if (g->video || g->image || g->control || g->coarse.file || identity->images)
        WEFT_TRY(add(to, "fit", json_integer(g->fit)));
    if (g->outpaint[0] || g->outpaint[1] || g->outpaint[2] || g->outpaint[3])
        WEFT_TRY(add(to, "outpaint",
                     json_pack("[I,I,I,I]", (json_int_t)g->outpaint[0], (json_int_t)g->outpaint[1],
                               (json_int_t)g->outpaint[2], (json_int_t)g->outpaint[3])));
    for (int i = 0; i < p->options.adapter_count; i++)
        WEFT_TRY(add_adapter(to, i, &p->options.adapters[i]));
    return WEFT_OK;
}

/* Computes p->identity once, because it reads files. */
static weft_status identify(weft_generator *p)
{
    if (p->identity)
        return WEFT_OK;
    json_t *all = json_object();
    weft_status_code status = WEFT_OK;
    WEFT_GO(all ? add_model(p, all) : weft_no_memory("the saved latents"));
    WEFT_GO(add_numbers(p, all));
    WEFT_GO(add_files(p, all));
    p->identity = json_incref(all);
out:
    json_decref(all);
    return status;
}

weft_status weft_generator_set_prefix_frames(weft_generator *p, int64_t window, const float *frames)
{
    const int64_t bytes = p->options.visual.prefix_frames * p->options.height * p->options.width *
                          3 * (int64_t)sizeof *frames;
    char hex[WEFT_HEX_BYTES] = "";
    WEFT_TRY(identify(p));
    if (frames)
        weft_hex_print(XXH3_64bits(frames, (size_t)bytes), hex);
    WEFT_TRY(add(p->identity, "continues", json_pack("[I,s]", (json_int_t)window, hex)));
    return weft_visual_condition_set_prefix(&p->inputs.visual, window, frames);
}

/* Array of `count` prompts from prompt `first` of a run; null beyond the last prompt. */
static json_t *prompts_of(const weft_generator *p, int64_t first, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = first; list && i < first + count; i++) {
        const char *negative = weft_generator_negative(p, i);
        json_array_append_new(
            list, i < p->request.count
                      ? json_pack("{s:s, s:s, s:I}", "prompt", p->request.prompts[i], "negative",
                                  negative ? negative : "", "seed", (json_int_t)p->request.seeds[i])
                      : json_null());
    }
    return list;
}

/* ---- saving -------------------------------------------------------------------------------- */

static weft_status write_saved(weft_generator *p, int64_t first, int64_t videos,
                               weft_saved_latents *k, const char *path)
{
    WEFT_TRY(identify(p));
    k->settings = p->identity;
    k->prompts = prompts_of(p, first, videos);
    k->steps = weft_generator_steps(p);
    weft_generator_sound(p, k->sound);
    k->videos = videos;
    k->scale = weft_generator_scale(p);
    k->fps = p->options.fps > 0 ? p->options.fps : p->model.fps;
    const weft_status_code status =
        k->prompts ? weft_saved_latents_write(path, k) : weft_no_memory("the saved latents");
    json_decref(k->prompts);
    return status;
}

bool weft_generator_keeps_caches(const weft_generator *p)
{
    return p->parts.cached;
}

/* ---- feature caches: one file per rank, for the sampler state after one step ----------------- */

/* Appends the common prefix of the cache files' names: dog.sampling.cache- of
 * dog.sampling.safetensors. */
static void caches_path(const char *latents_path, weft_buf *path)
{
    weft_buf_printf(path, "%.*s.cache-", (int)(strlen(latents_path) - strlen(".safetensors")),
                    latents_path);
}

static weft_status own_caches_path(const weft_generator *p, const char *latents_path, int64_t step,
                                   weft_buf *path)
{
    caches_path(latents_path, path);
    weft_buf_printf(path, "%d-of-%d-%" PRId64 ".safetensors", p->comm ? weft_comm_rank(p->comm) : 0,
                    p->comm ? weft_comm_ranks(p->comm) : 1, step);
    return weft_buf_check(path);
}

/* Removes the cache files of a rank (-1: of all ranks) next to a saved state, except `but` (NULL:
 * none). */
static void remove_caches(const char *latents_path, int rank, const char *but)
{
    weft_buf begin = {0}, dir = {0};
    weft_names names = {0};
    const int64_t folder = weft_path_base(latents_path) - latents_path;
    caches_path(latents_path, &begin);
    if (rank >= 0)
        weft_buf_printf(&begin, "%d-of-", rank);
    weft_buf_printf(&dir, "%.*s", folder > 1 ? (int)folder - 1 : 1, folder ? latents_path : ".");
    const bool listed = weft_buf_check(&begin) == WEFT_OK && weft_buf_check(&dir) == WEFT_OK &&
                        weft_list_dir(dir.data, false, &names) == WEFT_OK;
    for (int64_t i = 0; listed && i < names.count; i++) {
        const char *prefix = begin.data + folder;
        if (strncmp(names.name[i], prefix, strlen(prefix)) != 0 ||
            (but && !strcmp(names.name[i], weft_path_base(but))))
            continue;
        char *path = weft_path_join(dir.data, names.name[i]);
        if (path)
            (void)unlink(path);
        weft_free(path);
    }
    weft_names_free(&names);
    weft_buf_free(&begin);
    weft_buf_free(&dir);
}

void weft_generator_remove_saved(const char *path)
{
    remove_caches(path, -1, NULL); /* first: the saved state's name is needed to find these files */
    (void)unlink(path);
}

typedef weft_status_code cache_fn(const weft_feature_cache *cache, const char *prefix,
                                  weft_tensors_writer *w);

static weft_status each_cache(const weft_generator *p, cache_fn *with, weft_tensors_writer *w)
{
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    char prefix[32];
    for (int i = 0; i < parts; i++) {
        snprintf(prefix, sizeof prefix, "cache.%d", i);
        WEFT_TRY(with(part[i]->cache, prefix, w));
    }
    return WEFT_OK;
}

static weft_status write_caches(const weft_generator *p, const char *path)
{
    weft_tensors_writer *w = NULL;
    weft_status_code status;
    WEFT_GO(weft_saved_latents_writer(path, &w));
    weft_tensors_writer_hasten(w);
    WEFT_GO(each_cache(p, weft_feature_cache_declare, w));
    WEFT_GO(each_cache(p, weft_feature_cache_write, w));
    WEFT_GO(weft_tensors_writer_finish(w));
out:
    weft_tensors_writer_free(w);
    return status;
}

static weft_status read_caches(weft_generator *p, const char *latents_path, int64_t step)
{
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    char prefix[32];
    weft_buf path = {0};
    weft_tensors *file = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(own_caches_path(p, latents_path, step, &path));
    if (!weft_path_exists(path.data))
        WEFT_GO(
            weft_error(WEFT_MSG_LATENTS_MISMATCH, WEFT_AT(.file = path.data),
                       "the saved cache of this rank is missing. Every rank saves its own: resume "
                       "on the same number of ranks, or remove %s to start from scratch.",
                       latents_path));
    WEFT_GO(weft_tensors_open(path.data, &file));
    WEFT_GO(weft_tensors_verify(file));
    for (int i = 0; i < parts; i++) {
        snprintf(prefix, sizeof prefix, "cache.%d", i);
        WEFT_GO(weft_feature_cache_read(part[i]->cache, prefix, file));
    }
out:
    weft_tensors_close(file);
    weft_buf_free(&path);
    return status;
}

/* Collective. Returns an error on all ranks if one rank failed. */
static weft_status meet(const weft_generator *p, weft_status_code status)
{
    double failed = status != WEFT_OK;
    if (!p->comm)
        return status;
    WEFT_TRY(weft_comm_sum(p->comm, &failed, 1));
    WEFT_TRY(status);
    return failed > 0 ? weft_error(WEFT_MSG_FILE_IO, WEFT_NOWHERE,
                                   "another rank could not save its sampler state")
                      : WEFT_OK;
}

/* Number of arrays that the guider and the sampler read after `step`: an average, and a history. */
static int64_t histories_at(const weft_generator *p, int64_t step)
{
    const int64_t all = p->options.batch * p->shape.begun_floats;
    return step == weft_generator_steps(p)
               ? 0
               : weft_generator_averages(p) +
                     weft_sampler_history_floats(p->options.sampler,
                                                 &p->trajectory.scheduler.solver, all) /
                         all;
}

/* These arrays. */
static float *histories_of(const weft_generator *p)
{
    return p->memory.average ? p->memory.average : p->memory.work;
}

static weft_status save_state(weft_generator *p, const char *path)
{
    weft_saved_latents k = {.cursor = p->sampling.cursor,
                            .histories = histories_at(p, p->sampling.cursor.step),
                            .x = p->memory.x,
                            .history = histories_of(p)};
    weft_generator_noise_dims(p, k.latent);
    return write_saved(p, p->request.first, p->options.batch, &k, path);
}

/* Writes the caches of this rank. `own` gets their path, also after an error. */
static weft_status write_own_caches(const weft_generator *p, const char *path, int64_t step,
                                    weft_buf *own)
{
    WEFT_TRY(weft_make_parent(path));
    WEFT_TRY(own_caches_path(p, path, step, own));
    return write_caches(p, own->data);
}

/* Order of writes:
 *
 *     caches of step 3, one file per rank    the caches of step 2 stay
 *     all ranks have written
 *     sampler state of step 3                replaces the state of step 2; step 3 is valid
 *     caches of step 2 are removed
 *
 * The saved state has its caches at any time, also if the run is killed. */
weft_status weft_generator_save(weft_generator *p, const char *path)
{
    const int64_t step = p->sampling.cursor.step;
    const int rank = p->comm ? weft_comm_rank(p->comm) : 0;
    weft_buf own = {0};
    weft_status_code status = WEFT_OK;
    if (!p->parts.cached || step == weft_generator_steps(p)) {
        WEFT_TRY(weft_make_parent(path));
        return save_state(p, path);
    }
    WEFT_GO(meet(p, write_own_caches(p, path, step, &own)));
    WEFT_GO(meet(p, rank == 0 ? save_state(p, path) : WEFT_OK));
    remove_caches(path, rank, own.data);
out:
    /* the sampler state of this step was not written */
    if (status != WEFT_OK && status != WEFT_E_COMM && own.data)
        (void)unlink(own.data);
    weft_buf_free(&own);
    return status;
}

weft_status weft_generator_save_video(weft_generator *p, int64_t prompt, const char *path)
{
    const int64_t each = p->shape.begun_floats, row = prompt - p->request.first;
    weft_saved_latents k = {.cursor = p->sampling.cursor,
                            .histories = histories_at(p, p->sampling.cursor.step),
                            .x = p->memory.x + row * each};
    float *history = NULL;
    weft_status_code status = WEFT_OK;
    if (k.histories)
        WEFT_GO(WEFT_NEW(history, k.histories * each, "a sampler state"));
    for (int64_t i = 0; i < k.histories; i++)
        memcpy(history + i * each, histories_of(p) + (i * p->options.batch + row) * each,
               (size_t)each * sizeof *history);
    k.history = history;
    weft_generator_noise_dims(p, k.latent);
    WEFT_GO(weft_make_parent(path));
    WEFT_GO(write_saved(p, prompt, 1, &k, path));
out:
    weft_free(history);
    return status;
}

weft_status weft_generator_save_latents(weft_generator *p, int64_t prompt, bool tries,
                                        const char *path)
{
    /* frames before the video are not saved */
    const int64_t frame = p->shape.latent_floats / p->shape.latent[0];
    weft_saved_latents k = {.cursor = {.step = weft_generator_steps(p)},
                            .x = p->memory.x + (prompt - p->request.first) * p->shape.item_floats +
                                 p->shape.before * frame,
                            .tried = tries ? weft_vae_bytes(p->decoder.vae) : 0};
    weft_generator_latents(p, k.latent);
    k.latent[0] -= p->shape.before;
    return write_saved(p, prompt, 1, &k, path);
}

/* ---- resuming ------------------------------------------------------------------------------ */

/* Prompts `first`.. of the run must be the ones of the file, whose videos are a batch. */
static weft_status check_prompts(const weft_generator *p, const weft_saved_latents *k,
                                 int64_t first, int64_t videos, const char *path)
{
    json_t *now = prompts_of(p, first, videos);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(now, "the prompts of %s", path));
    if (json_array_size(k->prompts) != json_array_size(now))
        WEFT_GO(weft_error(WEFT_MSG_LATENTS_MISMATCH, WEFT_AT(.file = path, WEFT_NUMBER(k->videos)),
                           "the file has %" PRId64 " videos, and this batch has %" PRId64,
                           k->videos, videos));
    for (size_t i = 0; i < json_array_size(now); i++) {
        const json_t *was = json_array_get(k->prompts, i), *is = json_array_get(now, i);
        WEFT_GO(json_is_object(was) && json_is_object(is)
                    ? weft_saved_latents_compare(path, was, is, NULL)
                : json_equal(was, is)
                    ? WEFT_OK
                    : weft_error(WEFT_MSG_LATENTS_MISMATCH, WEFT_AT(.file = path),
                                 "the file was written for another number of prompts"));
    }
out:
    json_decref(now);
    return status;
}

/* The state must fit the sampler of this run. */
static weft_status check_state(const weft_generator *p, const weft_saved_latents *k,
                               const char *path)
{
    const int64_t steps = weft_generator_steps(p);
    int64_t dim[4], sound[2];
    weft_generator_noise_dims(p, dim);
    weft_generator_sound(p, sound);
    if (memcmp(k->latent, dim, sizeof dim) == 0 && memcmp(k->sound, sound, sizeof sound) == 0 &&
        k->steps == steps && k->histories == histories_at(p, k->cursor.step) &&
        k->cursor.step >= 0 && k->cursor.step <= steps && k->cursor.draws >= 0 &&
        k->cursor.order >= 0 && k->cursor.order <= WEFT_SOLVER_ORDER)
        return WEFT_OK;
    return weft_error(WEFT_MSG_LATENTS_INVALID, WEFT_AT(.file = path),
                      "the latents or the saved step do not fit %" PRId64 " steps of the sampler "
                      "%s. Remove the file to start from scratch.",
                      steps, p->options.sampler->name);
}

/* Reads the state of `videos` prompts from `first` into their rows of the batch. `except`: settings
 * that may differ. */
static weft_status read_state(weft_generator *p, const char *path, int64_t first, int64_t videos,
                              const char *const *except)
{
    const int64_t each = p->shape.begun_floats, own = videos * each;
    weft_saved_latents k;
    weft_status_code status = weft_saved_latents_damaged(weft_saved_latents_open(path, &k));
    WEFT_TRY(status);
    WEFT_GO(identify(p));
    WEFT_GO(weft_saved_latents_compare(path, k.settings, p->identity, except));
    WEFT_GO(check_prompts(p, &k, first, videos, path));
    WEFT_GO(check_state(p, &k, path));
    if (p->parts.cached && k.cursor.step < k.steps) {
        weft_generator_find_section(p, k.cursor.step);
        weft_generator_begin_caches(p);
        WEFT_GO(read_caches(p, path, k.cursor.step));
    }
    memcpy(p->memory.x + first * each, k.x, (size_t)own * sizeof *p->memory.x);
    for (int64_t i = 0; i < k.histories; i++)
        memcpy(histories_of(p) + (i * p->options.batch + first) * each, k.history + i * own,
               (size_t)own * sizeof *k.history);
    p->sampling.cursor = k.cursor;
    p->sampling.resumed = true;
out:
    weft_saved_latents_close(&k);
    return status;
}

weft_status weft_generator_resume(weft_generator *p, const char *path, const char *const *prompts,
                                  const uint64_t *seeds, int64_t count, int64_t *step)
{
    weft_generator_set_request(p, prompts, seeds, count);
    WEFT_TRY(read_state(p, path, 0, p->options.batch, NULL));
    *step = p->sampling.cursor.step;
    return WEFT_OK;
}

weft_status weft_generator_resume_videos(weft_generator *p, char *const *paths,
                                         const char *const *prompts, const uint64_t *seeds,
                                         int64_t count, int64_t *step)
{
    static const char *const except[] = {"batch", NULL};
    const int64_t all = p->options.batch * p->shape.begun_floats;
    weft_generator_set_request(p, prompts, seeds, count);
    /* rows after the last prompt are computed and discarded */
    memset(p->memory.x, 0, (size_t)all * sizeof *p->memory.x);
    memset(histories_of(p), 0, (size_t)(histories_at(p, 0) * all) * sizeof *p->memory.work);
    for (int64_t i = 0; i < count; i++) {
        const weft_sampler_cursor first = p->sampling.cursor;
        WEFT_TRY(read_state(p, paths[i], i, 1, except));
        if (i && memcmp(&first, &p->sampling.cursor, sizeof first) != 0)
            return weft_error(WEFT_MSG_LATENTS_MISMATCH, WEFT_AT(.file = paths[i]),
                              "the file was saved after step %" PRId64
                              ", and %s after step %" PRId64,
                              p->sampling.cursor.step, paths[0], first.step);
    }
    *step = p->sampling.cursor.step;
    return WEFT_OK;
}
