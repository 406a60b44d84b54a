#include "train/graph/packed_rows.h"

#include "base/rng.h"
#include "graph/builder_helpers.h"
#include "nn/nn.h"
#include "train/config/packing_config.h"

#include <string.h>

/* ---- checks -------------------------------------------------------------------------------- */

/* Checks that the row holds every bucket of a training stage. */
static weft_status check_tokens(const weft_run *run, const weft_run_models *m, int64_t index,
                                const char *path)
{
    const weft_train_stage *train_stage = (const weft_train_stage *)run->train_stages.item + index;
    const int64_t row = run->data.packing.tokens;
    for (int b = 0; b < weft_train_stage_bucket_count(train_stage); b++) {
        const int64_t tokens = weft_run_tokens(m, weft_train_stage_bucket(train_stage, b));
        if (tokens > row)
            return weft_error(WEFT_MSG_CONFIG_VALUE,
                              WEFT_AT(.file = path, .key = "data.packing.tokens", WEFT_NUMBER(row)),
                              "%" PRId64
                              " tokens do not hold a sample of bucket %d of stages.%" PRId64
                              ", which has %" PRId64 ". Use at least %" PRId64 ".",
                              row, b, index, tokens, tokens);
    }
    return WEFT_OK;
}

weft_status weft_packed_rows_check(const weft_run *run, const weft_run_models *m, const char *path)
{
    if (!weft_run_packs(run))
        return WEFT_OK;
    const char *name = weft_model_class(&m->denoiser);
    const bool images =
        m->denoiser.family->packs && weft_model_takes(&m->denoiser, WEFT_PORT_IMAGE);
    if (!m->denoiser.family->packs || images)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "data.packing"),
                          "this %s%s cannot be trained on packed rows; WanTransformer3DModel "
                          "without image tokens "
                          "can. Remove data.packing.",
                          name, images ? " with image tokens" : "");
    for (int64_t i = 0; i < run->train_stages.count; i++)
        WEFT_TRY(check_tokens(run, m, i, path));
    return WEFT_OK;
}

/* ---- graph --------------------------------------------------------------------------------- */

static weft_value ints(weft_graph *g, const char *name, weft_shape shape)
{
    return weft_input(g, name, WEFT_I32, shape);
}

/* A value of each sample, (R K), for each token: (R N). WEFT_NONE stays. */
static weft_value of_tokens(weft_graph *g, weft_value owner, weft_value of_samples)
{
    if (!weft_value_ok(of_samples))
        return of_samples;
    const weft_value rows = weft_reshape(g, of_samples, WEFT_SHAPE(weft_dim(g, of_samples, 0), 1));
    return weft_reshape(g, weft_nn_rows_of_tokens(g, owner, rows),
                        WEFT_SHAPE(weft_dim(g, owner, 0) * weft_dim(g, owner, 1)));
}

/* Declares the inputs that only packed rows have, besides latents and noise. */
static weft_packed_rows rows_of(weft_graph *g, const weft_row_packing *p)
{
    const weft_shape list = WEFT_SHAPE(p->rows, p->samples, 4),
                     position = WEFT_SHAPE(p->rows, p->tokens);
    return (weft_packed_rows){
        .rows = p->rows,
        .samples = p->samples,
        .owner = weft_input(g, "batch.owner", WEFT_F32, WEFT_SHAPE(p->rows, p->tokens, p->samples)),
        .segments = ints(g, "batch.segments", list),
        .text_segments = ints(g, "batch.text_segments", list),
        .position = {ints(g, "batch.frame", position), ints(g, "batch.line", position),
                     ints(g, "batch.column", position)},
    };
}

