#include "generate/generator/generator_graphs.h"

#include "exec/store/weights.h"
#include "generate/generator/causal_blocks.h"
#include "generate/generator/feature_cache_rule.h"
#include "generate/generator/generator_parts.h"
#include "generate/generator/generator_read.h"
#include "generate/generator/generator_rows.h"
#include "generate/generator/int8_layers.h"
#include "generate/generator/latent_stages.h"
#include "generate/generator/quantized_weights.h"
#include "graph/builder_helpers.h"
#include "transform/numeric/mixed_precision.h"

#include <stdio.h>

/* Frame rate as conditioning, if none is given. */
static double own_fps(const weft_generator *p)
{
    const double of_image = p->model.denoiser->family->image_fps;
    return p->options.frames == 1 && of_image > 0 ? of_image : p->model.fps;
}

/* Values of ports that are one number per video. */
double weft_generator_number(const weft_generator *p, weft_port port)
{
    switch (port) {
    case WEFT_PORT_FPS: return p->options.fps > 0 ? p->options.fps : own_fps(p);
    case WEFT_PORT_HEIGHT: return (double)p->options.height;
    case WEFT_PORT_WIDTH: return (double)p->options.width;
    case WEFT_PORT_OFFSET: return 2; /* value that CogVideoX 1.5 was trained with */
    default: return 0;
    }
}
const weft_port weft_generator_numbers[] = {WEFT_PORT_FPS, WEFT_PORT_HEIGHT, WEFT_PORT_WIDTH,
                                            WEFT_PORT_OFFSET};

/* Inputs of models that denoise section by section. */
static const weft_port section_ports[] = {WEFT_PORT_INDEX,           WEFT_PORT_HISTORY,
                                          WEFT_PORT_HISTORY_2X,      WEFT_PORT_HISTORY_4X,
                                          WEFT_PORT_HISTORY_INDEX,   WEFT_PORT_HISTORY_2X_INDEX,
                                          WEFT_PORT_HISTORY_4X_INDEX};

/* Published models get the inputs of their pipelines; models trained by weft get the inputs of
 * training. */
static bool takes_input(const weft_generator *p, weft_port port)
{
    const weft_model *model = p->model.denoiser;
    const bool piped = !model->family->piped || model->family->piped(model->config, port);
    return weft_model_takes(model, port) && piped &&
           (p->model.published || port == WEFT_PORT_OFFSET);
}

/* LTX takes the frame rate as the distance of frames in seconds. */
static bool takes_spacing(const weft_generator *p)
{
    return p->options.fps > 0 && takes_input(p, WEFT_PORT_SPACING);
}

/* Sets the mesh and the denoiser's recipe. A recipe row that matches nothing in the text encoder
 * leaves the encoder unsharded: ranks along such an axis all encode the same few prompts. Graphs of
 * a feature cache have only some blocks. All rows are therefore optional, unlike in training. A
 * misspelt row of a family fails in training and in tests/graph/family_test.c. */
static weft_status open_layout(weft_generator *p)
{
    const weft_family *f = p->model.denoiser->family;
    const int ranks = p->comm ? weft_comm_ranks(p->comm) : 1;
    if (p->options.parallel)
        WEFT_TRY(weft_parallel_mesh_denoise(p->options.parallel, ranks, (int)p->shape.branches,
                                            "--parallel", &p->layout.mesh));
    else
        p->layout.mesh = (weft_mesh){.axis_count = 1, .axis = {{"dp", ranks}}};
    p->layout.text_rank = -1;
    if (p->options.parallel)
        WEFT_TRY(
            weft_parallel_text(p->options.parallel, ranks, "--parallel", &p->layout.text_rank));
    if (ranks == 1)
        p->layout.text_rank = -1;
    WEFT_TRY(weft_recipe_compose(f->recipe, f->recipes, &p->layout.mesh, &p->layout.recipe));
    p->layout.recipe.overlap = p->options.parallel ? &p->options.parallel->overlap : NULL;
    for (int i = 0; i < p->layout.recipe.count; i++)
        ((weft_recipe_row *)(uintptr_t)p->layout.recipe.row)[i].optional = true;
    return weft_causal_blocks_check_ranks(p);
}

