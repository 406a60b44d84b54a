/* weft parity of trainings: compares losses, gradient norms and final weights of steps with given
 * data, noise and levels. The steps are the trainer's: the row of the noise process and the
 * optimizer's graph with any model. */
#include "parity/parity_training.h"

#include "diffusion/process.h"
#include "exec/execute.h"
#include "graph/builder_helpers.h"
#include "parity/parity_images.h"
#include "parity/parity_model.h"
#include "parity/parity_size.h"
#include "parity/parity_store.h"
#include "train/graph/optimizer.h"
#include "transform/numeric/trainable.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double tolerance = 1e-4; /* tolerance of losses, norms and weights */

/* Latents that are denoised: of the video, and of the audio of models that have both. */
typedef struct stream {
    weft_port latents, prediction;
    const char *data_name, *noise_name; /* in the golden file and in the graph */
    float *data, *noise;                /* NULL: the model lacks the stream */
} stream;
enum { STREAMS = 2 };
/* Names in the golden file. */
static const char audio_level_name[] = "audio_t", given_name[] = "given_channels";

typedef struct training {
    weft_parity *p;
    const weft_noise_process *noise_process;
    weft_noise_process_config noised;
    weft_optimizer_config optimizer;
    double lr;
    int64_t batch, steps, items; /* batch of a step; number of steps; data samples */
    bool towards_data;           /* the output is data - noise, opposite to weft's */
    bool data_time;              /* "t" goes from noise to data */
    bool whole_times;            /* the model takes integer times */
    weft_model_size size;
    stream stream[STREAMS];
    /* Given channels of the latents of the video, after the noisy channels; 0: none */
    int64_t given_channels;
    float *given; /* of all samples */
    float *noise_level;
    float *audio_level;    /* of the second stream; NULL: as the first */
    weft_graph *gradients; /* f64 gradients of a step; NULL: not built yet */
    weft_program *exact;
} training;

/* ---- the objective --------------------------------------------------------------------------- */

/* Reads "objective" without spaces, for keyword search. */
static void read_objective(const json_t *json, char *text, size_t size)
{
    const char *from = json_string_value(json_object_get(json, "objective"));
    size_t length = 0;
    for (; from && *from && length + 1 < size; from++)
        if (*from != ' ' && *from != '*')
            text[length++] = *from;
    text[length] = 0;
}

static weft_status find_noise_process(training *t)
{
    const weft_parity *p = t->p;
    char said[1024];
    read_objective(p->json, said, sizeof said);
    t->noised = weft_noise_process_defaults;
    if (!strncmp(said, "EDM", 3)) {
        t->noise_process = &weft_noise_process_edm;
        return weft_json_get_f64_or(p->json, "sigma_data", p->config_file, 0.5,
                                    &t->noised.edm.sigma_data);
    }
    if (strncmp(said, "flowmatching", 12))
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                          WEFT_AT(.file = p->config_file, .key = "objective"),
                          "the text must begin with \"EDM\" or \"flow matching\"");
    t->noise_process = &weft_noise_process_flow;
    t->towards_data = strstr(said, "target=data-noise") != NULL;
    t->data_time = strstr(said, "(1-t)noise") != NULL;
    t->whole_times = strstr(said, "round(") != NULL;
    return WEFT_OK;
}

static weft_status read_optimizer(training *t)
{
    const weft_parity *p = t->p;
    const json_t *o = json_object_get(p->json, "optimizer");
    const json_t *betas = json_object_get(o, "betas");
    weft_optimizer_config *c = &t->optimizer;
    *c = (weft_optimizer_config){.decay_all = true};
    WEFT_TRY(weft_json_get_f64(o, "lr", p->config_file, &t->lr));
    WEFT_TRY(weft_json_get_f64(o, "eps", p->config_file, &c->eps));
    WEFT_TRY(weft_json_get_f64(o, "weight_decay", p->config_file, &c->weight_decay));
    WEFT_TRY(weft_json_get_f64_or(o, "clip_grad_norm", p->config_file, 0, &c->clip_norm));
    if (json_array_size(betas) != 2)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                          WEFT_AT(.file = p->config_file, .key = "optimizer.betas"),
                          "expected a list of two numbers");
    c->beta1 = json_number_value(json_array_get(betas, 0));
    c->beta2 = json_number_value(json_array_get(betas, 1));
    return WEFT_OK;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Returns the golden tensor of an input, by its meaning or by the reference's name. */
