#include "train/graph/objective.h"

#include "base/fs.h"
#include "base/json.h"
#include "graph/builder_helpers.h"
#include "model/tiling.h"
#include "prompt/no_text.h"
#include "train/config/packing_config.h"
#include "train/config/run_model.h"
#include "train/graph/character_inputs.h"
#include "train/graph/control.h"
#include "train/graph/denoiser_call.h"
#include "train/graph/distillation.h"
#include "train/graph/history_inputs.h"
#include "train/graph/identity_inputs.h"
#include "train/graph/packed_rows.h"
#include "train/graph/preference.h"
#include "train/graph/run_networks.h"
#include "train/graph/sample_dropout.h"
#include "train/graph/sound_stream.h"
#include "transform/memory/recompute.h"

#include <stdio.h>
#include <string.h>

static const weft_call encode = {WEFT_CALL_ENCODE, WEFT_STREAM_ALONE},
                       decode = {WEFT_CALL_DECODE, WEFT_STREAM_ALONE};

static weft_model_size pixels_of(const weft_bucket *b)
{
    return (weft_model_size){b->batch, b->frames, b->height, b->width, 0};
}

/* KL(N(mean, var) || N(0, 1)) = (mean^2 + var - 1 - logvar) / 2, summed over a sample's latent. */
static weft_value divergence(weft_graph *g, weft_value mean, weft_value logvar, int64_t count)
{
    weft_value kl =
        weft_add(g, weft_unary(g, WEFT_OP_SQUARE, mean), weft_unary(g, WEFT_OP_EXP, logvar));
    kl = weft_sub(g, weft_affine(g, kl, 1, -1), logvar);
    return weft_affine(g, weft_mean_all(g, kl), 0.5 * (double)count, 0);
}

static weft_value autoencoder_loss(weft_graph *g, const weft_run *run, const weft_run_models *m,
                                   const weft_bucket *s)
{
    const weft_model *model = &m->autoencoder;
    const weft_model_size size = pixels_of(s);
    weft_ports p = weft_ports_none();
    const weft_value x = weft_model_input(g, model, &size, WEFT_PORT_VIDEO, "batch.");
    const weft_value key = weft_input(g, "batch.key", WEFT_I64, WEFT_SHAPE(s->batch));
    p.at[WEFT_PORT_VIDEO] = x;
    weft_graph_push(g, "%s", model->family->scope);
    weft_model_call(g, model, encode, false, &p);
    const weft_value mean = p.at[WEFT_PORT_MEAN], logvar = p.at[WEFT_PORT_LOGVAR];
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const weft_shape latent = weft_value_get(g, mean)->shape;
    const bool samples = weft_value_ok(logvar);
    p.at[WEFT_PORT_LATENTS] = mean;
    if (samples) {
        const weft_value noise =
            weft_random_like(g, WEFT_OP_RANDOM_NORMAL, key, WEFT_RNG_VAE, latent);
        const weft_value deviation = weft_unary(g, WEFT_OP_EXP, weft_affine(g, logvar, 0.5, 0));
        p.at[WEFT_PORT_LATENTS] = weft_add(g, mean, weft_mul(g, deviation, noise));
    }
    weft_model_call(g, model, decode, false, &p);
    weft_graph_pop(g);
    const weft_value made = p.at[WEFT_PORT_RECONSTRUCTION],
                     seen = weft_run_uses_discriminator(run) ? weft_unary(g, WEFT_OP_STOP, made)
                                                             : made,
                     error = weft_sub(g, seen, x);
    const weft_value mse = weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, error));
    weft_output(g, "mse", mse);
    weft_value loss = weft_affine(g, mse, run->loss.l2, 0);
    if (samples) {
        const weft_value kl = divergence(g, mean, logvar, weft_shape_count(&latent) / s->batch);
        weft_output(g, "kl", kl);
        loss = weft_add(g, loss, weft_affine(g, kl, run->loss.kl, 0));
    }
    if (run->loss.l1 > 0) {
        /* |e| as sqrt(e^2 + 1e-6): smooth at 0 (Charbonnier) */
        weft_value l1 = weft_affine(g, weft_unary(g, WEFT_OP_SQUARE, error), 1, 1e-6);
        l1 = weft_mean_all(g, weft_unary(g, WEFT_OP_SQRT, l1));
        loss = weft_add(g, loss, weft_affine(g, l1, run->loss.l1, 0));
    }
    return weft_losses_add(g, run, &m->losses, loss, x, made, seen);
}

