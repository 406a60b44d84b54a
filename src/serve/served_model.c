#include "serve/served_model.h"

#include "base/fs.h"
#include "base/path_stamp.h"
#include "base/utf8.h"
#include "diffusion/scheduler.h"
#include "generate/conditioning/control_check.h"
#include "generate/conditioning/visual_condition.h"
#include "generate/generator/generator_model.h"
#include "generate/generator/own_settings.h"
#include "model/encoders/identity_encoder.h"
#include "serve/input_files.h"

#include <stdlib.h>
#include <string.h>

/* Splits NAME=DIR. A name has no '/', so "./a=b" is a folder. */
static weft_status split(const char *spec, weft_served_model *m)
{
    const char *equals = strchr(spec, '='), *slash = strchr(spec, '/');
    const bool named = equals && equals != spec && (!slash || equals < slash);
    char *folder = realpath(named ? equals + 1 : spec, NULL);
    if (!folder)
        return weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = named ? equals + 1 : spec),
                          "the folder does not exist");
    m->folder = weft_strdup(folder);
    m->name = named ? weft_strdup(spec) : weft_strdup(weft_path_base(folder));
    free(folder);
    WEFT_TRY(WEFT_ALLOCATED(m->folder && m->name, "a model"));
    if (named)
        m->name[equals - spec] = '\0';
    return WEFT_OK;
}

/* Requests, answers and messages have the name in one line. */
static weft_status check_name(const char *name)
{
    const size_t length = strlen(name);
    bool prints = true;
    for (const char *at = name; *at; at++)
        prints = prints && (unsigned char)*at >= ' ' && *at != 0x7f;
    if (length >= 1 && length <= WEFT_MODEL_NAME && prints && weft_utf8_valid(name))
        return WEFT_OK;
    return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--model", .value = name),
                      "the name of the model has %zu bytes%s. Give 1 to %d bytes of UTF-8 without "
                      "control characters as --model NAME=DIR.",
                      length,
                      !prints                  ? " and a control character"
                      : !weft_utf8_valid(name) ? " and is not UTF-8"
                                               : "",
                      WEFT_MODEL_NAME);
}

/* Whether the model takes the latents of a control video without a mask, and needs them. */
static bool takes_plain_control(const weft_generator_model *g)
{
    const weft_model_size one = {1, 1, 1, 1, 1};
    return weft_model_shape(g->denoiser, &one, WEFT_PORT_CONTROL).dim[4] == g->grid.channels;
}

/* The inputs that generate/conditioning accepts for this model. A video and its mask work with any
 * model. */
static void read_inputs(weft_served_model *m, const weft_generator_model *g)
{
    const bool port = weft_model_takes(g->denoiser, WEFT_PORT_CONTROL);
    const weft_frame_condition none = {0},
                               how = g->control ? none : weft_model_takes_port(g->denoiser);
    const bool trained = g->first_frame || g->expands_timesteps || g->edit,
               in_sections = g->in_sections;
    m->needs_image = weft_visual_condition_needs_image(&how) || g->edit;
    m->takes_image = how.form != WEFT_FRAME_CONDITION_NONE && (!how.asks || trained) &&
                     (!how.precedes || in_sections);
    m->takes_last_image = m->takes_image && how.last;
    m->needs_last_image = m->takes_last_image && how.last_must;
    m->takes_control = g->control || port;
    m->needs_control = g->control ? !port : port && takes_plain_control(g);
    m->takes_references = weft_control_has_mask(g->denoiser, &g->grid);
    m->needs_face = how.form == WEFT_FRAME_CONDITION_CHARACTER;
    m->takes_video =
        (!m->needs_control || m->needs_face) && !g->edit && !in_sections && !g->patch.caches;
}

/* Reads the maximum images of the identity encoder, if the folder exists. */
static weft_status read_identity(weft_served_model *m, const char *folder)
{
    weft_model identity;
    if (!weft_path_exists(folder))
        return WEFT_OK;
    WEFT_TRY(weft_model_open_as(folder, WEFT_ROLE_IDENTITY_ENCODER, &identity));
    m->identity_images = weft_identity_encoder_images(&identity);
    m->takes[WEFT_METHOD_IDENTITY] = true;
    return WEFT_OK;
}

