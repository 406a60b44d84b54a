#include "train/cascade/cascade_runtime.h"

#include "data/loader_items.h"
#include "train/latents/latent_cache.h"

#include <string.h>

struct weft_cascade_stage {
    weft_cascade_stage_setup setup;
    weft_run run; /* config in this training stage */
    weft_cascade_run *executor;
    weft_loader *loader;
    weft_inputs inputs;
    weft_store *frozen;            /* weights of the frozen encoders */
    weft_tokenizer_set tokenizers; /* tokenizers of the frozen text encoders */
    float *no_text;                /* their text conditioning of the empty caption */
    int buckets;
    int64_t *clips; /* [buckets] */
    /* clips of one cascade: */
    int64_t capacity, floats_capacity, extra_capacity;
    weft_loaded_item *taken;
    uint64_t *id;
    int64_t *epoch;
    bool *replaced;
    const char **caption;
    float *data, *extra;
    float *video; /* complete clip, of which this rank encodes some frames */
    int64_t video_capacity;
};

static bool encodes_text(const weft_cascade_stage *s)
{
    return s->setup.pixels && s->setup.models->text_precomputed;
}

static weft_model_size latents_of(const weft_cascade_stage *s, int bucket)
{
    return weft_run_latent_size(s->setup.models,
                                weft_train_stage_bucket(s->setup.train_stage, bucket));
}

/* Returns the floats of a latent frame. */
static int64_t frame_floats(const weft_cascade_stage *s, int bucket)
{
    const weft_model_size size = latents_of(s, bucket);
    return size.height * size.width * s->setup.models->grid.channels;
}

static int64_t latent_floats(const weft_cascade_stage *s, int bucket)
{
    return latents_of(s, bucket).frames * frame_floats(s, bucket);
}

weft_cascade_row weft_cascade_stage_row(const weft_cascade_stage *s, int bucket,
                                        weft_cascade_module module)
{
    if (module == WEFT_CASCADE_VAE && s->setup.pixels)
        return (weft_cascade_row){latents_of(s, bucket).frames, frame_floats(s, bucket),
                                  s->setup.models->grid.piece, "batch.latents"};
    if (module == WEFT_CASCADE_TEXT && encodes_text(s))
        return (weft_cascade_row){1, s->setup.models->text.floats, 1, NULL};
    return (weft_cascade_row){.units = 1};
}

/* ---- encoders -------------------------------------------------------------------------------- */

enum { KEY_VAE = 1, KEY_TEXT = 2 };

typedef struct encoder {
    const weft_cascade_stage *runtime;
    weft_cascade_module module;
    int index; /* bucket, or text encoder */
    const weft_cascade_share *share;
} encoder;

/* Creates the graph of one clip, of some frames of a clip, or of one caption. */
static weft_status make_encoder(void *user, weft_graph **graph)
{
    const encoder *e = user;
    const weft_run_models *m = e->runtime->setup.models;
    weft_graph *g;
    if (e->module == WEFT_CASCADE_TEXT) {
        g = weft_text_graph(e->runtime->setup.run, &m->text, e->index, 1);
    } else {
        g = weft_encoder_part(&m->autoencoder,
                              weft_train_stage_bucket(e->runtime->setup.train_stage, e->index),
                              e->share);
    }
    *graph = g;
    return g ? weft_graph_check(g) : weft_no_memory("a graph");
}

static const weft_cascade_share alone = {.parts = 1};

static weft_status forward(weft_cascade_stage *s, weft_cascade_module module, int index,
                           const weft_cascade_share *share, weft_group *group,
                           const weft_step **step)
{
    encoder e = {s, module, index, share};
    const uint64_t key =
        (uint64_t)(module == WEFT_CASCADE_VAE ? KEY_VAE : KEY_TEXT) << 32 | (uint64_t)index;
    const weft_cascade_forward f = {key,   s->frozen,    share->part, share->parts,
                                    group, make_encoder, &e};
    return weft_cascade_run_forward(s->executor, &f, step);
}

static weft_status load(weft_cascade_stage *s, weft_cascade_module module, int index,
                        const char *scope, const weft_model *model, const char *path)
{
    encoder e = {s, module, index, &alone};
    weft_graph *g;
    WEFT_TRY(make_encoder(&e, &g));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_store_init(s->frozen, g, 0));
    WEFT_GO(weft_encoder_load(s->frozen, scope, model->family, g, path));
out:
    weft_graph_free(g);
    return status;
}

