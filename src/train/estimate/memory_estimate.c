#include "train/run_memory.h"

#include "runtime/measure.h"
#include "train/checkpoint.h"
#include "train/latents.h"

#include <string.h>

static bool is_encoded(const weft_place_of_run *place, int64_t stage)
{
    return place && place->encoded && place->encoded[stage];
}

static bool decodes(const weft_run *run, const weft_place_of_run *place)
{
    for (int64_t i = 0; i < run->stages.count; i++)
        if (!is_encoded(place, i))
            return true;
    return false;
}

int64_t weft_run_first_use(const weft_run *run, const weft_place_of_run *place)
{
    enum {
        LIBRARIES = 8 << 20, /* generated kernels, threads, files */
        DECODERS = 12 << 20,
        /* generated for each convolution of the nets that judge an autoencoder */
        PERCEIVES = 5 << 20,
        FIGHTS = 7 << 20
    };
    return LIBRARIES + (decodes(run, place) ? DECODERS : 0) +
           (weft_run_perceives(run) ? PERCEIVES : 0) + (weft_run_fights(run) ? FIGHTS : 0);
}

weft_status weft_run_process_bytes(const weft_backend *backend, int64_t *bytes)
{
    const double seconds = 0.01; /* the first product makes its libraries resident */
    double gflops;
    if (!backend->device->hollow)
        WEFT_TRY(weft_measure_gemm(backend, seconds, &gflops));
    weft_memory_trim();
    *bytes = weft_memory_resident();
    return WEFT_OK;
}

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

weft_status weft_run_stage_bytes(const weft_run *run, const weft_run_models *models, int64_t index,
                                 const weft_place_of_run *place, weft_step_cache *steps,
                                 weft_run_bytes *stage, weft_buf *terms)
{
    weft_stage_steps s = {0};
    int64_t programs = 0, batches = 0, away = 0;
    char text[2][32];
    const weft_stage *at = (const weft_stage *)run->stages.item + index;
    WEFT_TRY(weft_stage_steps_plan(steps, run, models, at, place, &s));
    weft_status_code status = weft_stage_steps_bytes(&s, &programs);
    if (status == WEFT_OK)
        status = weft_stage_steps_away_bytes(&s, &away);
    batches = batches_bytes(run, models, at, &s);
    *stage = (weft_run_bytes){.device = programs, .host = batches, .elsewhere = away};
    if (terms)
        weft_buf_printf(terms, ", stage %lld %s and batches %s", (long long)index,
                        weft_format_bytes(programs, text[0]), weft_format_bytes(batches, text[1]));
    if (terms && away)
        weft_buf_printf(terms, " (and %s elsewhere)", weft_format_bytes(away, text[0]));
    weft_stage_steps_free(&s);
    return status;
}

weft_status weft_run_beside_bytes(const weft_run *run, const weft_run_models *models, int64_t index,
                                  const weft_place_of_run *place, weft_step_cache *steps,
                                  weft_run_bytes *most, weft_buf *terms)
{
    const weft_stage *stage = (const weft_stage *)run->stages.item + index;
    const bool denoises = weft_run_denoises(models);
    weft_stage_steps s = {0};
    int64_t bytes = 0;
    char text[32];
    *most = (weft_run_bytes){0};
    if (index == 0) {
        WEFT_TRY(weft_stage_steps_plan(steps, run, models, stage, place, &s));
        most->host = beginning_bytes(run, models, place, &s);
        weft_stage_steps_free(&s);
    }
    if (most->host && terms)
        weft_buf_printf(terms, ", a whole model to begin with %s",
                        weft_format_bytes(most->host, text));
    if (!denoises && index + 1 < run->stages.count)
        return WEFT_OK;
    WEFT_TRY(weft_latents_bytes(run, models, stage, place, &bytes));
    if (bytes > most->host && !is_encoded(place, index))
        *most = (weft_run_bytes){.device = bytes};
    if (terms)
        weft_buf_printf(terms, ", %s %s", denoises ? "its latents" : "latent statistics",
                        weft_format_bytes(bytes, text));
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
        if (t->mapped)
            continue;
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
    if (weft_store_away_bytes(store)) {
        char text[32];
        weft_buf_printf(out, "%selsewhere %s", between,
                        weft_format_bytes(weft_store_away_bytes(store), text));
    }
}