weft_model_size weft_run_latent_size(const weft_run_models *m, const weft_bucket *b)
{
    return (weft_model_size){b->batch,
                             weft_grid_latent_frames(&m->grid, b->frames),
                             b->height / m->grid.factor[1],
                             b->width / m->grid.factor[2],
                             weft_text_conditioning_length(&m->text),
                             .text2 = weft_text_conditioning_length2(&m->text),
                             .audio = weft_run_sound_latents(&m->sound, b->frames)};
}

/* The latents that the denoiser gets with noise: of a clip, or of a section. */
static weft_model_size noisy_size(const weft_run_models *m, const weft_bucket *b)
{
    weft_model_size s = weft_run_latent_size(m, b);
    s.frames = m->sections.frames ? m->sections.frames : s.frames + m->lead;
    return s;
}

int64_t weft_run_tokens(const weft_run_models *m, const weft_bucket *b)
{
    const weft_model_size s = noisy_size(m, b);
    return (s.frames / m->patch.factor[0]) * (s.height / m->patch.factor[1]) *
           (s.width / m->patch.factor[2]);
}

/* Adds the load-balancing loss of a mixture of experts, and outputs its counts. */
static weft_value add_balance(weft_graph *g, weft_value loss, const weft_ports *called)
{
    static const weft_port reported[] = {WEFT_PORT_BALANCE, WEFT_PORT_FULLEST, WEFT_PORT_DROPPED};
    for (int i = 0; i < WEFT_COUNT(reported); i++)
        if (weft_value_ok(called->at[reported[i]]))
            weft_output(g, weft_port_name(reported[i]), called->at[reported[i]]);
    const weft_value balance = called->at[WEFT_PORT_BALANCE];
    return weft_value_ok(balance) ? weft_add(g, loss, balance) : loss;
}

/* The latents of a control video, or of a first frame and grey frames. For a moved character: all
 * channels after the noisy latents `x`. WEFT_NONE: none. */
static weft_value given_latents(weft_graph *g, const weft_run *run, const weft_run_models *m,
                                const weft_model_size *size, weft_shape latents, weft_value x,
                                weft_value key, weft_ports *p)
{
    const weft_character_batch batch = {latents, x, key};
    if (weft_run_moves_character(m))
        return weft_character_inputs_given(g, run, m, size, &batch, p);
    if (run->condition == WEFT_CONDITION_CONTROL)
        return weft_control_build(g, run, m, latents, key, p);
    return m->grey_rest ? weft_input(g, "batch.first_frame", WEFT_F32, latents) : WEFT_NONE;
}

/* The other clip of each pair. The control of a pair is `given` with both clips. */
static weft_preference_clip rejected_clip(weft_graph *g, const weft_run_models *m,
                                          weft_shape latents, weft_value given,
                                          const weft_sound_stream *sound)
{
    weft_preference_clip clip = {.video = weft_input(g, "batch.rejected", WEFT_F32, latents),
                                 .given = given};
    if (m->grey_rest)
        clip.given = weft_input(g, "batch.rejected_first_frame", WEFT_F32, latents);
    if (weft_run_has_sound(&m->sound))
        clip.sound =
            weft_input(g, "batch.rejected_sound", WEFT_F32, weft_value_get(g, sound->data)->shape);
    return clip;
}

