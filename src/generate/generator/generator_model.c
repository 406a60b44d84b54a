#include "generate/generator/generator_model.h"

#include "base/fs.h"
#include "base/json_foreign.h"
#include "base/log.h"
#include "generate/generator/own_settings.h"
#include "model/key_mapping.h"
#include "prompt/no_text.h"

#include <string.h>

const char *const weft_generator_scopes[2] = {"transformer", "transformer_2"};

static weft_status load_json(const char *folder, const char *name, json_t **json)
{
    char *path = weft_path_join(folder, name);
    WEFT_TRY(WEFT_ALLOCATED(path, "the model"));
    weft_status_code status = WEFT_OK;
    if (weft_path_exists(path))
        status = weft_json_load(path, json);
    weft_free(path);
    return status;
}

/* A folder that model_index.json names must exist: without it the result would differ. */
weft_status weft_generator_model_check_folder(const weft_generator_model *m, const char *name)
{
    json_t *index = NULL;
    WEFT_TRY(load_json(m->folder, "model_index.json", &index));
    const bool named = json_is_string(json_array_get(json_object_get(index, name), 1));
    json_decref(index);
    if (!named)
        return WEFT_OK;
    char *path = weft_path_join(m->folder, name);
    WEFT_TRY(WEFT_ALLOCATED(path, "a path"));
    const bool there = weft_path_is_dir(path);
    weft_free(path);
    return there ? WEFT_OK
                 : weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = m->folder, .key = name),
                              "model_index.json names this folder, but it does not exist. Download "
                              "the model again, or remove the entry to generate without it.");
}

/* Error for the folder of a training run, such as `runs/dit` in place of `runs/dit/model`. */
static weft_status explain_folder(const char *folder)
{
    char *own = weft_path_join(folder, "model_index.json");
    char *inside = weft_path_join(folder, "model");
    weft_status_code status = WEFT_OK;
    if (!own || !inside)
        status = weft_no_memory("the model");
    else if (!weft_path_exists(own) && weft_path_is_dir(inside))
        status = weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = folder),
                            "this is the folder of a training run; its model is %s", inside);
    weft_free(own);
    weft_free(inside);
    return status;
}

/* Checks that the model folder contains a denoiser. */
static weft_status check_denoiser(const char *folder)
{
    char *path = NULL;
    weft_model model;
    const weft_status_code status = weft_model_open_in(folder, WEFT_ROLE_DENOISER, &path, &model);
    weft_free(path);
    return status;
}

static weft_status check_folder(const char *folder)
{
    if (!weft_path_is_dir(folder))
        return weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = folder),
                          "the model folder does not exist. `weft train` writes one as "
                          "<out>/model; published ones have the layout of diffusers.");
    WEFT_TRY(explain_folder(folder));
    return check_denoiser(folder);
}

weft_status weft_generator_size(const char *folder, int64_t size[3])
{
    static const char *const name[3] = {"frames", "height", "width"};
    json_t *own = NULL;
    bool known = true;
    WEFT_TRY(check_folder(folder));
    weft_status_code status = WEFT_OK;
    WEFT_GO(load_json(folder, "weft.json", &own));
    for (int i = 0; i < 3; i++) {
        if (!size[i])
            WEFT_GO(weft_json_get_i64_or(own, name[i], "weft.json", 0, &size[i]));
        known &= size[i] != 0;
    }
    if (!known)
        WEFT_GO(weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.file = folder),
                           "the model has no weft.json with the size that it was trained on. Give "
                           "--frames, --height and --width."));
out:
    json_decref(own);
    return status;
}

/* Reads the size and frame rate that the model was trained on. Public folders have no weft.json;
 * then the options must give the size. */