static weft_status load_encoders(weft_cascade_stage *s)
{
    const weft_run_models *m = s->setup.models;
    const weft_text_conditioning *c = &m->text;
    s->frozen = weft_store_create_for(s->setup.exec->backend);
    WEFT_TRY(WEFT_ALLOCATED(s->frozen, "encoders"));
    weft_store_defer_draws(s->frozen);
    WEFT_TRY(load(s, WEFT_CASCADE_VAE, 0, m->autoencoder.family->scope, &m->autoencoder,
                  s->setup.run->autoencoder.weights));
    for (int r = 0; r < c->encoders && m->text_precomputed; r++)
        WEFT_TRY(load(s, WEFT_CASCADE_TEXT, r, c->encoder[r].row->encoder, &c->encoder[r].model,
                      weft_run_text(s->setup.run, r)->weights));
    WEFT_TRY(weft_store_draw_deferred(s->frozen, ""));
    return m->text_precomputed ? weft_tokenizer_set_open(c, &s->tokenizers) : WEFT_OK;
}

/* Writes the packed text conditioning of a caption to `to`. */
static weft_status encode_caption(weft_cascade_stage *s, const char *caption, float *to)
{
    const weft_text_conditioning *c = &s->setup.models->text;
    for (int r = 0; r < c->encoders; r++) {
        const weft_step *step;
        WEFT_TRY(forward(s, WEFT_CASCADE_TEXT, r, &alone, NULL, &step));
        WEFT_TRY(weft_text_conditioning_tokenize(
            c, &s->tokenizers, r, weft_text_conditioning_program_input, step->program, 0, caption));
        WEFT_TRY(weft_cascade_run_encoder(s->executor, step));
        weft_text_conditioning_get(c, r, step->program, 1, to);
    }
    return WEFT_OK;
}

static weft_status no_memory(void)
{
    return weft_no_memory("a cascade's clips");
}

static weft_status make_floats(float **data, int64_t *capacity, int64_t floats)
{
    if (floats <= *capacity)
        return WEFT_OK;
    weft_free(*data);
    *capacity = 0;
    *data = weft_alloc_aligned(floats * (int64_t)sizeof **data);
    WEFT_TRY(WEFT_ALLOCATED(*data, "a cascade's clips"));
    *capacity = floats;
    return WEFT_OK;
}

/* Decodes a complete clip and copies the frames of this rank's share to `video`. */
static weft_status take_frames(weft_cascade_stage *s, const weft_item *item,
                               const weft_cascade_share *share, weft_tensor *video,
                               weft_loaded_item *taken)
{
    const weft_bucket *b = weft_train_stage_bucket(s->setup.train_stage, item->bucket);
    const weft_item_range frames = weft_encoder_frames(&s->setup.models->grid, share->units);
    const int64_t frame = weft_shape_count(&video->shape) / frames.count;
    if (share->parts == 1)
        return weft_loader_load_item(s->loader, item, video->data, NULL, taken);
    WEFT_TRY(make_floats(&s->video, &s->video_capacity, b->frames * frame));
    WEFT_TRY(weft_loader_load_item(s->loader, item, s->video, NULL, taken));
    memcpy(video->data, s->video + frames.first * frame,
           (size_t)(frames.count * frame) * sizeof(float));
    return WEFT_OK;
}

/* Encodes this rank's share of clip `clip` and writes its latents to `rows`, unit by unit. */
static weft_status encode_clip(weft_cascade_stage *s, const weft_item *item,
                               const weft_cascade_share *share, weft_group *group,
                               weft_loaded_item *taken, int64_t clip, const weft_latent_rows *rows)
{
    const weft_step *step;
    WEFT_TRY(forward(s, WEFT_CASCADE_VAE, item->bucket, share, group, &step));
    WEFT_TRY(take_frames(s, item, share, weft_program_input(step->program, "batch.video"), taken));
    WEFT_TRY(weft_cascade_run_encoder(s->executor, step));
    const float *latents = weft_program_output(step->program, "latents")->data;
    for (int64_t u = 0; u < share->units.count; u++)
        memcpy(weft_latent_rows_unit(rows, clip, share->units.first + u),
               latents + u * rows->floats, (size_t)rows->floats * sizeof *latents);
    return WEFT_OK;
}

static weft_status encode(void *user, const weft_placed_iteration *plan, int32_t index,
                          const weft_cascade_share *share, weft_group *group,
                          const weft_latent_rows *rows)
{
    weft_cascade_stage *s = user;
    const weft_placed_cascade *c = &plan->cascade[index];
    const weft_placed_sample *sample = &plan->sample[c->sample];
    weft_loaded_item taken = {0};
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < share->clips.count; i++) {
        const int64_t clip = share->clips.first + i;
        const weft_item *item = &sample->item[clip];
        if (c->module == WEFT_CASCADE_VAE) {
            WEFT_GO(encode_clip(s, item, share, group, &taken, clip, rows));
        } else {
            WEFT_GO(weft_loader_load_item(s->loader, item, NULL, NULL, &taken));
            WEFT_GO(encode_caption(s, taken.caption, weft_latent_rows_unit(rows, clip, 0)));
        }
        for (int64_t u = 0; u < share->units.count; u++)
            weft_latent_rows_set_sample(rows, clip, share->units.first + u, taken.sample);
    }
