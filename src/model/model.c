#include "model/model.h"

#include "base/fs.h"
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/registry.h"
#include "nn/nn.h"

#include <stdio.h>
#include <string.h>

/* ---- names ---------------------------------------------------------------------------------- */

/* clang-format off */
static const struct { const char *name; weft_dtype dtype; bool video; } ports[WEFT_PORT_COUNT] = {
    [WEFT_PORT_LATENTS]        = {"latents",        WEFT_F32, true},
    [WEFT_PORT_TIMESTEP]       = {"timestep",       WEFT_F32, false},
    [WEFT_PORT_TEXT]           = {"text",           WEFT_F32, false},
    [WEFT_PORT_TEXT_MASK]      = {"text_mask",      WEFT_I32, false},
    [WEFT_PORT_TEXT2]          = {"text2",          WEFT_F32, false},
    [WEFT_PORT_TEXT2_MASK]     = {"text2_mask",     WEFT_I32, false},
    [WEFT_PORT_TEXT_LAYERS]    = {"text_layers",    WEFT_F32, false},
    [WEFT_PORT_SIZES]          = {"sizes",          WEFT_F32, false},
    [WEFT_PORT_POOLED]         = {"pooled",         WEFT_F32, false},
    [WEFT_PORT_GUIDANCE]       = {"guidance",       WEFT_F32, false},
    [WEFT_PORT_IMAGE]          = {"image",          WEFT_F32, false},
    [WEFT_PORT_CONDITION]      = {"condition",      WEFT_F32, true},
    [WEFT_PORT_CONTROL]        = {"control",        WEFT_F32, true},
    [WEFT_PORT_EDITED]         = {"edited",         WEFT_F32, true},
    [WEFT_PORT_FACE]           = {"face",           WEFT_F32, true},
    [WEFT_PORT_CONTROL_SCALE]  = {"control_scale",  WEFT_F32, false},
    [WEFT_PORT_INDEX]          = {"index",          WEFT_F32, false},
    [WEFT_PORT_HISTORY]        = {"history",        WEFT_F32, true},
    [WEFT_PORT_HISTORY_2X]     = {"history_2x",     WEFT_F32, true},
    [WEFT_PORT_HISTORY_4X]     = {"history_4x",     WEFT_F32, true},
    [WEFT_PORT_HISTORY_INDEX]  = {"history_index",  WEFT_F32, false},
    [WEFT_PORT_HISTORY_2X_INDEX]  = {"history_2x_index", WEFT_F32, false},
    [WEFT_PORT_HISTORY_4X_INDEX]  = {"history_4x_index", WEFT_F32, false},
    [WEFT_PORT_CLEAN]          = {"clean",          WEFT_F32, true},
    [WEFT_PORT_POSITIONS]         = {"places",         WEFT_F32, false},
    [WEFT_PORT_SPACING]        = {"spacing",        WEFT_F32, false},
    [WEFT_PORT_ROPE_SCALE]     = {"rope_scale",     WEFT_F32, false},
    [WEFT_PORT_LATENT_MASK]    = {"latent_mask",    WEFT_I32, false},
    [WEFT_PORT_FRAME_MASK]     = {"frame_mask",     WEFT_I32, false},
    [WEFT_PORT_HEIGHT]         = {"height",         WEFT_F32, false},
    [WEFT_PORT_WIDTH]          = {"width",          WEFT_F32, false},
    [WEFT_PORT_FPS]            = {"fps",            WEFT_F32, false},
    [WEFT_PORT_AUDIO]          = {"audio",          WEFT_F32, false},
    [WEFT_PORT_AUDIO_TIMESTEP] = {"audio_timestep", WEFT_F32, false},
    [WEFT_PORT_LEVEL]          = {"noise_level",    WEFT_F32, false},
    [WEFT_PORT_AUDIO_LEVEL]    = {"audio_noise_level", WEFT_F32, false},
    [WEFT_PORT_CROSS_TIMES]    = {"cross_times",    WEFT_I32, false},
    [WEFT_PORT_JOINED]         = {"joined",         WEFT_F32, false},
    [WEFT_PORT_ATTENDED]       = {"attended",       WEFT_F32, false},
    [WEFT_PORT_AUDIO_TEXT]     = {"audio_text",     WEFT_F32, false},
    [WEFT_PORT_AUDIO_TEXT_MASK] = {"audio_text_mask", WEFT_I32, false},
    [WEFT_PORT_PADDING]        = {"padding",        WEFT_F32, true},
    [WEFT_PORT_OFFSET]         = {"offset",         WEFT_F32, false},
    [WEFT_PORT_LABEL]          = {"label",          WEFT_I32, false},
    [WEFT_PORT_TOKENS]         = {"tokens",         WEFT_I32, false},
    [WEFT_PORT_LAST_HIDDEN]    = {"last_hidden",    WEFT_F32, false},
    [WEFT_PORT_VIDEO]          = {"video",          WEFT_F32, true},
    [WEFT_PORT_NOISE]          = {"noise",          WEFT_F32, true},
    [WEFT_PORT_PREDICTION]     = {"prediction",     WEFT_F32, true},
    [WEFT_PORT_AUDIO_PREDICTION] = {"audio_prediction", WEFT_F32, false},
    [WEFT_PORT_MEAN]           = {"mean",           WEFT_F32, true},
    [WEFT_PORT_LOGVAR]         = {"logvar",         WEFT_F32, true},
    [WEFT_PORT_RECONSTRUCTION] = {"reconstruction", WEFT_F32, true},
    [WEFT_PORT_SPECTROGRAM]    = {"spectrogram",    WEFT_F32, false},
    [WEFT_PORT_WAVEFORM]       = {"waveform",       WEFT_F32, false},
    [WEFT_PORT_BALANCE]        = {"balance",        WEFT_F32, false},
    [WEFT_PORT_FULLEST]        = {"fullest",        WEFT_F32, false},
    [WEFT_PORT_DROPPED]        = {"dropped",        WEFT_F32, false},
};
/* clang-format on */