static const weft_stored_tensor *samples_of(const weft_parity *p, const weft_port_row *row)
{
    const weft_stored_tensor *t = weft_tensors_find(p->golden, weft_port_name(row->port));
    return t ? t : weft_tensors_find(p->golden, row->reference);
}

static const json_t *number_of(const weft_parity *p, const weft_port_row *row)
{
    const json_t *n = json_object_get(p->json, weft_port_name(row->port));
    n = n ? n : json_object_get(p->json, row->reference);
    return json_is_number(n) ? n : NULL;
}

/* Latents and times are inputs of the noise process. */
static bool is_conditioning(const weft_port_row *row)
{
    return !row->output && row->port != WEFT_PORT_LATENTS && row->port != WEFT_PORT_TIMESTEP &&
           row->port != WEFT_PORT_AUDIO;
}

static bool has_stream(const training *t, const stream *s)
{
    return weft_model_takes(&t->p->model, s->latents);
}

/* Images of golden trainings have no padding. */
static bool is_present(const weft_parity *p, const weft_port_row *row)
{
    return row->port == WEFT_PORT_PADDING || samples_of(p, row) || number_of(p, row);
}

/* Finds the channels of the video's latents that are given, in the layout of the data. */
static weft_status find_given(training *t, const weft_stored_tensor *data)
{
    const weft_stored_tensor *given = weft_tensors_find(t->p->golden, given_name);
    if (!given)
        return WEFT_OK;
    bool same = given->rank == 5 && data->rank == 5;
    for (int d = 0; d < 5 && same; d++)
        same = d == 1 || given->dim[d] == data->dim[d];
    if (!same || given->dim[1] >= weft_model_grid(&t->p->model).channels)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = t->p->file, .key = given_name),
                          "the channels after the noisy ones need the sizes of \"data\"");
    t->given_channels = given->dim[1];
    return WEFT_OK;
}

static weft_status find_size(training *t, const weft_port_row *latents)
{
    weft_model_size *size = &t->size;
    const weft_parity *p = t->p;
    const weft_family *f = p->model.family;
    const weft_stored_tensor *data;
    weft_parity_images images;
    WEFT_TRY(weft_parity_need(p, "data", &data));
    WEFT_TRY(weft_parity_read_images(p, &images));
    /* packed videos are here as (B,T,Y,X,C) if a token is one latent */
    const bool packed = latents->form == WEFT_VIDEO_PACKED,
               image = packed && images.count == 1 && data->rank == 3,
               several = weft_parity_token_side(p) > 1;
    if (!image && (data->rank != 5 || (packed && several)))
        return weft_error(
            WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = "data", WEFT_NUMBER(data->rank)),
            "the tensor has %d dimensions; a %s needs 5", data->rank, weft_model_class(&p->model));
    WEFT_TRY(find_given(t, data));
    *size = (weft_model_size){.batch = t->batch};
    if (image)
        weft_parity_size_images(&images, weft_model_grid(&p->model).factor[1], size);
    else
        weft_parity_size_video(data, packed ? WEFT_VIDEO_BTYXC : latents->form, size);
    const weft_stored_tensor *audio = weft_tensors_find(p->golden, t->stream[1].data_name);
    size->audio = audio && audio->rank == 3 ? audio->dim[1] : 0;
    for (int i = 0; i < f->ports; i++) {
        const weft_port_row *row = &f->port[i];
        const weft_stored_tensor *s = is_conditioning(row) ? samples_of(p, row) : NULL;
        if (is_conditioning(row) && row->optional && is_present(p, row))
            size->present_ports |= (uint64_t)1 << row->port;
        if (s && s->rank >= 2 && row->port == WEFT_PORT_TEXT)
            size->text = s->dim[s->rank - 2];
        if (s && s->rank >= 2 && row->port == WEFT_PORT_TEXT2)
            size->text2 = s->dim[s->rank - 2];
        if (s && s->rank == 3 && row->port == WEFT_PORT_IMAGE)
            size->image = s->dim[1];
        if (s)
            weft_parity_size_history(s, row->port, size);
    }
    t->p->size = *size;
    return WEFT_OK;
}

