#include "base/fs.h"
#include "base/hash.h"
#include "generate/generator_parts.h"
#include "model/dialect.h"

#include <string.h>
#include <unistd.h>

const char *const weft_generator_scopes[2] = {"transformer", "transformer_2"};

static weft_status load_json(const char *folder, const char *name, json_t **json)
{
    char *path = weft_path_join(folder, name);
    if (!path)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_status_code status = WEFT_OK;
    if (weft_path_exists(path))
        status = weft_json_load(path, json);
    weft_free(path);
    return status;
}

/* The option, in the place of the file's shift. */
static weft_status take_shift(weft_generator *p)
{
    weft_scheduler *s = &p->scheduler;
    const bool straight = s->path == WEFT_PATH_FLOW;
    if (straight && p->options.shift > 0) {
        s->shift = p->options.shift;
        s->by_resolution = false;
    } else if (p->options.shift > 0) {
        return weft_fail(WEFT_E_ARG, "--shift: this model's noise levels (%s) have no shift",
                         s->kind->name);
    }
    p->options.shift = straight && !s->by_resolution ? s->shift : 0;
    return WEFT_OK;
}

/* A part that model_index.json names must be there: without it another film would come out. */
static weft_status check_whole(const weft_generator *p, const char *name)
{
    json_t *index = NULL;
    WEFT_TRY(load_json(p->folder, "model_index.json", &index));
    const bool named = json_is_string(json_array_get(json_object_get(index, name), 1));
    json_decref(index);
    if (!named)
        return WEFT_OK;
    char *path = weft_path_join(p->folder, name);
    if (!path)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a path");
    const bool there = weft_path_is_dir(path);
    weft_free(path);
    return there ? WEFT_OK
                 : weft_fail(WEFT_E_FORMAT,
                             "%s: model_index.json names \"%s\", and there is no such folder (an "
                             "incomplete download?); fetch it, or take the name out of the file to "
                             "generate without it",
                             p->folder, name);
}

/* How the model is sampled from; even flow levels where it has no scheduler. */
static weft_status read_scheduler(weft_generator *p)
{
    WEFT_TRY(check_whole(p, "scheduler"));
    char *path = weft_path_join(p->folder, "scheduler/scheduler_config.json");
    if (!path)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    const weft_status_code status =
        weft_path_exists(path)
            ? weft_scheduler_load(path, &p->scheduler)
            : weft_scheduler_of("FlowMatchEulerDiscreteScheduler", path, &p->scheduler);
    weft_free(path);
    WEFT_TRY(status);
    if (!p->options.sampler)
        p->options.sampler = p->scheduler.kind->sampler;
    if (p->options.eta > 0 && p->options.sampler != weft_sampler_find("ddim"))
        return weft_fail(WEFT_E_ARG,
                         "--eta %g: sampler %s adds no noise by it; --sampler ddim does, or leave "
                         "--eta out",
                         p->options.eta, p->options.sampler->name);
    p->scheduler.solver.eta = p->options.eta;
    return take_shift(p);
}

/* `runs/dit` for `runs/dit/model`. */
static weft_status explain_folder(const char *folder)
{
    char *own = weft_path_join(folder, "model_index.json");
    char *inside = weft_path_join(folder, "model");
    weft_status_code status = WEFT_OK;
    if (!own || !inside)
        status = weft_fail(WEFT_E_MEMORY, "out of memory");
    else if (!weft_path_exists(own) && weft_path_is_dir(inside))
        status = weft_fail(WEFT_E_NOT_FOUND, "%s is the folder of a training run; its model is %s",
                           folder, inside);
    weft_free(own);
    weft_free(inside);
    return status;
}

/* A folder of folders with a denoiser. */
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
        return weft_fail(WEFT_E_NOT_FOUND,
                         "%s: this model folder does not exist. `weft train` writes one as "
                         "<out>/model; published ones have the layout of diffusers.",
                         folder);
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
        status = weft_fail(WEFT_E_ARG,
                           "%s has no weft.json that says the size it was trained on: give "
                           "--frames, --height and --width",
                           folder);
    json_decref(own);
    return status;
}

/* Sizes and rate that the model was trained on. Public folders have no weft.json: then the options
 * must say the size. */
