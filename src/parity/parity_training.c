/* weft parity of trainings: losses, gradient norms and final weights of steps whose data, noise and
 * levels are given. The steps are those of the trainer: the process' row and the optimizer's graph
 * around whatever model it is. */
#include "cli/parity_model.h"
#include "diffusion/process.h"
#include "pass/tune.h"
#include "train/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double tolerance = 1e-4; /* of losses, norms and weights */

typedef struct training {
    weft_parity *p;
    const weft_process *process;
    weft_process_config noised;
    weft_optimizer_config optimizer;
    double lr;
    int64_t batch, steps, items; /* of a step; there are; samples of the data */
    bool towards_data;           /* the answer is data - noise: the other way round than ours */
    bool data_time;              /* "t" goes from noise to data */
    bool whole_times;            /* the model is told times without fractions */
    weft_model_size size;
    float *data, *noise, *level;
    weft_graph *gradients; /* of a step, and run in f64: which are zero; NULL: nobody asked yet */
    weft_program *exact;
} training;

/* ---- the objective --------------------------------------------------------------------------- */

/* The sentence of "objective" without its blanks: what it says is looked up in it. */
static void read_objective(const json_t *json, char *text, size_t size)
{
    const char *from = json_string_value(json_object_get(json, "objective"));
    size_t length = 0;
    for (; from && *from && length + 1 < size; from++)
        if (*from != ' ' && *from != '*')
            text[length++] = *from;
    text[length] = 0;
}

static weft_status find_process(training *t)
{
    const weft_parity *p = t->p;
    char said[1024];
    read_objective(p->json, said, sizeof said);
    t->noised = weft_process_defaults;
    if (!strncmp(said, "EDM", 3)) {
        t->process = &weft_process_edm;
        return weft_json_get_f64_or(p->json, "sigma_data", p->config_file, 0.5,
                                    &t->noised.edm.sigma_data);
    }
    if (strncmp(said, "flowmatching", 12))
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: \"objective\" begins with neither \"EDM\" nor \"flow matching\"",
                         p->config_file);
    t->process = &weft_process_flow;
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
        return weft_fail(WEFT_E_FORMAT, "%s: optimizer \"betas\" must be two numbers",
                         p->config_file);
    c->beta1 = json_number_value(json_array_get(betas, 0));
    c->beta2 = json_number_value(json_array_get(betas, 1));
    return WEFT_OK;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* What golden trainings call an input: by its meaning, or as the reference does. */
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

/* Latents and times come from the process. */
static bool is_told(const weft_port_row *row)
{
    return !row->output && row->port != WEFT_PORT_LATENTS && row->port != WEFT_PORT_TIMESTEP;
}

/* Every picture of a golden training is filled to its edges. */
static bool is_given(const weft_parity *p, const weft_port_row *row)
{
    return row->port == WEFT_PORT_PADDING || samples_of(p, row) || number_of(p, row);
}