const char *weft_port_name(weft_port port)
{
    return ports[port].name;
}

bool weft_port_is_video(weft_port port)
{
    return ports[port].video;
}

weft_dtype weft_port_dtype(weft_port port)
{
    return ports[port].dtype;
}

/* clang-format off */
const weft_port_row weft_autoencoder_ports[WEFT_AUTOENCODER_PORTS] = {
    {WEFT_PORT_VIDEO,          false, "sample"},
    {WEFT_PORT_NOISE,          false, "eps"},
    {WEFT_PORT_MEAN,           true,  "mean"},
    {WEFT_PORT_LOGVAR,         true,  "logvar"},
    {WEFT_PORT_RECONSTRUCTION, true,  "sample"},
};
/* clang-format on */

void weft_ports_set_posterior(weft_graph *g, weft_value moments, weft_ports *p)
{
    const int64_t z = weft_dim(g, moments, 4) / 2;
    p->at[WEFT_PORT_MEAN] = weft_slice(g, moments, 4, 0, z);
    p->at[WEFT_PORT_LOGVAR] = weft_clamp(g, weft_slice(g, moments, 4, z, z), -30, 20);
}

weft_shape weft_autoencoder_shape(const weft_model_size *s, weft_port port, int64_t channels,
                                  int64_t latents)
{
    switch (port) {
    case WEFT_PORT_VIDEO: return WEFT_SHAPE(s->batch, s->frames, s->height, s->width, channels);
    case WEFT_PORT_LATENTS: return WEFT_SHAPE(s->batch, s->frames, s->height, s->width, latents);
    default: return WEFT_SCALAR;
    }
}

void weft_denoiser_check_control(weft_graph *g, const weft_ports *in)
{
    const weft_value control = in->at[WEFT_PORT_CONTROL], latents = in->at[WEFT_PORT_LATENTS];
    for (int d = 1; d < 4 && weft_value_ok(control) && weft_value_ok(latents); d++)
        if (weft_dim(g, control, d) != weft_dim(g, latents, d))
            weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                            "the control has %" PRId64 " latent %s, but the video has %" PRId64,
                            weft_dim(g, control, d),
                            (const char *[]){"frames", "rows", "columns"}[d - 1],
                            weft_dim(g, latents, d));
}

weft_shape weft_denoiser_shape(const weft_model_size *s, weft_port port, int64_t latents,
                               int64_t text)
{
    switch (port) {
    case WEFT_PORT_LATENTS: return WEFT_SHAPE(s->batch, s->frames, s->height, s->width, latents);
    case WEFT_PORT_TIMESTEP: return WEFT_SHAPE(s->batch);
    case WEFT_PORT_TEXT: return WEFT_SHAPE(s->batch, s->text, text);
    case WEFT_PORT_TEXT_MASK: return WEFT_SHAPE(s->batch, s->text);
    default: return WEFT_SCALAR;
    }
}

weft_ports weft_ports_none(void)
{
    weft_ports none;
    for (int i = 0; i < WEFT_PORT_COUNT; i++)
        none.at[i] = WEFT_NONE;
    none.packed = NULL;
    none.hidden = NULL;
    none.cache = NULL;
    none.images = NULL;
    none.perturbed = NULL;
    return none;
}

const char *weft_role_name(weft_role role)
{
    static const char *const names[WEFT_ROLE_COUNT] = {
        "denoiser",     "video autoencoder", "audio autoencoder", "vocoder",
        "text encoder", "text connectors",   "image encoder",     "identity encoder"};
    return names[role];
}

bool weft_model_has_unit_times(const weft_model *model)
{
    return model->family->unit_times && model->family->unit_times(model->config);
}