static weft_status read_settings(weft_generator *p)
{
    json_t *own = NULL;
    weft_generator_options *o = &p->options;
    int64_t size[3] = {o->frames, o->height, o->width};
    WEFT_TRY(weft_generator_size(p->folder, size));
    o->frames = size[0];
    o->height = size[1];
    o->width = size[2];
    WEFT_TRY(load_json(p->folder, "weft.json", &own));
    const double fps = p->denoiser_model->family->fps;
    const weft_status_code status =
        weft_json_get_f64_or(own, "fps", "weft.json", fps > 0 ? fps : 16, &p->fps);
    p->published = !own;
    const char *condition = json_string_value(json_object_get(own, "condition"));
    p->place.trained = p->place.zeros = condition && !strcmp(condition, "first_frame");
    json_decref(own);
    return status;
}

/* The text encoders in the folders that the denoiser's readings name, and the lengths of texts that
 * it was trained on. */
static weft_status read_captions(weft_generator *p)
{
    weft_reader_spec spec[WEFT_MAX_READERS] = {0};
    json_t *own = NULL;
    const int count = weft_captions_needed(p->denoiser_model);
    WEFT_TRY(load_json(p->folder, "weft.json", &own));
    const json_t *lengths = json_object_get(own, "text_lengths");
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < count && status == WEFT_OK; i++) {
        const char *name = weft_captions_reading(p->denoiser_model, i)->encoder;
        p->encoder_folder[i] = weft_path_join(p->folder, name);
        spec[i].folder = p->encoder_folder[i];
        spec[i].length = json_integer_value(json_array_get(lengths, (size_t)i));
        status = spec[i].folder
                     ? weft_model_open_as(spec[i].folder, WEFT_ROLE_TEXT_ENCODER, &spec[i].model)
                     : weft_fail(WEFT_E_MEMORY, "out of memory for a path");
    }
    json_decref(own);
    if (status == WEFT_OK)
        status = weft_captions_read(p->denoiser_model, spec, count, p->folder, &p->captions);
    if (status == WEFT_OK)
        status = weft_spelling_open(&p->captions, &p->spelling);
    return status == WEFT_E_CONFIG ? WEFT_E_FORMAT : status;
}

/* The autoencoder makes one latent place of so many pixels, the denoiser one token of a patch of
 * those. */
static weft_status check_pixels(const weft_generator *p, const int64_t size[2])
{
    for (int i = 0; i < 2; i++) {
        const int64_t step = p->grid.factor[1 + i] * p->patch.factor[1 + i];
        const int64_t nearest = (size[i] + step / 2) / step * step;
        if (size[i] % step)
            return weft_fail(WEFT_E_ARG,
                             "--%s %lld: this model makes multiples of %lld; the nearest is %lld",
                             i ? "width" : "height", (long long)size[i], (long long)step,
                             (long long)(nearest ? nearest : step));
    }
    return WEFT_OK;
}

static weft_status check_frames(const weft_generator *p, const char *option, int64_t frames)
{
    char rule[32];
    if (weft_grid_takes_frames(&p->grid, frames))
        return weft_grid_check_statistics(&p->grid, weft_grid_latent_frames(&p->grid, frames),
                                          p->vae_folder);
    return weft_fail(WEFT_E_ARG, "%s %lld: this model makes %s; the nearest is %lld", option,
                     (long long)frames, weft_grid_rule(&p->grid, rule),
                     (long long)weft_grid_nearest_frames(&p->grid, frames));
}

weft_status weft_generator_takes(const weft_generator *p, const int64_t size[3])
{
    if (!p->longest || size[0] <= p->longest) /* the last of several windows is cut */
        WEFT_TRY(check_frames(p, "--frames", size[0]));
    return check_pixels(p, size + 1);
}

/* A video of windows one behind the other: what is made here is one of them. */
static weft_status lay_relay(weft_generator *p)
{
    weft_generator_options *o = &p->options;
    if (!o->continues)
        return WEFT_OK;
    if (!o->window)
        return weft_fail(WEFT_E_ARG, "--windows continue: of how many frames? Give --window N");
    p->longest = o->window;
    if (o->frames > o->window) {
        WEFT_TRY(check_frames(p, "--window", o->window));
        o->frames = o->window;
        o->given.carry = o->window_overlap ? o->window_overlap : 1;
    }
    o->window = o->window_overlap = 0;
    return WEFT_OK;
}

