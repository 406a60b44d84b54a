/* Step distillation, preference tuning, control videos, histories and identity encoders, compared with PyTorch
 * (tools/golden_distill.py, tools/golden_history.py, tools/golden_identity.py): losses, gradient norms and weights of 20 steps, on one rank and on
 * layouts of several, with ranks as threads. The step is built as in `weft train`:
 * weft_objective_make and weft_step_make. Results are close, not bitwise: the reference computes in
 * f64. A repeated layout is bitwise identical. */
#include "../../model_of.h"
#include "../../ranks_of.h"
#include "comm/comm_fake.h"
#include "exec/execute.h"
#include "exec/store/tensor_copy.h"
#include "format/tensors/tensors.h"
#include "kernel/cpu/table.h"
#include "train/graph/distillation.h"
#include "train/graph/history_inputs.h"
#include "train/graph/student_levels.h"
#include "train/step/train_step.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4, MOST_STEPS = 40 };

/* A golden file and the run that it describes. */
typedef struct golden {
    json_t *json;
    weft_tensors *tensors;
    weft_run run;
    weft_run_models models;
    weft_bucket size;
    int64_t steps, samples;
    double lr;
} golden;

static double number(const json_t *json, const char *section, const char *name)
{
    const json_t *at = section ? json_object_get(json, section) : json;
    return json_number_value(json_object_get(at, name));
}

static void read_lora(const json_t *json, weft_run_lora *lora)
{
    const json_t *targets = json_object_get(json, "targets");
    static const char *target[4];
    lora->rank = json_integer_value(json_object_get(json, "rank"));
    lora->alpha = number(json, NULL, "alpha");
    lora->targets = (weft_string_list){(int64_t)json_array_size(targets), target};
    for (size_t i = 0; i < json_array_size(targets); i++)
        target[i] = json_string_value(json_array_get(targets, i));
}

static void read_match(const json_t *json, weft_run *run)
{
    const json_t *fake = json_object_get(json, "fake"), *betas = json_object_get(fake, "betas");
    run->distill.student_steps = json_integer_value(json_object_get(json, "student_steps"));
    run->distill.interval = json_integer_value(json_object_get(json, "interval"));
    run->optimizer.fake =
        (weft_optimizer_apart){.lr = number(fake, NULL, "lr"),
                               .beta1 = json_number_value(json_array_get(betas, 0)),
                               .beta2 = json_number_value(json_array_get(betas, 1)),
                               .weight_decay = number(fake, NULL, "weight_decay"),
                               .clip_norm = number(fake, NULL, "clip_norm")};
}

static weft_model model_at(const golden *d, const char *key)
{
    char *config = json_dumps(json_object_get(d->json, key), 0);
    const weft_model model = config ? model_of(config) : (weft_model){0};
    free(config);
    return model;
}

static void read_run(golden *d)
{
    const json_t *o = json_object_get(d->json, "optimizer"), *betas = json_object_get(o, "betas");
    weft_run *run = &d->run;
    d->lr = number(o, NULL, "lr");
    d->steps = (int64_t)json_array_size(json_object_get(d->json, "losses"));
    run->noise = weft_noise_process_defaults;
    run->noise.flow.shift = number(d->json, NULL, "shift");
    run->optimizer = (weft_optimizer_config){
        .beta1 = json_number_value(json_array_get(betas, 0)),
        .beta2 = json_number_value(json_array_get(betas, 1)),
        .eps = number(o, NULL, "eps"),
        .weight_decay = number(o, NULL, "weight_decay"),
        .clip_norm = number(o, NULL, "clip_norm"),
        .target_decay = number(d->json, "distill", "target_decay"),
    };
    run->distill =
        (weft_distill_config){.method = WEFT_DISTILL_LCM,
                              .guidance = number(d->json, "distill", "guidance"),
                              .solver_steps = (int64_t)number(d->json, "distill", "solver_steps"),
                              .huber_c = number(d->json, "distill", "huber_c")};
    const json_t *range = json_object_get(d->json, "range");
    if (range) {
        run->noise.from = json_number_value(json_array_get(range, 0));
        run->noise.to = json_number_value(json_array_get(range, 1));
    }
    run->sound.loss_weight = number(d->json, "sound", "loss_weight");
    run->distill.teacher = json_object_get(d->json, "teacher") ? "given" : "";
    run->distill.fake_weights = json_object_get(d->json, "fake_score") ? "given" : "";
    run->transformer.class_name = run->transformer.weights = "given";
    run->identity.class_name = run->identity.weights = "";
    read_lora(json_object_get(d->json, "lora"), &run->transformer.lora);
    read_match(json_object_get(d->json, "match"), run);
    const char *kind = json_string_value(json_object_get(d->json, "kind"));
    if (!strncmp(kind, "dmd2", 4))
        run->distill.method = WEFT_DISTILL_DMD2;
    if (!strncmp(kind, "self_forcing", 12)) {
        run->distill.method = WEFT_DISTILL_SELF_FORCING;
        run->distill.context_noise = number(d->json, NULL, "context_noise");
    }
    if (!strncmp(kind, "dpo", 3)) {
        run->distill.method = WEFT_DISTILL_NONE;
        run->preference = (weft_preference_config){"given", number(d->json, NULL, "beta")};
        if (range) /* uniform draws have an exact reference */
            run->noise.flow.times = WEFT_FLOW_UNIFORM;
        run->condition = !strncmp(kind, "dpo_clean", 9)  ? WEFT_CONDITION_CLEAN_BLOCKS
                         : !strncmp(kind, "dpo_grey", 8) ? WEFT_CONDITION_FIRST_FRAME
                                                         : WEFT_CONDITION_NONE;
        d->models.grey_rest = run->condition == WEFT_CONDITION_FIRST_FRAME;
    }
    if (!strncmp(kind, "identity", 8)) {
        run->distill.method = WEFT_DISTILL_NONE;
        run->distill.interval = 1;
        run->identity.class_name = run->identity.image_encoder = "given";
        run->identity.dropout = number(d->json, NULL, "dropout");
    }
    if (!strncmp(kind, "history", 7)) {
        run->distill.method = WEFT_DISTILL_NONE;
        run->condition = WEFT_CONDITION_HISTORY;
        run->distill.interval = 1;
        run->guidance = 1;
    }
    const bool moves = !strncmp(kind, "animate", 7) || !strncmp(kind, "replace", 7);
    const bool controls = !strncmp(kind, "control", 7) || !strncmp(kind, "vace", 4) || moves ||
                          !strcmp(kind, "dpo_control");
    if (controls)
        run->distill.method = WEFT_DISTILL_NONE;
    if (controls || json_object_get(d->json, "control")) {
        run->condition = WEFT_CONDITION_CONTROL;
        run->control = (weft_control_config){
            .background = !strncmp(kind, "replace", 7) ? "given" : "",
            .dropout = number(d->json, "control", "dropout"),
            .face_dropout = number(d->json, "control", "face_dropout"),
            .window_overlap = (int64_t)number(d->json, "control", "window_overlap"),
            .overlap_share = number(d->json, "control", "overlap_share")};
    }
    if (run->transformer.lora.rank || run->distill.method != WEFT_DISTILL_LCM)
        run->optimizer.target_decay = 0;
}