bool weft_family_is_autoencoder(const weft_family *family)
{
    return family->role == WEFT_ROLE_AUTOENCODER || family->role == WEFT_ROLE_AUDIO_AUTOENCODER;
}

/* ---- grids ---------------------------------------------------------------------------------- */

/* Latent frames of a video of one section. */
static int64_t latents_of(const weft_grid *grid, int64_t frames)
{
    if (frames < 1)
        return 0;
    return grid->causal ? 1 + (frames - 1) / grid->factor[0] : frames / grid->factor[0];
}

static int64_t frames_of(const weft_grid *grid, int64_t latent_frames)
{
    return grid->causal ? 1 + (latent_frames - 1) * grid->factor[0]
                        : latent_frames * grid->factor[0];
}

/* Latent frames of the parts of a video that are videos of their own. 0: none. */
static int64_t part_of(const weft_grid *grid)
{
    return grid->section ? grid->section : grid->clip;
}

int64_t weft_grid_latent_frames(const weft_grid *grid, int64_t frames)
{
    const int64_t part = part_of(grid), whole = part ? frames / frames_of(grid, part) : 0,
                  rest = part ? frames % frames_of(grid, part) : frames;
    return whole * part + latents_of(grid, rest);
}

int64_t weft_grid_frames(const weft_grid *grid, int64_t latent_frames)
{
    const int64_t part = part_of(grid), whole = part ? latent_frames / part : 0,
                  rest = latent_frames - whole * part;
    return (whole ? whole * frames_of(grid, part) : 0) +
           (rest || !whole ? frames_of(grid, rest) : 0);
}

/* A video of one section without its other frames. */
static int64_t lone_frames(const weft_grid *grid)
{
    return grid->causal && !part_of(grid) ? 1 : 0;
}

/* Distance between two supported numbers of frames. */
static int64_t frames_of_group(const weft_grid *grid)
{
    return part_of(grid) ? frames_of(grid, part_of(grid))
                         : grid->factor[0] * (grid->group ? grid->group : 1);
}

/* Whether a video of this length is shorter than a clip. */
static bool is_short(const weft_grid *grid, int64_t frames)
{
    return !grid->section && grid->clip && frames < frames_of(grid, grid->clip);
}

/* The grid of a video that is one clip. */
static weft_grid of_one_clip(const weft_grid *grid)
{
    weft_grid one = *grid;
    one.clip = 0;
    return one;
}

bool weft_grid_takes_frames(const weft_grid *grid, int64_t frames)
{
    if (is_short(grid, frames)) {
        const weft_grid one = of_one_clip(grid);
        return weft_grid_takes_frames(&one, frames);
    }
    return frames >= 1 && (frames - lone_frames(grid)) % frames_of_group(grid) == 0;
}

int64_t weft_grid_nearest_frames(const weft_grid *grid, int64_t frames)
{
    if (is_short(grid, frames)) {
        const weft_grid one = of_one_clip(grid);
        return weft_grid_nearest_frames(&one, frames);
    }
    const int64_t step = frames_of_group(grid), lone = lone_frames(grid),
                  least = lone ? lone : step,
                  nearest = (frames - lone + step / 2) / step * step + lone;
    return frames > least && nearest > least ? nearest : least;
}

int64_t weft_grid_pixel_step(const weft_grid *pixels, const weft_grid *patch, int side)
{
    return pixels->factor[side] * (patch->pads ? 1 : patch->factor[side]);
}

int64_t weft_grid_statistics_at(const weft_grid *grid, int64_t latent_frame)
{
    return grid->own_frames ? latent_frame * grid->channels : 0;
}

weft_status weft_grid_check_statistics(const weft_grid *grid, int64_t latent_frames,
                                       const weft_message_fields *at)
{
    return !grid->own_frames || latent_frames <= grid->own_frames
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED, at,
                            "%" PRId64 " latent frames are needed, but the latents have means and "
                            "deviations of %" PRId64 ". Use at most %" PRId64 " frames of video.",
                            latent_frames, grid->own_frames,
                            weft_grid_frames(grid, grid->own_frames));
}

const char *weft_grid_rule(const weft_grid *grid, char text[32])
{
    if (frames_of_group(grid) == 1)
        snprintf(text, 32, "n");
    else if (!grid->section && grid->clip)
        snprintf(text, 32, "%" PRId64 " n, or 1 + %" PRId64 " n below %" PRId64,
                 frames_of_group(grid), grid->factor[0], frames_of_group(grid));
    else
        snprintf(text, 32, "%s%" PRId64 " n", lone_frames(grid) ? "1 + " : "",
                 frames_of_group(grid));
    return text;
}

/* ---- configs -------------------------------------------------------------------------------- */

const char *weft_model_class(const weft_model *model)
{
    return model->family->class_name;
}