static weft_tensor *input_of(const training *t, const char *name)
{
    return weft_program_input(t->p->program, name);
}

static void set_scalar(const training *t, const char *name, double value)
{
    *(float *)input_of(t, name)->data = (float)value;
}

/* Fills a step's conditioning: item i of step s is sample (s B + i) modulo the number of
 * samples. */
static weft_status fill_conditioning(const training *t, const weft_port_row *row, int64_t step)
{
    const weft_parity *p = t->p;
    weft_tensor *to = input_of(t, weft_port_name(row->port));
    if (!to)
        return WEFT_OK;
    const int64_t count = weft_shape_count(&to->shape), each = count / t->batch;
    const weft_stored_tensor *from = samples_of(p, row);
    const json_t *number = number_of(p, row);
    if (!from && !is_present(p, row))
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = p->file, .key = row->reference),
                          "this input of a %s is neither a tensor nor a number",
                          weft_model_class(&p->model));
    if (from && from->count != each * t->items)
        return weft_error(WEFT_MSG_TENSOR_SHAPE,
                          WEFT_AT(.file = p->file, .key = from->name, WEFT_NUMBER(from->count)),
                          "the tensor has %" PRId64 " elements, but %" PRId64
                          " samples need %" PRId64,
                          from->count, t->items, each * t->items);
    float *values = NULL;
    if (from)
        WEFT_TRY(weft_parity_load(p, from->name, weft_parity_form_of(row), &values));
    for (int64_t i = 0; i < count; i++) {
        const int64_t sample = (step * t->batch + i / each) % t->items;
        const float value = values ? values[sample * each + i % each]
                                   : (float)(number ? json_number_value(number) : 0);
        if (to->dtype == WEFT_I32)
            ((int32_t *)to->data)[i] = (int32_t)value;
        else
            ((float *)to->data)[i] = value;
    }
    weft_free(values);
    return WEFT_OK;
}

static void fill_noise_levels(const training *t, int64_t step)
{
    float *sigma = input_of(t, "level.sigma")->data, *time = input_of(t, "timestep")->data;
    for (int64_t b = 0; b < t->batch; b++) {
        const float golden_level = t->noise_level[step * t->batch + b];
        sigma[b] = t->data_time ? 1 - golden_level : golden_level;
        if (t->noise_process == &weft_noise_process_edm)
            time[b] = logf(golden_level) / 4;
        else if (weft_model_has_unit_times(&t->p->model))
            time[b] = sigma[b];
        else
            time[b] = t->whole_times ? rintf(1000 * sigma[b]) : 1000 * sigma[b];
    }
}

/* Levels of flow matching of the audio. */
static void fill_audio_levels(const training *t, int64_t step)
{
    float *sigma = input_of(t, "audio_level.sigma")->data,
          *time = input_of(t, "audio_level.time")->data;
    for (int64_t b = 0; b < t->batch; b++) {
        sigma[b] = t->audio_level[step * t->batch + b];
        time[b] = 1000 * sigma[b];
    }
}

/* Fills the input `name` with the samples of a step, from the values of all samples. */
static void fill_samples(const training *t, const char *name, const float *samples, int64_t step)
{
    float *to = input_of(t, name)->data;
    const int64_t each = weft_shape_count(&input_of(t, name)->shape) / t->batch;
    for (int64_t b = 0; b < t->batch; b++)
        memcpy(to + b * each, samples + (step * t->batch + b) % t->items * each, (size_t)each * 4);
}

