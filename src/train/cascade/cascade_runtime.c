#include "train/cascade_stage.h"

#include "train/latents.h"

#include <string.h>

struct weft_cascade_stage {
    weft_cascade_stage_setup setup;
    weft_run run; /* as it is in the stage */
    weft_cascade_run *executor;
    weft_loader *loader;
    weft_inputs inputs;
    weft_store *frozen;     /* weights of encoders that are not trained */
    weft_spelling spelling; /* of theirs */
    float *no_text;         /* told by them of the empty caption */
    int buckets;
    int64_t *clips; /* [buckets] */
    /* of one cascade's clips: */
    int64_t room, floats_room, extra_room;
    weft_taken *taken;
    uint64_t *id;
    int64_t *epoch;
    bool *replaced;
    const char **caption;
    float *data, *extra;
    float *video; /* of a clip of which some frames are encoded here */
    int64_t video_room;
};

/* Behind the floats of a unit that is handed on stands which sample they are of: one that does not
 * decode is replaced where that is found out. */
enum { WITNESS = sizeof(int64_t) / sizeof(float) };

static bool tells_text(const weft_cascade_stage *s)
{
    return s->setup.pixels && s->setup.models->text_given;
}

static weft_model_size latents_of(const weft_cascade_stage *s, int bucket)
{
    return weft_run_latent_size(s->setup.models, weft_stage_bucket(s->setup.stage, bucket));
}

/* Of a latent frame. */
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
        return (weft_cascade_row){latents_of(s, bucket).frames, frame_floats(s, bucket) + WITNESS,
                                  s->setup.models->grid.piece, "batch.latents"};
    if (module == WEFT_CASCADE_TEXT && tells_text(s))
        return (weft_cascade_row){1, s->setup.models->captions.floats + WITNESS, 1, NULL};
    return (weft_cascade_row){.units = 1};
}

/* ---- encoders -------------------------------------------------------------------------------- */

enum { KEY_VAE = 1, KEY_TEXT = 2 };

typedef struct encoder {
    const weft_cascade_stage *stage;
    weft_cascade_module module;
    int index; /* bucket, or reader */
    const weft_cascade_share *share;
} encoder;

/* Of one clip or some of its frames, or one caption. */
static weft_status make_encoder(void *user, weft_graph **graph)
{
    const encoder *e = user;
    const weft_run_models *m = e->stage->setup.models;
    weft_graph *g;
    if (e->module == WEFT_CASCADE_TEXT) {
        g = weft_text_graph(e->stage->setup.run, &m->captions, e->index, 1);
    } else {
        g = weft_encoder_part(&m->autoencoder, weft_stage_bucket(e->stage->setup.stage, e->index),
                              e->share);
    }
    *graph = g;
    return g ? weft_graph_check(g) : weft_fail(WEFT_E_MEMORY, "out of memory for a graph");
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
    weft_status_code status = weft_store_init(s->frozen, g, 0);
    if (status == WEFT_OK)
        status = weft_encoder_load(s->frozen, scope, model->family, g, path);
    weft_graph_free(g);
    return status;
}

static weft_status load_encoders(weft_cascade_stage *s)
{
    const weft_run_models *m = s->setup.models;
    const weft_captions *c = &m->captions;
    s->frozen = weft_store_create();
    if (!s->frozen)
        return weft_fail(WEFT_E_MEMORY, "out of memory for encoders");
    WEFT_TRY(load(s, WEFT_CASCADE_VAE, 0, m->autoencoder.family->scope, &m->autoencoder,
                  s->setup.run->autoencoder.weights));
    for (int r = 0; r < c->readers && m->text_given; r++)
        WEFT_TRY(load(s, WEFT_CASCADE_TEXT, r, c->reader[r].reading->encoder, &c->reader[r].model,
                      weft_run_text(s->setup.run, r)->weights));
    return m->text_given ? weft_spelling_open(c, &s->spelling) : WEFT_OK;
}

/* What is told of a caption, packed. */
static weft_status tell(weft_cascade_stage *s, const char *caption, float *to)
{
    const weft_captions *c = &s->setup.models->captions;
    for (int r = 0; r < c->readers; r++) {
        const weft_step *step;
        WEFT_TRY(forward(s, WEFT_CASCADE_TEXT, r, &alone, NULL, &step));
        WEFT_TRY(weft_captions_spell(c, &s->spelling, r, weft_captions_program_input, step->program,
                                     0, caption));
        WEFT_TRY(weft_cascade_run_encoder(s->executor, step));
        weft_captions_take(c, r, step->program, 1, to);
    }
    return WEFT_OK;
}