const weft_family *weft_family_find(const char *class_name)
{
    for (int i = 0; weft_families[i]; i++)
        if (!strcmp(weft_families[i]->class_name, class_name) ||
            (weft_families[i]->also && !strcmp(weft_families[i]->also, class_name)))
            return weft_families[i];
    return NULL;
}

void weft_family_list(weft_role role, weft_buf *out)
{
    bool first = true;
    for (int i = 0; weft_families[i]; i++)
        if (role == WEFT_ROLE_COUNT || weft_families[i]->role == role) {
            weft_buf_printf(out, "%s%s", first ? "" : ", ", weft_families[i]->class_name);
            first = false;
        }
}

bool weft_family_was_positive(const weft_family *family, const json_t *settings)
{
    return family->was_positive && json_object_get(settings, "text_lengths") &&
           !json_is_true(json_object_get(settings, "negative"));
}

weft_string_list weft_family_lora_targets(const weft_family *family)
{
    static const char *const usual[] = {"to_q", "to_k", "to_v", "to_out.0", NULL};
    const char *const *name = family && family->lora_targets ? family->lora_targets : usual;
    int64_t count = 0;
    while (name[count])
        count++;
    return (weft_string_list){count, (const char **)(uintptr_t)name}; /* nothing writes the items */
}

static weft_status unknown_class(const char *name, const char *where)
{
    weft_buf known = {0};
    weft_family_list(WEFT_ROLE_COUNT, &known);
    const weft_status_code status = weft_error(
        WEFT_MSG_MODEL_UNKNOWN, WEFT_AT(.file = where, .value = name),
        "the model class \"%.80s\" is not known; known: %s", name, known.data ? known.data : "?");
    weft_buf_free(&known);
    return status;
}

/* Finds the family of a transformers config: by the class of the weights, otherwise by the model
 * type. Other classes with the same weights share the model type. */
static const weft_family *transformers_family(const json_t *json)
{
    const char *name = json_string_value(json_array_get(json_object_get(json, "architectures"), 0));
    const char *type = json_string_value(json_object_get(json, "model_type"));
    const weft_family *found = name ? weft_family_find(name) : NULL;
    for (int i = 0; weft_families[i] && !found && type; i++)
        if (weft_families[i]->model_type && !strcmp(weft_families[i]->model_type, type))
            found = weft_families[i];
    return found;
}

static weft_status find_family(const char *class_name, const json_t *json,
                               const weft_config_locations *locations, const weft_family **family)
{
    const char *name = class_name;
    if (!json_is_object(json))
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = locations->where),
                          "this is not a model config; a JSON object is needed");
    if (!name)
        WEFT_TRY(weft_json_get_string_or(json, "_class_name", locations->where, NULL, &name));
    if (name) {
        *family = weft_family_find(name);
        return *family ? WEFT_OK : unknown_class(name, locations->where);
    }
    *family = transformers_family(json);
    if (*family)
        return WEFT_OK;
    for (int i = 0; weft_families[i]; i++) {
        const char *const *mark = weft_families[i]->marks;
        if (mark[0] && json_object_get(json, mark[0]) && json_object_get(json, mark[1])) {
            *family = weft_families[i];
            return WEFT_OK;
        }
    }
    return weft_error(WEFT_MSG_MODEL_CONFIG,
                      WEFT_AT(.file = locations->where, .key = "_class_name"),
                      "the field is missing, and the other fields fit no model family");
}

weft_status weft_model_read_as(const char *class_name, const json_t *json,
                               const weft_config_locations *locations, weft_model *model)
{
    weft_model m = {0};
    WEFT_TRY(find_family(class_name, json, locations, &m.family));
    if (m.family->config_bytes > sizeof m.config)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                          "the config of %s has %zu bytes, at most %d", m.family->class_name,
                          m.family->config_bytes, WEFT_MODEL_CONFIG_BYTES);
    WEFT_TRY(weft_fields_read(m.family, json, locations, m.config));
    *model = m;
    return WEFT_OK;
}

weft_status weft_model_read(const json_t *json, const char *where, weft_model *model)
{
    return weft_model_read_as(NULL, json, &(weft_config_locations){.where = where}, model);
}

json_t *weft_model_write(const weft_model *model)
{
    return weft_fields_write(model->family, model->config);
}

static bool has_file(const char *folder, const char *name, const char *inside)
{
    char *path = weft_path_join(folder, name), *file = path ? weft_path_join(path, inside) : NULL;
    const bool found = file && weft_path_exists(file);
    weft_free(path);
    weft_free(file);
    return found;
}

bool weft_model_is_pipeline(const char *folder)
{
    bool found = has_file(folder, ".", "model_index.json");
    const bool one = has_file(folder, ".", "config.json");
    for (int i = 0; weft_families[i] && !found && !one; i++)
        found = weft_families[i]->role == WEFT_ROLE_DENOISER &&
                has_file(folder, weft_families[i]->scope, "config.json");
    return found;
}