/* A model of video and sound: one latent for each sample of sound, of which a frame has one, and one
 * for the end. Both streams have a text, without connectors. */
static void read_sound(golden *d, const char *encoder)
{
    const weft_model takes_text =
        model_of("{\"_class_name\":\"WanTransformer3DModel\",\"text_dim\":8}");
    weft_text_conditioning *text = &d->models.text;
    *text = captions_of(&takes_text, encoder);
    d->models.sound = (weft_run_sound){
        .autoencoder = model_of("{\"_class_name\":\"AutoencoderKLLTX2Audio\"}"),
        .format = {.mel = {.rate = (int64_t)number(d->json, "sound", "fps"), .hop = 1},
                   .factor = 1,
                   .features = (int64_t)number(d->json, "sound", "channels")},
        .fps = number(d->json, "sound", "fps")};
    text->entry[text->entries] = *weft_text_conditioning_find(text, WEFT_PORT_TEXT);
    text->entry[text->entries++].port = WEFT_PORT_AUDIO_TEXT;
}

/* Sections with a history. Framepack also has a pooled text. */
static void read_history(golden *d)
{
    const json_t *json = json_object_get(d->json, "history");
    weft_text_conditioning *text = &d->models.text;
    const weft_stored_tensor *pooled = weft_tensors_find(d->tensors, "in.pooled");
    d->models.sections =
        (weft_video_sections){.frames = json_integer_value(json_object_get(json, "frames")),
                              .forward = json_is_true(json_object_get(json, "forward")),
                              .precedes = json_is_true(json_object_get(json, "precedes"))};
    if (d->models.sections.precedes)
        d->models.grid.section = d->models.sections.frames;
    d->size.frames = weft_grid_frames(
        &d->models.grid, json_integer_value(json_object_get(d->json, "latent_frames")));
    if (!pooled)
        return;
    *text = (weft_text_conditioning){.entries = 2};
    text->entry[0] = (weft_conditioning_entry){
        .port = WEFT_PORT_TEXT, .rows = weft_tensors_find(d->tensors, "in.text")->dim[1]};
    text->entry[1] = (weft_conditioning_entry){.port = WEFT_PORT_POOLED};
}

