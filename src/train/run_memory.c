#include "train/run_memory.h"

#include "train/checkpoint.h"
#include "train/latents.h"

#include <string.h>

/* What libraries take when they are first used, decoders above all: measured. */
enum { FIRST_USE = 20 << 20 };

/* Batches that are decoded ahead, and the one that the step has. */
static int64_t batches_bytes(const weft_run *run, const weft_run_models *models,
                             const weft_stage *stage, const weft_stage_steps *s)
{
    int64_t most = 0;
    for (int i = 0; i < s->buckets; i++) {
        const weft_bucket *b = weft_stage_bucket(stage, i);
        int64_t floats = 3 * b->frames * b->height * b->width;
        if (weft_run_denoises(models)) {
            const weft_model_size z = weft_run_latent_size(models, b);
            floats = z.frames * z.height * z.width * models->grid.channels;
            if (models->text_given)
                floats += models->captions.floats;
        }
        floats *= s->bucket[i]->slice_count * s->parts;
        most = floats > most ? floats : most;
    }
    return (run->data.prefetch + 1) * most * (int64_t)sizeof(float);
}

/* Where ranks have parts, a model that the family begins is made whole first and cut. */
static int64_t beginning_bytes(const weft_run *run, const weft_run_models *models,
                               const weft_place_of_run *place, const weft_stage_steps *s)
{
    const bool denoises = weft_run_denoises(models);
    const weft_run_model *from = denoises ? &run->transformer : &run->autoencoder;
    const weft_model *model = denoises ? &models->denoiser : &models->autoencoder;
    if (weft_mesh_ranks(&place->mesh) == 1 || from->weights[0] || !model->family->begin)
        return 0;
    return weft_graph_param_count(s->bucket[0]->whole) * (int64_t)sizeof(float);
}

/* A stage, and the latents that are made before it (of a transformer) or measured behind it (of an
 * autoencoder, after the last). */
static weft_status stage_bytes(const weft_run *run, const weft_run_models *models, int64_t index,
                               const weft_place_of_run *place, weft_step_cache *steps,
                               int64_t staging, int64_t *most, weft_buf *terms)
{
    const weft_stage *stage = (const weft_stage *)run->stages.item + index;
    const bool denoises = weft_run_denoises(models);
    weft_stage_steps s = {0};
    int64_t programs = 0, batches = 0, bytes = 0;
    char text[2][32];
    WEFT_TRY(weft_stage_steps_plan(steps, run, models, stage, place, &s));
    weft_status_code status = weft_stage_steps_bytes(&s, &programs);
    batches = batches_bytes(run, models, stage, &s);
    bytes = programs + batches + staging; /* a checkpoint is written while a stage runs */
    *most = bytes > *most ? bytes : *most;
    if (index == 0 && (bytes = beginning_bytes(run, models, place, &s)) > 0) {
        *most = bytes > *most ? bytes : *most;
        weft_buf_printf(terms, ", a whole model to begin with %s",
                        weft_format_bytes(bytes, text[0]));
    }
    weft_stage_steps_free(&s);
    weft_buf_printf(terms, ", stage %lld %s and batches %s", (long long)index,
                    weft_format_bytes(programs, text[0]), weft_format_bytes(batches, text[1]));
    if (status != WEFT_OK || (!denoises && index + 1 < run->stages.count))
        return status;
    WEFT_TRY(weft_latents_bytes(run, models, stage, place, &bytes));
    *most = bytes > *most ? bytes : *most;
    weft_buf_printf(terms, ", %s %s", denoises ? "its latents" : "latent statistics",
                    weft_format_bytes(bytes, text[0]));
    return WEFT_OK;
}

/* Of what in the store: by the prefixes that train/optimizer.h gives. */
static void tell_store(weft_store *store, weft_buf *out)
{
    static const char *const prefix[] = {"adamw.", "ema.", "grad.", ""};
    static const char *const what[] = {"moments", "averages", "sums of gradients", "parameters"};
    int64_t bytes[4] = {0};
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        const weft_tensor *t = weft_store_at(store, i);
        int kind = 0;
        while (strncmp(t->name, prefix[kind], strlen(prefix[kind])))
            kind++;
        bytes[kind] += weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
    }
    const char *between = "";
    for (int kind = 3; kind >= 0; kind--) {
        char text[32];
        if (bytes[kind] == 0)
            continue;
        weft_buf_printf(out, "%s%s %s", between, what[kind], weft_format_bytes(bytes[kind], text));
        between = ", ";
    }
}

/* Bytes of copies that wait to be written while a stage runs. */
static weft_status staging_bytes(const weft_run_models *models, const weft_place_of_run *place,
                                 weft_store *store, int64_t *bytes)
{
    weft_checkpoint_spec spec = {.store = store, .comm = place->comm};
    const weft_family *first =
        weft_run_denoises(models) ? models->denoiser.family : models->autoencoder.family;
    spec.part[spec.parts++] = (weft_checkpoint_part){first->scope, first->stem, NULL};
    for (int r = 0; r < models->captions.readers; r++) {
        const weft_reader *reader = &models->captions.reader[r];
        if (!(models->text_stays >> r & 1))
            spec.part[spec.parts++] =
                (weft_checkpoint_part){reader->reading->encoder, reader->model.family->stem, NULL};
    }
    return weft_checkpoints_bytes(&spec, bytes);
}