static const weft_named_config *find_size(const char *name, const weft_family **family)
{
    for (int i = 0; weft_families[i]; i++)
        for (const weft_named_config *s = weft_families[i]->sizes; s && s->name; s++)
            if (!strcmp(s->name, name)) {
                *family = weft_families[i];
                return s;
            }
    return NULL;
}

static weft_status read_size(const weft_named_config *size, const weft_family *family,
                             weft_model *model)
{
    json_t *json;
    WEFT_TRY(weft_json_parse(size->json, (int64_t)strlen(size->json), size->name, &json));
    const weft_status_code status =
        weft_model_read_as(family->class_name, json,
                           &(weft_config_locations){.where = size->name, .strict = true}, model);
    json_decref(json);
    return status;
}

weft_status weft_model_default(const char *name, weft_model *model)
{
    if (!name)
        return weft_error(WEFT_MSG_MODEL_UNKNOWN, WEFT_NOWHERE,
                          "weft has no autoencoder for this model; give sizes in latents");
    const weft_family *family;
    const weft_named_config *size = find_size(name, &family);
    if (size)
        return read_size(size, family, model);
    json_t *json = json_object();
    const weft_status_code status =
        weft_model_read_as(name, json, &(weft_config_locations){.where = name}, model);
    json_decref(json);
    return status;
}

weft_status weft_model_default_autoencoder(const weft_model *denoiser, weft_model *autoencoder)
{
    const weft_family *f = denoiser->family;
    return weft_model_default(
        f->autoencoder_of ? f->autoencoder_of(denoiser->config) : f->autoencoder, autoencoder);
}

/* Role of the models of a pipeline folder, such as vae, transformer or text_encoder_2. -1: none. */
static int role_of_folder(const char *path)
{
    const char *name = weft_path_base(path);
    for (int i = 0; weft_families[i]; i++) {
        const char *scope = weft_families[i]->scope;
        const size_t length = strlen(scope);
        if (strncmp(name, scope, length) != 0)
            continue;
        const char *number = name + length;
        if (!*number || (*number++ == '_' && *number && !number[strspn(number, "0123456789")]))
            return (int)weft_families[i]->role;
    }
    return -1;
}

/* Explains why no config.json was read: `path` is a folder without one, or does not exist. In other
 * cases returns `status` with its message. */
static weft_status explain_no_config(weft_status_code status, const char *path)
{
    if (weft_path_is_dir(path))
        return weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = path),
                          "this folder has no config.json, which describes the model. Download the "
                          "folder again, or name another one.");
    if (weft_path_exists(path))
        return status;
    const int role = role_of_folder(path);
    if (role >= 0)
        return weft_error(
            WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = path),
            "this folder is missing; it holds the %s of a model. Download it (config.json and "
            "weights), make it with weft train, or link the folder of another model there.",
            weft_role_name((weft_role)role));
    return weft_error(WEFT_MSG_FILE_NOT_FOUND, WEFT_AT(.file = path),
                      "no folder or file has this name. Give the folder of a model, with its "
                      "config.json and weights, or download it to this path.");
}

static weft_status explain_missing(weft_status_code status, const char *path)
{
    if (weft_model_is_pipeline(path))
        return weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = path),
                          "this folder has several models; give one of its folders, such as "
                          "%s/transformer or %s/vae",
                          path, path);
    char *finished = weft_path_join(path, "model");
    status = finished && weft_path_is_dir(finished)
                 ? weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = path),
                              "this is the folder of a training run; its model is %s/model", path)
                 : explain_no_config(status, path);
    weft_free(finished);
    return status;
}

/* Whether `word` is in `list`, whose items are separated by '|'. */
static bool is_listed(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = strstr(list, word); at; at = strstr(at + 1, word))
        if ((at == list || at[-1] == '|') && (!at[length] || at[length] == '|'))
            return true;
    return false;
}

/* Returns the family of this role in a config.json of several models. NULL: none. */
static const weft_family *find_joint(const json_t *json, weft_role role)
{
    const char *type = json_string_value(json_object_get(json, "model_type"));
    for (int i = 0; weft_families[i] && type; i++) {
        const weft_joint_model *joint = &weft_families[i]->joint;
        if (weft_families[i]->role == role && joint->model_type &&
            is_listed(joint->model_type, type) && json_object_get(json, joint->key))
            return weft_families[i];
    }
    return NULL;
}

bool weft_model_has_part(const char *folder, weft_role role)
{
    char *file = weft_path_join(folder, "config.json");
    json_t *json = NULL;
    const bool has = file && weft_path_exists(file) && weft_json_load(file, &json) == WEFT_OK &&
                     find_joint(json, role);
    json_decref(json);
    weft_free(file);
    return has;
}

