#include "generate/generator/generator_read.h"

#include "base/fs.h"
#include "base/hash.h"
#include "comm/comm_world.h"
#include "generate/generator/generator_parts.h"
#include "model/key_mapping.h"

#include <string.h>
#include <unistd.h>

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

/* Replaces the shift of the scheduler's config by the option. */
static weft_status take_shift(weft_generator *p)
{
    weft_scheduler *s = &p->trajectory.scheduler;
    const bool straight = s->path == WEFT_PATH_FLOW;
    if (straight && p->options.shift > 0) {
        s->shift = p->options.shift;
        s->by_resolution = false;
    } else if (p->options.shift > 0) {
        return weft_error(
            WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--shift", WEFT_NUMBER(p->options.shift)),
            "the noise levels of this model (%s) have no shift. Omit the option.", s->kind->name);
    }
    p->options.shift = straight && !s->by_resolution ? s->shift : 0;
    return WEFT_OK;
}

/* A folder that model_index.json names must exist: without it the result would differ. */
static weft_status check_whole(const weft_generator *p, const char *name)
{
    json_t *index = NULL;
    WEFT_TRY(load_json(p->model.folder, "model_index.json", &index));
    const bool named = json_is_string(json_array_get(json_object_get(index, name), 1));
    json_decref(index);
    if (!named)
        return WEFT_OK;
    char *path = weft_path_join(p->model.folder, name);
    WEFT_TRY(WEFT_ALLOCATED(path, "a path"));
    const bool there = weft_path_is_dir(path);
    weft_free(path);
    return there ? WEFT_OK
                 : weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = p->model.folder, .key = name),
                              "model_index.json names this folder, but it does not exist. Download "
                              "the model again, or remove the entry to generate without it.");
}

/* Reads the scheduler's config; without one, uses FlowMatchEulerDiscreteScheduler. */
static weft_status read_scheduler(weft_generator *p)
{
    WEFT_TRY(check_whole(p, "scheduler"));
    char *path = weft_path_join(p->model.folder, "scheduler/scheduler_config.json");
    WEFT_TRY(WEFT_ALLOCATED(path, "the model"));
    const weft_status_code status =
        weft_path_exists(path)
            ? weft_scheduler_load(path, &p->trajectory.scheduler)
            : weft_scheduler_of("FlowMatchEulerDiscreteScheduler", path, &p->trajectory.scheduler);
    weft_free(path);
    WEFT_TRY(status);
    if (!p->options.sampler)
        p->options.sampler = p->trajectory.scheduler.kind->sampler;
    if (p->options.eta > 0 && p->options.sampler != weft_sampler_find("ddim"))
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                          WEFT_AT(.key = "--eta", WEFT_NUMBER(p->options.eta)),
                          "%g has no effect with the sampler %s, which adds no noise. Use "
                          "--sampler ddim, or omit --eta.",
                          p->options.eta, p->options.sampler->name);
    p->trajectory.scheduler.solver.eta = p->options.eta;
    return take_shift(p);
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
    weft_status_code status = load_json(folder, "weft.json", &own);
    for (int i = 0; i < 3 && status == WEFT_OK; i++) {
        if (!size[i])
            status = weft_json_get_i64_or(own, name[i], "weft.json", 0, &size[i]);
        known &= size[i] != 0;
    }
    if (status == WEFT_OK && !known)
        status = weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.file = folder),
                            "the model has no weft.json with the size that it was trained on. Give "
                            "--frames, --height and --width.");
    json_decref(own);
    return status;
}

/* Reads the size and frame rate that the model was trained on. Public folders have no weft.json;
 * then the options must give the size. */