static weft_status no_room(void)
{
    return weft_fail(WEFT_E_MEMORY, "out of memory for a cascade's clips");
}

static weft_status make_floats(float **data, int64_t *room, int64_t floats)
{
    if (floats <= *room)
        return WEFT_OK;
    weft_free(*data);
    *room = 0;
    *data = weft_alloc_aligned(floats * (int64_t)sizeof **data);
    if (!*data)
        return no_room();
    *room = floats;
    return WEFT_OK;
}

/* The frames of its share, from a clip that is decoded whole. */
static weft_status take_frames(weft_cascade_stage *s, const weft_item *item,
                               const weft_cascade_share *share, weft_tensor *video,
                               weft_taken *taken)
{
    const weft_bucket *b = weft_stage_bucket(s->setup.stage, item->bucket);
    const weft_item_range frames = weft_encoder_frames(&s->setup.models->grid, share->units);
    const int64_t frame = weft_shape_count(&video->shape) / frames.count;
    if (share->parts == 1)
        return weft_loader_take(s->loader, item, video->data, NULL, taken);
    WEFT_TRY(make_floats(&s->video, &s->video_room, b->frames * frame));
    WEFT_TRY(weft_loader_take(s->loader, item, s->video, NULL, taken));
    memcpy(video->data, s->video + frames.first * frame,
           (size_t)(frames.count * frame) * sizeof(float));
    return WEFT_OK;
}

/* Its latents, unit by unit. */
static weft_status encode_clip(weft_cascade_stage *s, const weft_item *item,
                               const weft_cascade_share *share, weft_group *group,
                               weft_taken *taken, int64_t floats, float *to)
{
    const weft_step *step;
    WEFT_TRY(forward(s, WEFT_CASCADE_VAE, item->bucket, share, group, &step));
    WEFT_TRY(take_frames(s, item, share, weft_program_input(step->program, "batch.video"), taken));
    WEFT_TRY(weft_cascade_run_encoder(s->executor, step));
    const float *latents = weft_program_output(step->program, "latents")->data;
    for (int64_t u = 0; u < share->units.count; u++)
        memcpy(to + u * floats, latents + u * (floats - WITNESS),
               (size_t)(floats - WITNESS) * sizeof *to);
    return WEFT_OK;
}

static weft_status encode(void *user, const weft_placed_iteration *plan, int32_t index,
                          const weft_cascade_share *share, weft_group *group, float *rows)
{
    weft_cascade_stage *s = user;
    const weft_placed_cascade *c = &plan->cascade[index];
    const weft_placed_sample *sample = &plan->sample[c->sample];
    const weft_cascade_row row = weft_cascade_stage_row(s, sample->bucket, c->module);
    weft_taken taken = {0};
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < share->clips.count && status == WEFT_OK; i++) {
        const int64_t clip = share->clips.first + i;
        const weft_item *item = &sample->item[clip];
        float *to = rows + (clip * row.units + share->units.first) * row.floats;
        if (c->module == WEFT_CASCADE_VAE)
            status = encode_clip(s, item, share, group, &taken, row.floats, to);
        else if ((status = weft_loader_take(s->loader, item, NULL, NULL, &taken)) == WEFT_OK)
            status = tell(s, taken.caption, to);
        for (int64_t u = 1; u <= share->units.count; u++)
            memcpy(to + u * row.floats - WITNESS, &taken.sample, sizeof taken.sample);
    }
    weft_free(taken.text.data);
    return status;
}

/* Clips that this rank decodes, or reads from the cache. */
static weft_status ahead(void *user, const weft_placed_iteration *plan, int32_t index,
                         weft_item_range clips)
{
    const weft_cascade_stage *s = user;
    const weft_placed_cascade *c = &plan->cascade[index];
    const bool reads = c->module == (s->setup.pixels ? WEFT_CASCADE_VAE : WEFT_CASCADE_DIT);
    return reads ? weft_loader_want(s->loader, plan->sample[c->sample].item + clips.first,
                                    clips.count)
                 : WEFT_OK;
}