weft_status weft_run_memory(const weft_run *run, const weft_run_models *models,
                            const weft_place_of_run *place, weft_step_cache *steps,
                            weft_store *store, int64_t process, int64_t *peak, weft_buf *told)
{
    const int64_t weights = weft_store_bytes(store);
    int64_t most = 0, staging = 0;
    char text[4][32];
    weft_buf terms = {0}, kinds = {0};
    weft_status_code status = staging_bytes(models, place, store, &staging);
    for (int64_t i = 0; i < run->stages.count && status == WEFT_OK; i++)
        status = stage_bytes(run, models, i, place, steps, staging, &most, &terms);
    if (status == WEFT_OK)
        status = weft_buf_check(&terms);
    tell_store(store, &kinds);
    if (status == WEFT_OK)
        status = weft_buf_check(&kinds);
    process += weft_step_cache_kept(steps) + FIRST_USE;
    if (status == WEFT_OK) {
        *peak = process + weights + most;
        weft_buf_printf(
            told,
            "memory%s: at most %s: program and libraries %s, weights and optimizer %s (%s), "
            "copies for checkpoints %s%s",
            weft_mesh_ranks(&place->mesh) > 1 ? " of a rank" : "",
            weft_format_bytes(*peak, text[0]), weft_format_bytes(process, text[1]),
            weft_format_bytes(weights, text[2]), kinds.data ? kinds.data : "",
            weft_format_bytes(staging, text[3]), terms.data);
        status = weft_buf_check(told);
    }
    weft_buf_free(&terms);
    weft_buf_free(&kinds);
    return status;
}

/* What a process takes was 0.5 % above what was told of it, measured. */
enum { SLACK = 64 };

/* ---- within a limit -------------------------------------------------------------------------- */

typedef struct fit {
    const weft_run *run;
    const weft_run_models *models;
    const weft_place_of_run *place;
    int64_t fixed; /* what every phase has */
    int64_t staging;
    int64_t limit;
} fit;

/* The most that stage `index` takes on any rank with such a share made again. Each try has a cache
 * of its own, so that what it planned does not count. */
static weft_status peak_with(const fit *f, int64_t index, int share, int64_t *peak, weft_buf *terms)
{
    weft_place_of_run place = *f->place;
    place.stage_share = NULL;
    place.recompute_share = share;
    weft_step_cache *steps = weft_step_cache_create();
    if (!steps)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    int64_t most = 0;
    const int ranks = place.comm ? weft_comm_ranks(place.comm) : 1;
    int64_t *all = weft_alloc(ranks * (int64_t)sizeof *all);
    weft_status_code status =
        all ? stage_bytes(f->run, f->models, index, &place, steps, f->staging, &most, terms)
            : weft_fail(WEFT_E_MEMORY, "out of memory for %d ranks", ranks);
    most += f->fixed + weft_step_cache_kept(steps);
    if (status == WEFT_OK && place.comm)
        status = weft_comm_all_gather(place.comm, &most, sizeof most, all);
    *peak = most;
    for (int r = 0; r < ranks && place.comm && status == WEFT_OK; r++)
        *peak = all[r] > *peak ? all[r] : *peak;
    weft_free(all);
    weft_step_cache_free(steps);
    return status;
}

static weft_status too_little(const fit *f, int64_t index, int64_t least)
{
    weft_buf terms = {0};
    char text[4][32];
    int64_t peak;
    weft_status_code status = peak_with(f, index, WEFT_RECOMPUTE_ALL, &peak, &terms);
    if (status == WEFT_OK)
        status = weft_fail(WEFT_E_MEMORY,
                           "memory.limit: %s are less than the %s that a rank takes with all of "
                           "stage %lld made again in its backward: weights, optimizer and program "
                           "%s, copies for checkpoints %s%s. Smaller batches, fsdp or zero in "
                           "`parallel` take less",
                           weft_format_bytes(f->run->memory_limit, text[0]),
                           weft_format_bytes(least + least / (SLACK - 1) + 1, text[1]),
                           (long long)index, weft_format_bytes(f->fixed, text[2]),
                           weft_format_bytes(f->staging, text[3]), terms.data ? terms.data : "");
    weft_buf_free(&terms);
    return status;
}

/* More is made again, less is kept: the least share that fits lies between one that does not and
 * one that does. */
static weft_status fit_stage(const fit *f, int64_t index, int *share)
{
    weft_buf terms = {0};
    int64_t peak;
    int below = 0, above = WEFT_RECOMPUTE_ALL;
    weft_status_code status = peak_with(f, index, below, &peak, &terms);
    if (status == WEFT_OK && peak <= f->limit) {
        above = 0;
    } else if (status == WEFT_OK) {
        status = peak_with(f, index, above, &peak, &terms);
        if (status == WEFT_OK && peak > f->limit)
            status = too_little(f, index, peak);
    }
    while (status == WEFT_OK && above - below > 1) {
        const int middle = (below + above) / 2;
        status = peak_with(f, index, middle, &peak, &terms);
        *(peak <= f->limit ? &above : &below) = middle;
    }
    *share = above;
    weft_buf_free(&terms);
    return status;
}

weft_status weft_run_fit(const weft_run *run, const weft_run_models *models,
                         const weft_place_of_run *place, weft_store *store, int64_t process,
                         int64_t limit, int *share)
{
    fit f = {.run = run,
             .models = models,
             .place = place,
             .fixed = process + FIRST_USE + weft_store_bytes(store),
             .limit = limit - limit / SLACK};
    WEFT_TRY(staging_bytes(models, place, store, &f.staging));
    for (int64_t i = 0; i < run->stages.count; i++)
        WEFT_TRY(fit_stage(&f, i, &share[i]));
    return WEFT_OK;
}