weft_value weft_packed_rows_loss(weft_graph *g, const weft_run *run, const weft_run_models *m)
{
    const weft_row_packing *pack = &run->data.packing;
    const int64_t *patch = m->patch.factor, channels = m->grid.channels,
                  samples = pack->rows * pack->samples, tokens = pack->rows * pack->tokens;
    const weft_model_size size = {samples, patch[0], patch[1], patch[2],
                                  weft_text_conditioning_length(&m->text)};
    const weft_shape latents =
        WEFT_SHAPE(pack->rows, pack->tokens * patch[0], patch[1], patch[2], channels);
    const weft_shape each = WEFT_SHAPE(tokens, patch[0], patch[1], patch[2], channels);
    const weft_noise_process *process = weft_run_process(run);
    weft_ports p = weft_ports_none();
    const weft_value x = weft_input(g, "batch.latents", WEFT_F32, latents),
                     noise = weft_input(g, "batch.noise", WEFT_F32, latents);
    const weft_packed_rows rows = rows_of(g, pack);
    if (m->text_precomputed)
        weft_text_conditioning_inputs(g, &m->text, &m->denoiser, &size, "batch.", &p);
    else
        weft_text_conditioning_encode(g, &m->text, samples, m->text_frozen, &p);
    const weft_value key =
        weft_reshape(g, weft_input(g, "batch.key", WEFT_I64, WEFT_SHAPE(pack->rows, pack->samples)),
                     WEFT_SHAPE(samples));
    const weft_noised level = process->level(g, &run->noise, key);
    /* each token as a sample of its own */
    const weft_noised own = {.sigma = of_tokens(g, rows.owner, level.sigma),
                             .alpha = of_tokens(g, rows.owner, level.alpha),
                             .weight = of_tokens(g, rows.owner, level.weight)};
    const weft_value x_each = weft_reshape(g, x, each), noise_each = weft_reshape(g, noise, each);
    p.packed = &rows;
    p.at[WEFT_PORT_TIMESTEP] = level.time;
    p.at[WEFT_PORT_LATENTS] =
        weft_reshape(g, process->input(g, &run->noise, x_each, noise_each, &own), latents);
    weft_model_call(g, &m->denoiser, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, true, &p);
    const weft_value prediction = weft_reshape(g, weft_model_answer(g, &m->denoiser, &p), each);
    const weft_value in_loss = weft_reshape(
        g, weft_input(g, "batch.weight", WEFT_F32, WEFT_SHAPE(pack->rows, pack->tokens)),
        WEFT_SHAPE(tokens));
    weft_noised weighted = own;
    weighted.weight = weft_value_ok(own.weight) ? weft_mul(g, own.weight, in_loss) : in_loss;
    return weft_noise_process_loss(g, process, &run->noise, prediction, x_each, noise_each,
                                   &weighted);
}

/* ---- inputs -------------------------------------------------------------------------------- */

/* The inputs of this rank's rows. NULL: this rank does not need the input. */
typedef struct row_inputs {
    const weft_inputs *in;
    const weft_batch *batch;
    const weft_row_packing *pack;
    weft_tensor *latents, *noise, *owner, *weight, *segments, *text_segments, *position[3], *key;
    int64_t rows, floats; /* rows of this rank, floats of a token */
    float token_weight;
} row_inputs;

/* Sets the latents and the noise of sample i. */
static void fill_sample(const row_inputs *r, int64_t i, uint64_t key)
{
    const weft_packed_item *item = &r->batch->packed[i];
    const weft_grid *grid = &r->in->models->grid;
    const int64_t *patch = r->in->models->patch.factor, *size = item->size, z = grid->channels;
    const double scale = weft_noise_process_scale(weft_run_process(r->in->run), &r->in->run->noise);
    const int64_t lines = size[1] / patch[1], columns = size[2] / patch[2],
                  first = item->row * r->pack->tokens + item->token;
    float *x = r->latents ? r->latents->data : NULL, *noise = r->noise ? r->noise->data : NULL;
    for (int64_t at = 0; at < size[0] * size[1] * size[2]; at++) {
        const int64_t t = at / (size[1] * size[2]), y = at / size[2] % size[1], u = at % size[2],
                      token = (t / patch[0] * lines + y / patch[1]) * columns + u / patch[2],
                      inside = (t % patch[0] * patch[1] + y % patch[1]) * patch[2] + u % patch[2],
                      to = (first + token) * r->floats + inside * z;
        const int64_t statistics = weft_grid_statistics_at(grid, t);
        for (int64_t c = 0; c < z; c++) {
            const float value = r->batch->part[item->at + at * z + c];
            if (x)
                x[to + c] = (float)(scale * (value - grid->mean[statistics + c]) /
                                    grid->deviation[statistics + c]);
            if (noise)
                noise[to + c] = weft_random_normal(key, WEFT_RNG_NOISE, (uint64_t)(at * z + c));
        }
    }
}

static void set_segment(weft_tensor *to, int64_t sample, const int64_t segment[4])
{
    for (int i = 0; to && i < 4; i++)
        ((int32_t *)to->data)[sample * 4 + i] = (int32_t)segment[i];
}