/* Whether this rank has both CFG branches of the batch. */
static bool has_cfg_branches(const weft_generator *p)
{
    const int dp = weft_mesh_axis(&p->layout.mesh, "dp"),
              fsdp = weft_mesh_axis(&p->layout.mesh, "fsdp"),
              ep = weft_mesh_axis(&p->layout.mesh, "ep");
    return p->shape.branches == 2 && p->shape.text_rows == p->shape.rows &&
           (dp < 0 || p->layout.mesh.axis[dp].size == 1) &&
           (fsdp < 0 || p->layout.mesh.axis[fsdp].size == 1) &&
           (ep < 0 || p->layout.mesh.axis[ep].size == 1);
}

bool weft_generator_has_equal_branches(const weft_generator *p, int64_t rows)
{
    /* ranks with uneven shares of tokens or heads would choose different nodes; weakened branches
     * are not halves of the batch */
    return rows == p->shape.rows && rows == p->shape.text_rows &&
           p->trajectory.guidance->rows == 2 && weft_mesh_ranks(&p->layout.mesh) == 1;
}

/* Keeps the matrices of a part quantized. Matrices that adapters change are excluded (denoisers
 * only). */
static weft_status keep_quantized(const weft_generator *p, weft_generator_part *s, bool denoises)
{
    const weft_generator_options *o = &p->options;
    weft_adapter_use *use = NULL;
    int uses = 0;
    if (denoises)
        WEFT_TRY(weft_adapters_open(o->adapters, o->adapter_count, s == &p->parts.denoiser[1],
                                    s->packed, s->graph, s->prefix, &use, &uses));
    const weft_status_code status = weft_quantized_weights(
        s->graph,
        &(weft_quantized_source){.family = s->packed,
                                 .prefix = s->prefix,
                                 .path = s->folder,
                                 .use = use,
                                 .uses = uses,
                                 .int8 = o->weights == WEFT_WEIGHTS_INT8 && denoises,
                                 .layers = weft_generator_int8_choice(p)},
        &s->own);
    weft_adapters_close(use, uses);
    return status;
}

/* Errors of the ends of a denoiser are in every step; they cost 1 to 6 dB of PSNR. */
static weft_status compute_in_bf16(weft_generator_part *s, bool denoises)
{
    weft_graph *before = s->own;
    WEFT_TRY(weft_pass_mixed_precision(before, denoises ? WEFT_MIXED_ENDS_F32 : 0, &s->own));
    if (before != s->graph)
        weft_graph_free(before);
    return WEFT_OK;
}

static weft_status finish_part(weft_generator *p, weft_generator_part *s, int64_t rows)
{
    WEFT_TRY(weft_graph_check(s->graph));
    s->own = s->graph;
    if (s->packed)
        WEFT_TRY(keep_quantized(p, s, rows > 0));
    if (p->options.bf16)
        WEFT_TRY(compute_in_bf16(s, rows > 0));
    /* an encoder on one rank only is not sharded and has all rows */
    const bool apart = !rows && p->layout.text_rank >= 0,
               several = p->comm && weft_comm_ranks(p->comm) > 1 && !apart;
    const weft_pass_setup setup = {
        .switches = p->options.passes,
        .mesh = several ? &p->layout.mesh : NULL,
        .rank = several ? weft_comm_rank(p->comm) : 0,
        .recipe = &p->layout.recipe,
        .cfg_branches = apart ? p->trajectory.guidance->rows == 2 : has_cfg_branches(p),
        .cfg_inputs =
            weft_generator_has_equal_branches(p, rows) ? &weft_generator_equal_inputs : NULL,
        .pointwise = weft_backend_joins_pointwise(p->options.backend),
        .stream = p->options.stream,
        .tf32_compute = p->options.tf32};
    const weft_program_options options = {
        .backend = p->options.backend,
        .mesh = several ? &p->layout.mesh : NULL,
        .profile = p->options.profile || (rows && p->options.trace),
        .no_overlap = p->options.profile,
        .no_views = p->options.passes && !p->options.passes->views,
        .observe = rows ? p->options.observe : NULL,
        .observe_user = p->options.observe_user};
    const weft_feature_cache_setup cache_setup = {.graph = s->own,
                                                  .setup = &setup,
                                                  .options = &options,
                                                  .rows = rows,
                                                  .windows = p->shape.windows.count,
                                                  .offload_dir = weft_generator_offload_dir(p),
                                                  .comm = several ? p->comm : NULL};
    if (rows && p->parts.cached) {
        const weft_status_code status =
            weft_feature_cache_open(&p->parts.cache, &cache_setup, &s->cache);
        if (status != WEFT_OK)
            return weft_error_at(status, WEFT_AT(.key = "--feature-cache"));
    }
    WEFT_TRY(weft_passes_run(WEFT_PASS_WHOLE, &setup, s->own == s->graph, &s->own, NULL));
    if (rows && several && p->layout.recipe.overlap &&
        (!p->options.passes || p->options.passes->slice))
        weft_comm_overlap_count(s->graph, s->own, &p->layout.recipe, p->layout.overlap_counts);
    if (rows && several && p->layout.recipe.overlap)
        WEFT_TRY(weft_comm_overlap_check(p->layout.recipe.overlap, p->layout.overlap_counts,
                                         "--comm-overlap ", weft_model_class(p->model.denoiser)));
    WEFT_TRY(weft_passes_run(WEFT_PASS_RANK, &setup, s->own == s->graph, &s->own, NULL));
    return weft_program_compile(s->own, &options, &s->program);
}