static weft_status read_joint(const weft_family *family, const json_t *json, const char *where,
                              weft_model *model)
{
    json_t *own = json_copy(json_object_get(json, family->joint.key));
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(own, "the config %s", where));
    if (json_object_get(json, family->joint.shared))
        json_object_set(own, family->joint.shared, json_object_get(json, family->joint.shared));
    WEFT_GO(weft_model_read_as(family->class_name, own, &(weft_config_locations){.where = where},
                               model));
out:
    json_decref(own);
    return status;
}

const weft_companion *weft_model_companion(const weft_model *model)
{
    const weft_companion *c = model->family->companion;
    json_t *config = c ? weft_model_write(model) : NULL;
    const bool has = json_is_object(json_object_get(config, c ? c->folder : ""));
    json_decref(config);
    return has ? c : NULL;
}

/* Returns the folder of a companion of the model in `folder`: in the folder or its parent (heap).
 * NULL: none, or out of memory. */
char *weft_model_companion_folder(const weft_family *family, const char *folder)
{
    const weft_companion *c = family->companion;
    if (!c || !weft_path_is_dir(folder))
        return NULL;
    char *inside = weft_path_join(folder, c->folder);
    if (inside && weft_path_is_dir(inside))
        return inside;
    weft_free(inside);
    char *above = weft_path_join(folder, "..");
    char *beside = above ? weft_path_join(above, c->folder) : NULL;
    weft_free(above);
    if (beside && weft_path_is_dir(beside))
        return beside;
    weft_free(beside);
    return NULL;
}

/* Adds the config of a companion to the config in `file`. */
static weft_status add_companion(const char *file, json_t *json)
{
    char folder[1200];
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    const weft_family *family = name ? weft_family_find(name) : NULL;
    const weft_companion *c = family ? family->companion : NULL;
    json_t *config = NULL;
    if (!c || json_is_object(json_object_get(json, c->folder)) ||
        !json_is_integer(json_object_get(json, c->mark)))
        return WEFT_OK;
    const char *base = weft_path_base(file);
    snprintf(folder, sizeof folder, "%.*s", base > file ? (int)(base - file) : 1,
             base > file ? file : ".");
    char *companion = weft_model_companion_folder(family, folder);
    if (!companion)
        return WEFT_OK;
    char *path = weft_path_join(companion, "config.json");
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(path, "path %s", folder));
    WEFT_GO(weft_json_load(path, &config));
    WEFT_GO(WEFT_ALLOCATED(json_object_set(json, c->folder, config) == 0, "%s", path));
out:
    json_decref(config);
    weft_free(path);
    weft_free(companion);
    return status;
}

/* `role` WEFT_ROLE_COUNT: any. */
static weft_status open_role(const char *path, weft_role role, weft_model *model)
{
    const weft_family *family;
    const weft_named_config *size = weft_path_exists(path) ? NULL : find_size(path, &family);
    if (size)
        return read_size(size, family, model);
    char *file = weft_path_is_dir(path) ? weft_path_join(path, "config.json") : weft_strdup(path);
    WEFT_TRY(WEFT_ALLOCATED(file, "path %s", path));
    json_t *json = NULL;
    weft_status_code status = weft_json_load(file, &json);
    if (status == WEFT_E_NOT_FOUND)
        status = explain_missing(status, path);
    WEFT_GO(status);
    WEFT_GO(add_companion(file, json));
    family = find_joint(json, role);
    WEFT_GO(family ? read_joint(family, json, file, model) : weft_model_read(json, file, model));
out:
    json_decref(json);
    weft_free(file);
    return status;
}

weft_status weft_model_open(const char *path, weft_model *model)
{
    return open_role(path, WEFT_ROLE_COUNT, model);
}

weft_status weft_model_open_as(const char *path, weft_role role, weft_model *model)
{
    weft_model m;
    WEFT_TRY(open_role(path, role, &m));
    if (m.family->role != role)
        return weft_error(WEFT_MSG_MODEL_UNKNOWN,
                          WEFT_AT(.file = path, .value = m.family->class_name),
                          "the model is a %s, which is a %s; a %s is needed", m.family->class_name,
                          weft_role_name(m.family->role), weft_role_name(role));
    *model = m;
    return WEFT_OK;
}

weft_status weft_model_open_in(const char *pipeline, weft_role role, char **path, weft_model *model)
{
    char *found = NULL;
    for (int i = 0; weft_families[i]; i++) {
        if (weft_families[i]->role != role)
            continue;
        char *folder = weft_path_join(pipeline, weft_families[i]->scope);
        if (!folder) {
            weft_free(found);
            return weft_no_memory("a path");
        }
        const bool there = weft_path_is_dir(folder);
        if (!found || there) {
            weft_free(found);
            found = folder;
        } else {
            weft_free(folder);
        }
        if (there)
            break;
    }
    weft_status_code status = WEFT_OK;
    WEFT_GO(found ? weft_model_open_as(found, role, model)
                  : weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = pipeline),
                               "weft implements no %s", weft_role_name(role)));
    *path = found;
    return WEFT_OK;