static weft_status check_sizes(weft_generator *p)
{
    enum { OWN = 10 };
    weft_port given[OWN + WEFT_MAX_TOLD] = {
        WEFT_PORT_LATENTS, WEFT_PORT_TIMESTEP, WEFT_PORT_GUIDANCE, WEFT_PORT_IMAGE,
        WEFT_PORT_FPS,     WEFT_PORT_HEIGHT,   WEFT_PORT_WIDTH,    WEFT_PORT_OFFSET,
        WEFT_PORT_SPACING, WEFT_PORT_CONDITION};
    for (int i = 0; i < p->captions.tolds; i++)
        given[OWN + i] = p->captions.told[i].port;
    WEFT_TRY(weft_model_accepts(p->denoiser_model, given, OWN + p->captions.tolds, "generate"));
    p->latent[0] = weft_grid_latent_frames(&p->grid, p->options.frames);
    p->before = (p->patch.factor[0] - p->latent[0] % p->patch.factor[0]) % p->patch.factor[0];
    p->lead = p->published ? weft_model_given(p->denoiser_model).lead : 0;
    if (p->lead && p->options.continues)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "--windows continue: videos of this %s begin %lld frames behind the one "
                         "that they are given, so windows do not go on from one another; --windows "
                         "blend makes longer videos",
                         weft_model_class(p->denoiser_model),
                         (long long)(p->lead * p->grid.factor[0]));
    if (p->before && p->options.given.carry)
        return weft_fail(WEFT_E_ARG,
                         "--window %lld: of windows that go on from one another this model makes "
                         "whole tokens of %lld latent frames; %lld frames are such",
                         (long long)p->options.frames, (long long)p->patch.factor[0],
                         (long long)weft_grid_frames(&p->grid, p->latent[0] + p->before));
    p->latent[0] += p->before + p->lead;
    p->latent[1] = p->options.height / p->grid.factor[1];
    p->latent[2] = p->options.width / p->grid.factor[2];
    const int64_t denoised = weft_model_denoised(p->denoiser_model);
    if (p->grid.channels != denoised ||
        (p->patch.out_channels != denoised && p->patch.out_channels != 2 * denoised))
        return weft_fail(
            WEFT_E_FORMAT,
            "%s: the VAE has %lld latent channels, the transformer takes %lld and gives %lld",
            p->folder, (long long)p->grid.channels, (long long)denoised,
            (long long)p->patch.out_channels);
    p->latent_floats = p->latent[0] * p->latent[1] * p->latent[2] * p->grid.channels;
    return WEFT_OK;
}

/* Windows in frames of the video to those of latents. */
static weft_status lay_windows(weft_generator *p)
{
    weft_generator_options *o = &p->options;
    const int64_t f = p->grid.factor[0];
    char rule[32];
    weft_grid grid = p->grid; /* windows are cut from latents, and groups only of the whole */
    grid.group = 0;
    p->windows = weft_windows_lay(p->latent[0], p->latent[0], 0);
    if (!o->window && o->window_overlap)
        return weft_fail(WEFT_E_ARG, "--window-overlap %lld: of which windows? Give --window N",
                         (long long)o->window_overlap);
    if (!o->window)
        return WEFT_OK;
    const int64_t window = weft_grid_latent_frames(&grid, o->window), patch = p->patch.factor[0],
                  nearest = ((window > 2 ? window : 2) + patch - 1) / patch * patch;
    if (!weft_grid_takes_frames(&grid, o->window) || window % patch)
        return weft_fail(
            WEFT_E_ARG, "--window %lld: this model makes %s frames%s; the nearest is %lld",
            (long long)o->window, weft_grid_rule(&grid, rule), patch > 1 ? " in whole tokens" : "",
            (long long)weft_grid_frames(&grid, nearest));
    if (!o->window_overlap && window >= p->latent[0])
        return WEFT_OK;
    if (window == 1)
        return weft_fail(WEFT_E_ARG,
                         "--window %lld: windows of one latent frame share none; at least %lld",
                         (long long)o->window, (long long)weft_grid_frames(&grid, 2));
    if (!o->window_overlap)
        o->window_overlap = (window + 3) / 4 * f;
    if (o->window_overlap % f || o->window_overlap / f >= window)
        return weft_fail(WEFT_E_ARG,
                         "--window-overlap %lld: windows of %lld frames share a multiple of %lld "
                         "frames, at most %lld",
                         (long long)o->window_overlap, (long long)o->window, (long long)f,
                         (long long)((window - 1) * f));
    p->windows = weft_windows_lay(p->latent[0], window, o->window_overlap / f);
    return WEFT_OK;
}