static golden open_golden(const char *name)
{
    char path[600];
    golden d = {.size = {.frames = 5, .height = 32, .width = 32}};
    const char *source = getenv("SRC");
    snprintf(path, sizeof path, "%s/tests/golden/distill/%s.json", source ? source : ".", name);
    cr_assert_eq(weft_json_load(path, &d.json), WEFT_OK, "%s", weft_error_message());
    snprintf(path, sizeof path, "%s/tests/golden/distill/%s.safetensors", source ? source : ".",
             name);
    cr_assert_eq(weft_tensors_open(path, &d.tensors), WEFT_OK, "%s", weft_error_message());
    read_run(&d);
    d.size.batch = json_integer_value(json_object_get(d.json, "batch"));
    d.samples = weft_tensors_find(d.tensors, "in.text")->dim[0];
    const json_t *frames = json_object_get(d.json, "latent_frames");
    if (frames)
        d.size.frames = 1 + 4 * (json_integer_value(frames) - 1);
    d.models = (weft_run_models){
        .grey_rest = d.models.grey_rest,
        .autoencoder = model_of("{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":4,"
                                "\"dim_mult\":[1,1,1,1],\"z_dim\":4,\"num_res_blocks\":1}"),
        .denoiser = model_at(&d, "config"),
        .teacher = model_at(&d, "teacher"),
        .fake = model_at(&d, "fake_score"),
        .partly_trained = d.run.transformer.lora.rank > 0,
        .text_precomputed = true};
    char text[200];
    snprintf(text, sizeof text,
             "{\"_class_name\":\"WeftBytesEncoder\",\"dim\":8,\"num_heads\":2,"
             "\"num_layers\":1,\"ffn_dim\":16,\"max_length\":%d}",
             (int)weft_tensors_find(d.tensors, "in.text")->dim[1]);
    if (json_object_get(d.json, "sound"))
        read_sound(&d, text);
    else if (!weft_tensors_find(d.tensors, "in.pooled"))
        d.models.text = captions_of(&d.models.denoiser, text);
    const weft_stored_tensor *tokens = weft_tensors_find(d.tensors, "in.image_tokens");
    d.models.image_tokens = tokens ? tokens->dim[1] : 0;
    const weft_stored_tensor *images = weft_tensors_find(d.tensors, "in.identity");
    if (images) {
        d.models.identity = model_at(&d, "identity");
        d.models.identity_image_encoder = model_of("{\"_class_name\":\"CLIPVisionModel\"}");
        d.models.identity_features = WEFT_SHAPE(1, 1, 1, images->dim[3], images->dim[4]);
        d.run.identity.images.count = images->dim[1];
    }
    weft_run_models_connect(&d.models);
    if (json_object_get(d.json, "history"))
        read_history(&d);
    return d;
}

static void close_golden(golden *d)
{
    weft_tensors_close(d->tensors);
    json_decref(d->json);
}

/* The values of a golden tensor (heap); NULL: the file has no such tensor. */
static float *values_of(const golden *d, const char *name, int64_t *count)
{
    const weft_stored_tensor *t = weft_tensors_find(d->tensors, name);
    if (!t)
        return NULL;
    float *values = weft_alloc(t->count * (int64_t)sizeof *values + 1);
    *count = t->count;
    weft_tensor_to_f32(t, values);
    return values;
}

/* ---- one run ------------------------------------------------------------------------------- */

typedef struct job {
    const golden *d;
    const char *mesh_text;
    weft_mesh mesh;
    weft_comm *comm;
    weft_store *store;
    int zero;
    bool parts; /* gradients and update as two programs */
    double loss[MOST_STEPS], norm[MOST_STEPS], fake_loss[MOST_STEPS], fake_norm[MOST_STEPS];
} job;

/* Fills the parameters of every network with the golden initial values. */
static void begin(const job *j)
{
    for (int64_t i = 0; i < weft_store_count(j->store); i++) {
        weft_tensor *t = weft_store_at(j->store, i);
        const char *rest = strchr(t->name, '.');
        char name[600];
        int64_t count;
        snprintf(name, sizeof name, "param_%.*s%s", rest ? (int)(rest - t->name) : 0, t->name,
                 rest ? rest : "");
        float *values = values_of(j->d, name, &count); /* of this network, or of all */
        snprintf(name, sizeof name, "param%s", rest ? rest : "");
        values = values ? values : values_of(j->d, name, &count);
        if (!strncmp(t->name, "adamw.", 6) || !strncmp(t->name, "grad.", 5) || !values)
            continue;
        cr_assert_eq(count, weft_shape_count(&t->whole), "%s", t->name);
        const weft_box all = weft_box_whole(&t->whole);
        cr_assert_eq(weft_tensor_put(t, &all, values, WEFT_F32, NULL), WEFT_OK);
        weft_free(values);
    }
}

/* Sets this rank's part of an f32 input: item i of step s is sample (s B + i) % N. */
static void fill_input(const job *j, const weft_step *step, int64_t s, const char *input,
                       const char *from)
{
    int64_t all = 1;
    const weft_value v = weft_graph_find(step->graph, input);
    const weft_tensor *to = weft_program_input(step->program, input);
    if (!weft_value_ok(v) || !to)
        return;
    const weft_tensor own = weft_tensor_of(step->graph, v);
    const weft_box part = weft_box_of(&own), box = weft_box_whole(&own.whole);
    const int64_t count = weft_shape_count(&own.whole), batch = j->d->size.batch,
                  each = count / batch;
    float *values = values_of(j->d, from, &all), *whole = weft_alloc(count * 4);
    for (int64_t i = 0; i < count; i++)
        whole[i] = values[(((s * batch + i / each) * each) % all) + i % each];
    weft_box_copy(&part, to->data, to->dtype, &box, whole, WEFT_F32);
    weft_free(values);
    weft_free(whole);
}