static weft_status read_needs(weft_served_model *m, const weft_generator_model *g)
{
    const weft_frame_condition how = weft_model_takes_port(g->denoiser);
    weft_model vae;
    char *identity = weft_path_join(m->folder, "identity");
    WEFT_TRY(WEFT_ALLOCATED(identity, "a path"));
    m->takes[WEFT_METHOD_ANY] = true;
    m->takes[WEFT_METHOD_LEVELS] = how.frame_levels;
    m->takes[WEFT_METHOD_SECTIONS] = how.section > 0 && !how.precedes;
    m->takes[WEFT_METHOD_REASONING] = how.reasons;
    m->takes[WEFT_METHOD_STAGES] = g->staged;
    m->takes[WEFT_METHOD_EXPERTS] = g->experts > 1;
    m->takes[WEFT_METHOD_EMBEDDED] = weft_model_takes(g->denoiser, WEFT_PORT_GUIDANCE);
    m->takes[WEFT_METHOD_SOUND] = g->sound.vae.family != NULL;
    m->takes[WEFT_METHOD_PERTURBED] = weft_model_takes(g->denoiser, WEFT_PORT_ATTENDED);
    m->takes[WEFT_METHOD_CONTROL] = weft_model_takes(g->denoiser, WEFT_PORT_CONTROL_SCALE);
    m->takes[WEFT_METHOD_REFINEMENT] = how.refine_level > 0;
    m->takes[WEFT_METHOD_BLOCKS] = g->denoiser->family->block_sparse != NULL;
    const weft_status_code status = read_identity(m, identity);
    weft_free(identity);
    WEFT_TRY(status);
    WEFT_TRY(weft_model_open_as(g->vae_folder, WEFT_ROLE_AUTOENCODER, &vae));
    m->takes[WEFT_METHOD_DECODER] = weft_model_decode_timestep(&vae);
    return WEFT_OK;
}

/* Pipelines with latents of several sizes need whole cells in the smallest. */
static weft_status read_stages(weft_served_model *m)
{
    weft_scheduler scheduler;
    char *path = weft_path_join(m->folder, "scheduler/scheduler_config.json");
    WEFT_TRY(WEFT_ALLOCATED(path, "a path"));
    const weft_status_code status = weft_scheduler_load(path, &scheduler);
    weft_free(path);
    WEFT_TRY(status);
    for (int i = 0; i < 2; i++)
        m->pixel_step[i] <<= scheduler.stages - 1;
    return WEFT_OK;
}

static weft_status read_folder(weft_served_model *m, weft_generator_model *g)
{
    weft_generator_options o = {.guidance = -1};
    WEFT_TRY(weft_generator_model_open(m->folder, &o, g));
    const weft_status_code status = weft_generator_model_read_settings(g, &o);
    if (status == WEFT_E_ARG) { /* a published folder without a size: requests give it */
        weft_error_clear();
        o.frames = o.height = o.width = 1;
        WEFT_TRY(weft_generator_model_read_settings(g, &o));
    } else {
        WEFT_TRY(status);
        memcpy(m->size, (int64_t[]){o.frames, o.height, o.width}, sizeof m->size);
    }
    read_inputs(m, g);
    WEFT_TRY(read_needs(m, g));
    m->fps = g->fps;
    m->guidance = o.guidance;
    WEFT_TRY(weft_own_settings_take(m->folder, false, WEFT_USUAL_STEPS, &o));
    m->steps = o.steps;
    m->grid = g->grid;
    for (int i = 0; i < 2; i++)
        m->pixel_step[i] = weft_grid_pixel_step(&g->grid, &g->patch, 1 + i);
    return g->staged ? read_stages(m) : WEFT_OK;
}