static weft_value denoiser_loss(weft_graph *g, const weft_run *run, const weft_run_models *m,
                                const weft_bucket *s)
{
    const weft_model_size size = noisy_size(m, s);
    const weft_noise_process *noise_process = weft_run_process(run);
    const weft_noise_process_config noised =
        weft_noise_process_resolve(noise_process, &run->noise, weft_run_tokens(m, s));
    const weft_model *model = &m->denoiser;
    weft_ports p = weft_ports_none();
    weft_shape latents = weft_model_shape(model, &size, WEFT_PORT_LATENTS);
    latents.dim[4] = m->grid.channels; /* without channels of image conditioning */
    weft_value x = weft_run_moves_character(m) ? weft_character_inputs_data(g, m, latents)
                                               : weft_input(g, "batch.latents", WEFT_F32, latents);
    if (m->text_precomputed)
        weft_text_conditioning_inputs(g, &m->text, model, &size, "batch.", &p);
    else
        weft_text_conditioning_encode(g, &m->text, s->batch, m->text_frozen, &p);
    const weft_value key = weft_input(g, "batch.key", WEFT_I64, WEFT_SHAPE(s->batch));
    if (weft_run_uses_identity(m))
        weft_identity_inputs_append(g, run, m, x, key, &p);
    weft_value noise = weft_random_like(g, WEFT_OP_RANDOM_NORMAL, key, WEFT_RNG_NOISE, latents);
    const weft_value given = given_latents(g, run, m, &size, latents, x, key, &p);
    if (m->sections.frames)
        weft_history_inputs_build(g, m, &size, &p);
    if (run->distill.method) {
        weft_distillation d = {run,
                               m,
                               &noised.flow,
                               weft_run_tokens(m, s),
                               x,
                               given,
                               noise,
                               key,
                               p,
                               weft_ports_none(),
                               weft_sound_stream_inputs(g, run, m, &size)};
        if (weft_distillation_guides(run)) {
            weft_text_conditioning_inputs(g, &m->text, model, &size, WEFT_EMPTY_CAPTION, &d.empty);
            weft_control_give_unguided(g, &p, &d.empty);
        }
        return add_balance(g, weft_distillation_loss(g, &d, &p), &p);
    }
    const weft_noised noise_level = noise_process->level(g, &noised, key);
    if (weft_run_prefers(run)) {
        const weft_sound_stream sound = weft_sound_stream_noised(g, run, m, &size, &noise_level);
        const weft_preference pair = {run,
                                      m,
                                      &noised,
                                      &noise_level,
                                      {x, given, sound.data},
                                      rejected_clip(g, m, latents, given, &sound),
                                      noise,
                                      &sound,
                                      p};
        return add_balance(g, weft_preference_loss(g, &pair, &p), &p);
    }
    const weft_sound_stream sound = weft_sound_stream_build(g, run, m, &size, &noise_level, &p);
    const weft_denoiser_call call = {.run = run,
                                     .models = m,
                                     .data = x,
                                     .given = given,
                                     .input =
                                         noise_process->input(g, &noised, x, noise, &noise_level),
                                     .time = noise_level.time};
    weft_value prediction = weft_denoiser_call_build(g, &call, &p);
    if (weft_denoiser_call_gives_frame(run, m)) {
        x = weft_denoiser_call_rest(g, x);
        noise = weft_denoiser_call_rest(g, noise);
        prediction = weft_denoiser_call_rest(g, prediction);
    }
    const weft_value loss =
        weft_noise_process_loss(g, noise_process, &noised, prediction, x, noise, &noise_level);
    return add_balance(g, weft_sound_stream_loss(g, run, &sound, &p, loss), &p);
}

weft_value weft_objective_build(weft_graph *g, const weft_run *run, const weft_run_models *models,
                                const weft_bucket *size)
{
    const weft_value loss = weft_run_packs(run) ? weft_packed_rows_loss(g, run, models)
                            : weft_run_trains_denoiser(models)
                                ? denoiser_loss(g, run, models, size)
                                : autoencoder_loss(g, run, models, size);
    weft_output(g, "objective", loss);
    return loss;
}

const weft_model *weft_run_trained(const weft_run_models *m)
{
    return weft_run_trains_denoiser(m) ? &m->denoiser : &m->autoencoder;
}

/* Applies the run's trainable parameters or LoRA to the network in `scope`. Replaces and frees
 * `*g`. */
static weft_status apply_trainable(const weft_run *run, const weft_run_models *models,
                                   const char *scope, weft_graph **g)
{
    weft_graph *trained = NULL;
    if (!models->partly_trained)
        return WEFT_OK;
    const weft_family *own = weft_run_trained(models)->family,
                      *family = strcmp(scope, WEFT_FAKE_SCOPE)
                                    ? own
                                    : weft_run_network_model(models, scope)->family;
    weft_trainable trainable = weft_run_trainable(run, family, scope);
    if (trainable.auto_targets && family != own) /* checkpoints record the student's */
        trainable.targets = weft_family_lora_targets(family);
    const weft_status_code status = weft_pass_trainable(*g, &trainable, &trained);
    weft_graph_free(*g);
    *g = trained;
    return status;
}

/* Rejects patterns that match nothing. */
static weft_status check_recompute(const weft_run *run, const weft_graph *g)
{
    bool is_auto;
    const weft_string_list list = weft_run_recomputes(run, &is_auto);
    for (int64_t i = 0; i < list.count; i++)
        if (!weft_recompute_chooses(g, list.item[i]))
            return weft_error(
                WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = "memory.recompute", .value = list.item[i]),
                "\"%s\" matches no scope (such as \"%s\") and no op (such as \"attention\") of the "
                "model. `weft inspect graph CONFIG --graph` prints its scopes and ops",
                list.item[i], weft_graph_node(g, weft_graph_node_count(g) / 2)->scope);
    return WEFT_OK;
}

weft_status weft_objective_make(const weft_run *run, const weft_run_models *models,
                                const weft_bucket *size, weft_graph **graph)
{
    weft_graph *g = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(g, "a graph"));
    weft_objective_build(g, run, models, size);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_graph_check(g));
    WEFT_GO(weft_run_networks_share_trained(run, models, &g));
    WEFT_GO(apply_trainable(run, models, weft_run_trained(models)->family->scope, &g));
    if (weft_distill_matches(&run->distill))
        WEFT_GO(apply_trainable(run, models, WEFT_FAKE_SCOPE, &g));
    WEFT_GO(weft_run_networks_share_frozen(run, models, &g));
    WEFT_GO(check_recompute(run, g));
    *graph = g;
    return WEFT_OK;