static weft_tensor *find_input(void *user, const char *name)
{
    return weft_program_input(((const weft_step *)user)->program, name);
}

/* Sets sections and histories as training does: item i of step s has key 1000 s + i + 1. */
static void fill_history(const job *j, weft_step *step, int64_t s)
{
    int64_t all;
    const golden *d = j->d;
    const weft_run_models *m = &d->models;
    const weft_model_size size = weft_run_latent_size(m, &d->size);
    const weft_video_sections sections = weft_history_inputs_sections(m, size.frames);
    float *clips = values_of(d, "in.latents", &all);
    const int64_t frame = size.height * size.width * m->grid.channels;
    for (int64_t i = 0; i < step->local_count; i++) {
        const int64_t item = step->local_first + i,
                      sample = (s * d->size.batch + item) % d->samples;
        const weft_history_clip clip = {&m->grid, clips + sample * size.frames * frame, frame, 1};
        weft_history_inputs_fill(&sections,
                                 weft_history_inputs_draw(&sections, 1000 * s + item + 1), &clip, i,
                                 find_input, step);
    }
    weft_free(clips);
}

/* Every token of a caption is one of its text. */
static void fill_mask(const weft_step *step, const char *input)
{
    weft_tensor *mask = weft_program_input(step->program, input);
    for (int64_t i = 0; mask && i < weft_shape_count(&mask->shape); i++)
        ((int32_t *)mask->data)[i] = 1;
}

static void fill(const job *j, weft_step *step, int64_t s)
{
    weft_tensor *key = weft_program_input(step->program, "batch.key"),
                *sound_key = weft_program_input(step->program, "batch.sound_key");
    if (j->d->models.sections.frames)
        fill_history(j, step, s);
    else
        fill_input(j, step, s, "batch.latents", "in.latents");
    fill_input(j, step, s, "batch.pooled", "in.pooled");
    fill_input(j, step, s, "batch.rejected", "in.rejected");
    fill_input(j, step, s, "batch.first_frame", "in.first_frame");
    fill_input(j, step, s, "batch.rejected_first_frame", "in.rejected_first_frame");
    fill_input(j, step, s, "batch.control", "in.control");
    fill_input(j, step, s, "batch.grey", "in.grey");
    fill_input(j, step, s, "batch.image", "in.image");
    fill_input(j, step, s, "batch.image_tokens", "in.image_tokens");
    fill_input(j, step, s, "batch.face", "in.face");
    fill_input(j, step, s, "batch.background", "in.background");
    fill_input(j, step, s, "batch.marks", "in.marks");
    fill_input(j, step, s, "batch.overlap", "in.overlap");
    fill_input(j, step, s, "batch.identity", "in.identity");
    fill_input(j, step, s, "batch.identity_given", "in.identity_given");
    fill_input(j, step, s, "batch.text", "in.text");
    fill_input(j, step, s, WEFT_EMPTY_CAPTION "text", "in.empty");
    fill_input(j, step, s, "batch.sound", "in.sound");
    fill_input(j, step, s, "batch.with_sound", "in.with_sound");
    fill_input(j, step, s, "batch.rejected_sound", "in.rejected_sound");
    fill_input(j, step, s, "batch.audio_text", "in.audio_text");
    fill_input(j, step, s, WEFT_EMPTY_CAPTION "audio_text", "in.empty_audio");
    fill_mask(step, "batch.text_mask");
    fill_mask(step, WEFT_EMPTY_CAPTION "text_mask");
    for (int64_t i = 0; i < step->local_count; i++)
        ((int64_t *)key->data)[i] = 1000 * s + step->local_first + i + 1;
    for (int64_t i = 0; sound_key && i < step->local_count; i++)
        ((int64_t *)sound_key->data)[i] = weft_sound_stream_key(((int64_t *)key->data)[i]);
}

static void set(const weft_step *step, const char *name, double value)
{
    weft_tensor *t = weft_program_input(step->program, name);
    if (t)
        *(float *)t->data = (float)value;
}

static void set_scalars(const job *j, const weft_step *step, int64_t s)
{
    set(step, "optimizer.lr", j->d->lr);
    const int64_t interval = j->d->run.distill.interval;
    const bool matches = weft_distill_matches(&j->d->run.distill);
    set(step, "optimizer.step", (double)((matches ? s / interval : s) + 1));
    set(step, "optimizer.fake_step", (double)(s + 1));
    set(step, "optimizer.generator", s % interval == 0);
    set(step, "optimizer.loss_limit", INFINITY);
    set(step, "optimizer.norm_limit", INFINITY);
    set(step, "optimizer.weight", 1);
}

static weft_status make_steps(job *j, weft_exec_config *place, weft_step *work, weft_step *update)
{
    const weft_run *run = &j->d->run;
    weft_graph *g;
    WEFT_TRY(weft_objective_make(run, &j->d->models, &j->d->size, &g));
    place->kind = j->parts ? WEFT_STEP_GRADIENTS : WEFT_STEP_WHOLE;
    WEFT_TRY(weft_step_make(g, &run->optimizer, place, j->store, 7, work));
    if (!j->parts)
        return WEFT_OK;
    const weft_optimizer_config own = weft_step_optimizer(&run->optimizer, place);
    place->kind = WEFT_STEP_UPDATE;
    return weft_step_make(weft_optimizer_update((const weft_graph *[]){work->graph}, 1, &own),
                          &run->optimizer, place, j->store, 7, update);
}