weft_status weft_generator_share(weft_comm *comm, int64_t *bytes)
{
    typedef struct share {
        uint64_t machine; /* its name */
        int64_t free;
    } share;
    if (*bytes)
        return WEFT_OK;
    const int ranks = comm ? weft_comm_ranks(comm) : 1;
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    share own = {XXH3_64bits(name, strlen(name)), weft_memory_available()};
    share *all = weft_alloc(ranks * (int64_t)sizeof *all);
    if (!all)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    all[0] = own;
    const weft_status_code status =
        comm ? weft_comm_all_gather(comm, &own, sizeof own, all) : WEFT_OK;
    int64_t least = INT64_MAX;
    for (int i = 0; i < ranks && status == WEFT_OK; i++) {
        int beside = 0;
        for (int k = 0; k < ranks; k++)
            beside += all[k].machine == all[i].machine;
        const int64_t each = all[i].free / beside;
        least = each < least ? each : least;
    }
    *bytes = least;
    weft_free(all);
    return status;
}

/* What is given, and from which step on the video is made over. */
static weft_status open_given(weft_generator *p)
{
    weft_generator_options *o = &p->options;
    json_t *index = NULL;
    WEFT_TRY(load_json(p->folder, "model_index.json", &index));
    p->place.trained |= json_is_true(json_object_get(index, "expand_timesteps"));
    json_decref(index);
    p->place.folder = p->folder;
    p->place.silent = p->comm && weft_comm_rank(p->comm) != 0;
    p->place.vae_folder = p->vae_folder;
    p->place.published = p->published;
    p->place.picture = weft_captions_picture(&p->captions);
    p->place.denoiser = p->denoiser_model;
    p->place.grid = &p->grid;
    p->place.frames = o->frames + (p->before + p->lead) * p->grid.factor[0];
    p->place.height = o->height;
    p->place.width = o->width;
    p->place.tile = o->tile;
    p->place.memory = o->memory;
    p->place.away = weft_generator_away(p);
    WEFT_TRY(weft_given_open(&o->given, &p->place, &p->given));
    WEFT_TRY(weft_likeness_open(&o->likeness, &p->place, o->given.fit, &p->likeness));
    if (o->strength > 0 && !o->given.video)
        return weft_fail(WEFT_E_ARG, "--strength %g: of which video? Give it as --video FILE",
                         o->strength);
    if (!o->given.video)
        return WEFT_OK;
    if (p->before + p->lead)
        return weft_fail(WEFT_E_ARG,
                         "--frames %lld: over a video this model makes whole tokens of %lld latent "
                         "frames; %lld frames are such",
                         (long long)o->frames, (long long)p->patch.factor[0],
                         (long long)weft_grid_frames(&p->grid, p->latent[0]));
    const int64_t *around = o->given.outpaint;
    const bool painted = o->given.mask || around[0] || around[1] || around[2] || around[3];
    if (!(o->strength > 0))
        o->strength = painted ? 1 : 0.8;
    const int64_t taken = (int64_t)((double)o->steps * o->strength + 1e-9);
    if (taken < 1)
        return weft_fail(WEFT_E_ARG, "--strength %g of --steps %lld is no step at all; at least %g",
                         o->strength, (long long)o->steps, 1 / (double)o->steps);
    p->skipped = o->steps - taken;
    return WEFT_OK;
}

/* That of its pipeline, where the scale is one that it guides by; what was distilled is told it. */
static const weft_guidance *own_guidance(const weft_generator *p)
{
    const char *own = p->denoiser_model->family->guidance;
    if (own && p->options.guidance > 1)
        return weft_guidance_find(own);
    return weft_model_takes(p->denoiser_model, WEFT_PORT_GUIDANCE)
               ? weft_guidance_find("distilled")
               : weft_guidance_of(p->options.guidance);
}