out:
    weft_graph_free(g);
    return status;
}

weft_status weft_run_base(const weft_run_models *models, weft_graph **graph)
{
    const weft_model *model = weft_run_trained(models);
    const weft_model_size size = weft_model_smallest(model);
    weft_graph *g = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(g, "a graph"));
    weft_model_build(g, model, &size, true);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_graph_check(g));
    *graph = g;
    return WEFT_OK;
out:
    weft_graph_free(g);
    return status;
}

void weft_encoder_build(weft_graph *g, const weft_model *autoencoder, const weft_bucket *bucket)
{
    const weft_model_size size = pixels_of(bucket);
    const bool whole = weft_mesh_ranks(weft_graph_mesh(g)) == 1;
    weft_call call = encode;
    weft_ports p = weft_ports_none();
    p.at[WEFT_PORT_VIDEO] = weft_model_input(g, autoencoder, &size, WEFT_PORT_VIDEO, "batch.");
    if (!whole && weft_value_ok(p.at[WEFT_PORT_VIDEO])) {
        weft_graph_set_layout(g, p.at[WEFT_PORT_VIDEO],
                              (weft_layout[WEFT_MAX_AXES]){{.kind = WEFT_V}});
        call.stream = weft_graph_rank(g) ? WEFT_STREAM_NEXT : WEFT_STREAM_FIRST;
    }
    weft_model_call(g, autoencoder, call, true, &p);
    weft_output(g, "latents", p.at[WEFT_PORT_MEAN]);
}

static void add_recipes(weft_run_models *m, const weft_family *family)
{
    for (int i = 0; i < family->recipes && m->recipes < WEFT_RUN_RECIPES; i++)
        m->recipe[m->recipes++] = family->recipe[i];
}

void weft_run_models_connect(weft_run_models *m)
{
    m->recipes = 0;
    m->grid = weft_model_grid(&m->autoencoder);
    if (!weft_run_trains_denoiser(m)) {
        add_recipes(m, m->autoencoder.family);
        return;
    }
    add_recipes(m, m->denoiser.family);
    if (weft_run_uses_identity(m))
        add_recipes(m, m->identity.family);
    for (int r = 0; r < m->text.encoders && !m->text_precomputed; r++)
        add_recipes(m, m->text.encoder[r].model.family);
    m->patch = weft_model_grid(&m->denoiser);
    m->lead = weft_run_moves_character(m);
}

/* Checks that the models support first-frame conditioning, and the denoiser's number of input
 * channels. */
static weft_status check_condition(const weft_run_models *m, const char *path)
{
    const weft_frame_condition how = weft_model_takes_port(&m->denoiser);
    const int64_t latents = m->grid.channels,
                  marks = how.marks ? m->grid.factor[0] : how.mark_after;
    const char *name = weft_model_class(&m->denoiser);
    if (!m->grid.causal)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "condition"),
                          "the latents of this autoencoder have no separate frame for the first "
                          "frame of a video; use a causal autoencoder, such as AutoencoderKLWan");
    if (m->grid.inverted)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "condition"),
                          "this autoencoder has a separate scale for images "
                          "(invert_scale_latents), which training does not support; set it to "
                          "false in its config.json to use the scale of videos");
    if (how.form != WEFT_FRAME_CONDITION_CHANNELS && how.form != WEFT_FRAME_CONDITION_TIMES &&
        how.form != WEFT_FRAME_CONDITION_FRAME_MASK && how.form != WEFT_FRAME_CONDITION_IMPLICIT)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "condition"),
                          "this %s cannot be trained with a given frame; WanTransformer3DModel, "
                          "CogVideoXTransformer3DModel, LTXVideoTransformer3DModel, STDiT3 and, "
                          "with an image_condition_type, HunyuanVideoTransformer3DModel can",
                          name);
    if (how.whole > 1)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "condition"),
                          "the transformer sees given frames in blocks of %" PRId64 " latent "
                          "frames (%s), and this condition gives one. Set %s: false, or remove the "
                          "condition.",
                          how.whole, m->denoiser.family->block_sparse,
                          m->denoiser.family->block_sparse);
    if (how.form == WEFT_FRAME_CONDITION_CHANNELS && m->patch.channels != 2 * latents + marks)
        return weft_error(
            WEFT_MSG_CONFIG_VALUE,
            WEFT_AT(.file = path, .key = "transformer", WEFT_NUMBER(2 * latents + marks)),
            "with a first frame on channels, %s needs %" PRId64 " channels: noisy latents, %" PRId64
            " marks of the known frames, and their "
            "latents; write config: {in_channels: %" PRId64 ", "
            "out_channels: %" PRId64 "}",
            name, 2 * latents + marks, marks, 2 * latents + marks, latents);
    return WEFT_OK;
}