/* Text encoders do not compute in int8: they run once, and their error is in every step. */
static weft_status choose_weights_dtype(const weft_generator *p, const weft_model *model,
                                        weft_generator_part *s)
{
    const int kind = p->options.weights;
    const bool encodes = s >= p->parts.encoder && s < p->parts.encoder + WEFT_MAX_TEXT_ENCODERS,
               int8 = kind == WEFT_WEIGHTS_INT8 && !encodes,
               keeps = kind == WEFT_WEIGHTS_GGUF || (kind == WEFT_WEIGHTS_INT8 && encodes);
    weft_dtype dtype = kind == WEFT_WEIGHTS_BF16 ? WEFT_BF16 : WEFT_F32;
    bool packed = false;
    if (keeps)
        WEFT_TRY(weft_packed_has(s->folder, &packed));
    s->packed = packed || int8 ? model->family : NULL;
    if (kind == WEFT_WEIGHTS_AS_STORED || int8 || (keeps && !packed))
        WEFT_TRY(weft_weights_dtype(s->folder, &dtype));
    weft_graph_store_weights_as(s->graph, dtype);
    return WEFT_OK;
}

/* --weights gguf: at least one matrix of the model must be quantized. */
static weft_status check_packed(const weft_generator *p)
{
    bool any = p->options.weights != WEFT_WEIGHTS_GGUF;
    for (int i = 0; i < p->model.text.encoders; i++)
        any |= p->parts.encoder[i].packed != NULL;
    for (int i = 0; i < p->model.experts; i++)
        any |= p->parts.denoiser[i].packed != NULL;
    return any ? WEFT_OK
               : weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                            WEFT_AT(.file = p->model.folder, .key = "--weights", .value = "gguf"),
                            "--weights gguf keeps matrices of GGUF files packed, and the model has "
                            "no GGUF file. Omit the option.");
}

static weft_status begin_part(const weft_generator *p, const weft_model *model, const char *scope,
                              const char *folder, weft_generator_part *s)
{
    s->folder = folder;
    snprintf(s->prefix, sizeof s->prefix, "%s.", scope);
    s->graph = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(s->graph, "a graph"));
    return choose_weights_dtype(p, model, s);
}

int64_t weft_generator_times(const weft_generator *p)
{
    if (p->shape.level_frames)
        return p->shape.sampled_frames / p->model.patch.factor[0];
    if (p->shape.causal) /* without the cache, finished blocks have another timestep */
        return p->shape.cached ? 1 : p->shape.latent[0] / p->model.patch.factor[0];
    if (p->inputs.visual.form == WEFT_FRAME_CONDITION_PORT &&
        p->trajectory.scheduler.path != WEFT_PATH_EDM)
        return p->shape.windows.window / p->model.patch.factor[0];
    if (p->inputs.visual.form != WEFT_FRAME_CONDITION_TIMES)
        return 1;
    return p->shape.windows.window / p->model.patch.factor[0] *
           (p->shape.latent[1] / p->model.patch.factor[1]) *
           (p->shape.latent[2] / p->model.patch.factor[2]);
}