static void fill_stream(const training *t, const stream *s, int64_t step)
{
    const int64_t count = weft_shape_count(&input_of(t, s->data_name)->shape);
    fill_samples(t, s->data_name, s->data, step);
    memcpy(input_of(t, s->noise_name)->data, s->noise + step * count, (size_t)count * 4);
}

static weft_status fill_step(const training *t, int64_t step)
{
    const weft_family *f = t->p->model.family;
    for (int i = 0; i < STREAMS; i++)
        if (t->stream[i].data)
            fill_stream(t, &t->stream[i], step);
    if (t->given)
        fill_samples(t, given_name, t->given, step);
    fill_noise_levels(t, step);
    if (t->audio_level)
        fill_audio_levels(t, step);
    for (int i = 0; i < f->ports; i++)
        if (is_conditioning(&f->port[i]))
            WEFT_TRY(fill_conditioning(t, &f->port[i], step));
    set_scalar(t, "optimizer.step", (double)(step + 1));
    return WEFT_OK;
}

/* ---- the steps ------------------------------------------------------------------------------- */

static weft_noised level_input(weft_graph *g, const char *name, int64_t batch, weft_value time)
{
    return (weft_noised){.sigma = weft_input(g, name, WEFT_F32, WEFT_SHAPE(batch)),
                         .alpha = WEFT_NONE,
                         .time = time,
                         .weight = WEFT_NONE};
}

/* Sets the times of audio that has levels of its own. */
static void set_audio_times(const training *t, weft_graph *g, weft_noised level[STREAMS],
                            weft_ports *ports)
{
    if (!t->audio_level)
        return;
    const weft_value time = weft_input(g, "audio_level.time", WEFT_F32, WEFT_SHAPE(t->batch));
    level[1] = level_input(g, "audio_level.sigma", t->batch, time);
    ports->at[WEFT_PORT_AUDIO_TIMESTEP] = ports->at[WEFT_PORT_AUDIO_LEVEL] = time;
    ports->at[WEFT_PORT_LEVEL] = level[0].time;
}

/* Loss of a stream. Audio of samples without attention between the streams has none. */
static weft_value stream_loss(const training *t, weft_graph *g, int index, weft_value prediction,
                              weft_value data, weft_value noise, const weft_noised *level,
                              const weft_ports *ports)
{
    weft_value value[] = {prediction, data, noise};
    const weft_value joined = index ? ports->at[WEFT_PORT_JOINED] : WEFT_NONE;
    for (int i = 0; i < WEFT_COUNT(value) && weft_value_ok(joined); i++)
        value[i] = weft_mul(g, value[i], weft_reshape(g, joined, WEFT_SHAPE(t->batch, 1, 1)));
    return weft_noise_process_loss(g, t->noise_process, &t->noised, value[0], value[1], value[2],
                                   level);
}