static weft_status_code train(void *user)
{
    job *j = user;
    weft_step work = {0}, update = {0};
    weft_exec_config place = {.comm = j->comm,
                              .mesh = j->mesh,
                              .backend = &weft_backend_cpu,
                              .recipes = j->d->models.recipe,
                              .recipe_count = j->d->models.recipes,
                              .zero = j->zero};
    weft_status_code status = WEFT_OK;
    WEFT_GO(make_steps(j, &place, &work, &update));
    begin(j);
    for (int64_t s = 0; s < j->d->steps; s++) {
        const weft_step *last = j->parts ? &update : &work;
        fill(j, &work, s);
        set_scalars(j, &work, s);
        WEFT_GO(weft_program_run(work.program));
        if (j->parts) {
            set_scalars(j, &update, s);
            WEFT_GO(weft_program_run(update.program));
        }
        j->loss[s] = weft_step_scalar(last, "loss");
        j->norm[s] = weft_step_scalar(last, "grad_norm");
        j->fake_loss[s] = weft_step_scalar(&work, "fake");
        j->fake_norm[s] = weft_step_scalar(last, "fake_norm");
    }
out:
    if (work.program)
        weft_program_unbind(work.program);
    if (update.program)
        weft_program_unbind(update.program);
    weft_step_free(&work);
    weft_step_free(&update);
    return status;
}

static int run(const golden *d, const char *mesh_text, int zero, bool parts, job *jobs)
{
    weft_mesh mesh;
    weft_comm *comm[RANKS];
    cr_assert_eq(weft_mesh_parse(mesh_text, &mesh), WEFT_OK, "%s", weft_error_message());
    const int ranks = weft_mesh_ranks(&mesh);
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        jobs[r] = (job){.d = d,
                        .mesh_text = mesh_text,
                        .mesh = mesh,
                        .comm = comm[r],
                        .zero = zero,
                        .parts = parts,
                        .store = weft_store_create()};
        weft_comm_set_deadline(comm[r], 120);
    }
    run_ranks(mesh_text, ranks, comm, train, jobs, sizeof *jobs);
    return ranks;
}

static void end(job *jobs, int ranks)
{
    for (int r = 0; r < ranks; r++)
        weft_store_free(jobs[r].store);
}

/* ---- comparison ---------------------------------------------------------------------------- */

static const double tolerance = 1e-4; /* as `weft parity` of trainings */

static void compare_scalars(const job *j, const char *key, const double *actual)
{
    const json_t *list = json_object_get(j->d->json, key);
    for (int64_t s = 0; s < (int64_t)json_array_size(list); s++) {
        const double expected = json_number_value(json_array_get(list, (size_t)s));
        cr_expect(fabs(actual[s] - expected) <= tolerance * fabs(expected),
                  "%s: %s of step %d is %.7g, not %.7g", j->mesh_text, key, (int)s, actual[s],
                  expected);
    }
}

/* Compares this rank's part of a tensor with the golden tensor `name`, if the file has it. */
static bool compare_tensor(const job *j, const weft_tensor *t, const char *name)
{
    int64_t all = 0, own = 0;
    float *expected = values_of(j->d, name, &all);
    double scale = 0, off = 0;
    if (!expected)
        return false;
    const int64_t count = weft_shape_count(&t->shape);
    const weft_box part = weft_box_of(t), box = weft_box_whole(&t->whole);
    float *wanted = weft_alloc(count * 4 + 1);
    cr_assert_eq(all, weft_shape_count(&t->whole), "%s", name);
    weft_box_copy(&part, wanted, WEFT_F32, &box, expected, WEFT_F32);
    for (int64_t i = 0; i < all; i++)
        scale += pow((double)expected[i], 2);
    for (; own < count; own++)
        off += pow((double)((const float *)t->data)[own] - (double)wanted[own], 2);
    cr_expect(sqrt(off) <= tolerance * sqrt(scale), "%s: %s is off by %g", j->mesh_text, name,
              sqrt(off / scale));
    weft_free(expected);
    weft_free(wanted);
    return true;
}

/* Compares the final weights. Returns the number of compared tensors. */
static int compare_weights(const job *j)
{
    int compared = 0;
    for (int64_t i = 0; i < weft_store_count(j->store); i++) {
        const weft_tensor *t = weft_store_at(j->store, i);
        const char *rest = strchr(t->name, '.');
        char name[600];
        if (!rest || t->replica < 0)
            continue;
        const bool own = !strncmp(t->name, "transformer.", 12);
        const int length = (int)(rest - t->name);
        if (own)
            snprintf(name, sizeof name, "final%s", rest);
        else
            snprintf(name, sizeof name, "final_%.*s%s", length, t->name, rest);
        compared += compare_tensor(j, t, name);
    }
    return compared;
}