/* The strength of each control block; WEFT_NONE: 1, or the model has no such input. */
static weft_value control_scale(const weft_generator *p, weft_graph *g, const weft_model *model,
                                const weft_model_size *size)
{
    float scales[128]; /* more blocks than any family has */
    const double scale = p->options.control_scale;
    if (scale == 1 || !weft_model_takes(model, WEFT_PORT_CONTROL_SCALE))
        return WEFT_NONE;
    const weft_shape shape = weft_model_shape(model, size, WEFT_PORT_CONTROL_SCALE);
    if (shape.dim[0] > WEFT_COUNT(scales))
        return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE, "%" PRId64 " control blocks exceed %d",
                               shape.dim[0], WEFT_COUNT(scales));
    for (int64_t i = 0; i < shape.dim[0]; i++)
        scales[i] = (float)scale;
    return weft_constant(g, WEFT_F32, shape, scales);
}

/* Adds the inputs of weakened branches to a denoiser with all branches. */
static void weaken(const weft_generator *p, weft_graph *g, const weft_model_size *size,
                   weft_ports *ports)
{
    const weft_model *model = p->model.denoiser;
    if (size->batch < p->shape.rows)
        return;
    if (p->shape.perturbed_branch) {
        ports->at[WEFT_PORT_ATTENDED] =
            weft_model_input(g, model, size, WEFT_PORT_ATTENDED, "batch.");
        ports->perturbed = p->options.stg_blocks;
    }
    if (p->shape.isolated_branch)
        ports->at[WEFT_PORT_JOINED] = weft_model_input(g, model, size, WEFT_PORT_JOINED, "batch.");
}