static weft_status read_settings(weft_generator *p)
{
    json_t *own = NULL;
    weft_generator_options *o = &p->options;
    int64_t size[3] = {o->frames, o->height, o->width};
    WEFT_TRY(weft_generator_size(p->model.folder, size));
    o->frames = size[0];
    o->height = size[1];
    o->width = size[2];
    WEFT_TRY(load_json(p->model.folder, "weft.json", &own));
    const double fps = p->model.denoiser->family->fps;
    const weft_status_code status =
        weft_json_get_f64_or(own, "fps", "weft.json", fps > 0 ? fps : 16, &p->model.fps);
    p->model.published = !own;
    const char *condition = json_string_value(json_object_get(own, "condition"));
    p->inputs.setup.trained = p->inputs.setup.zeros =
        condition && !strcmp(condition, "first_frame");
    json_decref(own);
    return status;
}

/* Opens the text encoders in the folders named by the denoiser's rows, with the text lengths that
 * the denoiser was trained on. */
static weft_status open_text(weft_generator *p)
{
    weft_text_encoder_spec spec[WEFT_MAX_TEXT_ENCODERS] = {0};
    json_t *own = NULL;
    const int count = weft_text_conditioning_needed(p->model.denoiser);
    WEFT_TRY(load_json(p->model.folder, "weft.json", &own));
    const json_t *lengths = json_object_get(own, "text_lengths");
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < count && status == WEFT_OK; i++) {
        const char *name = weft_text_conditioning_row(p->model.denoiser, i)->encoder;
        p->model.encoder_folder[i] = weft_path_join(p->model.folder, name);
        spec[i].folder = p->model.encoder_folder[i];
        spec[i].length = json_integer_value(json_array_get(lengths, (size_t)i));
        status = spec[i].folder
                     ? weft_model_open_as(spec[i].folder, WEFT_ROLE_TEXT_ENCODER, &spec[i].model)
                     : weft_no_memory("a path");
    }
    json_decref(own);
    if (status == WEFT_OK)
        status = weft_text_conditioning_open(p->model.denoiser, spec, count, p->model.folder,
                                             &p->model.text);
    if (status == WEFT_OK)
        status = weft_tokenizer_set_open(&p->model.text, &p->model.tokenizers);
    return status == WEFT_E_CONFIG ? WEFT_E_FORMAT : status;
}

/* Checks that height and width are multiples of the VAE's compression times the denoiser's
 * patch. */
static weft_status check_pixels(const weft_generator *p, const int64_t size[2])
{
    for (int i = 0; i < 2; i++) {
        const int64_t step = p->model.grid.factor[1 + i] * p->model.patch.factor[1 + i];
        const int64_t nearest = (size[i] + step / 2) / step * step;
        if (size[i] % step)
            return weft_error(WEFT_MSG_VIDEO_SIZE,
                              WEFT_AT(.key = i ? "--width" : "--height", WEFT_NUMBER(size[i])),
                              "%" PRId64 " is not a multiple of %" PRId64
                              ", which this model needs; the nearest is %" PRId64,
                              size[i], step, nearest ? nearest : step);
    }
    return WEFT_OK;
}

static weft_status check_frames(const weft_generator *p, const char *option, int64_t frames)
{
    char rule[32];
    if (weft_grid_takes_frames(&p->model.grid, frames))
        return weft_grid_check_statistics(&p->model.grid,
                                          weft_grid_latent_frames(&p->model.grid, frames),
                                          WEFT_AT(.file = p->model.vae_folder));
    return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = option, WEFT_NUMBER(frames)),
                      "this model generates %s frames, not %" PRId64 "; the nearest is %" PRId64,
                      weft_grid_rule(&p->model.grid, rule), frames,
                      weft_grid_nearest_frames(&p->model.grid, frames));
}

weft_status weft_generator_check_size(const weft_generator *p, const int64_t size[3])
{
    if (!p->shape.longest ||
        size[0] <= p->shape.longest) /* the last of several windows is cropped */
        WEFT_TRY(check_frames(p, "--frames", size[0]));
    return check_pixels(p, size + 1);
}