static weft_status find_size(training *t, const weft_port_row *latents)
{
    weft_model_size *size = &t->size;
    const weft_parity *p = t->p;
    const weft_family *f = p->model.family;
    const weft_stored_tensor *data;
    WEFT_TRY(weft_parity_need(p, "data", &data));
    if (data->rank != 5 || latents->form == WEFT_VIDEO_PACKED)
        return weft_fail(WEFT_E_SHAPE, "%s: \"data\" of a %s has rank %d, not 5", p->file,
                         weft_model_class(&p->model), data->rank);
    *size = (weft_model_size){.batch = t->batch,
                              .frames = data->dim[latents->form == WEFT_VIDEO_BTCYX ? 1 : 2],
                              .height = data->dim[3],
                              .width = data->dim[4]};
    for (int i = 0; i < f->ports; i++) {
        const weft_port_row *row = &f->port[i];
        const weft_stored_tensor *s = is_told(row) ? samples_of(p, row) : NULL;
        if (is_told(row) && row->optional && is_given(p, row))
            size->given |= 1u << row->port;
        if (s && s->rank >= 2 && row->port == WEFT_PORT_TEXT)
            size->text = s->dim[s->rank - 2];
        if (s && s->rank >= 2 && row->port == WEFT_PORT_TEXT2)
            size->text2 = s->dim[s->rank - 2];
        if (s && s->rank == 3 && row->port == WEFT_PORT_IMAGE)
            size->image = s->dim[1];
    }
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

/* Samples of a step: item i of step s is sample (s B + i) modulo how many there are. */
static weft_status fill_told(const training *t, const weft_port_row *row, int64_t step)
{
    const weft_parity *p = t->p;
    weft_tensor *to = input_of(t, weft_port_name(row->port));
    if (!to)
        return WEFT_OK;
    const int64_t count = weft_shape_count(&to->shape), each = count / t->batch;
    const weft_stored_tensor *from = samples_of(p, row);
    const json_t *number = number_of(p, row);
    if (!from && !is_given(p, row))
        return weft_fail(WEFT_E_FORMAT,
                         "%s: %s takes \"%s\", which is neither a tensor nor a number", p->file,
                         weft_model_class(&p->model), row->reference);
    if (from && from->count != each * t->items)
        return weft_fail(WEFT_E_SHAPE, "%s: \"%s\" has %lld elements, %lld samples need %lld",
                         p->file, from->name, (long long)from->count, (long long)t->items,
                         (long long)(each * t->items));
    float *values = from ? weft_alloc(from->count * 4) : NULL;
    if (from && !values)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", p->file);
    if (from)
        weft_tensor_to_f32(from, values);
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

static void fill_levels(const training *t, int64_t step)
{
    float *sigma = input_of(t, "level.sigma")->data, *time = input_of(t, "timestep")->data;
    for (int64_t b = 0; b < t->batch; b++) {
        const float given = t->level[step * t->batch + b];
        sigma[b] = t->data_time ? 1 - given : given;
        if (t->process == &weft_process_edm)
            time[b] = logf(given) / 4;
        else
            time[b] = t->whole_times ? rintf(1000 * sigma[b]) : 1000 * sigma[b];
    }
}

static weft_status fill_step(const training *t, int64_t step)
{
    const weft_family *f = t->p->model.family;
    float *data = input_of(t, "data")->data, *noise = input_of(t, "noise")->data;
    const int64_t each = weft_shape_count(&input_of(t, "data")->shape) / t->batch;
    for (int64_t b = 0; b < t->batch; b++) {
        const int64_t item = step * t->batch + b;
        memcpy(data + b * each, t->data + item % t->items * each, (size_t)each * 4);
        memcpy(noise + b * each, t->noise + item * each, (size_t)each * 4);
    }
    fill_levels(t, step);
    for (int i = 0; i < f->ports; i++)
        if (is_told(&f->port[i]))
            WEFT_TRY(fill_told(t, &f->port[i], step));
    set_scalar(t, "optimizer.step", (double)(step + 1));
    return WEFT_OK;
}

/* ---- the steps ------------------------------------------------------------------------------- */

/* The loss of a step, in `g`. */
static weft_value build(const training *t, weft_graph *g)
{
    const weft_model *model = &t->p->model;
    const weft_family *f = model->family;
    const weft_model_size *size = &t->size;
    const weft_shape latents = weft_model_shape(model, size, WEFT_PORT_LATENTS);
    weft_ports ports = weft_ports_none();
    for (int i = 0; i < f->ports; i++)
        if (is_told(&f->port[i]) && weft_model_takes(model, f->port[i].port) &&
            (!f->port[i].optional || size->given >> f->port[i].port & 1))
            ports.at[f->port[i].port] = weft_model_input(g, model, size, f->port[i].port, "");
    const weft_value data = weft_input(g, "data", WEFT_F32, latents),
                     noise = weft_input(g, "noise", WEFT_F32, latents);
    const weft_noised level = {.sigma =
                                   weft_input(g, "level.sigma", WEFT_F32, WEFT_SHAPE(t->batch)),
                               .alpha = WEFT_NONE,
                               .time = weft_model_input(g, model, size, WEFT_PORT_TIMESTEP, ""),
                               .weight = WEFT_NONE};
    ports.at[WEFT_PORT_TIMESTEP] = level.time;
    ports.at[WEFT_PORT_LATENTS] = t->process->input(g, &t->noised, data, noise, &level);
    weft_model_call(g, model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &ports);
    weft_value answer = ports.at[WEFT_PORT_PREDICTION];
    if (t->towards_data)
        answer = weft_affine(g, answer, -1, 0);
    return weft_process_loss(g, t->process, &t->noised, answer, data, noise, &level);
}

/* "rank", "lora_alpha" and "target_modules" in the file: matrices are trained in the model's
 * place. */
static weft_status tune(const training *t)
{
    weft_parity *p = t->p;
    const json_t *targets = json_object_get(p->json, "target_modules");
    const int64_t most = (int64_t)json_array_size(targets) + 1;
    weft_tuning tuning = {.scope = "", .rank = 0};
    weft_graph *tuned;
    WEFT_TRY(weft_json_get_i64_or(p->json, "rank", p->config_file, 0, &tuning.rank));
    WEFT_TRY(weft_json_get_f64_or(p->json, "lora_alpha", p->config_file, (double)tuning.rank,
                                  &tuning.alpha));
    if (!tuning.rank)
        return WEFT_OK;
    tuning.targets.item =
        weft_arena_alloc(weft_graph_arena(p->graph), most * (int64_t)sizeof *tuning.targets.item);
    if (!tuning.targets.item)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    for (int64_t i = 0; i < most; i++) {
        const json_t *one = json_is_string(targets) ? targets : json_array_get(targets, (size_t)i);
        if (json_is_string(one) && (i == 0 || one != targets))
            tuning.targets.item[tuning.targets.count++] = json_string_value(one);
    }
    const weft_status_code status = weft_pass_tune(p->graph, &tuning, &tuned);
    if (status != WEFT_OK)
        return weft_fail_context(status, "%s", p->config_file);
    weft_graph_free(p->graph);
    p->graph = tuned;
    return WEFT_OK;
}

static void judge_number(training *t, const char *what, int64_t step, double ours, double theirs,
                         double *worst)
{
    char name[96];
    const float a = (float)ours, b = (float)theirs;
    snprintf(name, sizeof name, "step %lld: %.7g, reference %.7g", (long long)step, ours, theirs);
    weft_parity_judge(t->p, what, name, &a, &b, 1, fabs(theirs), tolerance, worst);
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
        judge_number(t, "loss", s, *(const float *)weft_program_output(program, "loss")->data,
                     json_number_value(json_array_get(losses, (size_t)s)), &worst[0]);
        if (norm)
            judge_number(t, "norm", s,
                         *(const float *)weft_program_output(program, "grad_norm")->data,
                         json_number_value(norm), &worst[1]);
    }
    return WEFT_OK;
}

static const char final_prefix[] = "final.";

/* The gradients of a step in f64, at the weights that there are now. */
static weft_status run_exact(training *t)
{
    if (t->exact)
        return WEFT_OK;
    t->gradients = weft_graph_create();
    if (!t->gradients)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
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

/* What the norm of a difference of weights is divided by. A weight whose gradient is zero in exact
 * arithmetic (a bias of keys, which no softmax sees) goes where rounding takes it: AdamW makes
 * steps of up to lr of whatever it is given. Such are held against twice what steps of lr to random
 * sides come to. */
static weft_status find_scale(training *t, const char *name, const float *ours, const float *theirs,
                              int64_t count, double *scale)
{
    double sum = 0;
    *scale = weft_parity_norm(theirs, count);
    for (int64_t i = 0; i < count; i++)
        sum += pow((double)ours[i] - (double)theirs[i], 2);
    if (sqrt(sum) <= tolerance * *scale)
        return WEFT_OK;
    WEFT_TRY(run_exact(t));
    if (has_no_gradient(t, name))
        *scale += 2 * t->lr * sqrt((double)(t->steps * count)) / tolerance;
    return WEFT_OK;
}

/* values[count] += what the matrices beside the weight `name` add: sums in f64. */
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
        return weft_fail(WEFT_E_SHAPE, "%s: no matrices were trained beside \"%s\"", p->file, name);
    const int64_t columns = size[0] / rank;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t k = 0; k < rank; k++)
            sum += (double)b[i / columns * rank + k] * (double)a[k * columns + i % columns];
        values[i] = (float)((double)values[i] + alpha / (double)rank * sum);
    }
    return WEFT_OK;
}