/* ---- the denoiser's inputs ------------------------------------------------------------------- */

static void free_room(weft_cascade_stage *s)
{
    for (int64_t i = 0; i < s->room; i++)
        weft_free(s->taken[i].text.data);
    weft_free(s->taken);
    weft_free(s->id);
    weft_free(s->epoch);
    weft_free(s->replaced);
    weft_free(s->caption);
}

static weft_status make_room(weft_cascade_stage *s, int64_t count)
{
    if (count <= s->room)
        return WEFT_OK;
    free_room(s);
    s->room = 0;
    s->taken = weft_alloc(count * (int64_t)sizeof *s->taken);
    s->id = weft_alloc(count * (int64_t)sizeof *s->id);
    s->epoch = weft_alloc(count * (int64_t)sizeof *s->epoch);
    s->replaced = weft_alloc(count * (int64_t)sizeof *s->replaced);
    s->caption = weft_alloc(count * (int64_t)sizeof *s->caption);
    if (!s->taken || !s->id || !s->epoch || !s->replaced || !s->caption)
        return no_room();
    s->room = count;
    return WEFT_OK;
}

/* Of unit u of a row. */
static int64_t witness(const weft_handed *handed, int64_t row, int64_t u)
{
    const int64_t floats = handed->floats / handed->units;
    int64_t sample;
    memcpy(&sample, handed->row + row * handed->floats + (u + 1) * floats - WITNESS, sizeof sample);
    return sample;
}

/* The latents of a clip, which ranks made that all had the same one before them; zeros where this
 * rank's program does not read them. */
static weft_status take_latents(const weft_handed *latents, int64_t row, float *to)
{
    const int64_t floats = latents->floats / latents->units, frame = floats - WITNESS,
                  first = latents->read.first;
    memset(to, 0, (size_t)(latents->units * frame) * sizeof *to);
    for (int64_t u = first; u < first + latents->read.count; u++) {
        if (witness(latents, row, u) != witness(latents, row, first))
            return weft_fail(WEFT_E_IO,
                             "of one clip ranks have encoded frames of samples %lld and %lld: it "
                             "could be decoded on some and not on others; look at their disks",
                             (long long)witness(latents, row, first),
                             (long long)witness(latents, row, u));
        memcpy(to + u * frame, latents->row + row * latents->floats + u * floats,
               (size_t)frame * sizeof *to);
    }
    return WEFT_OK;
}

/* Clip `at` of a sample, the i-th of this rank. */
static weft_status take_clip(weft_cascade_stage *s, const weft_placed_sample *sample, int64_t at,
                             int64_t i, const weft_handed handed[WEFT_CASCADE_MODULES])
{
    const int64_t floats = latent_floats(s, sample->bucket),
                  told = s->setup.models->captions.floats;
    const weft_handed *latents = &handed[WEFT_CASCADE_VAE], *text = &handed[WEFT_CASCADE_TEXT];
    weft_taken *taken = &s->taken[i];
    weft_item item = sample->item[at];
    const bool asked = latents->row && item.sample != witness(latents, at, latents->read.first);
    if (latents->row)
        item.sample = witness(latents, at, latents->read.first);
    WEFT_TRY(weft_loader_take(s->loader, &item, latents->row ? NULL : s->data + i * floats,
                              s->inputs.no_text && !text->row ? s->extra + i * told : NULL, taken));
    if (latents->row)
        WEFT_TRY(take_latents(latents, at, s->data + i * floats));
    s->id[i] = taken->id;
    s->epoch[i] = item.epoch;
    s->replaced[i] = asked || taken->replaced;
    s->caption[i] = taken->caption;
    if (!text->row)
        return WEFT_OK;
    memcpy(s->extra + i * told, text->row + at * text->floats, (size_t)told * sizeof *s->extra);
    if (item.sample != witness(text, at, 0)) /* of the one that it stands in for */
        s->caption[i] = "";
    return WEFT_OK;
}