static int final_count(const golden *d)
{
    int count = 0;
    for (int64_t i = 0; i < weft_tensors_count(d->tensors); i++)
        count += !strncmp(weft_tensors_at(d->tensors, i)->name, "final", 5);
    return count;
}

static void expect_reference(const char *name, const char *mesh, int zero, bool parts)
{
    golden d = open_golden(name);
    job jobs[RANKS];
    const int ranks = run(&d, mesh, zero, parts, jobs);
    for (int r = 0; r < ranks; r++) {
        compare_scalars(&jobs[r], "losses", jobs[r].loss);
        compare_scalars(&jobs[r], "grad_norms", jobs[r].norm);
        compare_scalars(&jobs[r], "fake_losses", jobs[r].fake_loss);
        compare_scalars(&jobs[r], "fake_norms", jobs[r].fake_norm);
        cr_expect_eq(compare_weights(&jobs[r]), final_count(&d), "%s %s", name, mesh);
    }
    end(jobs, ranks);
    close_golden(&d);
}

Test(distillation, consistency_is_that_of_the_reference)
{
    expect_reference("lcm", "", 0, false);
}

Test(distillation, consistency_with_lora_is_that_of_the_reference)
{
    expect_reference("lcm_lora", "", 0, false);
}

Test(distillation, distribution_matching_is_that_of_the_reference)
{
    expect_reference("dmd2", "", 0, false);
}

Test(distillation, distribution_matching_with_lora_is_that_of_the_reference)
{
    expect_reference("dmd2_lora", "", 0, false);
}

Test(distillation, self_forcing_is_that_of_the_reference)
{
    expect_reference("self_forcing", "", 0, false);
}

Test(distillation, self_forcing_with_lora_is_that_of_the_reference)
{
    expect_reference("self_forcing_lora", "", 0, false);
}

/* The pipeline of LTX-Video sets even noise levels, at which the student is trained, too. */
Test(distillation, distribution_matching_at_even_levels_is_that_of_the_reference)
{
    expect_reference("dmd2_ltx", "", 0, false);
}

/* A teacher that is larger than the student, and a fake score of a third size. */
Test(distillation, networks_of_other_sizes_are_those_of_the_reference)
{
    expect_reference("lcm_sizes", "", 0, false);
    expect_reference("dmd2_sizes", "", 0, false);
    expect_reference("self_forcing_sizes", "", 0, false);
}

Test(distillation, networks_of_other_sizes_with_lora_are_those_of_the_reference)
{
    expect_reference("lcm_sizes_lora", "", 0, false);
    expect_reference("dmd2_sizes_lora", "", 0, false);
    expect_reference("self_forcing_sizes_lora", "", 0, false);
}

/* Levels of four steps with a shift of 3: a scheduler's own, even ones, and Mochi's. */
Test(distillation, student_has_the_levels_of_its_pipeline)
{
    static const struct {
        const char *config;
        double level[4];
    } of[] = {
        {"{\"_class_name\":\"WanTransformer3DModel\"}", {1, 0.8576923, 0.6021505, 0.0089286}},
        {"{\"_class_name\":\"LTXVideoTransformer3DModel\"}", {1, 0.9, 0.75, 0.5}},
        {"{\"_class_name\":\"MochiTransformer3DModel\"}", {1, 0.9957983, 0.9915254, 0.8877551}},
    };
    weft_run run = {.noise = weft_noise_process_defaults};
    run.noise.flow.shift = 3;
    run.distill = (weft_distill_config){.method = WEFT_DISTILL_DMD2, .student_steps = 4};
    for (int i = 0; i < WEFT_COUNT(of); i++) {
        double sigma[WEFT_DISTILL_MOST_STEPS];
        const weft_run_models models = {.denoiser = model_of(of[i].config)};
        int64_t count;
        cr_assert_eq(weft_student_levels(&run, &models, 32, sigma, &count), WEFT_OK, "%s",
                     weft_error_message());
        cr_assert_eq(count, 4);
        for (int k = 0; k < 4; k++)
            cr_expect(fabs(sigma[k] - of[i].level[k]) < 1e-6, "%s: level %d is %.8g, not %.8g",
                      of[i].config, k, sigma[k], of[i].level[k]);
        int64_t high, low; /* experts have the levels of their range */
        run.noise.from = 0.89;
        cr_assert_eq(weft_student_levels(&run, &models, 32, sigma, &high), WEFT_OK);
        run.noise = (weft_noise_process_config){.flow = run.noise.flow, .to = 0.89};
        cr_assert_eq(weft_student_levels(&run, &models, 32, sigma, &low), WEFT_OK);
        cr_expect(high > 0 && low > 0 && high + low == 4 && sigma[0] < 0.89, "%s", of[i].config);
        run.noise.to = 1;
    }
}