/* Checks that clips have latent frames after the first if the first frame is conditioning. */
static weft_status check_length(const weft_run *run, const weft_run_models *m, const char *path)
{
    const weft_frame_condition how = weft_model_takes_port(&m->denoiser);
    if (how.form == WEFT_FRAME_CONDITION_CHANNELS && !how.in_place)
        return WEFT_OK;
    for (int64_t i = 0; i < run->train_stages.count; i++) {
        const weft_train_stage *train_stage = (const weft_train_stage *)run->train_stages.item + i;
        for (int b = 0; b < weft_train_stage_bucket_count(train_stage); b++)
            if (weft_grid_latent_frames(&m->grid, weft_train_stage_bucket(train_stage, b)->frames) <
                2)
                return weft_error(
                    WEFT_MSG_CONFIG_CONFLICT,
                    WEFT_AT(.file = path,
                            .key = weft_message_key((char[64]){0}, "stages.%" PRId64, i)),
                    "with condition, a clip needs a latent frame after the first; use at least "
                    "%" PRId64 " frames",
                    weft_grid_frames(&m->grid, 2));
    }
    return WEFT_OK;
}

/* Rejects a second data set of grey frames where another one exists, and where none is read. */
static weft_status check_rest(const weft_run *run, const weft_run_models *m, const char *path)
{
    return m->grey_rest && weft_cascades_planned(&run->cascades) != WEFT_CASCADES_NONE
               ? weft_error(WEFT_MSG_CONFIG_CONFLICT,
                            WEFT_AT(.file = path, .key = "parallel.cascades"),
                            "cascades read one data set, and the grey frames after a first one "
                            "are a second. Remove one of the two keys.")
               : WEFT_OK;
}

/* Teacher forcing: the denoiser has an input for the clip without noise. */
static weft_status check_clean_blocks(const weft_run *run, const weft_run_models *m,
                                      const char *path)
{
    if (!weft_model_takes(&m->denoiser, WEFT_PORT_CLEAN))
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.file = path, .key = "condition", .value = "clean_blocks"),
                          "%s has no blocks of frames that attend to earlier ones without noise. "
                          "CausalWanTransformer3DModel has them.",
                          weft_model_class(&m->denoiser));
    if (run->distill.method)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "distill.method"),
                          "it cannot be combined with condition: clean_blocks. Remove one of the "
                          "two.");
    return WEFT_OK;
}

/* Checks the denoiser against its autoencoder and its text encoders. */
static weft_status check_denoiser(const weft_run *run, const weft_run_models *m, const char *path)
{
    const bool controlled = run->condition == WEFT_CONDITION_CONTROL;
    weft_port ports[7 + WEFT_MAX_CONDITIONING] = {WEFT_PORT_LATENTS, WEFT_PORT_TIMESTEP,
                                                  WEFT_PORT_GUIDANCE};
    int count = 3;
    for (int i = 0; i < m->text.entries; i++)
        ports[count++] = m->text.entry[i].port;
    if (controlled)
        ports[count++] = WEFT_PORT_CONTROL;
    if (weft_run_moves_character(m)) {
        ports[count++] = WEFT_PORT_FACE;
        ports[count++] = WEFT_PORT_IMAGE;
    }
    if (weft_run_has_sound(&m->sound))
        ports[count++] = WEFT_PORT_AUDIO;
    WEFT_TRY(weft_model_accepts(&m->denoiser, ports, count, "train"));
    const bool conditioned = run->condition == WEFT_CONDITION_FIRST_FRAME;
    const bool fills = conditioned || controlled || weft_model_takes_port(&m->denoiser).also_none;
    const int64_t takes = fills ? weft_model_denoised(&m->denoiser) : m->patch.channels;
    const int64_t returns = m->patch.out_channels;
    /* twice the channels: with a variance, which weft_model_answer drops */
    if (takes != m->grid.channels || (returns != takes && returns != 2 * takes))
        return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                          WEFT_AT(.file = path, .key = "transformer", WEFT_NUMBER(takes)),
                          "the latents of the autoencoder have %" PRId64
                          " channels, and the transformer "
                          "takes %" PRId64 " and returns %" PRId64 "%s",
                          m->grid.channels, takes, returns,
                          !conditioned && takes != m->grid.channels &&
                                  weft_model_denoised(&m->denoiser) == m->grid.channels
                              ? "; condition: first_frame provides the others"
                              : "");
    if (weft_run_moves_character(m) && weft_run_prefers(run))
        return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                          WEFT_AT(.file = path, .key = "preference.rejected"),
                          "%s moves a character, and rejected clips have no images and faces. "
                          "Remove preference, or use another model.",
                          weft_model_class(&m->denoiser));
    if (controlled)
        return weft_run_moves_character(m) ? WEFT_OK : weft_control_check_models(m, path);
    if (run->condition == WEFT_CONDITION_CLEAN_BLOCKS)
        return check_clean_blocks(run, m, path);
    if (!conditioned && weft_model_takes_port(&m->denoiser).form == WEFT_FRAME_CONDITION_IMPLICIT)
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY, WEFT_AT(.file = path, .key = "condition"),
                          "this %s takes a given first frame; write condition: first_frame",
                          weft_model_class(&m->denoiser));
    if (!conditioned)
        return WEFT_OK;
    WEFT_TRY(check_rest(run, m, path));
    WEFT_TRY(check_condition(m, path));
    return check_length(run, m, path);
}