weft_status weft_generator_model_read_settings(weft_generator_model *m, weft_generator_options *o)
{
    json_t *own = NULL;
    int64_t size[3] = {o->frames, o->height, o->width};
    WEFT_TRY(weft_generator_size(m->folder, size));
    o->frames = size[0];
    o->height = size[1];
    o->width = size[2];
    WEFT_TRY(load_json(m->folder, "weft.json", &own));
    const double fps = m->denoiser->family->fps;
    weft_status_code status =
        weft_json_get_f64_or(own, "fps", "weft.json", fps > 0 ? fps : 16, &m->fps);
    if (status == WEFT_OK)
        status = weft_json_get_f64_or(own, "context_noise", "weft.json", 0, &m->context_noise);
    const weft_frame_condition how = weft_model_takes_port(m->denoiser);
    m->published = !own;
    m->opposite = weft_family_was_positive(m->denoiser->family, own);
    const char *condition = json_string_value(json_object_get(own, "condition"));
    m->in_sections =
        how.form == WEFT_FRAME_CONDITION_HISTORY &&
        (!how.precedes || m->published || (condition && !strcmp(condition, "history")));
    m->grid.section = how.precedes && m->in_sections ? how.section : 0;
    if (status == WEFT_OK)
        status = weft_trained_sections_read(own, "weft.json", &m->trained);
    m->first_frame = condition && !strcmp(condition, "first_frame");
    const char *rest = json_string_value(json_object_get(own, "rest"));
    m->grey_rest = rest && !strcmp(rest, "grey");
    m->control |=
        condition && !strcmp(condition, "control") && how.form != WEFT_FRAME_CONDITION_CHARACTER;
    json_decref(own);
    return status;
}

/* Returns true if the family has models with embedded guidance, and this one has none: it is
 * distilled to need no guidance (Flux schnell), or its pipeline has none by default. */
static bool omits_guidance(const weft_model *model)
{
    for (int i = 0; i < model->family->ports; i++)
        if (model->family->port[i].port == WEFT_PORT_GUIDANCE)
            return !weft_model_takes(model, WEFT_PORT_GUIDANCE);
    return false;
}

/* Settings of a pipeline that weft reads, or that change no video. */
static const weft_json_field pipeline_fields[] = {
    {"boundary_ratio", NULL}, {"expand_timesteps", NULL},        {"is_cfg_zero_star", NULL},
    {"is_distilled", NULL},   {"requires_safety_checker", NULL}, {NULL, NULL},
};

static weft_status check_pipeline(const char *folder, const json_t *index)
{
    const char *key;
    json_t *value, *settings = json_object();
    WEFT_TRY(WEFT_ALLOCATED(settings, "the model"));
    char *path = weft_path_join(folder, "model_index.json");
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(path, "the model"));
    json_object_foreach((json_t *)index, key, value)
    {
        if (!json_is_array(value) && json_object_set(settings, key, value) != 0) /* no part */
            WEFT_GO(weft_no_memory("the model"));
    }
    WEFT_GO(weft_json_check_foreign(settings, path, "", pipeline_fields,
                                    WEFT_MSG_MODEL_CONFIG_UNSUPPORTED));
out:
    json_decref(settings);
    weft_free(path);
    return status;
}

/* The pipeline's guider. "is_distilled" of model_index.json is false in Flux 2 klein base, whose
 * pipeline has guidance. */
static weft_status own_guider(const char *folder, const weft_model *model, weft_guider *guider)
{
    json_t *index = NULL;
    WEFT_TRY(load_json(folder, "model_index.json", &index));
    const bool omits =
        omits_guidance(model) && !json_is_false(json_object_get(index, "is_distilled"));
    const bool zero_star = json_is_true(json_object_get(index, "is_cfg_zero_star")),
               distilled = json_is_true(json_object_get(index, "is_distilled"));
    const weft_status_code status = check_pipeline(folder, index);
    json_decref(index);
    WEFT_TRY(status);
    WEFT_TRY(weft_guider_read(folder, omits || distilled ? 1 : 4, guider));
    if (zero_star && !guider->method) { /* Helios: the first two predictions are 0 */
        guider->method = weft_guidance_find("zero_star");
        guider->zero_steps = 2;
    }
    int64_t steps;
    double own;
    WEFT_TRY(weft_own_settings_read(folder, &steps, &own));
    guider->scale = own >= 0 ? own : guider->scale;
    return WEFT_OK;
}

weft_status weft_generator_own_guidance(const char *folder, double *scale)
{
    char *path = NULL;
    weft_model model;
    weft_guider guider;
    WEFT_TRY(check_folder(folder));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_model_open_in(folder, WEFT_ROLE_DENOISER, &path, &model));
    WEFT_GO(own_guider(folder, &model, &guider));
    *scale = guider.scale;
out:
    weft_free(path);
    return status;
}

/* The option must shorten the text of an encoder: models are trained on at most the length of its
 * row. */