/* Builds the loss of a step in `g`, the sum over the streams. */
static weft_value build(const training *t, weft_graph *g)
{
    const weft_model *model = &t->p->model;
    const weft_family *f = model->family;
    const weft_model_size *size = &t->size;
    weft_value data[STREAMS], noise[STREAMS], loss = WEFT_NONE;
    weft_ports ports = weft_ports_none();
    for (int i = 0; i < f->ports; i++)
        if (is_conditioning(&f->port[i]) && weft_model_takes(model, f->port[i].port) &&
            (!f->port[i].optional || size->present_ports >> f->port[i].port & 1))
            ports.at[f->port[i].port] = weft_model_input(g, model, size, f->port[i].port, "");
    const weft_value time = weft_model_input(g, model, size, WEFT_PORT_TIMESTEP, "");
    weft_noised level[STREAMS];
    level[0] = level[1] = level_input(g, "level.sigma", t->batch, time);
    ports.at[WEFT_PORT_TIMESTEP] = time;
    set_audio_times(t, g, level, &ports);
    for (int i = 0; i < STREAMS; i++) {
        const stream *st = &t->stream[i];
        if (!has_stream(t, st))
            continue;
        weft_shape latents = weft_model_shape(model, size, st->latents), given = latents;
        if (i == 0 && t->given_channels) {
            given.dim[4] = t->given_channels;
            latents.dim[4] -= t->given_channels;
        }
        data[i] = weft_input(g, st->data_name, WEFT_F32, latents);
        noise[i] = weft_input(g, st->noise_name, WEFT_F32, latents);
        ports.at[st->latents] =
            t->noise_process->input(g, &t->noised, data[i], noise[i], &level[i]);
        if (i == 0 && t->given_channels)
            ports.at[st->latents] = weft_concat(
                g,
                (weft_value[]){ports.at[st->latents], weft_input(g, given_name, WEFT_F32, given)},
                2, 4);
    }
    weft_model_call(g, model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &ports);
    for (int i = 0; i < STREAMS; i++) {
        const stream *st = &t->stream[i];
        if (!has_stream(t, st))
            continue;
        weft_value prediction = ports.at[st->prediction];
        if (t->towards_data)
            prediction = weft_affine(g, prediction, -1, 0);
        const weft_value own =
            stream_loss(t, g, i, prediction, data[i], noise[i], &level[i], &ports);
        loss = weft_value_ok(loss) ? weft_add(g, loss, own) : own;
    }
    return loss;
}

/* Reads "rank", "lora_alpha" and "target_modules": LoRA matrices are trained instead of the
 * model. */
static weft_status set_trainable(const training *t)
{
    weft_parity *p = t->p;
    const json_t *targets = json_object_get(p->json, "target_modules");
    const int64_t most = (int64_t)json_array_size(targets) + 1;
    weft_trainable trainable = {.scope = "", .rank = 0};
    weft_graph *trained;
    WEFT_TRY(weft_json_get_i64_or(p->json, "rank", p->config_file, 0, &trainable.rank));
    WEFT_TRY(weft_json_get_f64_or(p->json, "lora_alpha", p->config_file, (double)trainable.rank,
                                  &trainable.alpha));
    if (!trainable.rank)
        return WEFT_OK;
    WEFT_TRY(
        WEFT_ARENA_NEW(weft_graph_arena(p->graph), trainable.targets.item, most, "the comparison"));
    for (int64_t i = 0; i < most; i++) {
        const json_t *one = json_is_string(targets) ? targets : json_array_get(targets, (size_t)i);
        if (json_is_string(one) && (i == 0 || one != targets))
            trainable.targets.item[trainable.targets.count++] = json_string_value(one);
    }
    const weft_status_code status = weft_pass_trainable(p->graph, &trainable, &trained);
    if (status != WEFT_OK)
        return weft_error_at(status, WEFT_AT(.file = p->config_file));
    weft_graph_free(p->graph);
    p->graph = trained;
    return WEFT_OK;
}

static void compare_number(training *t, const char *what, int64_t step, double actual,
                           double expected, double *worst)
{
    char name[96];
    const float a = (float)actual, b = (float)expected;
    snprintf(name, sizeof name, "step %" PRId64 ": %.7g, reference %.7g", step, actual, expected);
    weft_parity_judge(t->p, what, name, &a, &b, 1, fabs(expected), tolerance, worst);
}

static weft_status run_steps(training *t, double worst[2])
{
    weft_program *program = t->p->program;
    const json_t *losses = json_object_get(t->p->json, "losses"),
                 *norms = json_object_get(t->p->json, "grad_norms_before_clip");
    set_scalar(t, "optimizer.lr", t->lr);
    set_scalar(t, "optimizer.loss_limit", INFINITY);
    set_scalar(t, "optimizer.norm_limit", INFINITY);
    for (int64_t s = 0; s < t->steps; s++) {
        WEFT_TRY(fill_step(t, s));
        WEFT_TRY(weft_program_run(program));
        const json_t *norm = json_array_get(norms, (size_t)s);
        compare_number(t, "loss", s, *(const float *)weft_program_output(program, "loss")->data,
                       json_number_value(json_array_get(losses, (size_t)s)), &worst[0]);
        if (norm)
            compare_number(t, "norm", s,
                           *(const float *)weft_program_output(program, "grad_norm")->data,
                           json_number_value(norm), &worst[1]);
    }
    return WEFT_OK;
}