/* Sets what describes the tokens of sample i, the k-th of its row. */
static void fill_tokens(const row_inputs *r, int64_t i, int64_t k)
{
    const weft_packed_item *item = &r->batch->packed[i];
    const int64_t *patch = r->in->models->patch.factor,
                  text = weft_text_conditioning_length(&r->in->models->text),
                  lines = item->size[1] / patch[1], columns = item->size[2] / patch[2],
                  count = item->size[0] / patch[0] * lines * columns,
                  sample = item->row * r->pack->samples + k;
    const int64_t begin = item->token, end = begin + count;
    set_segment(r->segments, sample, (int64_t[]){begin, end, begin, end});
    set_segment(r->text_segments, sample, (int64_t[]){begin, end, k * text, (k + 1) * text});
    for (int64_t token = 0; token < count; token++) {
        const int64_t at = item->row * r->pack->tokens + begin + token,
                      position[3] = {token / (lines * columns), token / columns % lines,
                                     token % columns};
        if (r->owner) {
            float *owner = (float *)r->owner->data + at * r->pack->samples;
            owner[0] = 0;
            owner[k] = 1;
        }
        if (r->weight)
            ((float *)r->weight->data)[at] = r->token_weight;
        for (int d = 0; d < 3; d++)
            if (r->position[d])
                ((int32_t *)r->position[d]->data)[at] = (int32_t)position[d];
    }
}

static void clear(weft_tensor *t)
{
    if (t)
        memset(t->data, 0, (size_t)(weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype)));
}

/* Empties the rows: padding belongs to the first sample, has no segment and no weight. */
static void clear_rows(const row_inputs *r)
{
    weft_tensor *const all[] = {
        r->latents,       r->noise,       r->owner,       r->weight,      r->segments,
        r->text_segments, r->position[0], r->position[1], r->position[2], r->key};
    for (int i = 0; i < WEFT_COUNT(all); i++)
        clear(all[i]);
    for (int64_t at = 0; r->owner && at < r->rows * r->pack->tokens; at++)
        ((float *)r->owner->data)[at * r->pack->samples] = 1;
}

/* Rows of this rank. A pipeline stage has some of the inputs. */
static int64_t rows_of_rank(const row_inputs *r)
{
    const weft_tensor *const all[] = {r->latents,       r->noise, r->owner,      r->segments,
                                      r->text_segments, r->key,   r->position[0]};
    for (int i = 0; i < WEFT_COUNT(all); i++)
        if (all[i])
            return all[i]->shape.dim[0];
    return 0;
}

static row_inputs find_inputs(const weft_inputs *in, const weft_batch *batch,
                              weft_input_lookup *find, void *user)
{
    const weft_row_packing *pack = &in->run->data.packing;
    const int64_t *patch = in->models->patch.factor;
    row_inputs r = {.in = in,
                    .batch = batch,
                    .pack = pack,
                    .latents = find(user, "batch.latents"),
                    .noise = find(user, "batch.noise"),
                    .owner = find(user, "batch.owner"),
                    .weight = find(user, "batch.weight"),
                    .segments = find(user, "batch.segments"),
                    .text_segments = find(user, "batch.text_segments"),
                    .position = {find(user, "batch.frame"), find(user, "batch.line"),
                                 find(user, "batch.column")},
                    .key = find(user, "batch.key"),
                    .floats = patch[0] * patch[1] * patch[2] * in->models->grid.channels,
                    .token_weight = batch->all_tokens
                                        ? (float)((double)(pack->rows * pack->tokens) /
                                                  (double)batch->all_tokens)
                                        : 0};
    r.rows = rows_of_rank(&r);
    return r;
}

weft_status weft_packed_rows_fill(const weft_inputs *in, int64_t step, const weft_batch *batch,
                                  weft_input_lookup *find, void *user)
{
    const row_inputs r = find_inputs(in, batch, find, user);
    const int64_t texts = in->tokenizers ? in->tokenizers->texts : 0;
    clear_rows(&r);
    /* places without a sample have the empty caption, which is not counted */
    for (int64_t i = 0; i < r.rows * r.pack->samples; i++)
        WEFT_TRY(weft_inputs_set_caption(in, find, user, i, "", NULL));
    if (in->tokenizers)
        in->tokenizers->texts = texts;
    for (int64_t i = 0, k = 0; i < batch->count; i++) {
        const weft_packed_item *item = &batch->packed[i];
        k = i && item->row == item[-1].row ? k + 1 : 0;
        const int64_t sample = item->row * r.pack->samples + k;
        const int64_t key = weft_inputs_key(in, step, batch, i);
        if (r.key)
            ((int64_t *)r.key->data)[sample] = key;
        fill_sample(&r, i, (uint64_t)key);
        fill_tokens(&r, i, k);
        WEFT_TRY(weft_inputs_set_caption(in, find, user, sample, batch->caption[i],
                                         batch->extra ? batch->extra + i * in->models->text.floats
                                                      : NULL));
    }
    return WEFT_OK;
}