weft_status weft_served_model_open(const char *spec, weft_served_model *m)
{
    weft_generator_model g = {0};
    *m = (weft_served_model){0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(split(spec, m));
    WEFT_GO(check_name(m->name));
    WEFT_GO(read_folder(m, &g));
out:
    weft_generator_model_close(&g);
    if (status != WEFT_OK)
        weft_served_model_close(m);
    return status;
}

void weft_served_model_close(weft_served_model *m)
{
    weft_free(m->name);
    weft_free(m->folder);
    *m = (weft_served_model){0};
}

uint64_t weft_served_model_stamp(const weft_served_model *m)
{
    return weft_path_stamp(0, m->folder,
                           2); /* a transformer may have the folder of its companion */
}

static weft_status check_pixels(const weft_served_model *m, int i, int64_t pixels)
{
    const int64_t step = m->pixel_step[i], nearest = (pixels + step / 2) / step * step;
    if (pixels % step == 0)
        return WEFT_OK;
    return weft_error(WEFT_MSG_VIDEO_SIZE,
                      WEFT_AT(.key = i ? "width" : "height", WEFT_NUMBER(pixels)),
                      "%" PRId64 " is not a multiple of %" PRId64
                      ", which the model needs; the nearest is %" PRId64,
                      pixels, step, nearest ? nearest : step);
}

weft_status weft_served_model_check_refined(const weft_served_model *m, bool same_frames,
                                            const int64_t size[3])
{
    const bool odd = !same_frames && size[0] % 2;
    const int64_t least = same_frames ? 2 : 4;
    if (odd || size[0] < least)
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "frames", WEFT_NUMBER(size[0])),
                          "a refined video has %s frames, at least %" PRId64 ", not %" PRId64
                          "; send their number",
                          same_frames ? "the coarse video's" : "twice the coarse video's", least,
                          size[0]);
    WEFT_TRY(check_pixels(m, 0, size[1]));
    return check_pixels(m, 1, size[2]);
}

weft_status weft_served_model_check(const weft_served_model *m, const int64_t size[3])
{
    char rule[32];
    if (!weft_grid_takes_frames(&m->grid, size[0]))
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "frames", WEFT_NUMBER(size[0])),
                          "the model generates %s frames, not %" PRId64 "; the nearest is %" PRId64,
                          weft_grid_rule(&m->grid, rule), size[0],
                          weft_grid_nearest_frames(&m->grid, size[0]));
    WEFT_TRY(check_pixels(m, 0, size[1]));
    return check_pixels(m, 1, size[2]);
}

json_t *weft_served_model_json(const weft_served_model *m)
{
    char rule[32];
    const int64_t least = weft_grid_nearest_frames(&m->grid, 1);
    int64_t next = least + 1;
    while (!weft_grid_takes_frames(&m->grid, next))
        next++;
    json_t *samplers = json_array(),
           *json = json_pack(
               "{s:s, s:{s:s, s:I, s:I, s:I}, s:{s:I, s:I}, s:{s:I, s:I}, s:f, s:f, s:I, s:b, s:b}",
               "id", m->name, "frames", "rule", weft_grid_rule(&m->grid, rule), "default",
               (json_int_t)m->size[0], "least", (json_int_t)least, "step",
               (json_int_t)(next - least), "height", "multiple_of", (json_int_t)m->pixel_step[0],
               "default", (json_int_t)m->size[1], "width", "multiple_of",
               (json_int_t)m->pixel_step[1], "default", (json_int_t)m->size[2], "fps", m->fps,
               "guidance_scale", m->guidance, "steps", (json_int_t)m->steps, "input_reference",
               m->takes_image, "needs_input_reference", m->needs_image);
    json_t *inputs = json_pack(
        "{s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:I, s:I, s:o*}", "last_image",
        m->takes_last_image, "needs_last_image", m->needs_last_image, "video", m->takes_video,
        "control", m->takes_control, "needs_control", m->needs_control, "needs_face", m->needs_face,
        "mask", m->takes_video || (m->takes_control && !m->needs_control), "refine",
        m->takes[WEFT_METHOD_REFINEMENT], "identity_image", m->takes[WEFT_METHOD_IDENTITY],
        "identity_images", (json_int_t)m->identity_images, "reference_images",
        (json_int_t)(m->takes_references ? WEFT_INPUT_REFERENCES : 0), "options",
        weft_method_json(m->takes));
    if (json && inputs)
        json_object_update(json, inputs);
    json_decref(inputs);
    json_t *compute = weft_compute_json(&m->compute);
    if (json && compute)
        json_object_update(json, compute);
    json_decref(compute);
    for (int i = 0; samplers && weft_samplers[i]; i++)
        json_array_append_new(samplers, json_string(weft_samplers[i]->name));
    if (json)
        json_object_set_new(json, "samplers", samplers);
    else
        json_decref(samplers);
    return json;
}