/* Reads the connectors between text encoders and the denoiser. They are frozen, so embeddings must
 * be cached. */
static weft_status read_connectors(const weft_run *run, const char *path, const weft_run_models *m,
                                   weft_text_encoder_spec *spec, int count)
{
    for (int r = 0; r < count; r++) {
        const weft_text_encoder_row *row = weft_text_conditioning_row(&m->denoiser, r);
        char folder[1024], key[48];
        if (!row || !row->connectors)
            continue;
        snprintf(key, sizeof key, "text_encoders.%d.connectors", r);
        if (!m->text_precomputed)
            return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = key),
                              "text connectors are not trained; give the text encoder weights, "
                              "without train, and cache its embeddings");
        weft_run_connectors_folder(weft_run_text(run, r), folder, sizeof folder);
        WEFT_TRY(weft_error_at(
            weft_model_open_as(folder, WEFT_ROLE_TEXT_CONNECTORS, &spec[r].connectors),
            WEFT_AT(.file = path, .key = key)));
    }
    return WEFT_OK;
}

/* Reads the text encoders and the denoiser. The first encoder determines the denoiser's text
 * width. */
static weft_status read_denoiser(const weft_run *run, const char *path, weft_run_models *m)
{
    const int count = (int)run->text_encoders.count;
    weft_text_encoder_spec spec[WEFT_MAX_TEXT_ENCODERS] = {0};
    m->text_precomputed = run->data.embeddings == WEFT_EMBEDDINGS_CACHED;
    for (int r = 0; r < count; r++) {
        const weft_run_model *text = weft_run_text(run, r);
        char key[32];
        snprintf(key, sizeof key, "text_encoders.%d", r);
        spec[r] = (weft_text_encoder_spec){.folder = text->weights[0] ? text->weights : NULL,
                                           .tokenizer = text->tokenizer,
                                           .length = text->length};
        const weft_model_use use = {WEFT_ROLE_TEXT_ENCODER, path, key};
        WEFT_TRY(weft_run_model_read(text, &use, &spec[r].model));
        const bool stays = text->weights[0] && !text->train;
        m->text_frozen |= (uint32_t)stays << r;
        m->text_precomputed &= stays;
    }
    const weft_model_use use = {WEFT_ROLE_DENOISER, path, "transformer",
                                weft_model_grid(&m->autoencoder).channels,
                                weft_model_text(&spec[0].model).width};
    WEFT_TRY(weft_run_model_read(&run->transformer, &use, &m->denoiser));
    WEFT_TRY(read_connectors(run, path, m, spec, count));
    WEFT_TRY(weft_run_sound_read(run, path, &m->denoiser, &m->sound));
    WEFT_TRY(weft_text_conditioning_open(&m->denoiser, spec, count, path, &m->text));
    return weft_text_conditioning_image_side(&m->text)
               ? weft_error(WEFT_MSG_TEXT_ENCODER_UNSUPPORTED,
                            WEFT_AT(.file = path, .key = "text_encoders.0"),
                            "%s reads the first frame of each video with its caption, which weft "
                            "generate supports and training does not; use an encoder that reads "
                            "text only, such as LlamaModel",
                            weft_model_class(&spec[0].model))
               : WEFT_OK;
}