out:
    weft_free(found);
    return status;
}

/* ---- graphs --------------------------------------------------------------------------------- */

weft_statistics *weft_model_statistics(weft_model *model)
{
    return (weft_statistics *)((char *)model->config + model->family->statistics);
}

double *weft_model_decode_timestep(weft_model *model)
{
    return model->family->decode_timestep && weft_model_takes(model, WEFT_PORT_TIMESTEP)
               ? (double *)((char *)model->config + model->family->decode_timestep)
               : NULL;
}

/* The config is ordered by channel, then frame; the grid by frame, then channel. */
static void take_statistics(const weft_statistics *of, bool factors, weft_grid *grid)
{
    const int64_t frames = of->count[0] ? of->count[0] / grid->channels : 1;
    grid->own_frames = frames > 1 ? frames : 0;
    for (int64_t i = 0; i < grid->channels * frames; i++) {
        const int64_t from = i % grid->channels * frames + i / grid->channels;
        const double given = of->deviation[from] > 0 ? of->deviation[from] : 1;
        grid->mean[i] = of->mean[from] + of->shift;
        grid->deviation[i] = (factors ? 1 / given : given) / (of->scale ? of->scale : 1);
    }
}

weft_tile_rule weft_model_tile_rule(const weft_model *model)
{
    weft_tile_rule rule = model->family->tile;
    if (model->family->set_tile)
        model->family->set_tile(model->config, &rule);
    return rule;
}

weft_grid weft_model_grid(const weft_model *model)
{
    weft_grid grid = {.factor = {1, 1, 1}};
    model->family->grid(model->config, &grid);
    if (weft_family_is_autoencoder(model->family))
        take_statistics(
            (const weft_statistics *)((const char *)model->config + model->family->statistics),
            model->family->factors, &grid);
    return grid;
}

void weft_model_set_statistics(weft_model *model, const weft_grid *grid)
{
    weft_statistics *of = weft_model_statistics(model);
    const int64_t frames = grid->own_frames ? grid->own_frames : 1;
    for (int64_t i = 0; i < grid->channels * frames; i++) {
        const int64_t to = i % grid->channels * frames + i / grid->channels;
        of->mean[to] = grid->mean[i] - of->shift;
        const double deviation = grid->deviation[i] * (of->scale ? of->scale : 1);
        of->deviation[to] = model->family->factors ? 1 / deviation : deviation;
    }
    of->count[0] = of->count[1] = grid->channels * frames;
}

int64_t weft_image_tokens_count(const weft_image_tokens *images)
{
    int64_t count = 0;
    for (int i = 0; i < images->count; i++)
        count += images->of[i].rows * images->of[i].columns;
    return count;
}

weft_frame_condition weft_model_takes_port(const weft_model *model)
{
    weft_frame_condition cond = {0};
    if (model->family->frame_condition)
        model->family->frame_condition(model->config, &cond);
    return cond;
}

int64_t weft_model_denoised(const weft_model *model)
{
    const weft_grid grid = weft_model_grid(model);
    const bool controlled = grid.channels == 2 * grid.out_channels; /* control videos */
    const weft_frame_condition_kind form = weft_model_takes_port(model).form;
    return controlled || form == WEFT_FRAME_CONDITION_CHANNELS ||
                   form == WEFT_FRAME_CONDITION_CHARACTER
               ? grid.out_channels
               : grid.channels;
}

weft_text_shape weft_model_text(const weft_model *model)
{
    weft_text_shape text;
    model->family->text(model->config, &text);
    return text;
}

bool weft_model_has(const weft_model *model, weft_port port)
{
    for (int i = 0; i < model->family->ports; i++)
        if (model->family->port[i].port == port)
            return true;
    return false;
}

bool weft_model_takes(const weft_model *model, weft_port port)
{
    const weft_model_size one = {1, 1, 1, 1, 1, .image = 1};
    return weft_model_has(model, port) && weft_model_shape(model, &one, port).rank > 0;
}

weft_status weft_model_accepts(const weft_model *model, const weft_port *provided, int count,
                               const char *who)
{
    for (int i = 0; i < model->family->ports; i++) {
        const weft_port_row *row = &model->family->port[i];
        bool found = row->output || row->optional || !weft_model_takes(model, row->port);
        for (int k = 0; k < count && !found; k++)
            found = provided[k] == row->port;
        if (!found)
            return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                              WEFT_AT(.value = weft_port_name(row->port)),
                              "%s takes \"%s\", which weft %s cannot provide",
                              weft_model_class(model), weft_port_name(row->port), who);
    }
    return WEFT_OK;
}

const char *weft_model_pipeline(const weft_model *model, bool image)
{
    const weft_family *f = model->family;
    if (f->pipeline_of)
        return f->pipeline_of(model->config, image);
    return image && f->image_pipeline ? f->image_pipeline : f->pipeline;
}