static weft_status check_text_length(const weft_generator_model *m, const weft_generator_options *o)
{
    const int64_t asked = o->text_length;
    const int count = weft_text_conditioning_needed(m->denoiser);
    int64_t most = 0;
    for (int i = 0; i < count; i++) {
        const weft_text_encoder_row *row = weft_text_conditioning_row(m->denoiser, i);
        if (row->text == WEFT_PORT_TEXT && row->length > most)
            most = row->length;
    }
    if (!asked || (most && asked <= most))
        return WEFT_OK;
    if (!most)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                          WEFT_AT(.key = "--max-sequence-length", WEFT_NUMBER(asked)),
                          "the text encoder of %s sets the number of tokens. Omit the option.",
                          weft_model_class(m->denoiser));
    return weft_error(WEFT_MSG_OPTION_INVALID,
                      WEFT_AT(.key = "--max-sequence-length", WEFT_NUMBER(asked)),
                      "%" PRId64 " is above %" PRId64 ", the tokens that %s was trained on", asked,
                      most, weft_model_class(m->denoiser));
}

/* Returns the tokens of encoder i: of the option, of the training, or of the family's pipeline for
 * models without guidance. 0: of the encoder's row. */
static int64_t length_of(const weft_generator_model *m, const weft_generator_options *o, int i,
                         const json_t *trained)
{
    const weft_text_encoder_row *row = weft_text_conditioning_row(m->denoiser, i);
    if (o->text_length && row->text == WEFT_PORT_TEXT)
        return o->text_length;
    if (json_is_integer(trained))
        return json_integer_value(trained);
    return omits_guidance(m->denoiser) ? row->length_without_guidance : 0;
}

/* Reads the embeddings of an empty negative prompt for encoder i from the denoiser's files. Without
 * them, the empty text is encoded, as in a training that had none. */
static weft_status read_no_text(weft_generator_model *m, int i)
{
    const weft_text_encoder_row *row = m->text.encoder[i].row;
    const weft_conditioning_entry *entry = weft_text_conditioning_find(&m->text, row->text);
    const weft_stored_tensor *table = NULL;
    weft_tensors *file;
    WEFT_TRY(weft_no_text_open(&m->text, i, m->denoiser_folder[0], &file, &table));
    if (!file && row->no_text && m->text.encoder[i].published)
        weft_warning(WEFT_MSG_TENSOR_NAMES,
                     WEFT_AT(.file = m->denoiser_folder[0], .key = row->no_text),
                     "the files lack the embeddings of an empty negative prompt, with which the "
                     "published model was trained; the text \"\" is encoded in their place");
    if (!file)
        return WEFT_OK;
    weft_status_code status = WEFT_OK;
    m->no_text[i] = weft_alloc(entry->rows * entry->width * (int64_t)sizeof *m->no_text[i]);
    WEFT_GO(WEFT_ALLOCATED(m->no_text[i], "the embeddings of an empty negative prompt"));
    weft_no_text_read(&m->text, i, table, m->no_text[i]);
out:
    weft_tensors_close(file);
    return status;
}

/* Opens the text encoders in the folders named by the denoiser's rows, with the text lengths that
 * the denoiser was trained on. */
static weft_status open_text(weft_generator_model *m, const weft_generator_options *o)
{
    weft_text_encoder_spec spec[WEFT_MAX_TEXT_ENCODERS] = {0};
    json_t *own = NULL;
    const int count = weft_text_conditioning_needed(m->denoiser);
    WEFT_TRY(check_text_length(m, o));
    WEFT_TRY(load_json(m->folder, "weft.json", &own));
    const json_t *lengths = json_object_get(own, "text_lengths");
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < count; i++) {
        const weft_text_encoder_row *row = weft_text_conditioning_row(m->denoiser, i);
        m->encoder_folder[i] = weft_path_join(m->folder, row->encoder);
        spec[i].folder = m->encoder_folder[i];
        spec[i].length = length_of(m, o, i, json_array_get(lengths, (size_t)i));
        WEFT_GO(spec[i].folder
                    ? weft_model_open_as(spec[i].folder, WEFT_ROLE_TEXT_ENCODER, &spec[i].model)
                    : weft_no_memory("a path"));
        if (row->connectors)
            WEFT_GO(weft_model_open_in(m->folder, WEFT_ROLE_TEXT_CONNECTORS,
                                       &m->connectors_folder[i], &spec[i].connectors));
    }
    WEFT_GO(weft_text_conditioning_open(m->denoiser, spec, count, m->folder, &m->text));
    for (int i = 0; i < count; i++) {
        m->text.encoder[i].published = !own;
        WEFT_GO(read_no_text(m, i));
    }
    WEFT_GO(weft_tokenizer_set_open(&m->text, &m->tokenizers));