/* Rejects patterns that match no parameter, before data is read. */
static weft_status check_trainable(const weft_run *run, const char *path, weft_run_models *m)
{
    weft_graph *g;
    const weft_family *family = weft_run_trained(m)->family;
    const weft_trainable trainable = weft_run_trainable(run, family, family->scope);
    m->partly_trained = weft_trainable_given(&trainable);
    if (!m->partly_trained)
        return WEFT_OK;
    WEFT_TRY(weft_run_base(m, &g));
    const weft_status_code status = apply_trainable(run, m, family->scope, &g);
    weft_graph_free(g);
    if (status != WEFT_OK && trainable.auto_targets && run->transformer.lora.recorded.count)
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.file = path, .key = "out", .value = run->out),
                          "its checkpoints have LoRA in layers that this %s lacks, so they are of "
                          "another model. Set another out.",
                          family->class_name);
    return weft_error_at(status,
                         WEFT_AT(.file = path,
                                 .key = weft_run_trains_denoiser(m) ? "transformer" : "autoencoder",
                                 .value = family->class_name));
}

/* Sets the batch sizes that the training stages leave open, from their token limits. Tokens are the
 * denoiser's tokens, or latents without a denoiser. The config keeps the chosen sizes. */
static void choose_batches(const weft_run *run, const weft_run_models *m)
{
    weft_train_stage *train_stage = run->train_stages.item;
    for (int64_t i = 0; i < run->train_stages.count; i++)
        for (int b = 0; b < weft_train_stage_bucket_count(&train_stage[i]); b++) {
            weft_bucket *size = train_stage[i].buckets.count
                                    ? (weft_bucket *)train_stage[i].buckets.item + b
                                    : &train_stage[i].size;
            const weft_model_size s = weft_run_latent_size(m, size);
            const int64_t tokens = weft_run_trains_denoiser(m) ? weft_run_tokens(m, size)
                                                               : s.frames * s.height * s.width;
            if (!size->batch)
                size->batch =
                    weft_run_packs(run) ? 1 : weft_train_stage_batch(&train_stage[i], tokens);
        }
}

/* Checks autoencoder.tile for every clip size. */
static weft_status check_tiles(const weft_run *run, const weft_run_models *m, const char *path)
{
    weft_tile tile;
    const char *text = run->autoencoder.tile;
    WEFT_TRY(weft_tile_parse(text, WEFT_MSG_CONFIG_VALUE,
                             WEFT_AT(.file = path, .key = "autoencoder.tile", .value = text), "",
                             &tile));
    if (!tile.on)
        return WEFT_OK;
    if (!weft_run_trains_denoiser(m) || run->data.samples_from == WEFT_FROM_PIXELS)
        return weft_error(WEFT_MSG_CONFIG_NO_EFFECT,
                          WEFT_AT(.file = path, .key = "autoencoder.tile", .value = text),
                          "it is for clips that are encoded before a transformer is trained; %s "
                          "encodes whole clips",
                          weft_run_trains_denoiser(m) ? "data.input: pixels"
                                                      : "training an autoencoder");
    const weft_train_stage *train_stage = run->train_stages.item;
    for (int64_t i = 0; i < run->train_stages.count; i++)
        for (int b = 0; b < weft_train_stage_bucket_count(&train_stage[i]); b++) {
            const weft_bucket *size = weft_train_stage_bucket(&train_stage[i], b);
            const int64_t pixels[3] = {size->frames, size->height, size->width};
            weft_tiling tiling;
            if (weft_tiling_of(&m->autoencoder, &tile, false, pixels, &tiling) != WEFT_OK)
                return weft_error_at(WEFT_E_CONFIG,
                                     WEFT_AT(.file = path, .key = "autoencoder.tile"));
        }
    return WEFT_OK;
}

/* Settings of a finished model: `copied`, or weft.json around the folder of its weights. Owned by
 * the caller (json_decref). NULL: no such file. */
static weft_status read_settings(const char *folder, const char *copied, json_t **settings)
{
    char *file = copied ? weft_strdup(copied) : weft_path_join(folder, "../weft.json");
    *settings = NULL;
    WEFT_TRY(WEFT_ALLOCATED(file, "a path"));
    const weft_status_code status =
        weft_path_exists(file) ? weft_json_load(file, settings) : WEFT_OK;
    weft_free(file);
    return status;
}

/* Finds embeddings of an empty text in the denoiser's files. A text encoder in the step encodes the
 * text "" in their place. */
static weft_status find_no_text(const weft_run *run, const char *path, weft_run_models *m)
{
    weft_tensors *file;
    const weft_stored_tensor *table;
    if (!run->transformer.weights[0] || !m->text_precomputed ||
        run->data.samples_from == WEFT_FROM_PIXELS)
        return WEFT_OK;
    for (int r = 0; r < m->text.encoders; r++) {
        WEFT_TRY(
            weft_error_at(weft_no_text_open(&m->text, r, run->transformer.weights, &file, &table),
                          WEFT_AT(.file = path, .key = "transformer.weights")));
        m->text.encoder[r].stores_no_text = file != NULL;
        weft_tensors_close(file);
    }
    return WEFT_OK;
}