/* An error of the scheduler has the key of the steps. */
Test(distillation, an_error_of_the_scheduler_has_a_key)
{
    weft_run run = {.noise = weft_noise_process_defaults};
    run.distill = (weft_distill_config){.method = WEFT_DISTILL_DMD2};
    const weft_run_models models = {.denoiser =
                                        model_of("{\"_class_name\":\"WanTransformer3DModel\"}")};
    double sigma[WEFT_DISTILL_MOST_STEPS];
    int64_t count;
    cr_assert_neq(weft_student_levels(&run, &models, 32, sigma, &count), WEFT_OK);
    cr_expect_str_eq(weft_error_fields()->key, "distill.student_steps");
}

/* LTX-2: video and sound, and a clip without sound. */
Test(distillation, sound_equals_the_reference)
{
    expect_reference("lcm_ltx2", "", 0, false);
    expect_reference("dmd2_ltx2", "", 0, false);
}

Test(distillation, sound_with_lora_equals_the_reference)
{
    expect_reference("lcm_ltx2_lora", "", 0, false);
    expect_reference("dmd2_ltx2_lora", "", 0, false);
}

/* Experts of a range of levels. */
Test(distillation, experts_equal_the_reference)
{
    expect_reference("lcm_high", "", 0, false);
    expect_reference("dmd2_high", "", 0, false);
    expect_reference("dmd2_low", "", 0, false);
    expect_reference("dmd2_low_lora", "", 0, false);
}

/* All networks have the control of the sample, which some samples lack: VACE, more channels and, with
 * a black face where the caption is empty, a character. */
Test(distillation, consistency_with_controls_equals_the_reference)
{
    expect_reference("lcm_vace", "", 0, false);
    expect_reference("lcm_channels_lora", "", 0, false);
}

Test(distillation, distribution_matching_with_controls_equals_the_reference)
{
    expect_reference("dmd2_vace", "", 0, false);
    expect_reference("dmd2_vace_lora", "", 0, false);
    expect_reference("dmd2_character_lora", "", 0, false);
}

Test(distillation, preferences_equal_the_reference)
{
    expect_reference("dpo", "", 0, false);
}

Test(distillation, preferences_with_lora_equal_the_reference)
{
    expect_reference("dpo_lora", "", 0, false);
}

/* LTX-2: the sound of both clips, with a level of its own, and a pair without sound. */
Test(distillation, preferences_with_sound_equal_the_reference)
{
    expect_reference("dpo_ltx2", "", 0, false);
    expect_reference("dpo_ltx2_lora", "", 0, false);
}

Test(distillation, preferences_with_control_equal_the_reference)
{
    expect_reference("dpo_control", "", 0, false);
}

/* First frames followed by grey ones, blocks that follow clean ones, and levels below 0.8. */
Test(distillation, preferences_of_other_conditions_equal_the_reference)
{
    expect_reference("dpo_grey_lora", "", 0, false);
    expect_reference("dpo_clean_lora", "", 0, false);
    expect_reference("dpo_low_lora", "", 0, false);
}

Test(distillation, control_on_channels_equals_the_reference)
{
    expect_reference("control", "", 0, false);
}

Test(distillation, control_on_a_port_equals_the_reference)
{
    expect_reference("vace", "", 0, false);
}

Test(distillation, control_with_lora_equals_the_reference)
{
    expect_reference("control_lora", "", 0, false);
    expect_reference("vace_lora", "", 0, false);
}

/* Sections of Framepack in both orders, and of Helios, with the histories of the pipelines. */
Test(distillation, history_equals_the_reference)
{
    expect_reference("history_framepack", "", 0, false);
    expect_reference("history_helios", "", 0, false);
}

Test(distillation, history_with_lora_equals_the_reference)
{
    expect_reference("history_forward_lora", "", 0, false);
}

/* ---- layouts ------------------------------------------------------------------------------- */

static bool same_bits(const job *a, const job *b)
{
    for (int64_t i = 0; i < weft_store_count(a->store); i++) {
        const weft_tensor *x = weft_store_at(a->store, i), *y = weft_store_find(b->store, x->name);
        if (memcmp(x->data, y->data,
                   (size_t)(weft_shape_count(&x->shape) * weft_dtype_bytes(x->dtype))))
            return false;
    }
    return !memcmp(a->loss, b->loss, sizeof a->loss) && !memcmp(a->norm, b->norm, sizeof a->norm);
}

typedef struct layout {
    const char *mesh;
    int zero;
    bool parts;
} layout;
static const layout all[] = {{"dp=2"}, {"dp=2", 1}, {"dp=2", 2, true}, {"fsdp=2"},   {"tp=2"},
                             {"sp=2"}, {"cp=2"},    {"ring=2"},        {"dp=2,tp=2"}},
                    some[] = {{"dp=2", 2, true}, {"fsdp=2", 0, true}, {"tp=2"}, {"cp=2"}},
                    rolled[] = {{"dp=2", 2, true}, {"fsdp=2"}, {"tp=2"},
                                {"sp=2"},          {"cp=2"},   {"ring=2"}},
                    few[] = {{"fsdp=2"}, {"tp=2"}};