out:
    json_decref(own);
    return status == WEFT_E_CONFIG ? WEFT_E_FORMAT : status;
}

/* Pipelines whose models have the latents of a control after the noisy ones:
 * CogVideoXFunControlPipeline, FluxControlPipeline. */
static bool is_control_pipeline(const char *class_name)
{
    static const char end[] = "ControlPipeline";
    const size_t length = class_name ? strlen(class_name) : 0;
    return length >= sizeof end - 1 && !strcmp(class_name + length - (sizeof end - 1), end);
}

/* Pipelines of diffusion forcing, whose models take given frames with a timestep of 0. */
static bool is_forcing_pipeline(const json_t *class_name)
{
    static const char begin[] = "SkyReelsV2DiffusionForcing";
    const char *name = json_string_value(class_name);
    return name && !strncmp(name, begin, sizeof begin - 1);
}

/* The pipeline of a class that edits images; NULL: none. */
static const weft_edit_pipeline *find_edit(const weft_model *denoiser, const json_t *class_name)
{
    const weft_edit_pipeline *e = denoiser->family->edit_pipeline;
    const char *name = json_string_value(class_name);
    while (e && e->class_name && (!name || strcmp(e->class_name, name)))
        e++;
    return e && e->class_name ? e : NULL;
}

/* Sets the frames of a block by the option. */
static weft_status set_block_frames(weft_generator_model *m, const weft_generator_options *o)
{
    static const char key[] = "num_frame_per_block";
    if (!o->block_frames)
        return WEFT_OK;
    json_t *config = weft_model_write(m->denoiser);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(config, "the transformer's config"));
    if (!json_object_get(config, key))
        WEFT_GO(weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                           WEFT_AT(.key = "--block-frames", WEFT_NUMBER(o->block_frames)),
                           "%s has no blocks of frames. Omit the option.",
                           weft_model_class(m->denoiser)));
    json_object_set_new(config, key, json_integer(o->block_frames));
    WEFT_GO(weft_model_read(config, "--block-frames", m->denoiser));
out:
    json_decref(config);
    return status;
}

/* Turns block-sparse attention on or off by the option. */
static weft_status set_block_sparse(weft_generator_model *m, const weft_generator_options *o)
{
    const char *key = m->denoiser->family->block_sparse;
    const bool on = o->block_sparse == WEFT_BLOCK_SPARSE_ON;
    if (o->block_sparse == WEFT_BLOCK_SPARSE_CONFIG)
        return WEFT_OK;
    if (!key)
        return weft_error(
            WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
            WEFT_AT(.key = "--block-sparse", .value = on ? "on" : "off"),
            "the attention of %s cannot be changed. LongCatVideoTransformer3DModel has both. "
            "Omit the option.",
            weft_model_class(m->denoiser));
    json_t *config = weft_model_write(m->denoiser);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(config, "the transformer's config"));
    json_object_set_new(config, key, json_boolean(on));
    WEFT_GO(weft_model_read(config, "--block-sparse", m->denoiser));
out:
    json_decref(config);
    return status;
}