weft_status weft_run_staging_bytes(const weft_run_models *models, const weft_place_of_run *place,
                                   weft_store *store, int64_t *bytes)
{
    weft_checkpoint_spec spec = {.store = store,
                                 .comm = place->comm,
                                 .rank = weft_place_rank(place),
                                 .ranks = weft_mesh_ranks(&place->mesh)};
    const weft_family *first =
        weft_run_denoises(models) ? models->denoiser.family : models->autoencoder.family;
    spec.part[spec.parts++] =
        (weft_checkpoint_part){first->scope, first->stem, NULL, models->tuned};
    if (!weft_run_denoises(models)) /* which is there or is empty */
        spec.part[spec.parts++] =
            (weft_checkpoint_part){WEFT_DISCRIMINATOR_SCOPE, WEFT_DISCRIMINATOR_STEM, NULL};
    if (weft_run_identifies(models))
        spec.part[spec.parts++] = (weft_checkpoint_part){models->identity.family->scope,
                                                         models->identity.family->stem, NULL};
    for (int r = 0; r < models->captions.readers; r++) {
        const weft_reader *reader = &models->captions.reader[r];
        if (!(models->text_stays >> r & 1))
            spec.part[spec.parts++] =
                (weft_checkpoint_part){reader->reading->encoder, reader->model.family->stem, NULL};
    }
    return weft_checkpoints_bytes(&spec, bytes);
}

/* By what they are together; elsewhere, where each stage has its own, the most. */
static weft_run_bytes larger(weft_run_bytes a, weft_run_bytes b)
{
    weft_run_bytes most = weft_run_bytes_sum(b) > weft_run_bytes_sum(a) ? b : a;
    most.elsewhere = a.elsewhere > b.elsewhere ? a.elsewhere : b.elsewhere;
    return most;
}

weft_status weft_run_memory(const weft_run *run, const weft_run_models *models,
                            const weft_place_of_run *place, weft_step_cache *steps,
                            weft_store *store, int64_t process, weft_run_bytes *peak,
                            weft_buf *told)
{
    const int64_t weights = weft_store_bytes(store);
    int64_t staging = 0;
    weft_run_bytes most = {0};
    char text[4][32];
    weft_buf terms = {0}, kinds = {0};
    weft_status_code status = weft_run_staging_bytes(models, place, store, &staging);
    for (int64_t i = 0; i < run->stages.count && status == WEFT_OK; i++) {
        weft_run_bytes stage = {0}, beside = {0};
        status = weft_run_stage_bytes(run, models, i, place, steps, &stage, &terms);
        if (status == WEFT_OK)
            status = weft_run_beside_bytes(run, models, i, place, steps, &beside, &terms);
        stage.host += staging; /* a checkpoint is written while a stage runs */
        most = larger(most, stage);
        most = larger(most, beside);
    }
    if (status == WEFT_OK)
        status = weft_buf_check(&terms);
    tell_store(store, &kinds);
    if (status == WEFT_OK)
        status = weft_buf_check(&kinds);
    process += weft_step_cache_kept(steps) + weft_run_first_use(run, place);
    if (status == WEFT_OK) {
        *peak = most;
        peak->device += weights;
        peak->host += process;
        peak->elsewhere += weft_store_away_bytes(store);
        weft_buf_printf(
            told,
            "memory%s: at most %s: program and libraries %s%s, weights and optimizer %s (%s), "
            "copies for checkpoints %s%s",
            weft_mesh_ranks(&place->mesh) > 1 ? " of a rank" : "",
            weft_format_bytes(weft_run_bytes_sum(*peak), text[0]),
            weft_format_bytes(process, text[1]),
            decodes(run, place) ? "" : " (without decoders: latents are cached)",
            weft_format_bytes(weights, text[2]), kinds.data ? kinds.data : "",
            weft_format_bytes(staging, text[3]), terms.data);
        status = weft_buf_check(told);
    }
    weft_buf_free(&terms);
    weft_buf_free(&kinds);
    return status;
}

weft_status weft_run_memory_most(weft_comm *comm, int64_t bytes, weft_buf *told)
{
    typedef struct line {
        int64_t bytes, length;
    } line;
    const int ranks = weft_comm_ranks(comm);
    const line own = {bytes, told->len};
    int most = 0;
    char *text = NULL;
    if (ranks == 1)
        return WEFT_OK;
    line *all = weft_alloc(ranks * (int64_t)sizeof *all);
    weft_status_code status = all ? weft_comm_all_gather(comm, &own, sizeof own, all)
                                  : weft_fail(WEFT_E_MEMORY, "out of memory for %d ranks", ranks);
    for (int r = 1; r < ranks && status == WEFT_OK; r++)
        most = all[r].bytes > all[most].bytes ? r : most;
    if (status == WEFT_OK && !(text = weft_alloc(all[most].length + 1)))
        status = weft_fail(WEFT_E_MEMORY, "out of memory for what a rank takes");
    if (status == WEFT_OK && weft_comm_rank(comm) == most)
        memcpy(text, told->data, (size_t)told->len);
    if (status == WEFT_OK)
        status = weft_comm_broadcast(comm, text, all[most].length, most);
    if (status == WEFT_OK) {
        told->len = 0;
        weft_buf_append(told, text, all[most].length);
        status = weft_buf_check(told);
    }
    weft_free(all);
    weft_free(text);
    return status;
}