weft_shape weft_model_shape(const weft_model *model, const weft_model_size *size, weft_port port)
{
    return model->family->shape(model->config, size, port);
}

weft_value weft_model_input(weft_graph *g, const weft_model *model, const weft_model_size *size,
                            weft_port port, const char *prefix)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", prefix, weft_port_name(port));
    return weft_input(g, name, weft_port_dtype(port), weft_model_shape(model, size, port));
}

void weft_model_call(weft_graph *g, const weft_model *model, weft_call call, bool scoped,
                     weft_ports *values)
{
    if (scoped)
        weft_graph_push(g, "%s", model->family->scope);
    model->family->build(g, model->config, call, values);
    if (scoped)
        weft_graph_pop(g);
}

weft_value weft_model_answer(weft_graph *g, const weft_model *model, const weft_ports *called)
{
    weft_value prediction = called->at[WEFT_PORT_PREDICTION];
    const int64_t denoised = weft_model_denoised(model);
    if (weft_value_ok(prediction) && weft_dim(g, prediction, 4) == 2 * denoised)
        prediction = weft_slice(g, prediction, 4, 0, denoised);
    return model->family->negative ? weft_affine(g, prediction, -1, 0) : prediction;
}

/* Encodes, samples and decodes. */
static void build_autoencoder(weft_graph *g, const weft_model *model, const weft_model_size *size,
                              bool scoped)
{
    weft_ports p = weft_ports_none();
    p.at[WEFT_PORT_VIDEO] = weft_model_input(g, model, size, WEFT_PORT_VIDEO, "");
    weft_model_call(g, model, (weft_call){WEFT_CALL_ENCODE, WEFT_STREAM_ALONE}, scoped, &p);
    const weft_value mean = p.at[WEFT_PORT_MEAN], logvar = p.at[WEFT_PORT_LOGVAR];
    p.at[WEFT_PORT_LATENTS] = mean;
    if (weft_model_has(model, WEFT_PORT_LOGVAR)) {
        const weft_value noise =
            weft_input(g, weft_port_name(WEFT_PORT_NOISE), WEFT_F32,
                       weft_value_ok(mean) ? weft_value_get(g, mean)->shape : WEFT_SCALAR);
        const weft_value std = weft_unary(g, WEFT_OP_EXP, weft_affine(g, logvar, 0.5, 0));
        p.at[WEFT_PORT_LATENTS] = weft_add(g, mean, weft_mul(g, std, noise));
    }
    if (weft_model_takes(model, WEFT_PORT_TIMESTEP) &&
        size->present_ports >> WEFT_PORT_TIMESTEP & 1)
        p.at[WEFT_PORT_TIMESTEP] = weft_model_input(g, model, size, WEFT_PORT_TIMESTEP, "");
    weft_model_call(g, model, (weft_call){WEFT_CALL_DECODE, WEFT_STREAM_ALONE}, scoped, &p);
    weft_value *made = &p.at[WEFT_PORT_RECONSTRUCTION];
    if (model->family->clamps)
        *made = weft_clamp(g, *made, -1, 1);
    for (int i = 0; i < model->family->ports; i++)
        if (model->family->port[i].output)
            weft_output(g, weft_port_name(model->family->port[i].port),
                        p.at[model->family->port[i].port]);
}

weft_model_size weft_model_smallest(const weft_model *model)
{
    weft_model_size size = {1, 1, 1, 1, 1};
    if (!model->family->grid)
        return size;
    const weft_grid grid = weft_model_grid(model);
    size.frames = weft_grid_frames(&grid, grid.block > 1 ? grid.block : 1);
    size.frames = grid.least > size.frames ? grid.least : size.frames;
    size.frames = grid.only[0] ? grid.only[0] : size.frames;
    size.height = grid.only[1] ? grid.only[1] : grid.factor[1];
    size.width = grid.only[2] ? grid.only[2] : grid.factor[2];
    size.text = grid.text ? grid.text : size.text;
    return size;
}

void weft_model_build(weft_graph *g, const weft_model *model, const weft_model_size *size,
                      bool scoped)
{
    const weft_family *f = model->family;
    if (weft_family_is_autoencoder(f)) {
        build_autoencoder(g, model, size, scoped);
        return;
    }
    weft_ports p = weft_ports_none();
    for (int i = 0; i < f->ports; i++)
        if (!f->port[i].output && weft_model_takes(model, f->port[i].port) &&
            (!f->port[i].optional || size->present_ports >> f->port[i].port & 1))
            p.at[f->port[i].port] = weft_model_input(g, model, size, f->port[i].port, "");
    weft_model_call(g, model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, scoped, &p);
    for (int i = 0; i < f->ports; i++)
        if (f->port[i].output && (!f->port[i].optional || weft_value_ok(p.at[f->port[i].port])))
            weft_output(g, weft_port_name(f->port[i].port), p.at[f->port[i].port]);
}