out:
    weft_free(taken.text.data);
    return status;
}

/* Prefetches clips that this rank decodes or reads from the latent cache. */
static weft_status prefetch(void *user, const weft_placed_iteration *plan, int32_t index,
                            weft_item_range clips)
{
    const weft_cascade_stage *s = user;
    const weft_placed_cascade *c = &plan->cascade[index];
    const bool reads = c->module == (s->setup.pixels ? WEFT_CASCADE_VAE : WEFT_CASCADE_DIT);
    return reads ? weft_loader_prefetch_items(s->loader, plan->sample[c->sample].item + clips.first,
                                              clips.count)
                 : WEFT_OK;
}

/* ---- the denoiser's inputs ------------------------------------------------------------------- */

static void free_clips(weft_cascade_stage *s)
{
    for (int64_t i = 0; i < s->capacity; i++)
        weft_free(s->taken[i].text.data);
    weft_free(s->taken);
    weft_free(s->id);
    weft_free(s->epoch);
    weft_free(s->replaced);
    weft_free(s->caption);
}

static weft_status reserve_clips(weft_cascade_stage *s, int64_t count)
{
    if (count <= s->capacity)
        return WEFT_OK;
    free_clips(s);
    s->capacity = 0;
    s->taken = weft_calloc(count, sizeof *s->taken);
    s->id = weft_calloc(count, sizeof *s->id);
    s->epoch = weft_calloc(count, sizeof *s->epoch);
    s->replaced = weft_calloc(count, sizeof *s->replaced);
    s->caption = weft_calloc(count, sizeof *s->caption);
    if (!s->taken || !s->id || !s->epoch || !s->replaced || !s->caption)
        return no_memory();
    s->capacity = count;
    return WEFT_OK;
}

/* Copies the latents of a clip. Units that this rank's program does not read are zero. */
static void copy_latents(const weft_received_latents *latents, int64_t clip, float *to)
{
    const int64_t frame = latents->rows.floats, first = latents->read.first;
    memset(to, 0, (size_t)(latents->rows.units * frame) * sizeof *to);
    for (int64_t u = first; u < first + latents->read.count; u++)
        memcpy(to + u * frame, weft_latent_rows_unit(&latents->rows, clip, u),
               (size_t)frame * sizeof *to);
}

/* Loads clip `at` of a sample as the i-th clip of this rank. */
static weft_status take_clip(weft_cascade_stage *s, const weft_placed_sample *sample, int64_t at,
                             int64_t i, const weft_received_latents received[WEFT_CASCADE_MODULES])
{
    const int64_t floats = latent_floats(s, sample->bucket),
                  text_floats = s->setup.models->text.floats;
    const weft_received_latents *latents = &received[WEFT_CASCADE_VAE],
                                *text = &received[WEFT_CASCADE_TEXT];
    const bool encoded = latents->rows.data != NULL, embedded = text->rows.data != NULL;
    weft_loaded_item *taken = &s->taken[i];
    weft_item item = sample->item[at];
    if (encoded) /* the sample that the encoder's rank decoded */
        WEFT_TRY(weft_received_latents_sample(latents, at, &item.sample));
    const bool replaced = item.sample != sample->item[at].sample;
    WEFT_TRY(weft_loader_load_item(
        s->loader, &item, encoded ? NULL : s->data + i * floats,
        s->inputs.no_text && !embedded ? s->extra + i * text_floats : NULL, taken));
    if (encoded)
        copy_latents(latents, at, s->data + i * floats);
    s->id[i] = taken->id;
    s->epoch[i] = item.epoch;
    s->replaced[i] = replaced || taken->replaced;
    s->caption[i] = taken->caption;
    if (!embedded)
        return WEFT_OK;
    memcpy(s->extra + i * text_floats, weft_latent_rows_unit(&text->rows, at, 0),
           (size_t)text_floats * sizeof *s->extra);
    if (item.sample != weft_latent_rows_sample(&text->rows, at, 0)) /* text of another sample */
        s->caption[i] = "";
    return WEFT_OK;
}