static const char final_prefix[] = "final.";

/* Computes the gradients of a step in f64 at the current weights. */
static weft_status run_exact(training *t)
{
    if (t->exact)
        return WEFT_OK;
    t->gradients = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(t->gradients, "the comparison"));
    weft_parity_output_gradients(t->p, t->gradients, build(t, t->gradients));
    WEFT_TRY(weft_graph_check(t->gradients));
    return weft_parity_exact(t->p, t->gradients, &t->exact);
}

static bool has_no_gradient(const training *t, const char *name)
{
    const weft_parity *p = t->p;
    double largest = 0;
    for (int64_t i = 0; i < weft_tensors_count(p->golden); i++) {
        const char *other = weft_tensors_at(p->golden, i)->name;
        if (strncmp(other, final_prefix, sizeof final_prefix - 1))
            continue;
        const double norm =
            weft_parity_exact_gradient(p, t->exact, other + sizeof final_prefix - 1);
        largest = isfinite(norm) && norm > largest ? norm : largest;
    }
    return weft_parity_exact_gradient(p, t->exact, name) < weft_parity_zero * largest;
}

/* Computes the scale of a weight's error: the norm of the weight. A weight with a gradient of zero
 * in exact arithmetic (a bias of keys, which softmax cancels) follows rounding errors: AdamW steps
 * by up to lr for any gradient. Such a weight may also differ by twice the norm of its steps of lr
 * in random directions. */
static weft_status find_scale(training *t, const char *name, const float *actual,
                              const float *expected, int64_t count, double *scale)
{
    double sum = 0;
    *scale = weft_parity_norm(expected, count);
    for (int64_t i = 0; i < count; i++)
        sum += pow((double)actual[i] - (double)expected[i], 2);
    if (sqrt(sum) <= tolerance * *scale)
        return WEFT_OK;
    WEFT_TRY(run_exact(t));
    if (has_no_gradient(t, name))
        *scale += 2 * t->lr * sqrt((double)(t->steps * count)) / tolerance;
    return WEFT_OK;
}

/* Adds the LoRA matrices of the weight `name` to values[count], summed in f64. */
static weft_status merge(const training *t, const char *name, float *values, int64_t count)
{
    const weft_parity *p = t->p;
    char matrix[2][700];
    int64_t size[2], rank;
    double alpha;
    const int module = (int)(strlen(name) - strlen(".weight"));
    for (int i = 0; i < 2; i++)
        snprintf(matrix[i], sizeof matrix[i], "%.*s.lora_%c.weight", module > 0 ? module : 0, name,
                 "AB"[i]);
    const float *a = weft_parity_param(p, matrix[0], &size[0]),
                *b = weft_parity_param(p, matrix[1], &size[1]);
    WEFT_TRY(weft_json_get_i64(p->json, "rank", p->config_file, &rank));
    WEFT_TRY(weft_json_get_f64_or(p->json, "lora_alpha", p->config_file, (double)rank, &alpha));
    if (!a || !b || size[0] / rank * (size[1] / rank) != count)
        return weft_error(
            WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = name),
            "the model has no trained LoRA matrices for this weight, or they have another size");
    const int64_t columns = size[0] / rank;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t k = 0; k < rank; k++)
            sum += (double)b[i / columns * rank + k] * (double)a[k * columns + i % columns];
        values[i] = (float)((double)values[i] + alpha / (double)rank * sum);
    }
    return WEFT_OK;
}