/* Video continuation: sets the options to those of one window. */
static weft_status arrange_continuation(weft_generator *p)
{
    weft_generator_options *o = &p->options;
    if (!o->continues)
        return WEFT_OK;
    if (!o->window)
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--window"),
                          "--window-mode continue needs the frames of a window. Give --window N.");
    p->shape.longest = o->window;
    if (o->frames > o->window) {
        WEFT_TRY(check_frames(p, "--window", o->window));
        o->frames = o->window;
        o->visual.prefix_frames = o->window_overlap ? o->window_overlap : 1;
    }
    o->window = o->window_overlap = 0;
    return WEFT_OK;
}

static weft_status check_sizes(weft_generator *p)
{
    enum { OWN = 10 };
    weft_port ports[OWN + WEFT_MAX_CONDITIONING] = {
        WEFT_PORT_LATENTS, WEFT_PORT_TIMESTEP, WEFT_PORT_GUIDANCE, WEFT_PORT_IMAGE,
        WEFT_PORT_FPS,     WEFT_PORT_HEIGHT,   WEFT_PORT_WIDTH,    WEFT_PORT_OFFSET,
        WEFT_PORT_SPACING, WEFT_PORT_CONDITION};
    for (int i = 0; i < p->model.text.entries; i++)
        ports[OWN + i] = p->model.text.entry[i].port;
    WEFT_TRY(weft_model_accepts(p->model.denoiser, ports, OWN + p->model.text.entries, "generate"));
    p->shape.latent[0] = weft_grid_latent_frames(&p->model.grid, p->options.frames);
    p->shape.before = (p->model.patch.factor[0] - p->shape.latent[0] % p->model.patch.factor[0]) %
                      p->model.patch.factor[0];
    p->shape.lead = p->model.published ? weft_model_takes_port(p->model.denoiser).lead : 0;
    if (p->shape.lead && p->options.continues)
        return weft_error(
            WEFT_MSG_MODEL_INPUT_UNSUPPORTED, WEFT_AT(.key = "--window-mode", .value = "continue"),
            "videos of this %s begin %" PRId64
            " frames after the given frame, so windows cannot continue "
            "each other. Use --window-mode blend for longer videos.",
            weft_model_class(p->model.denoiser), p->shape.lead * p->model.grid.factor[0]);
    if (p->shape.before && p->options.visual.prefix_frames)
        return weft_error(
            WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--window", WEFT_NUMBER(p->options.frames)),
            "windows that continue each other need whole tokens of %" PRId64 " latent "
            "frames, and %" PRId64 " frames are not; the nearest is %" PRId64,
            p->model.patch.factor[0], p->options.frames,
            weft_grid_frames(&p->model.grid, p->shape.latent[0] + p->shape.before));
    p->shape.latent[0] += p->shape.before + p->shape.lead;
    p->shape.latent[1] = p->options.height / p->model.grid.factor[1];
    p->shape.latent[2] = p->options.width / p->model.grid.factor[2];
    const int64_t denoised = weft_model_denoised(p->model.denoiser);
    if (p->model.grid.channels != denoised ||
        (p->model.patch.out_channels != denoised && p->model.patch.out_channels != 2 * denoised))
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = p->model.folder),
                          "the VAE has %" PRId64
                          " latent channels, but the transformer takes %" PRId64
                          " and returns %" PRId64,
                          p->model.grid.channels, denoised, p->model.patch.out_channels);
    p->shape.latent_floats =
        p->shape.latent[0] * p->shape.latent[1] * p->shape.latent[2] * p->model.grid.channels;
    return WEFT_OK;
}