static weft_status build_denoiser(weft_generator *p, int expert, int64_t rows,
                                  weft_generator_part *part)
{
    WEFT_TRY(begin_part(p, &p->model.denoiser[expert],
                        expert ? weft_generator_scopes[1] : p->model.denoiser->family->scope,
                        p->model.denoiser_folder[expert], part));
    weft_graph *d = part->graph;
    const weft_model *model = &p->model.denoiser[expert];
    const bool context = part == &p->parts.context;
    weft_frame_cache cache = {
        .size = p->shape.cache, .dtype = p->options.bf16 ? WEFT_BF16 : WEFT_F32, .adds = context};
    int64_t area[2];
    weft_latent_stages_area(p, p->shape.stage, area);
    if (context && p->shape.kept)
        cache.size.block = p->shape.kept;
    const weft_model_size size = {.batch = rows,
                                  .frames = p->shape.cached   ? cache.size.block
                                            : p->shape.causal ? weft_causal_blocks_frames(p)
                                                              : p->shape.windows.window,
                                  .height = area[0],
                                  .width = area[1],
                                  .history_area = {p->shape.latent[1], p->shape.latent[2]},
                                  .text = weft_text_conditioning_length(&p->model.text),
                                  .text2 = weft_text_conditioning_length2(&p->model.text),
                                  .image = p->inputs.visual.image_tokens,
                                  .edited = p->inputs.visual.edited,
                                  .audio = p->shape.sound_steps,
                                  .times = weft_generator_times(p)};
    weft_ports ports = weft_ports_none();
    ports.at[WEFT_PORT_LATENTS] = weft_model_input(d, model, &size, WEFT_PORT_LATENTS, "batch.");
    ports.at[WEFT_PORT_TIMESTEP] = weft_model_input(d, model, &size, WEFT_PORT_TIMESTEP, "batch.");
    if (p->shape.sound_steps)
        ports.at[WEFT_PORT_AUDIO] = weft_model_input(d, model, &size, WEFT_PORT_AUDIO, "batch.");
    if (p->shape.sound_steps && size.times > 1) /* the time of the sound, and of generated frames */
        ports.at[WEFT_PORT_LEVEL] = weft_model_input(d, model, &size, WEFT_PORT_LEVEL, "batch.");
    weaken(p, d, &size, &ports);
    if (weft_model_takes(model, WEFT_PORT_GUIDANCE))
        ports.at[WEFT_PORT_GUIDANCE] =
            weft_model_input(d, model, &size, WEFT_PORT_GUIDANCE, "batch.");
    static const weft_port visual_ports[] = {WEFT_PORT_IMAGE,     WEFT_PORT_FRAME_MASK,
                                             WEFT_PORT_CONDITION, WEFT_PORT_CONTROL,
                                             WEFT_PORT_EDITED,    WEFT_PORT_FACE};
    const weft_visual_condition *visual = &p->inputs.visual;
    const bool has[] = {visual->image_tokens > 0,
                        visual->form == WEFT_FRAME_CONDITION_FRAME_MASK && !p->shape.kept,
                        visual->form == WEFT_FRAME_CONDITION_PORT,
                        visual->control_channels > 0,
                        visual->form == WEFT_FRAME_CONDITION_EDITED,
                        visual->form == WEFT_FRAME_CONDITION_CHARACTER};
    for (int i = 0; i < WEFT_COUNT(visual_ports); i++)
        if (has[i])
            ports.at[visual_ports[i]] =
                weft_model_input(d, model, &size, visual_ports[i], "batch.");
    const bool has_history =
        p->shape.sections.count && !p->shape.sections.shared && !p->shape.causal;
    for (int i = 0; i < WEFT_COUNT(section_ports) && has_history; i++)
        ports.at[section_ports[i]] = weft_model_input(d, model, &size, section_ports[i], "batch.");
    for (int i = 0; i < WEFT_GENERATOR_NUMBERS; i++)
        if (takes_input(p, weft_generator_numbers[i]))
            ports.at[weft_generator_numbers[i]] =
                weft_model_input(d, model, &size, weft_generator_numbers[i], "batch.");
    if (takes_input(p, WEFT_PORT_SIZES)) { /* Hunyuan-DiT up to 1.1; the label is its style */
        ports.at[WEFT_PORT_SIZES] = weft_model_input(d, model, &size, WEFT_PORT_SIZES, "batch.");
        ports.at[WEFT_PORT_LABEL] = weft_model_input(d, model, &size, WEFT_PORT_LABEL, "batch.");
    }
    if (takes_spacing(p)) {
        const double fps = p->options.fps;
        const float step[3] = {(float)((double)p->model.grid.factor[0] / fps),
                               (float)p->model.grid.factor[1], (float)p->model.grid.factor[2]};
        ports.at[WEFT_PORT_SPACING] = weft_constant(d, WEFT_F32, WEFT_SHAPE(3), step);
    }
    if (visual->control_channels && p->options.control_scale > 0)
        ports.at[WEFT_PORT_CONTROL_SCALE] = control_scale(p, d, model, &size);
    if (visual->edit.count)
        ports.images = &visual->edit.tokens;
    weft_text_conditioning_inputs(d, &p->model.text, model, &size, "batch.", &ports);
    if (p->inputs.identity.tokens)
        weft_text_conditioning_append(
            d,
            weft_input(d, "batch.identity", WEFT_F32,
                       WEFT_SHAPE(rows, p->inputs.identity.tokens, p->inputs.identity.width)),
            &ports);
    if (p->shape.cached) {
        weft_frame_cache_inputs(d, &cache, rows, p->shape.latent[1] / p->model.patch.factor[1],
                                p->shape.latent[2] / p->model.patch.factor[2]);
        ports.cache = &cache;
    }
    weft_graph_push(d, "%s", expert ? weft_generator_scopes[1] : model->family->scope);
    weft_model_call(d, model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &ports);
    weft_graph_pop(d);
    if (!context) {
        const weft_value answer = weft_model_answer(d, model, &ports);
        weft_output(d, "prediction", p->model.opposite ? weft_affine(d, answer, -1, 0) : answer);
    }
    if (p->shape.sound_steps)
        weft_output(d, "audio_prediction", ports.at[WEFT_PORT_AUDIO_PREDICTION]);
    return finish_part(p, part, rows);
}

void weft_generator_set_reasoning(weft_generator *p, bool reasons)
{
    weft_generator_shape *s = &p->shape;
    const int64_t frame = s->latent_floats / s->latent[0];
    s->sampled_frames = reasons ? s->reasoning_frames : s->latent[0];
    s->sampled_floats = s->sampled_frames * frame;
    s->windows = weft_temporal_windows_arrange(s->sampled_frames, s->sampled_frames, 0);
}