static weft_status fill(void *user, const weft_placed_iteration *plan, int32_t index,
                        const weft_step *step,
                        const weft_received_latents received[WEFT_CASCADE_MODULES])
{
    weft_cascade_stage *s = user;
    const weft_placed_sample *sample = &plan->sample[plan->cascade[index].sample];
    const int64_t count = step->local_count;
    WEFT_TRY(reserve_clips(s, count));
    WEFT_TRY(make_floats(&s->data, &s->floats_capacity, count * latent_floats(s, sample->bucket)));
    WEFT_TRY(make_floats(&s->extra, &s->extra_capacity, count * s->setup.models->text.floats));
    for (int64_t i = 0; i < count; i++)
        WEFT_TRY(take_clip(s, sample, step->local_first + i, i, received));
    const weft_batch batch = {.step = sample->batch,
                              .bucket = sample->bucket,
                              .count = count,
                              .first = step->local_first,
                              .id = s->id,
                              .epoch = s->epoch,
                              .replaced = s->replaced,
                              .caption = s->caption,
                              .part = s->data,
                              .extra = s->inputs.no_text ? s->extra : NULL};
    return weft_inputs_fill(&s->inputs, plan->step, &batch, weft_text_conditioning_program_input,
                            step->program);
}

/* ---- creation and destruction ---------------------------------------------------------------- */

static weft_status make_graph(void *user, int bucket, weft_graph **graph)
{
    const weft_cascade_stage *s = user;
    return weft_objective_make(&s->run, s->setup.models,
                               weft_train_stage_bucket(s->setup.train_stage, bucket), graph);
}

static weft_cascade_row row_of(void *user, int bucket, weft_cascade_module module)
{
    return weft_cascade_stage_row(user, bucket, module);
}

static weft_sp_method context_of(const weft_run *run)
{
    return run->parallel.context.kind == WEFT_CP_RING ? WEFT_SP_RING : WEFT_SP_ULYSSES;
}

weft_status weft_cascade_stage_open(const weft_cascade_stage_setup *setup, weft_cascade_stage **out)
{
    weft_cascade_stage *s;
    WEFT_TRY(WEFT_NEW(s, 1, "a stage of cascades"));
    *s = (weft_cascade_stage){.setup = *setup,
                              .run = weft_train_stage_run(setup->run, setup->train_stage),
                              .buckets = weft_train_stage_bucket_count(setup->train_stage)};
    s->clips = weft_calloc(s->buckets, sizeof *s->clips);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(s->clips, "%d buckets", s->buckets));
    for (int b = 0; b < s->buckets; b++)
        s->clips[b] = weft_train_stage_bucket(setup->train_stage, b)->batch;
    const weft_cascade_setup executor = {.comm = setup->exec->comm,
                                         .store = setup->store,
                                         .exec = setup->exec,
                                         .optimizer = &setup->run->optimizer,
                                         .context = context_of(setup->run),
                                         .representative = setup->run->cascades.accumulation ==
                                                           WEFT_ACCUMULATE_REPRESENTATIVE,
                                         .late_dispatch = weft_cascades_move(&setup->run->cascades),
                                         .seed = (uint64_t)setup->run->seed,
                                         .buckets = s->buckets,
                                         .clips = s->clips,
                                         .cache_bytes = setup->cache_bytes,
                                         .calls = {s, make_graph, fill, row_of, encode, prefetch}};
    WEFT_GO(weft_cascade_run_create(&executor, &s->executor));
    *out = s;
    return WEFT_OK;
out:
    weft_cascade_stage_close(s);
    return status;
}

void weft_cascade_stage_close(weft_cascade_stage *s)
{
    if (!s)
        return;
    weft_cascade_run_free(s->executor);
    weft_store_free(s->frozen);
    weft_tokenizer_set_close(&s->tokenizers);
    free_clips(s);
    weft_free(s->data);
    weft_free(s->extra);
    weft_free(s->video);
    weft_free(s->no_text);
    weft_free(s->clips);
    weft_free(s);
}

weft_cascade_run *weft_cascade_stage_run(weft_cascade_stage *s)
{
    return s->executor;
}

weft_status weft_cascade_stage_begin(weft_cascade_stage *s, weft_loader *loader,
                                     const float *no_text)
{
    s->loader = loader;
    s->inputs = (weft_inputs){&s->run, s->setup.models, s->setup.tokenizers, no_text};
    if (!s->setup.pixels)
        return WEFT_OK;
    WEFT_TRY(load_encoders(s));
    if (!encodes_text(s))
        return WEFT_OK;
    int64_t capacity = 0;
    WEFT_TRY(make_floats(&s->no_text, &capacity, s->setup.models->text.floats));
    WEFT_TRY(encode_caption(s, "", s->no_text));
    s->inputs.no_text = s->no_text;
    return WEFT_OK;
}

weft_status weft_cascade_stage_step(weft_cascade_stage *s, const weft_placed_iteration *plan,
                                    weft_iteration_done *done)
{
    WEFT_TRY(weft_cascade_run_iteration(s->executor, plan, done));
    for (int64_t i = 0; i < s->setup.train_stage->accumulate; i++) {
        weft_batch batch; /* empty: the items were loaded separately */
        WEFT_TRY(weft_loader_next(s->loader, &batch));
    }
    return WEFT_OK;
}