/* Converts temporal windows from frames of the video to latent frames. */
static weft_status lay_windows(weft_generator *p)
{
    weft_generator_options *o = &p->options;
    const int64_t f = p->model.grid.factor[0];
    char rule[32];
    weft_grid grid =
        p->model.grid; /* windows split latents; groups apply to the whole video only */
    grid.group = 0;
    p->shape.windows = weft_temporal_windows_arrange(p->shape.latent[0], p->shape.latent[0], 0);
    if (!o->window && o->window_overlap)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                          WEFT_AT(.key = "--window-overlap", WEFT_NUMBER(o->window_overlap)),
                          "%" PRId64 " has no effect without windows. Give --window N.",
                          o->window_overlap);
    if (!o->window)
        return WEFT_OK;
    const int64_t window = weft_grid_latent_frames(&grid, o->window),
                  patch = p->model.patch.factor[0],
                  nearest = ((window > 2 ? window : 2) + patch - 1) / patch * patch;
    if (!weft_grid_takes_frames(&grid, o->window) || window % patch)
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--window", WEFT_NUMBER(o->window)),
                          "this model generates %s frames%s, not %" PRId64
                          "; the nearest is %" PRId64,
                          weft_grid_rule(&grid, rule), patch > 1 ? " in whole tokens" : "",
                          o->window, weft_grid_frames(&grid, nearest));
    if (!o->window_overlap && window >= p->shape.latent[0])
        return WEFT_OK;
    if (window == 1)
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--window", WEFT_NUMBER(o->window)),
                          "%" PRId64 " is one latent frame, and windows of one latent frame cannot "
                          "overlap; use at least %" PRId64,
                          o->window, weft_grid_frames(&grid, 2));
    if (!o->window_overlap)
        o->window_overlap = (window + 3) / 4 * f;
    if (o->window_overlap % f || o->window_overlap / f >= window)
        return weft_error(WEFT_MSG_VIDEO_SIZE,
                          WEFT_AT(.key = "--window-overlap", WEFT_NUMBER(o->window_overlap)),
                          "windows of %" PRId64 " frames share a multiple of %" PRId64
                          " frames, at most %" PRId64 ", not %" PRId64,
                          o->window, f, (window - 1) * f, o->window_overlap);
    p->shape.windows =
        weft_temporal_windows_arrange(p->shape.latent[0], window, o->window_overlap / f);
    return WEFT_OK;
}

weft_status weft_generator_share(weft_comm *comm, int64_t *bytes)
{
    typedef struct share {
        uint64_t machine; /* hash of its host name */
        int64_t free;
    } share;
    if (*bytes)
        return WEFT_OK;
    const int ranks = comm ? weft_comm_ranks(comm) : 1;
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    share own = {XXH3_64bits(name, strlen(name)), weft_memory_available()};
    share *all;
    WEFT_TRY(WEFT_NEW(all, ranks, "the model"));
    all[0] = own;
    const weft_status_code status =
        comm ? weft_comm_all_gather(comm, &own, sizeof own, all) : WEFT_OK;
    int64_t least = INT64_MAX;
    for (int i = 0; i < ranks && status == WEFT_OK; i++) {
        int local_ranks = 0;
        for (int k = 0; k < ranks; k++)
            local_ranks += all[k].machine == all[i].machine;
        const int64_t each = all[i].free / local_ranks;
        least = each < least ? each : least;
    }
    *bytes = least;
    weft_free(all);
    return status;
}

/* Opens the visual and identity conditioning, and determines the first step to run on a given
 * video. */