/* Compares "final.merged.<weight>": a weight with its LoRA matrices merged. */
static weft_status compare_merged(const training *t, const weft_stored_tensor *expected,
                                  const char *name, double *worst)
{
    weft_parity *p = t->p;
    int64_t count;
    const float *weight = weft_parity_param(p, name, &count);
    if (!weight || count != expected->count)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = expected->name),
                          "the model has no such parameter, or its size differs");
    float *actual = weft_alloc(2 * count * (int64_t)sizeof *actual + 1), *values = actual + count;
    WEFT_TRY(WEFT_ALLOCATED(actual, "%s", p->file));
    memcpy(actual, weight, (size_t)count * sizeof *actual);
    weft_tensor_to_f32(expected, values);
    weft_status_code status = WEFT_OK;
    WEFT_GO(merge(t, name, actual, count));
    weft_parity_judge(p, "merged", name, actual, values, count, weft_parity_norm(values, count),
                      tolerance, worst);
out:
    weft_free(actual);
    return status;
}

static bool begins(const char **name, const char *with)
{
    const size_t length = strlen(with);
    const bool does = !strncmp(*name, with, length);
    *name += does ? length : 0;
    return does;
}

static weft_status compare_weight(training *t, const weft_stored_tensor *expected, const char *name,
                                  double *worst)
{
    weft_parity *p = t->p;
    int64_t count;
    double scale;
    float *values = NULL;
    weft_status_code status = WEFT_OK;
    const float *actual = weft_parity_param(p, name, &count);
    if (!actual || count != expected->count)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = expected->name),
                          "the model has no such parameter, or its size differs");
    WEFT_TRY(weft_parity_load(p, expected->name, WEFT_PARITY_AS_HERE, &values));
    WEFT_GO(find_scale(t, name, actual, values, count, &scale));
    weft_parity_judge(p, "weight", name, actual, values, count, scale, tolerance, worst);
out:
    weft_free(values);
    return status;
}

static weft_status compare_weights(training *t, double *worst)
{
    weft_parity *p = t->p;
    for (int64_t i = 0; i < weft_tensors_count(p->golden); i++) {
        const weft_stored_tensor *expected = weft_tensors_at(p->golden, i);
        if (strncmp(expected->name, final_prefix, sizeof final_prefix - 1))
            continue;
        const char *name = expected->name + sizeof final_prefix - 1;
        if (begins(&name, "merged.")) {
            WEFT_TRY(compare_merged(t, expected, name, worst));
            continue;
        }
        begins(&name, "lora.");
        WEFT_TRY(compare_weight(t, expected, name, worst));
    }
    return WEFT_OK;
}

/* ---- the kind -------------------------------------------------------------------------------- */

/* Loads data and noise of a stream that the model has. */
static weft_status load_stream(const training *t, stream *s, weft_parity_form form)
{
    const weft_parity *p = t->p;
    const weft_stored_tensor *data, *noise;
    if (!has_stream(t, s))
        return WEFT_OK;
    WEFT_TRY(weft_parity_need(p, s->data_name, &data));
    WEFT_TRY(weft_parity_need(p, s->noise_name, &noise));
    weft_shape shape = weft_model_shape(&p->model, &t->size, s->latents);
    if (s == t->stream)
        shape.dim[4] -= t->given_channels;
    const int64_t each = weft_shape_count(&shape) / t->batch;
    if (data->count != t->items * each || noise->count < t->steps * t->batch * each)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = s->data_name),
                          "this tensor does not have %" PRId64 " samples of %" PRId64
                          " elements, or \"%s\" has fewer than all steps need",
                          t->items, each, s->noise_name);
    WEFT_TRY(weft_parity_load(p, s->data_name, form, &s->data));
    return weft_parity_load(p, s->noise_name, form, &s->noise);
}