/* "final.merged.<weight>": a weight with the matrices beside it in it. */
static weft_status compare_merged(const training *t, const weft_stored_tensor *theirs,
                                  const char *name, double *worst)
{
    weft_parity *p = t->p;
    int64_t count;
    const float *weight = weft_parity_param(p, name, &count);
    if (!weight || count != theirs->count)
        return weft_fail(WEFT_E_SHAPE, "%s: \"%s\" does not fit the model", p->file, theirs->name);
    float *ours = weft_alloc(2 * count * (int64_t)sizeof *ours + 1), *values = ours + count;
    if (!ours)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", p->file);
    memcpy(ours, weight, (size_t)count * sizeof *ours);
    weft_tensor_to_f32(theirs, values);
    const weft_status_code status = merge(t, name, ours, count);
    if (status == WEFT_OK)
        weft_parity_judge(p, "merged", name, ours, values, count, weft_parity_norm(values, count),
                          tolerance, worst);
    weft_free(ours);
    return status;
}

static bool begins(const char **name, const char *with)
{
    const size_t length = strlen(with);
    const bool does = !strncmp(*name, with, length);
    *name += does ? length : 0;
    return does;
}

static weft_status compare_weights(training *t, double *worst)
{
    weft_parity *p = t->p;
    for (int64_t i = 0; i < weft_tensors_count(p->golden); i++) {
        const weft_stored_tensor *theirs = weft_tensors_at(p->golden, i);
        if (strncmp(theirs->name, final_prefix, sizeof final_prefix - 1))
            continue;
        const char *name = theirs->name + sizeof final_prefix - 1;
        int64_t count;
        double scale;
        if (begins(&name, "merged.")) {
            WEFT_TRY(compare_merged(t, theirs, name, worst));
            continue;
        }
        begins(&name, "lora.");
        float *values = NULL;
        const float *ours = weft_parity_param(p, name, &count);
        if (!ours || count != theirs->count)
            return weft_fail(WEFT_E_SHAPE, "%s: \"%s\" does not fit the model", p->file,
                             theirs->name);
        WEFT_TRY(weft_parity_load(p, theirs->name, WEFT_PARITY_AS_HERE, &values));
        const weft_status_code status = find_scale(t, name, ours, values, count, &scale);
        if (status == WEFT_OK)
            weft_parity_judge(p, "weight", name, ours, values, count, scale, tolerance, worst);
        weft_free(values);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

/* ---- the kind -------------------------------------------------------------------------------- */

static weft_status load_series(training *t, const weft_port_row *latents)
{
    const weft_parity *p = t->p;
    const weft_parity_form form = weft_parity_form_of(latents);
    const char *level = t->process == &weft_process_edm ? "sigma" : "t";
    const weft_stored_tensor *data, *noise, *levels;
    WEFT_TRY(weft_parity_need(p, "data", &data));
    WEFT_TRY(weft_parity_need(p, "noise", &noise));
    WEFT_TRY(weft_parity_need(p, level, &levels));
    t->items = data->dim[0];
    if (t->batch < 1 || t->items < 1 || levels->count < t->steps * t->batch ||
        noise->count != levels->count * (data->count / t->items))
        return weft_fail(WEFT_E_SHAPE,
                         "%s: \"noise\" and \"%s\" do not hold %lld steps of %lld samples each",
                         p->file, level, (long long)t->steps, (long long)t->batch);
    WEFT_TRY(weft_parity_load(p, "data", form, &t->data));
    WEFT_TRY(weft_parity_load(p, "noise", form, &t->noise));
    return weft_parity_load(p, level, WEFT_PARITY_AS_HERE, &t->level);
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
        return weft_fail(WEFT_E_UNSUPPORTED, "%s: %s is no denoiser: its training is not compared",
                         p->config_file, weft_model_class(&p->model));
    WEFT_TRY(find_process(t));
    WEFT_TRY(read_optimizer(t));
    WEFT_TRY(weft_json_get_i64(p->json, "batch", p->config_file, &t->batch));
    t->steps = (int64_t)json_array_size(json_object_get(p->json, "losses"));
    WEFT_TRY(load_series(t, latents));
    WEFT_TRY(find_size(t, latents));
    const weft_value loss = build(t, p->graph);
    WEFT_TRY(weft_graph_check(p->graph));
    weft_output(p->graph, "objective", loss);
    WEFT_TRY(tune(t));
    weft_optimizer_build(p->graph, weft_graph_find(p->graph, "objective"), &t->optimizer);
    WEFT_TRY(weft_parity_compile(p));
    WEFT_TRY(run_steps(t, worst));
    return compare_weights(t, &worst[2]);
}

static bool is_training(const json_t *json)
{
    return json_is_array(json_object_get(json, "losses"));
}

static weft_status compare_training(weft_parity *p)
{
    double worst[3] = {0};
    training t = {.p = p};
    WEFT_TRY(weft_parity_open_model(p));
    const weft_status_code status = train(&t, worst);
    weft_free(t.data);
    weft_free(t.noise);
    weft_free(t.level);
    weft_program_free(t.exact);
    weft_graph_free(t.gradients);
    WEFT_TRY(status);
    printf("%s: %lld steps, worst relative error of losses %.2e, of gradient norms %.2e, of final "
           "weights %.2e (limit %.0e)\n",
           p->file, (long long)t.steps, worst[0], worst[1], worst[2], tolerance);
    return WEFT_OK;
}

const weft_parity_kind weft_parity_training = {"training", is_training, compare_training};