static weft_status open_visual(weft_generator *p)
{
    weft_generator_options *o = &p->options;
    json_t *index = NULL;
    WEFT_TRY(load_json(p->model.folder, "model_index.json", &index));
    p->inputs.setup.trained |= json_is_true(json_object_get(index, "expand_timesteps"));
    json_decref(index);
    p->inputs.setup.folder = p->model.folder;
    p->inputs.setup.silent = p->comm && weft_comm_rank(p->comm) != 0;
    p->inputs.setup.vae_folder = p->model.vae_folder;
    p->inputs.setup.published = p->model.published;
    p->inputs.setup.vision_side = weft_text_conditioning_image_side(&p->model.text);
    p->inputs.setup.denoiser = p->model.denoiser;
    p->inputs.setup.grid = &p->model.grid;
    p->inputs.setup.frames =
        o->frames + (p->shape.before + p->shape.lead) * p->model.grid.factor[0];
    p->inputs.setup.height = o->height;
    p->inputs.setup.width = o->width;
    p->inputs.setup.tile = o->tile;
    p->inputs.setup.memory = o->memory;
    p->inputs.setup.offload_dir = weft_generator_away(p);
    WEFT_TRY(weft_visual_condition_open(&o->visual, &p->inputs.setup, &p->inputs.visual));
    WEFT_TRY(weft_identity_condition_open(&o->identity, &p->inputs.setup, o->visual.fit,
                                          &p->inputs.identity));
    if (o->strength > 0 && !o->visual.video)
        return weft_error(
            WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--strength", WEFT_NUMBER(o->strength)),
            "%g has no effect without a source. Give a video with --video FILE.", o->strength);
    if (!o->visual.video)
        return WEFT_OK;
    if (p->shape.before + p->shape.lead)
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--frames", WEFT_NUMBER(o->frames)),
                          "with --video this model needs whole tokens of %" PRId64
                          " latent frames, and "
                          "%" PRId64 " frames are not; use %" PRId64,
                          p->model.patch.factor[0], o->frames,
                          weft_grid_frames(&p->model.grid, p->shape.latent[0]));
    const int64_t *around = o->visual.outpaint;
    const bool painted = o->visual.mask || around[0] || around[1] || around[2] || around[3];
    if (!(o->strength > 0))
        o->strength = painted ? 1 : 0.8;
    const int64_t taken = (int64_t)((double)o->steps * o->strength + 1e-9);
    if (taken < 1)
        return weft_error(WEFT_MSG_OPTION_INVALID,
                          WEFT_AT(.key = "--strength", WEFT_NUMBER(o->strength)),
                          "%g of %" PRId64 " steps is less than one step; use at least %g",
                          o->strength, o->steps, 1 / (double)o->steps);
    p->trajectory.skipped = o->steps - taken;
    return WEFT_OK;
}

/* Returns the guidance method of the family's pipeline, if the scale enables guidance. A distilled
 * model takes the scale as embedded guidance. */
static const weft_guidance *own_guidance(const weft_generator *p)
{
    const char *own = p->model.denoiser->family->guidance;
    if (own && p->options.guidance > 1)
        return weft_guidance_find(own);
    return weft_model_takes(p->model.denoiser, WEFT_PORT_GUIDANCE)
               ? weft_guidance_find("distilled")
               : weft_guidance_of(p->options.guidance);
}

/* Checks that the model and the noise levels support the guidance method. */
static weft_status check_guidance(const weft_generator *p)
{
    const weft_noise_path path = p->trajectory.scheduler.path;
    if (p->trajectory.guidance->takes_scale &&
        !weft_model_takes(p->model.denoiser, WEFT_PORT_GUIDANCE))
        return weft_error(
            WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
            WEFT_AT(.key = "--guidance-method", .value = p->trajectory.guidance->name),
            "%s has no input for the guidance scale of %s. Use cfg.",
            weft_model_class(p->model.denoiser), p->trajectory.guidance->name);
    if (p->options.boundary > 0 && (path == WEFT_PATH_EDM || path == WEFT_PATH_FLOW_EDM))
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                          WEFT_AT(.key = "--boundary-ratio", WEFT_NUMBER(p->options.boundary)),
                          "the noise levels of %s have no times from 0 to 1. Omit the option.",
                          p->trajectory.scheduler.kind->name);
    return WEFT_OK;
}