static weft_status load_series(training *t, const weft_port_row *latents)
{
    const weft_parity *p = t->p;
    const weft_parity_form form = weft_parity_form_of(latents);
    const char *level_name = t->noise_process == &weft_noise_process_edm ? "sigma" : "t";
    const weft_stored_tensor *data, *noise, *noise_levels;
    WEFT_TRY(weft_parity_need(p, "data", &data));
    WEFT_TRY(weft_parity_need(p, "noise", &noise));
    WEFT_TRY(weft_parity_need(p, level_name, &noise_levels));
    t->items = data->dim[0];
    if (t->batch < 1 || t->items < 1 || noise_levels->count < t->steps * t->batch ||
        noise->count != noise_levels->count * (data->count / t->items))
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = level_name),
                          "this tensor and \"noise\" do not have %" PRId64 " steps of %" PRId64
                          " samples each",
                          t->steps, t->batch);
    for (int i = 0; i < STREAMS; i++)
        WEFT_TRY(load_stream(t, &t->stream[i], i ? WEFT_PARITY_AS_HERE : form));
    if (t->given_channels)
        WEFT_TRY(weft_parity_load(p, given_name, form, &t->given));
    if (weft_tensors_find(p->golden, audio_level_name))
        WEFT_TRY(weft_parity_load(p, audio_level_name, WEFT_PARITY_AS_HERE, &t->audio_level));
    return weft_parity_load(p, level_name, WEFT_PARITY_AS_HERE, &t->noise_level);
}

static weft_status train(training *t, double worst[3])
{
    weft_parity *p = t->p;
    const weft_family *f = p->model.family;
    const weft_port_row *latents = NULL;
    for (int i = 0; i < f->ports; i++)
        if (f->port[i].port == WEFT_PORT_LATENTS && !f->port[i].output)
            latents = &f->port[i];
    if (!latents || f->role != WEFT_ROLE_DENOISER)
        return weft_error(
            WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = p->config_file),
            "%s is not a denoiser; weft parity compares the training of denoisers only",
            weft_model_class(&p->model));
    WEFT_TRY(find_noise_process(t));
    WEFT_TRY(read_optimizer(t));
    WEFT_TRY(weft_json_get_i64(p->json, "batch", p->config_file, &t->batch));
    t->steps = (int64_t)json_array_size(json_object_get(p->json, "losses"));
    WEFT_TRY(find_size(t, latents));
    WEFT_TRY(load_series(t, latents));
    const weft_value loss = build(t, p->graph);
    WEFT_TRY(weft_graph_check(p->graph));
    weft_output(p->graph, "objective", loss);
    WEFT_TRY(set_trainable(t));
    weft_optimizer_build(p->graph, weft_graph_find(p->graph, "objective"), &t->optimizer);
    WEFT_TRY(weft_parity_compile(p));
    WEFT_TRY(run_steps(t, worst));
    WEFT_TRY(weft_parity_fetch_store(p));
    return compare_weights(t, &worst[2]);
}

static bool is_training(const json_t *json)
{
    return json_is_array(json_object_get(json, "losses"));
}

static weft_status compare_training(weft_parity *p)
{
    double worst[3] = {0};
    training t = {.p = p,
                  .stream = {{WEFT_PORT_LATENTS, WEFT_PORT_PREDICTION, "data", "noise", NULL, NULL},
                             {WEFT_PORT_AUDIO, WEFT_PORT_AUDIO_PREDICTION, "audio_data",
                              "audio_noise", NULL, NULL}}};
    WEFT_TRY(weft_parity_open_model(p));
    const weft_status_code status = train(&t, worst);
    for (int i = 0; i < STREAMS; i++) {
        weft_free(t.stream[i].data);
        weft_free(t.stream[i].noise);
    }
    weft_free(t.noise_level);
    weft_free(t.given);
    weft_free(t.audio_level);
    weft_program_free(t.exact);
    weft_graph_free(t.gradients);
    WEFT_TRY(status);
    static const char *const parts[] = {"losses", "gradient norms", "final weights"};
    for (int i = 0; i < WEFT_COUNT(parts); i++)
        weft_parity_measured(p, parts[i], worst[i], tolerance);
    return WEFT_OK;
}

const weft_parity_kind weft_parity_training = {"training", is_training, compare_training};