weft_status weft_generator_build(weft_generator *p)
{
    WEFT_TRY(open_layout(p));
    p->parts.store = weft_store_create_for(p->options.backend);
    WEFT_TRY(WEFT_ALLOCATED(p->parts.store, "the generator"));
    weft_store_set_offload(p->parts.store, NULL, 0, p->options.offload_dir);
    if (p->options.weights == WEFT_WEIGHTS_INT8 && !p->options.int8_layers)
        WEFT_TRY(weft_int8_choice_load(p->model.folder, p->options.bf16, &p->parts.int8_layers));
    WEFT_TRY(weft_feature_cache_choose(p->options.cache, p->model.denoiser,
                                       p->options.height * p->options.width, &p->parts.cache,
                                       &p->parts.cached));
    for (int i = 0; i < p->model.text.encoders; i++) {
        const weft_text_encoder *encoder = &p->model.text.encoder[i];
        WEFT_TRY(begin_part(p, &encoder->model, encoder->row->encoder, p->model.encoder_folder[i],
                            &p->parts.encoder[i]));
        weft_text_conditioning_build(p->parts.encoder[i].graph, &p->model.text, i,
                                     p->shape.text_rows);
        WEFT_TRY(finish_part(p, &p->parts.encoder[i], 0));
    }
    for (int i = 0; i < p->model.experts; i++) {
        WEFT_TRY(build_denoiser(p, i, p->shape.rows, &p->parts.denoiser[i]));
        if (p->options.guided[1] > 0 && p->shape.branches > 1)
            WEFT_TRY(build_denoiser(p, i, p->options.batch, &p->parts.alone[i]));
    }
    if (p->shape.reasoning_steps) {
        weft_generator_set_reasoning(p, true);
        WEFT_TRY(build_denoiser(p, 0, p->shape.rows, &p->parts.reasoning));
        weft_generator_set_reasoning(p, false);
    }
    for (int64_t i = 0; i + 1 < p->shape.stages; i++) {
        weft_latent_stages_set(p, i);
        WEFT_TRY(build_denoiser(p, 0, p->shape.rows, &p->parts.smaller[i]));
        weft_latent_stages_set(p, p->shape.stages - 1);
    }
    if (p->shape.cached && (p->shape.sections.count > 1 || p->shape.kept))
        WEFT_TRY(build_denoiser(p, 0, p->shape.rows, &p->parts.context));
    return check_packed(p);
}

weft_status weft_generator_programs(weft_generator *p, weft_vae_program_fn *with, void *user)
{
    const bool texts = weft_generator_has_texts(p);
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < p->model.text.encoders; i++)
        WEFT_TRY(with(user, p->model.text.encoder[i].row->encoder, p->parts.encoder[i].own,
                      texts ? p->parts.encoder[i].program : NULL));
    for (int i = 0; i < parts; i++) {
        char name[128], size[64];
        const int expert = part[i] == &p->parts.denoiser[1] || part[i] == &p->parts.alone[1];
        snprintf(name, sizeof name, "%s%s%s", expert ? weft_generator_scopes[1] : "denoiser",
                 part[i] == &p->parts.alone[expert] ? ", without guidance"
                 : part[i] == &p->parts.reasoning   ? ", with reasoning frames"
                 : part[i] == &p->parts.context     ? ", for the cache"
                                                    : "",
                 weft_latent_stages_name(p, part[i], size));
        WEFT_TRY(with(user, name, part[i]->own, part[i]->program));
    }
    if (p->decoder.sound)
        WEFT_TRY(with(user, "sound", weft_sound_decoder_graph(p->decoder.sound),
                      weft_sound_decoder_program(p->decoder.sound)));
    return weft_vae_programs(p->decoder.vae, WEFT_VAE_DECODER, with, user);
}

static void free_part(weft_generator_part *s)
{
    weft_feature_cache_free(s->cache);
    weft_program_free(s->program);
    weft_tensors_close(s->file);
    if (s->own != s->graph)
        weft_graph_free(s->own);
    weft_graph_free(s->graph);
}

void weft_generator_parts_close(weft_generator_parts *parts)
{
    for (int i = 0; i < WEFT_COUNT(parts->encoder); i++)
        free_part(&parts->encoder[i]);
    for (int i = 0; i < WEFT_COUNT(parts->denoiser); i++) {
        free_part(&parts->denoiser[i]);
        free_part(&parts->alone[i]);
    }
    free_part(&parts->reasoning);
    free_part(&parts->context);
    for (int i = 0; i < WEFT_COUNT(parts->smaller); i++)
        free_part(&parts->smaller[i]);
    weft_store_free(parts->store);
    json_decref(parts->int8_layers);
    *parts = (weft_generator_parts){0};
}

void weft_generator_layout_close(weft_generator_layout *layout)
{
    weft_recipe_free(&layout->recipe);
    *layout = (weft_generator_layout){0};
}