/* Reads the low-noise expert: a separate folder with the same sizes. */
static weft_status read_expert(weft_generator *p)
{
    json_t *index = NULL;
    double boundary;
    p->model.experts = 1;
    WEFT_TRY(check_whole(p, weft_generator_scopes[1]));
    p->model.denoiser_folder[1] = weft_path_join(p->model.folder, weft_generator_scopes[1]);
    WEFT_TRY(WEFT_ALLOCATED(p->model.denoiser_folder[1], "a path"));
    WEFT_TRY(load_json(p->model.folder, "model_index.json", &index));
    weft_status_code status =
        json_is_number(json_object_get(index, "boundary_ratio"))
            ? weft_json_get_f64_or(index, "boundary_ratio", "model_index.json", 0, &boundary)
            : WEFT_OK;
    const bool has_boundary = json_is_number(json_object_get(index, "boundary_ratio"));
    json_decref(index);
    WEFT_TRY(status);
    if (has_boundary && p->options.boundary == 0)
        p->options.boundary = boundary;
    if (p->options.guidance_low > 0 && !(p->options.boundary > 0))
        return weft_error(
            WEFT_MSG_OPTION_NO_EFFECT,
            WEFT_AT(.key = "--guidance-scale-2", WEFT_NUMBER(p->options.guidance_low)),
            "%g has no effect without a boundary. Give --boundary-ratio B (0..1), or omit the "
            "option.",
            p->options.guidance_low);
    if (!weft_path_is_dir(p->model.denoiser_folder[1]))
        return WEFT_OK;
    WEFT_TRY(
        weft_model_open_as(p->model.denoiser_folder[1], WEFT_ROLE_DENOISER, &p->model.denoiser[1]));
    if (p->options.boundary <= 0)
        return weft_error(WEFT_MSG_OPTION_REQUIRED,
                          WEFT_AT(.file = p->model.folder, .key = "--boundary-ratio"),
                          "the model has a transformer_2, and its model_index.json has no "
                          "\"boundary_ratio\", the time below which transformer_2 is used. Give "
                          "--boundary-ratio (Wan 2.2: 0.875 for text, 0.9 for images).");
    if (p->model.denoiser[1].family != p->model.denoiser->family ||
        memcmp(p->model.denoiser[1].config, p->model.denoiser->config,
               p->model.denoiser->family->config_bytes) != 0)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT(.file = p->model.folder, .key = "transformer_2"),
                          "the config differs from the config of transformer; the two experts of a "
                          "model must be alike");
    p->model.experts = 2;
    return WEFT_OK;
}

weft_status weft_generator_read(weft_generator *p)
{
    weft_model vae;
    WEFT_TRY(check_folder(p->model.folder));
    WEFT_TRY(weft_model_open_in(p->model.folder, WEFT_ROLE_DENOISER, p->model.denoiser_folder,
                                p->model.denoiser));
    WEFT_TRY(read_expert(p));
    WEFT_TRY(open_text(p));
    WEFT_TRY(
        weft_model_open_in(p->model.folder, WEFT_ROLE_AUTOENCODER, &p->model.vae_folder, &vae));
    WEFT_TRY(weft_key_mapping_statistics(p->model.vae_folder, &vae));
    p->model.patch = weft_model_grid(p->model.denoiser);
    p->model.grid = weft_model_grid(&vae);
    WEFT_TRY(read_scheduler(p));
    WEFT_TRY(read_settings(p));
    WEFT_TRY(arrange_continuation(p));
    const int64_t size[3] = {p->options.frames, p->options.height, p->options.width};
    WEFT_TRY(weft_generator_check_size(p, size));
    WEFT_TRY(check_sizes(p));
    WEFT_TRY(lay_windows(p));
    WEFT_TRY(weft_generator_share(p->comm, &p->options.memory));
    WEFT_TRY(open_visual(p));
    p->trajectory.guidance =
        p->options.guidance_method ? p->options.guidance_method : own_guidance(p);
    WEFT_TRY(check_guidance(p));
    p->shape.rows = p->options.batch * p->trajectory.guidance->rows;
    return WEFT_OK;
}