/* What the guidance needs of the model, and of the levels. */
static weft_status check_guidance(const weft_generator *p)
{
    const weft_noise_path path = p->scheduler.path;
    if (p->guidance->told && !weft_model_takes(p->denoiser_model, WEFT_PORT_GUIDANCE))
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "--guide %s: %s has no input for a guidance scale; use cfg",
                         p->guidance->name, weft_model_class(p->denoiser_model));
    if (p->options.boundary > 0 && (path == WEFT_PATH_EDM || path == WEFT_PATH_FLOW_EDM))
        return weft_fail(WEFT_E_ARG, "--boundary: the noise levels of %s have no times from 0 to 1",
                         p->scheduler.kind->name);
    return WEFT_OK;
}

/* The expert of low noise stands in a folder of its own, with the same sizes. */
static weft_status read_expert(weft_generator *p)
{
    json_t *index = NULL;
    double boundary;
    p->experts = 1;
    WEFT_TRY(check_whole(p, weft_generator_scopes[1]));
    p->denoiser_folder[1] = weft_path_join(p->folder, weft_generator_scopes[1]);
    if (!p->denoiser_folder[1])
        return weft_fail(WEFT_E_MEMORY, "out of memory for a path");
    WEFT_TRY(load_json(p->folder, "model_index.json", &index));
    weft_status_code status =
        json_is_number(json_object_get(index, "boundary_ratio"))
            ? weft_json_get_f64_or(index, "boundary_ratio", "model_index.json", 0, &boundary)
            : WEFT_OK;
    const bool told = json_is_number(json_object_get(index, "boundary_ratio"));
    json_decref(index);
    WEFT_TRY(status);
    if (told && p->options.boundary == 0)
        p->options.boundary = boundary;
    if (p->options.guidance_low > 0 && !(p->options.boundary > 0))
        return weft_fail(WEFT_E_ARG,
                         "--guidance-low %g: below which part of the times? Give --boundary B "
                         "(0..1), or leave it out",
                         p->options.guidance_low);
    if (!weft_path_is_dir(p->denoiser_folder[1]))
        return WEFT_OK;
    WEFT_TRY(weft_model_open_as(p->denoiser_folder[1], WEFT_ROLE_DENOISER, &p->denoiser_model[1]));
    if (p->options.boundary <= 0)
        return weft_fail(WEFT_E_ARG,
                         "%s: there is a transformer_2, and model_index.json has no "
                         "\"boundary_ratio\" that says below which part of the times it works; "
                         "give --boundary (Wan 2.2: 0.875 for text, 0.9 for images)",
                         p->folder);
    if (p->denoiser_model[1].family != p->denoiser_model->family ||
        memcmp(p->denoiser_model[1].config, p->denoiser_model->config,
               p->denoiser_model->family->config_bytes) != 0)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: transformer_2 has another config than transformer; the two experts "
                         "of a model are alike",
                         p->folder);
    p->experts = 2;
    return WEFT_OK;
}

weft_status weft_generator_read(weft_generator *p)
{
    weft_model vae;
    WEFT_TRY(check_folder(p->folder));
    WEFT_TRY(
        weft_model_open_in(p->folder, WEFT_ROLE_DENOISER, p->denoiser_folder, p->denoiser_model));
    WEFT_TRY(read_expert(p));
    WEFT_TRY(read_captions(p));
    WEFT_TRY(weft_model_open_in(p->folder, WEFT_ROLE_AUTOENCODER, &p->vae_folder, &vae));
    WEFT_TRY(weft_dialect_statistics(p->vae_folder, &vae));
    p->patch = weft_model_grid(p->denoiser_model);
    p->grid = weft_model_grid(&vae);
    WEFT_TRY(read_scheduler(p));
    WEFT_TRY(read_settings(p));
    WEFT_TRY(lay_relay(p));
    const int64_t size[3] = {p->options.frames, p->options.height, p->options.width};
    WEFT_TRY(weft_generator_takes(p, size));
    WEFT_TRY(check_sizes(p));
    WEFT_TRY(lay_windows(p));
    WEFT_TRY(weft_generator_share(p->comm, &p->options.memory));
    WEFT_TRY(open_given(p));
    p->guidance = p->options.guide ? p->options.guide : own_guidance(p);
    WEFT_TRY(check_guidance(p));
    p->rows = p->options.batch * p->guidance->rows;
    return WEFT_OK;
}