static void expect_layouts(const char *name, const layout *layouts, int count)
{
    for (int i = 0; i < count; i++) {
        expect_reference(name, layouts[i].mesh, layouts[i].zero, layouts[i].parts);
        golden d = open_golden(name);
        job one[RANKS], two[RANKS];
        d.steps = 2;
        const int ranks = run(&d, layouts[i].mesh, layouts[i].zero, layouts[i].parts, one);
        run(&d, layouts[i].mesh, layouts[i].zero, layouts[i].parts, two);
        for (int r = 0; r < ranks; r++)
            cr_expect(same_bits(&one[r], &two[r]), "%s %s: other bits the second time", name,
                      layouts[i].mesh);
        end(one, ranks);
        end(two, ranks);
        close_golden(&d);
    }
}

Test(distillation, consistency_on_layouts_is_that_of_the_reference)
{
    expect_layouts("lcm", all, WEFT_COUNT(all));
}

Test(distillation, consistency_with_lora_on_layouts_is_that_of_the_reference)
{
    expect_layouts("lcm_lora", few, WEFT_COUNT(few));
}

Test(distillation, distribution_matching_on_layouts_is_that_of_the_reference)
{
    expect_layouts("dmd2", some, WEFT_COUNT(some));
}

Test(distillation, distribution_matching_with_lora_on_layouts_is_that_of_the_reference)
{
    expect_layouts("dmd2_lora", few, WEFT_COUNT(few));
}

Test(distillation, self_forcing_on_layouts_is_that_of_the_reference)
{
    expect_layouts("self_forcing", rolled, WEFT_COUNT(rolled));
}

Test(distillation, self_forcing_with_lora_on_layouts_is_that_of_the_reference)
{
    expect_layouts("self_forcing_lora", few, WEFT_COUNT(few));
}

Test(distillation, networks_of_other_sizes_on_layouts_are_those_of_the_reference)
{
    expect_layouts("dmd2_sizes", some, WEFT_COUNT(some));
    expect_layouts("dmd2_sizes_lora", few, WEFT_COUNT(few));
    expect_layouts("self_forcing_sizes", few, WEFT_COUNT(few));
}

Test(distillation, sound_on_layouts_equals_the_reference)
{
    expect_layouts("dmd2_ltx2", few, WEFT_COUNT(few));
}

Test(distillation, preferences_on_layouts_equal_the_reference)
{
    expect_layouts("dpo", some, WEFT_COUNT(some));
    expect_layouts("dpo_ltx2", few, WEFT_COUNT(few));
    expect_reference("dpo_control", "tp=2", 0, false);
}

/* One to three images of a sample, and a dropped share of the samples. */
Test(distillation, identity_of_images_equals_the_reference)
{
    expect_reference("identity", "", 0, false);
    expect_reference("identity_lora", "", 0, false);
    expect_reference("identity_embedding", "", 0, false);
}

Test(distillation, identity_of_images_on_layouts_equals_the_reference)
{
    expect_layouts("identity", some, WEFT_COUNT(some));
    expect_layouts("identity_lora", few, WEFT_COUNT(few));
    expect_layouts("identity_embedding", few, WEFT_COUNT(few));
}

/* Wan Animate: the image, poses, faces and a background as the pipeline gives them. */
Test(distillation, character_equals_the_reference)
{
    expect_reference("animate", "", 0, false);
}

Test(distillation, replaced_character_equals_the_reference)
{
    expect_reference("replace", "", 0, false);
}

Test(distillation, character_with_lora_equals_the_reference)
{
    expect_reference("animate_lora", "", 0, false);
}

Test(distillation, character_on_layouts_equals_the_reference)
{
    expect_layouts("animate", few, WEFT_COUNT(few));
}

/* Some samples have a black face, and some begin with given frames. */
Test(distillation, character_with_dropout_equals_the_reference)
{
    expect_reference("animate_drop", "", 0, false);
    expect_reference("replace_drop", "", 0, false);
    expect_reference("replace_drop_lora", "", 0, false);
}

Test(distillation, character_with_dropout_on_layouts_equals_the_reference)
{
    expect_layouts("animate_drop", few, WEFT_COUNT(few));
    expect_layouts("replace_drop", some, WEFT_COUNT(some));
}

Test(distillation, dropped_control_equals_the_reference)
{
    expect_reference("control_drop", "", 0, false);
    expect_reference("vace_drop", "", 0, false);
}

Test(distillation, dropped_control_on_layouts_equals_the_reference)
{
    expect_layouts("control_drop", some, WEFT_COUNT(some));
    expect_layouts("vace_drop", few, WEFT_COUNT(few));
}

Test(distillation, control_on_layouts_equals_the_reference)
{
    expect_layouts("control", few, WEFT_COUNT(few));
    expect_layouts("vace", some, WEFT_COUNT(some));
}

Test(distillation, history_on_layouts_equals_the_reference)
{
    expect_layouts("history_framepack", some, WEFT_COUNT(some));
    expect_layouts("history_helios", some, WEFT_COUNT(some));
    expect_layouts("history_forward_lora", few, WEFT_COUNT(few));
}

Test(distillation, distillation_with_controls_on_layouts_equals_the_reference)
{
    expect_layouts("dmd2_vace", some, WEFT_COUNT(some));
    expect_layouts("dmd2_character_lora", few, WEFT_COUNT(few));
}