/* Reads the low-noise expert: a separate folder with the same sizes. */
static weft_status read_expert(weft_generator_model *m, weft_generator_options *o)
{
    json_t *index = NULL;
    double boundary;
    m->experts = 1;
    WEFT_TRY(weft_generator_model_check_folder(m, weft_generator_scopes[1]));
    m->denoiser_folder[1] = weft_path_join(m->folder, weft_generator_scopes[1]);
    WEFT_TRY(WEFT_ALLOCATED(m->denoiser_folder[1], "a path"));
    WEFT_TRY(load_json(m->folder, "model_index.json", &index));
    weft_status_code status =
        json_is_number(json_object_get(index, "boundary_ratio"))
            ? weft_json_get_f64_or(index, "boundary_ratio", "model_index.json", 0, &boundary)
            : WEFT_OK;
    const bool has_boundary = json_is_number(json_object_get(index, "boundary_ratio"));
    m->expands_timesteps = json_is_true(json_object_get(index, "expand_timesteps")) ||
                           is_forcing_pipeline(json_object_get(index, "_class_name"));
    m->edit = find_edit(m->denoiser, json_object_get(index, "_class_name"));
    const char *staged = m->denoiser->family->staged_pipeline,
               *class_name = json_string_value(json_object_get(index, "_class_name"));
    m->staged = staged && class_name && !strcmp(staged, class_name);
    m->control = is_control_pipeline(json_string_value(json_object_get(index, "_class_name")));
    json_decref(index);
    WEFT_TRY(status);
    const bool second = !o->boundary.given || o->boundary.value > 0;
    if (has_boundary && !o->boundary.given)
        o->boundary.value = boundary;
    if (o->guidance_low.given && !(o->boundary.value > 0))
        return weft_error(
            WEFT_MSG_OPTION_NO_EFFECT,
            WEFT_AT(.key = "--guidance-scale-2", WEFT_NUMBER(o->guidance_low.value)),
            "%g has no effect without a boundary. Give --boundary-ratio B (0..1), or omit the "
            "option.",
            o->guidance_low.value);
    if (!second || !weft_path_is_dir(m->denoiser_folder[1]))
        return WEFT_OK;
    WEFT_TRY(weft_model_open_as(m->denoiser_folder[1], WEFT_ROLE_DENOISER, &m->denoiser[1]));
    if (o->boundary.value <= 0)
        return weft_error(WEFT_MSG_OPTION_REQUIRED,
                          WEFT_AT(.file = m->folder, .key = "--boundary-ratio"),
                          "the model has a transformer_2, and its model_index.json has no "
                          "\"boundary_ratio\", the time below which transformer_2 is used. Give "
                          "--boundary-ratio (Wan 2.2: 0.875 for text, 0.9 for images).");
    if (m->denoiser[1].family != m->denoiser->family ||
        memcmp(m->denoiser[1].config, m->denoiser->config, m->denoiser->family->config_bytes) != 0)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = m->folder, .key = "transformer_2"),
                          "the config differs from the config of transformer; the two experts of a "
                          "model must be alike");
    m->experts = 2;
    return WEFT_OK;
}

weft_status weft_generator_model_open(const char *folder, weft_generator_options *o,
                                      weft_generator_model *m)
{
    weft_model vae;
    m->folder = weft_strdup(folder);
    WEFT_TRY(WEFT_ALLOCATED(m->folder, "the model"));
    WEFT_TRY(check_folder(folder));
    WEFT_TRY(weft_model_open_in(folder, WEFT_ROLE_DENOISER, m->denoiser_folder, m->denoiser));
    if (m->denoiser->family->companion)
        WEFT_TRY(weft_generator_model_check_folder(m, m->denoiser->family->companion->folder));
    WEFT_TRY(set_block_frames(m, o));
    WEFT_TRY(set_block_sparse(m, o));
    WEFT_TRY(weft_generator_model_check_folder(m, "guider"));
    WEFT_TRY(own_guider(folder, m->denoiser, &m->guider));
    o->guidance = o->guidance < 0 ? m->guider.scale : o->guidance;
    WEFT_TRY(read_expert(m, o));
    WEFT_TRY(open_text(m, o));
    WEFT_TRY(weft_model_open_in(folder, WEFT_ROLE_AUTOENCODER, &m->vae_folder, &vae));
    WEFT_TRY(weft_key_mapping_statistics(m->vae_folder, &vae));
    WEFT_TRY(weft_sound_models_open(folder, m->denoiser, &m->sound));
    m->patch = weft_model_grid(m->denoiser);
    m->grid = weft_model_grid(&vae);
    return WEFT_OK;
}

void weft_generator_model_close(weft_generator_model *m)
{
    for (int i = 0; i < WEFT_MAX_TEXT_ENCODERS; i++) {
        weft_free(m->encoder_folder[i]);
        weft_free(m->no_text[i]);
        weft_free(m->connectors_folder[i]);
    }
    for (int i = 0; i < WEFT_COUNT(m->denoiser_folder); i++)
        weft_free(m->denoiser_folder[i]);
    weft_tokenizer_set_close(&m->tokenizers);
    weft_sound_models_close(&m->sound);
    weft_free(m->folder);
    weft_free(m->vae_folder);
    *m = (weft_generator_model){0};
}