static weft_status fill(void *user, const weft_placed_iteration *plan, int32_t index,
                        const weft_step *step, const weft_handed handed[WEFT_CASCADE_MODULES])
{
    weft_cascade_stage *s = user;
    const weft_placed_sample *sample = &plan->sample[plan->cascade[index].sample];
    const int64_t count = step->slice_count;
    WEFT_TRY(make_room(s, count));
    WEFT_TRY(make_floats(&s->data, &s->floats_room, count * latent_floats(s, sample->bucket)));
    WEFT_TRY(make_floats(&s->extra, &s->extra_room, count * s->setup.models->captions.floats));
    for (int64_t i = 0; i < count; i++)
        WEFT_TRY(take_clip(s, sample, step->slice_first + i, i, handed));
    const weft_batch batch = {.step = sample->batch,
                              .bucket = sample->bucket,
                              .count = count,
                              .first = step->slice_first,
                              .id = s->id,
                              .epoch = s->epoch,
                              .replaced = s->replaced,
                              .caption = s->caption,
                              .part = s->data,
                              .extra = s->inputs.no_text ? s->extra : NULL};
    return weft_inputs_fill(&s->inputs, plan->step, &batch, weft_captions_program_input,
                            step->program);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static weft_status make_graph(void *user, int bucket, weft_graph **graph)
{
    const weft_cascade_stage *s = user;
    return weft_objective_make(&s->run, s->setup.models, weft_stage_bucket(s->setup.stage, bucket),
                               graph);
}

static weft_cascade_row row_of(void *user, int bucket, weft_cascade_module module)
{
    return weft_cascade_stage_row(user, bucket, module);
}

static weft_sp_method context_of(const weft_run *run)
{
    return run->parallel.context.kind == WEFT_CONTEXT_RING ? WEFT_SP_RING : WEFT_SP_ULYSSES;
}

weft_status weft_cascade_stage_open(const weft_cascade_stage_setup *setup, weft_cascade_stage **out)
{
    weft_cascade_stage *s = weft_alloc(sizeof *s);
    if (!s)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a stage of cascades");
    *s = (weft_cascade_stage){.setup = *setup,
                              .run = weft_stage_run(setup->run, setup->stage),
                              .buckets = weft_stage_bucket_count(setup->stage)};
    s->clips = weft_alloc(s->buckets * (int64_t)sizeof *s->clips);
    weft_status_code status =
        s->clips ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for %d buckets", s->buckets);
    for (int b = 0; b < s->buckets && s->clips; b++)
        s->clips[b] = weft_stage_bucket(setup->stage, b)->batch;
    const weft_cascade_setup executor = {
        .comm = setup->place->comm,
        .store = setup->store,
        .place = setup->place,
        .optimizer = &setup->run->optimizer,
        .context = context_of(setup->run),
        .representative = setup->run->cascades.accumulation == WEFT_ACCUMULATE_REPRESENTATIVE,
        .late_dispatch = setup->run->cascades.dispatch == WEFT_DISPATCH_LATE,
        .seed = (uint64_t)setup->run->seed,
        .buckets = s->buckets,
        .clips = s->clips,
        .cache_bytes = setup->cache_bytes,
        .calls = {s, make_graph, fill, row_of, encode, ahead}};
    if (status == WEFT_OK)
        status = weft_cascade_run_create(&executor, &s->executor);
    if (status == WEFT_OK)
        *out = s;
    else
        weft_cascade_stage_close(s);
    return status;
}

void weft_cascade_stage_close(weft_cascade_stage *s)
{
    if (!s)
        return;
    weft_cascade_run_free(s->executor);
    weft_store_free(s->frozen);
    weft_spelling_close(&s->spelling);
    free_room(s);
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
    s->inputs = (weft_inputs){&s->run, s->setup.models, s->setup.spelling, no_text};
    if (!s->setup.pixels)
        return WEFT_OK;
    WEFT_TRY(load_encoders(s));
    if (!tells_text(s))
        return WEFT_OK;
    int64_t room = 0;
    WEFT_TRY(make_floats(&s->no_text, &room, s->setup.models->captions.floats));
    WEFT_TRY(tell(s, "", s->no_text));
    s->inputs.no_text = s->no_text;
    return WEFT_OK;
}

weft_status weft_cascade_stage_step(weft_cascade_stage *s, const weft_placed_iteration *plan,
                                    weft_iteration_done *done)
{
    WEFT_TRY(weft_cascade_run_iteration(s->executor, plan, done));
    for (int64_t i = 0; i < s->setup.stage->accumulate; i++) {
        weft_batch batch; /* of nothing: its items were taken one by one */
        WEFT_TRY(weft_loader_next(s->loader, &batch));
    }
    return WEFT_OK;
}