/* Sets m->grey_rest. A published model was trained with grey frames after the first one, and has no
 * settings. The settings of others name the rest, unless it is zeros. */
static void find_rest(const weft_run *run, const json_t *settings, weft_run_models *m)
{
    const char *rest = json_string_value(json_object_get(settings, "rest"));
    if (run->condition == WEFT_CONDITION_FIRST_FRAME && weft_model_takes_port(&m->denoiser).grey)
        m->grey_rest = !settings || (rest && !strcmp(rest, "grey"));
}

/* Refuses weights of an earlier version, whose prediction has the opposite sign: of a finished
 * model, or of a checkpoint. */
static weft_status check_sign(const weft_model *model, const char *folder, const json_t *settings,
                              const char *path, const char *key)
{
    json_t *state = NULL;
    if (!model->family || !model->family->was_positive)
        return WEFT_OK;
    char *saved = weft_path_join(folder, "../state.json");
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(saved, "a path"));
    if (weft_path_exists(saved))
        WEFT_GO(weft_json_load(saved, &state));
    const json_t *made = json_object_get(state, "provenance");
    if (weft_family_was_positive(model->family, settings) ||
        (state && !json_object_get(made, "prediction")))
        status =
            weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.file = path, .key = key, .value = folder),
                       "this %s is of an earlier version of weft and predicts noise - data, which "
                       "training does not support any more. weft generate still runs it. Begin "
                       "with published weights, or without weights.",
                       model->family->class_name);
out:
    json_decref(state);
    weft_free(saved);
    return status;
}

/* Checks the settings of the transformer's weights. Does nothing without weights. */
static weft_status check_settings(const weft_run *run, const char *path, weft_run_models *m)
{
    const char *weights = run->transformer.weights;
    json_t *settings;
    if (!weights[0])
        return WEFT_OK;
    WEFT_TRY(read_settings(weights, run->transformer.settings, &settings));
    find_rest(run, settings, m);
    weft_status_code status =
        weft_error_at(weft_trained_sections_read(settings, "weft.json", &m->trained_sections),
                      WEFT_AT(.file = path, .key = "transformer.weights"));
    if (status == WEFT_OK)
        status = check_sign(&m->denoiser, weights, settings, path, "transformer.weights");
    json_decref(settings);
    return status;
}

/* Reads another network of a distillation; without a folder, there is none. */
static weft_status read_network(const char *folder, const char *path, const char *key,
                                weft_model *model)
{
    if (!folder[0])
        return WEFT_OK;
    WEFT_TRY(weft_error_at(weft_model_open_as(folder, WEFT_ROLE_DENOISER, model),
                           WEFT_AT(.file = path, .key = key)));
    json_t *settings;
    WEFT_TRY(read_settings(folder, NULL, &settings));
    const weft_status_code status = check_sign(model, folder, settings, path, key);
    json_decref(settings);
    return status;
}

weft_status weft_run_models_read(const weft_run *run, const char *path, weft_run_models *models)
{
    weft_run_models m = {0};
    const weft_model_use use = {WEFT_ROLE_AUTOENCODER, path, "autoencoder"};
    WEFT_TRY(weft_run_model_read(&run->autoencoder, &use, &m.autoencoder));
    if (weft_run_model_given(&run->transformer))
        WEFT_TRY(read_denoiser(run, path, &m));
    else
        WEFT_TRY(weft_loss_nets_read(run, path, &m.losses));
    if (weft_run_model_given(&run->identity))
        WEFT_TRY(weft_identity_inputs_read(run, path, &m));
    WEFT_TRY(read_network(run->distill.teacher, path, "distill.teacher", &m.teacher));
    WEFT_TRY(read_network(run->distill.fake_weights, path, "distill.fake_weights", &m.fake));
    weft_run_models_connect(&m);
    WEFT_TRY(find_no_text(run, path, &m));
    if (weft_run_trains_denoiser(&m)) {
        WEFT_TRY(check_settings(run, path, &m));
        WEFT_TRY(weft_character_inputs_read(run, &m, path));
        WEFT_TRY(weft_history_inputs_read(run, &m, path));
        WEFT_TRY(check_denoiser(run, &m, path));
    }
    WEFT_TRY(
        weft_run_check_sizes(run, path, &m.grid, weft_run_trains_denoiser(&m) ? &m.patch : NULL));
    WEFT_TRY(check_tiles(run, &m, path));
    WEFT_TRY(weft_packed_rows_check(run, &m, path));
    WEFT_TRY(weft_distillation_check(run, &m, path));
    choose_batches(run, &m);
    WEFT_TRY(check_trainable(run, path, &m));
    *models = m;
    return WEFT_OK;
}
