#include "generate/generator.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "generate/windows.h"
#include "model/dialect.h"
#include "prompt/captions.h"
#include "runtime/part.h"
#include "runtime/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A graph as this rank runs it. `graph` is the whole one, `own` the rank's (the same when there is
 * one rank). */
typedef struct part {
    weft_graph *graph, *own;
    weft_program *program;
} part;

struct weft_generator {
    weft_generator_options options;
    char *folder;
    weft_comm *comm; /* borrowed; NULL: one rank */
    weft_mesh mesh;
    weft_recipe recipe; /* how the denoiser is split, and by the same names the encoder */
    /* one denoiser, or an expert of high noise and one of low */
    int experts;
    weft_model denoiser_model[2];
    weft_captions captions;
    weft_spelling spelling;
    char *denoiser_folder[2], *encoder_folder[WEFT_MAX_READERS], *vae_folder;
    weft_grid patch; /* latents to tokens */
    weft_grid grid;  /* pixels to latents */
    weft_scheduler scheduler;
    const weft_guidance *guidance;
    double fps;
    bool published;         /* no weft.json: told what its pipeline tells it */
    weft_given_place place; /* of what is given; its pointers are into this */
    weft_given given;
    weft_windows windows;        /* over latent frames */
    int64_t latent[3];           /* frames, height, width */
    int64_t skipped;             /* steps before the one that a video begins at */
    int64_t latent_floats, rows; /* rows: of the denoising batch, prompts x halves */
    weft_store *store;
    part encoder[WEFT_MAX_READERS], denoiser[2];
    float *noise; /* (noises, latents) to begin with; NULL: seeds' */
    int64_t noises;
    weft_vae *vae;
    weft_leg *leg; /* [steps] */
    /* x, other (batch,...): what is denoised, and what is said without the prompt; context (rows,
     * told of a prompt) */
    float *x, *work, *other, *context;
};

/* ---- reading the folder -------------------------------------------------------------------- */

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
    p->scheduler.solver.eta = p->options.eta;
    return take_shift(p);
}

/* Sizes and rate that the model was trained on. Public folders have no weft.json: then the options
 * must say the size. */
static weft_status read_settings(weft_generator *p)
{
    json_t *own = NULL;
    weft_generator_options *o = &p->options;
    weft_status_code status = load_json(p->folder, "weft.json", &own);
    int64_t frames, height, width;
    WEFT_GO(status);
    WEFT_GO(weft_json_get_i64_or(own, "frames", "weft.json", 0, &frames));
    WEFT_GO(weft_json_get_i64_or(own, "height", "weft.json", 0, &height));
    WEFT_GO(weft_json_get_i64_or(own, "width", "weft.json", 0, &width));
    const double fps = p->denoiser_model->family->fps;
    WEFT_GO(weft_json_get_f64_or(own, "fps", "weft.json", fps > 0 ? fps : 16, &p->fps));
    p->published = !own;
    const char *condition = json_string_value(json_object_get(own, "condition"));
    p->place.trained = p->place.zeros = condition && !strcmp(condition, "first_frame");
    o->frames = o->frames ? o->frames : frames;
    o->height = o->height ? o->height : height;
    o->width = o->width ? o->width : width;
    if (!o->frames || !o->height || !o->width)
        status = weft_fail(WEFT_E_ARG,
                           "%s has no weft.json that says the size it was trained on: give "
                           "--frames, --height and --width",
                           p->folder);
out:
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
static weft_status check_pixels(const weft_generator *p)
{
    const int64_t size[2] = {p->options.height, p->options.width};
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

static weft_status check_frames(const weft_generator *p)
{
    const int64_t t = p->grid.factor[0], before = p->grid.causal ? 1 : 0;
    char rule[32];
    if (weft_grid_takes_frames(&p->grid, p->options.frames))
        return weft_grid_check_statistics(
            &p->grid, weft_grid_latent_frames(&p->grid, p->options.frames), p->vae_folder);
    const int64_t latent = (p->options.frames - before + t / 2) / t + before;
    return weft_fail(WEFT_E_ARG, "--frames %lld: this model makes %s; the nearest is %lld",
                     (long long)p->options.frames, weft_grid_rule(&p->grid, rule),
                     (long long)weft_grid_frames(&p->grid, latent > 1 ? latent : 1));
}

/* Ports that are one number of a video, and which. */
static double number_of(const weft_generator *p, weft_port port)
{
    switch (port) {
    case WEFT_PORT_FPS: return p->options.fps > 0 ? p->options.fps : p->fps;
    case WEFT_PORT_HEIGHT: return (double)p->options.height;
    case WEFT_PORT_WIDTH: return (double)p->options.width;
    case WEFT_PORT_OFFSET: return 2; /* what CogVideoX 1.5 was trained with */
    default: return 0;
    }
}
static const weft_port numbers[] = {WEFT_PORT_FPS, WEFT_PORT_HEIGHT, WEFT_PORT_WIDTH,
                                    WEFT_PORT_OFFSET};

/* Models of published folders are told what their pipelines tell them, those that weft trained what
 * training told them. */
static bool is_told(const weft_generator *p, weft_port port)
{
    return weft_model_takes(p->denoiser_model, port) && (p->published || port == WEFT_PORT_OFFSET);
}

/* LTX is told its rate as the distance of frames in seconds. */
static bool told_spacing(const weft_generator *p)
{
    return p->options.fps > 0 && is_told(p, WEFT_PORT_SPACING);
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
    p->latent[1] = p->options.height / p->grid.factor[1];
    p->latent[2] = p->options.width / p->grid.factor[2];
    const int64_t denoised = weft_model_denoised(p->denoiser_model);
    if (p->grid.channels != denoised || denoised != p->patch.out_channels)
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
    p->windows = weft_windows_lay(p->latent[0], p->latent[0], 0);
    if (!o->window && o->window_overlap)
        return weft_fail(WEFT_E_ARG, "--window-overlap %lld: of which windows? Give --window N",
                         (long long)o->window_overlap);
    if (!o->window)
        return WEFT_OK;
    const int64_t window = weft_grid_latent_frames(&p->grid, o->window);
    if (!weft_grid_takes_frames(&p->grid, o->window) || window % p->patch.factor[0])
        return weft_fail(WEFT_E_ARG,
                         "--window %lld: this model makes %s frames; the nearest is %lld",
                         (long long)o->window, weft_grid_rule(&p->grid, rule),
                         (long long)weft_grid_frames(&p->grid, window > 1 ? window : 1));
    if (!o->window_overlap && window >= p->latent[0])
        return WEFT_OK;
    if (window == 1)
        return weft_fail(WEFT_E_ARG,
                         "--window %lld: windows of one latent frame share none; at least %lld",
                         (long long)o->window, (long long)weft_grid_frames(&p->grid, 2));
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

/* The ranks of a machine share what it has free; all ranks take the least share of any, and so the
 * same tiles. */
static weft_status settle_memory(weft_generator *p)
{
    typedef struct share {
        uint64_t machine; /* its name */
        int64_t free;
    } share;
    if (p->options.memory)
        return WEFT_OK;
    const int ranks = p->comm ? weft_comm_ranks(p->comm) : 1;
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    share own = {XXH3_64bits(name, strlen(name)), weft_memory_available()};
    share *all = weft_alloc(ranks * (int64_t)sizeof *all);
    if (!all)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    all[0] = own;
    const weft_status_code status =
        p->comm ? weft_comm_all_gather(p->comm, &own, sizeof own, all) : WEFT_OK;
    int64_t least = INT64_MAX;
    for (int i = 0; i < ranks && status == WEFT_OK; i++) {
        int beside = 0;
        for (int k = 0; k < ranks; k++)
            beside += all[k].machine == all[i].machine;
        const int64_t each = all[i].free / beside;
        least = each < least ? each : least;
    }
    p->options.memory = least;
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
    p->place.denoiser = p->denoiser_model;
    p->place.grid = &p->grid;
    p->place.frames = o->frames;
    p->place.height = o->height;
    p->place.width = o->width;
    p->place.tile = o->tile;
    p->place.memory = o->memory;
    WEFT_TRY(weft_given_open(&o->given, &p->place, &p->given));
    if (o->strength > 0 && !o->given.video)
        return weft_fail(WEFT_E_ARG, "--strength %g: of which video? Give it as --video FILE",
                         o->strength);
    if (!o->given.video)
        return WEFT_OK;
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
    const weft_path path = p->scheduler.path;
    if (p->guidance->told && !weft_model_takes(p->denoiser_model, WEFT_PORT_GUIDANCE))
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "--guide %s: %s has no input for a guidance scale; use cfg",
                         p->guidance->name, weft_model_class(p->denoiser_model));
    if (p->options.boundary > 0 && (path == WEFT_PATH_EDM || path == WEFT_PATH_FLOW_EDM))
        return weft_fail(WEFT_E_ARG, "--boundary: the noise levels of %s have no times from 0 to 1",
                         p->scheduler.kind->name);
    return WEFT_OK;
}

/* ---- graphs -------------------------------------------------------------------------------- */

/* The denoiser's recipe. What of it names nothing in the text encoder leaves that whole: ranks
 * along such an axis all encode the same few prompts. */
static weft_status lay_out(weft_generator *p)
{
    const weft_family *f = p->denoiser_model->family;
    const int ranks = p->comm ? weft_comm_ranks(p->comm) : 1;
    if (p->options.parallel)
        WEFT_TRY(weft_parallel_mesh_denoise(p->options.parallel, ranks, p->guidance->rows,
                                            "--parallel", &p->mesh));
    else
        p->mesh = (weft_mesh){.axis_count = 1, .axis = {{"dp", ranks}}};
    WEFT_TRY(weft_recipe_compose(f->recipe, f->recipes, &p->mesh, &p->recipe));
    for (int i = 0; i < p->recipe.count; i++)
        ((weft_recipe_row *)(uintptr_t)p->recipe.row)[i].optional = true;
    return WEFT_OK;
}

static weft_status finish_part(weft_generator *p, part *s)
{
    WEFT_TRY(weft_graph_check(s->graph));
    s->own = s->graph;
    const bool several = p->comm && weft_comm_ranks(p->comm) > 1;
    const weft_pass_setup setup = {.switches = p->options.passes,
                                   .mesh = several ? &p->mesh : NULL,
                                   .rank = several ? weft_comm_rank(p->comm) : 0,
                                   .recipe = &p->recipe};
    WEFT_TRY(weft_passes_run(WEFT_PASS_WHOLE, &setup, true, &s->own, NULL));
    WEFT_TRY(weft_passes_run(WEFT_PASS_RANK, &setup, s->own == s->graph, &s->own, NULL));
    const weft_program_options options = {.mesh = several ? &p->mesh : NULL,
                                          .no_views =
                                              p->options.passes && !p->options.passes->views};
    return weft_program_compile(s->own, &options, &s->program);
}

static weft_status keep_weights(const weft_generator *p, weft_graph *g, const char *folder)
{
    weft_dtype dtype = p->options.weights == WEFT_WEIGHTS_BF16 ? WEFT_BF16 : WEFT_F32;
    if (p->options.weights == WEFT_WEIGHTS_AS_STORED)
        WEFT_TRY(weft_weights_dtype(folder, &dtype));
    weft_graph_store_weights_as(g, dtype);
    return WEFT_OK;
}

static const char *const expert_scopes[2] = {"transformer", "transformer_2"};

/* The expert of low noise stands in a folder of its own, with the same sizes. */
static weft_status read_expert(weft_generator *p)
{
    json_t *index = NULL;
    double boundary;
    p->experts = 1;
    WEFT_TRY(check_whole(p, expert_scopes[1]));
    p->denoiser_folder[1] = weft_path_join(p->folder, expert_scopes[1]);
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

static weft_status begin_part(const weft_generator *p, const char *folder, part *s)
{
    s->graph = weft_graph_create();
    if (!s->graph)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a graph");
    return keep_weights(p, s->graph, folder);
}

/* Timesteps of a sample: one; where some frames are clean one for every token of a window, or
 * (Cosmos 2) for every frame. */
static int64_t times_of(const weft_generator *p)
{
    if (p->given.form == WEFT_GIVEN_CONDITION && p->scheduler.path == WEFT_PATH_FLOW_EDM)
        return p->windows.window / p->patch.factor[0];
    if (p->given.form != WEFT_GIVEN_TIMES)
        return 1;
    return p->windows.window / p->patch.factor[0] * (p->latent[1] / p->patch.factor[1]) *
           (p->latent[2] / p->patch.factor[2]);
}

static weft_status build_denoiser(weft_generator *p, int expert)
{
    weft_graph *d = p->denoiser[expert].graph;
    const weft_model *model = &p->denoiser_model[expert];
    const weft_model_size size = {.batch = p->rows,
                                  .frames = p->windows.window,
                                  .height = p->latent[1],
                                  .width = p->latent[2],
                                  .text = weft_captions_length(&p->captions),
                                  .image = p->given.image_tokens,
                                  .times = times_of(p)};
    weft_ports ports = weft_ports_none();
    ports.at[WEFT_PORT_LATENTS] = weft_model_input(d, model, &size, WEFT_PORT_LATENTS, "batch.");
    ports.at[WEFT_PORT_TIMESTEP] = weft_model_input(d, model, &size, WEFT_PORT_TIMESTEP, "batch.");
    if (weft_model_takes(model, WEFT_PORT_GUIDANCE))
        ports.at[WEFT_PORT_GUIDANCE] =
            weft_model_input(d, model, &size, WEFT_PORT_GUIDANCE, "batch.");
    static const weft_port given[] = {WEFT_PORT_IMAGE, WEFT_PORT_FRAME_MASK, WEFT_PORT_CONDITION};
    const bool has[] = {p->given.image_tokens > 0, p->given.form == WEFT_GIVEN_FRAMES,
                        p->given.form == WEFT_GIVEN_CONDITION};
    for (int i = 0; i < WEFT_COUNT(given); i++)
        if (has[i])
            ports.at[given[i]] = weft_model_input(d, model, &size, given[i], "batch.");
    for (int i = 0; i < WEFT_COUNT(numbers); i++)
        if (is_told(p, numbers[i]))
            ports.at[numbers[i]] = weft_model_input(d, model, &size, numbers[i], "batch.");
    if (told_spacing(p)) {
        const double fps = p->options.fps;
        const float step[3] = {(float)((double)p->grid.factor[0] / fps), (float)p->grid.factor[1],
                               (float)p->grid.factor[2]};
        ports.at[WEFT_PORT_SPACING] = weft_constant(d, WEFT_F32, WEFT_SHAPE(3), step);
    }
    weft_captions_given(d, &p->captions, model, &size, &ports);
    weft_graph_push(d, "%s", expert ? expert_scopes[1] : model->family->scope);
    weft_model_call(d, model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &ports);
    weft_graph_pop(d);
    weft_output(d, "prediction", ports.at[WEFT_PORT_PREDICTION]);
    return finish_part(p, &p->denoiser[expert]);
}

static weft_status build_parts(weft_generator *p)
{
    for (int i = 0; i < p->captions.readers; i++) {
        WEFT_TRY(begin_part(p, p->encoder_folder[i], &p->encoder[i]));
        weft_captions_build(p->encoder[i].graph, &p->captions, i, p->rows);
        WEFT_TRY(finish_part(p, &p->encoder[i]));
    }
    for (int i = 0; i < p->experts; i++) {
        WEFT_TRY(begin_part(p, p->denoiser_folder[i], &p->denoiser[i]));
        WEFT_TRY(build_denoiser(p, i));
    }
    return WEFT_OK;
}

static void part_free(part *s)
{
    weft_program_free(s->program);
    if (s->own != s->graph)
        weft_graph_free(s->own);
    weft_graph_free(s->graph);
}

static int64_t host_floats(const weft_generator *p)
{
    const int64_t all = p->options.batch * p->latent_floats;
    return 2 * all + weft_sampler_work(p->options.sampler, &p->scheduler.solver, all) +
           p->rows * p->captions.floats;
}

/* All of them, which run one at a time; how many. */
enum { MAX_PROGRAMS = 2 + WEFT_MAX_READERS };
static int programs_of(const weft_generator *p, weft_program *list[MAX_PROGRAMS])
{
    int count = 0;
    for (int i = 0; i < p->captions.readers; i++)
        list[count++] = p->encoder[i].program;
    for (int i = 0; i < p->experts; i++)
        list[count++] = p->denoiser[i].program;
    return count;
}

/* Of all but the VAE. */
static int64_t bytes_beside(const weft_generator *p)
{
    weft_program *programs[MAX_PROGRAMS];
    const int count = programs_of(p, programs);
    int64_t bytes = host_floats(p) * (int64_t)sizeof(float) + weft_programs_bytes(programs, count);
    for (int i = 0; i < count; i++)
        bytes += weft_program_plan(programs[i])->source_bytes;
    return bytes;
}

int64_t weft_generator_bytes(const weft_generator *p)
{
    const int64_t bytes = bytes_beside(p) + weft_vae_bytes(p->vae),
                  before = weft_given_work_bytes(&p->given);
    return weft_given_bytes(&p->given) + (bytes > before ? bytes : before);
}

const char *weft_generator_tiles(const weft_generator *p, char text[64])
{
    return weft_vae_tiles(p->vae, text);
}

/* Decoding must fit beside the rest before the first step is taken, not hours later. */
static weft_status open_vae(weft_generator *p)
{
    const weft_vae_options o = {.halves = WEFT_VAE_DECODER,
                                .frames = p->options.frames,
                                .height = p->options.height,
                                .width = p->options.width,
                                .tile = p->options.tile};
    const int64_t limit = p->options.memory, beside = bytes_beside(p) + weft_given_bytes(&p->given);
    char needs[32], has[32];
    weft_tile chosen;
    if (beside >= limit)
        return weft_fail(
            WEFT_E_MEMORY,
            "%s: transformer and text encoders take %s a rank, and there are %s; take "
            "fewer or smaller frames, --weights bf16, more ranks with --parallel fsdp, "
            "or say with --memory what may be taken",
            p->folder, weft_format_bytes(beside, needs), weft_format_bytes(limit, has));
    return weft_vae_open_within(p->vae_folder, &o, limit - beside, &p->vae, &chosen);
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

/* Of expert `i`, in the graphs. */
static const char *prefix_of(const weft_generator *p, int i, char prefix[64])
{
    snprintf(prefix, 64, "%s.", i ? expert_scopes[1] : p->denoiser_model->family->scope);
    return prefix;
}

static weft_status check_adapters(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    char prefix[64];
    for (int i = 0; i < o->adapter_count; i++)
        if (o->adapters[i].expert >= p->experts)
            return weft_fail(WEFT_E_ARG, "%s: an adapter for transformer_2, and %s has none",
                             o->adapters[i].path, p->folder);
    for (int i = 0; i < p->experts; i++)
        WEFT_TRY(weft_adapters_check(o->adapters, o->adapter_count, i, p->denoiser_model[i].family,
                                     p->denoiser[i].graph, prefix_of(p, i, prefix)));
    return WEFT_OK;
}

weft_status weft_generator_open(const char *folder, const weft_generator_options *options,
                                weft_comm *comm, weft_generator **generator)
{
    weft_generator *p = weft_alloc(sizeof *p);
    weft_model vae;
    weft_status_code status = WEFT_OK;
    if (!p) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory");
        goto out;
    }
    p->options = *options;
    p->comm = comm;
    p->folder = weft_strdup(folder);
    p->store = weft_store_create();
    if (!p->folder || !p->store) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory");
        goto out;
    }
    if (!weft_path_is_dir(folder)) {
        status = weft_fail(
            WEFT_E_NOT_FOUND,
            "%s: there is no such model folder; weft train writes one as <out>/model", folder);
        goto out;
    }
    WEFT_GO(explain_folder(folder));
    WEFT_GO(weft_model_open_in(folder, WEFT_ROLE_DENOISER, p->denoiser_folder, p->denoiser_model));
    WEFT_GO(read_expert(p));
    WEFT_GO(read_captions(p));
    WEFT_GO(weft_model_open_in(folder, WEFT_ROLE_AUTOENCODER, &p->vae_folder, &vae));
    WEFT_GO(weft_dialect_statistics(p->vae_folder, &vae));
    p->patch = weft_model_grid(p->denoiser_model);
    p->grid = weft_model_grid(&vae);
    WEFT_GO(read_scheduler(p));
    WEFT_GO(read_settings(p));
    WEFT_GO(check_frames(p));
    WEFT_GO(check_pixels(p));
    WEFT_GO(check_sizes(p));
    WEFT_GO(lay_windows(p));
    WEFT_GO(settle_memory(p));
    WEFT_GO(open_given(p));
    p->guidance = p->options.guide ? p->options.guide : own_guidance(p);
    WEFT_GO(check_guidance(p));
    p->rows = p->options.batch * p->guidance->rows;
    WEFT_GO(lay_out(p));
    WEFT_GO(build_parts(p));
    WEFT_GO(open_vae(p));
    WEFT_GO(check_adapters(p));
    *generator = p;
    p = NULL;
out:
    weft_generator_free(p);
    return status;
}

void weft_generator_free(weft_generator *p)
{
    if (!p)
        return;
    for (int i = 0; i < WEFT_MAX_READERS; i++) {
        part_free(&p->encoder[i]);
        weft_free(p->encoder_folder[i]);
    }
    for (int i = 0; i < 2; i++) {
        part_free(&p->denoiser[i]);
        weft_free(p->denoiser_folder[i]);
    }
    weft_spelling_close(&p->spelling);
    weft_recipe_free(&p->recipe);
    weft_vae_free(p->vae);
    weft_store_free(p->store);
    weft_free(p->folder);
    weft_free(p->vae_folder);
    weft_free(p->leg);
    weft_free(p->x);
    weft_free(p->work);
    weft_free(p->other);
    weft_given_free(&p->given);
    weft_free(p->context);
    weft_free(p->noise);
    weft_free(p);
}

int64_t weft_generator_steps(const weft_generator *p)
{
    return p->options.steps - p->skipped;
}

/* Files of text encoders have more than the encoder (`partial`). */
static weft_status load_part(weft_generator *p, part *s, const weft_model *model, const char *scope,
                             const char *folder, bool partial)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.", scope);
    WEFT_TRY(weft_store_init(p->store, s->own, 0));
    weft_tensors *file;
    WEFT_TRY(weft_dialect_open(model->family, s->graph, prefix, folder, &file));
    return weft_weights_load(p->store, s->own, prefix, file, partial);
}

static weft_status load_expert(weft_generator *p, int i)
{
    const weft_generator_options *o = &p->options;
    const weft_family *family = p->denoiser_model[i].family;
    const char *scope = i ? expert_scopes[1] : p->denoiser_model->family->scope;
    const part *s = &p->denoiser[i];
    char prefix[64];
    WEFT_TRY(
        load_part(p, &p->denoiser[i], &p->denoiser_model[i], scope, p->denoiser_folder[i], false));
    return weft_adapters_load(o->adapters, o->adapter_count, i, family, s->graph, s->own,
                              prefix_of(p, i, prefix), p->store);
}

static int64_t tokens_of(const weft_generator *p)
{
    int64_t tokens = 1;
    for (int i = 0; i < 3; i++)
        tokens *= p->latent[i] / p->patch.factor[i];
    return tokens;
}

/* Level i of n: both halves meet with the same slope, and the last step ends at 0. */
static double quadratic_level(int64_t i, int64_t n)
{
    const double slow = 0.025; /* of the way, which the first half of the steps goes */
    const int64_t half = n / 2;
    if (i <= half)
        return half ? 1 - slow * (double)i / (double)half : 1;
    const double bend = (double)(i - half) / (double)(n - half),
                 rest = 1 - slow * (double)n / (double)half;
    return 1 - slow * (double)i / (double)half - rest * bend * bend;
}

/* The scheduler's own levels, or those that the family's pipeline gives it. */
static weft_status lay_levels(weft_generator *p)
{
    const int64_t steps = p->options.steps;
    const weft_own_levels levels =
        p->scheduler.path == WEFT_PATH_FLOW ? p->denoiser_model->family->levels : WEFT_LEVELS_NONE;
    weft_walk walk = {steps, NULL, weft_scheduler_mu(&p->scheduler, tokens_of(p))};
    double *sigma = levels ? weft_alloc(steps * (int64_t)sizeof *sigma) : NULL;
    if (levels && !sigma)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld levels", (long long)steps);
    for (int64_t i = 0; i < steps && levels; i++)
        sigma[i] = levels == WEFT_LEVELS_EVEN ? (double)(steps - i) / (double)steps
                                              : quadratic_level(i, steps);
    walk.sigma = sigma;
    const weft_status_code status = weft_scheduler_lay(&p->scheduler, &walk, p->leg);
    weft_free(sigma);
    return status;
}

weft_status weft_generator_bind(weft_generator *p)
{
    const int64_t all = p->options.batch * p->latent_floats;
    WEFT_TRY(weft_given_read(&p->given));
    p->leg = weft_alloc(p->options.steps * (int64_t)sizeof *p->leg);
    p->x = weft_alloc_aligned(all * 4);
    p->other = weft_alloc_aligned(all * 4);
    p->work =
        weft_alloc_aligned(weft_sampler_work(p->options.sampler, &p->scheduler.solver, all) * 4);
    p->context = weft_alloc_aligned(p->rows * p->captions.floats * 4);
    if (!p->leg || !p->x || !p->other || !p->work || !p->context)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld latents", (long long)all);
    WEFT_TRY(lay_levels(p));
    for (int i = 0; i < p->captions.readers; i++) {
        const weft_reader *reader = &p->captions.reader[i];
        WEFT_TRY(load_part(p, &p->encoder[i], &reader->model, reader->reading->encoder,
                           p->encoder_folder[i], reader->tokenizer[0] != 0));
    }
    for (int i = 0; i < p->experts; i++)
        WEFT_TRY(load_expert(p, i));
    weft_program *programs[MAX_PROGRAMS]; /* the results of each are copied at once */
    const int count = programs_of(p, programs);
    weft_group *group = NULL;
    if (p->comm)
        WEFT_TRY(weft_comm_world(p->comm, &group));
    WEFT_TRY(weft_programs_bind(programs, count, p->store, group));
    weft_vae_share(p->vae, group);
    return weft_vae_bind(p->vae);
}

const weft_generator_options *weft_generator_settings(const weft_generator *p)
{
    return &p->options;
}

void weft_generator_begin_with(weft_generator *p, float *noise, int64_t count)
{
    weft_free(p->noise);
    p->noise = noise;
    p->noises = count;
}

void weft_generator_latents(const weft_generator *p, int64_t dim[4])
{
    for (int i = 0; i < 3; i++)
        dim[i] = p->latent[i];
    dim[3] = p->grid.channels;
}

double weft_generator_fps(const weft_generator *p)
{
    return p->fps;
}

/* ---- running ------------------------------------------------------------------------------- */

/* Where this rank's rows of a part's batch begin. */
static int64_t own_rows(const part *s, const char *input, int64_t *first)
{
    const weft_tensor own = weft_tensor_of(s->own, weft_graph_find(s->own, input));
    *first = own.start[0];
    return own.shape.dim[0];
}

/* Rows 0..batch-1 are the prompts, rows batch.. what guidance leads away from. */
static weft_status encode_text(weft_generator *p, const char *const *prompts, int64_t count)
{
    for (int i = 0; i < p->captions.readers; i++) {
        weft_program *program = p->encoder[i].program;
        int64_t first;
        const int64_t rows =
            own_rows(&p->encoder[i],
                     i ? i > 1 ? "batch.tokens_3" : "batch.tokens_2" : "batch.tokens", &first);
        for (int64_t r = 0; r < rows; r++) {
            const int64_t row = first + r;
            const char *text = row >= p->options.batch ? p->options.negative
                               : row < count           ? prompts[row]
                                                       : NULL;
            WEFT_TRY(weft_captions_spell(&p->captions, &p->spelling, i, weft_captions_program_input,
                                         program, r, text ? text : ""));
        }
        WEFT_TRY(weft_program_run(program));
        weft_captions_take(&p->captions, i, program, p->rows, p->context);
    }
    return WEFT_OK;
}

/* What the model is told of rows of the batch that differ in their prompts alone. */
typedef struct asking {
    weft_program *program;
    const weft_level *level;
    int64_t frame; /* the window's first */
} asking;

/* Data of an input for row r; NULL: the program has none. */
static float *row_of(const asking *a, const char *input, int64_t r)
{
    const weft_tensor *t = weft_program_input(a->program, input);
    return t ? (float *)t->data + weft_shape_count(&t->shape) / t->shape.dim[0] * r : NULL;
}

/* Frames that are clean go into Cosmos scaled as almost clean ones, whatever the level; what it is
 * told of them is that level's time (the second's). */
static const double almost_clean = 0.001, almost_clean_time = 1e-4 / (1 + 1e-4);

static double clean_scale(const weft_generator *p)
{
    const double least = almost_clean, data = p->scheduler.sigma_data;
    return p->scheduler.path == WEFT_PATH_EDM ? 1 / sqrt(least * least + data * data) : 1;
}

/* The window of x, frames that are clean in their places, what follows behind it on channels. */
static void fill_latents(const weft_generator *p, const asking *a, const float *x, float *to)
{
    const weft_given *g = &p->given;
    const int64_t channels = p->grid.channels, area = p->latent[1] * p->latent[2],
                  cells = p->windows.window * area, first = a->frame * area;
    const double data = p->scheduler.path == WEFT_PATH_EDM ? p->scheduler.sigma_data : 1;
    const float clean = (float)(clean_scale(p) * data), in = (float)a->level->in;
    if (!g->behind && !g->clean) {
        memcpy(to, x + first * channels, (size_t)(cells * channels) * 4);
        for (int64_t i = 0; a->level->in != 1 && i < cells * channels; i++)
            to[i] *= in;
        return;
    }
    for (int64_t i = 0; i < cells; i++, to += channels + g->behind) {
        const int64_t cell = first + i;
        const bool is_clean = g->clean && g->clean[cell / area];
        for (int64_t c = 0; c < channels; c++)
            to[c] = is_clean ? clean * g->known[cell * channels + c] : in * x[cell * channels + c];
        if (g->behind)
            memcpy(to + channels, g->follow + cell * g->behind, (size_t)g->behind * 4);
    }
}

static void fill_times(const weft_generator *p, const asking *a, int64_t r)
{
    const int64_t times = times_of(p), tokens = times / (p->windows.window / p->patch.factor[0]);
    const float given = p->given.form == WEFT_GIVEN_CONDITION ? (float)almost_clean_time : 0;
    float *timestep = row_of(a, "batch.timestep", r);
    if (times == 1)
        *timestep = (float)a->level->time;
    for (int64_t i = 0; times > 1 && i < times; i++)
        timestep[i] = p->given.clean[a->frame + i / tokens * p->patch.factor[0]]
                          ? given
                          : (float)a->level->time;
}

/* Which frames are given, the image, rates and sizes. */
static void fill_given(const weft_generator *p, const asking *a, int64_t r)
{
    const weft_given *g = &p->given;
    const int64_t area = p->latent[1] * p->latent[2];
    char name[64];
    int32_t *mask = (int32_t *)row_of(a, "batch.frame_mask", r);
    float *condition = row_of(a, "batch.condition", r), *image = row_of(a, "batch.image", r);
    for (int64_t t = 0; mask && t < p->windows.window; t++)
        mask[t] = !g->clean[a->frame + t];
    for (int64_t i = 0; condition && i < p->windows.window * area; i++)
        condition[i] = g->clean[a->frame + i / area];
    if (image)
        memcpy(image, g->image, (size_t)(g->image_tokens * g->image_width) * 4);
    for (int i = 0; i < WEFT_COUNT(numbers); i++) {
        snprintf(name, sizeof name, "batch.%s", weft_port_name(numbers[i]));
        float *number = row_of(a, name, r);
        if (number)
            *number = (float)number_of(p, numbers[i]);
    }
}

static weft_status_code ask(weft_generator *p, const part *expert, const asking *a, const float *x)
{
    const int64_t batch = p->options.batch;
    int64_t first;
    const int64_t rows = own_rows(expert, "batch.latents", &first);
    for (int64_t r = 0; r < rows; r++) {
        fill_latents(p, a, x + (first + r) % batch * p->latent_floats,
                     row_of(a, "batch.latents", r));
        fill_times(p, a, r);
        fill_given(p, a, r);
        float *told = row_of(a, "batch.guidance", r);
        if (told)
            *told = (float)(1000 * p->options.guidance);
        weft_captions_give(&p->captions, weft_captions_program_input, a->program, r,
                           p->context + (first + r) * p->captions.floats);
    }
    return weft_program_run(a->program);
}

/* Adds what window i said of every video to `answer`: out (batch, window...). */
static void blend(const weft_generator *p, int64_t i, const float *out, float *answer)
{
    const weft_windows *w = &p->windows;
    const int64_t frame = p->latent_floats / p->latent[0], first = weft_windows_first(w, i);
    for (int64_t k = 0; k < p->options.batch * w->window; k++) {
        const int64_t at = first + k % w->window;
        const float share = (float)weft_windows_share(w, i, at);
        float *to = answer + k / w->window * p->latent_floats + at * frame;
        for (int64_t c = 0; c < frame; c++)
            to[c] += share * out[k * frame + c];
    }
}

/* Where something is kept, the answer by which it ends as it is known: so every sampler stays on
 * the line from its noise to it. */
static void keep_known(const weft_generator *p, const float *x, const weft_level *level,
                       float *answer)
{
    const weft_given *g = &p->given;
    const int64_t channels = p->grid.channels;
    const double data = p->scheduler.path == WEFT_PATH_EDM ? p->scheduler.sigma_data : 1;
    for (int64_t i = 0; i < p->options.batch * p->latent_floats; i++) {
        const int64_t at = i % p->latent_floats;
        if (g->keep[at / channels])
            answer[i] =
                (float)((data * (double)g->known[at] - level->skip * (double)x[i]) / level->out);
    }
}

static weft_status_code answer_at(weft_generator *p, const float *x, const weft_level *level,
                                  float *answer)
{
    const double time = level->time / (double)p->scheduler.times;
    const part *expert = &p->denoiser[p->experts > 1 && time < p->options.boundary];
    const int64_t all = p->options.batch * p->latent_floats;
    float *other = p->other;
    if (p->windows.count > 1) {
        memset(answer, 0, (size_t)all * 4);
        memset(other, 0, (size_t)all * 4);
    }
    for (int64_t i = 0; i < p->windows.count; i++) {
        const asking a = {expert->program, level, weft_windows_first(&p->windows, i)};
        WEFT_TRY(ask(p, expert, &a, x));
        float *out = weft_program_output(expert->program, "prediction")->data;
        const int64_t half = all / p->latent[0] * p->windows.window;
        if (p->windows.count > 1) {
            blend(p, i, out, answer);
            if (p->guidance->rows > 1)
                blend(p, i, out + half, other);
        } else {
            memcpy(answer, out, (size_t)all * 4);
            other = out + half;
        }
    }
    const weft_guiding guiding = {.scale = p->options.guidance,
                                  .low_scale = p->options.guidance_low > 0 ? p->options.guidance_low
                                                                           : p->options.guidance,
                                  .boundary = p->options.boundary,
                                  .rescale = p->options.guidance_rescale,
                                  .each = p->latent_floats,
                                  .time = time};
    if (p->guidance->combine)
        p->guidance->combine(&guiding, answer, other, all);
    if (p->given.keep && p->given.known)
        keep_known(p, x, level, answer);
    return WEFT_OK;
}

typedef struct run_state {
    weft_generator *generator;
    const weft_generator_sink *sink;
    const uint64_t *seeds; /* [count] */
    int64_t first, prompt, count;
} run_state;

static weft_status_code on_answer(void *user, int64_t step, const float *x, const weft_level *level,
                                  float *answer)
{
    (void)step;
    return answer_at(((run_state *)user)->generator, x, level, answer);
}

/* A function of the video's seed, the draw and the place in it: the same in any batch. */
static weft_status_code on_noise(void *user, int64_t draw, float *noise)
{
    const run_state *r = user;
    const int64_t each = r->generator->latent_floats, batch = r->generator->options.batch;
    for (int64_t i = 0; i < batch * each; i++) {
        const int64_t prompt = r->first + i / each;
        const uint64_t seed = prompt < r->count ? r->seeds[prompt] : 0;
        noise[i] = weft_random_normal(seed, WEFT_RNG_SAMPLER, (uint64_t)(draw * each + i % each));
    }
    return WEFT_OK;
}

static weft_status_code on_step(void *user, int64_t done, int64_t steps)
{
    const run_state *r = user;
    return r->sink->step ? r->sink->step(r->sink->user, r->first, done, steps) : WEFT_OK;
}

static weft_status_code on_frames(void *user, int64_t first_frame, int64_t count,
                                  const float *frames)
{
    const run_state *r = user;
    return r->sink->frames(r->sink->user, r->prompt, first_frame, count, frames);
}

static weft_status decode_all(weft_generator *p, run_state *r, int64_t count)
{
    const weft_grid *grid = &p->grid;
    const bool first_rank = !p->comm || weft_comm_rank(p->comm) == 0;
    const double scale = p->scheduler.path == WEFT_PATH_EDM ? p->scheduler.sigma_data : 1;
    for (int64_t i = 0; i < count; i++) {
        float *x = p->x + i * p->latent_floats;
        int64_t dim[4];
        weft_generator_latents(p, dim);
        if (r->sink->latents && first_rank)
            WEFT_TRY(r->sink->latents(r->sink->user, r->first + i, dim, x));
        const int64_t frame = p->latent_floats / p->latent[0];
        for (int64_t k = 0; k < p->latent_floats; k++) {
            const int64_t at = weft_grid_statistics_at(grid, k / frame) + k % grid->channels;
            x[k] = x[k] * (float)(grid->deviation[at] / scale) + (float)grid->mean[at];
        }
        r->prompt = r->first + i;
        WEFT_TRY(weft_vae_decode(p->vae, x, p->latent[0], on_frames, r));
    }
    return WEFT_OK;
}

/* A line for each encoder that does not take all of a prompt. */
static weft_status tell_cut(const weft_generator *p, int64_t prompt, const char *text)
{
    weft_buf out = {0};
    const weft_status_code status = weft_captions_tell_cut(&p->captions, &p->spelling, text, &out);
    for (char *line = out.data, *end; status == WEFT_OK && line && (end = strchr(line, '\n'));
         line = end + 1)
        weft_warn("prompt %lld %.*s", (long long)prompt + 1, (int)(end - line), line);
    weft_buf_free(&out);
    return status;
}

/* The noise of a video, scaled to where the walk begins, and there what of it is known. */
static void begin_with(const weft_generator *p, const run_state *r, int64_t row, float *x)
{
    const weft_given *g = &p->given;
    const int64_t prompt = r->first + row, channels = p->grid.channels;
    /* rows beyond the last prompt are thrown away */
    const uint64_t seed = prompt < r->count ? r->seeds[prompt] : 0;
    const float *noise = prompt < p->noises ? p->noise + prompt * p->latent_floats : NULL;
    const weft_level *from = &p->leg[p->skipped].from;
    const double data = p->scheduler.path == WEFT_PATH_EDM ? p->scheduler.sigma_data : 1;
    const float begin = (float)weft_scheduler_first(&p->scheduler);
    for (int64_t i = 0; i < p->latent_floats; i++) {
        const float n = noise ? noise[i] : weft_random_normal(seed, WEFT_RNG_NOISE, (uint64_t)i);
        const bool known = g->known && (p->skipped || g->keep[i / channels]);
        x[i] = known ? (float)(from->alpha * data * (double)g->known[i] + from->sigma * (double)n)
                     : begin * n;
    }
}

/* What is kept is so to the last bit. */
static void end_with(const weft_generator *p, float *x)
{
    const weft_given *g = &p->given;
    const double data = p->scheduler.path == WEFT_PATH_EDM ? p->scheduler.sigma_data : 1;
    for (int64_t i = 0; g->known && i < p->latent_floats; i++)
        if (g->keep[i / p->grid.channels])
            x[i] = (float)(data * (double)g->known[i]);
}

weft_status weft_generator_run(weft_generator *p, const char *const *prompts, const uint64_t *seeds,
                               int64_t count, const weft_generator_sink *sink)
{
    const int64_t batch = p->options.batch, all = batch * p->latent_floats;
    run_state r = {.generator = p, .sink = sink, .seeds = seeds, .count = count};
    const weft_sampler_callbacks callbacks = {
        .answer = on_answer, .noise = on_noise, .progress = on_step, .user = &r};
    for (int64_t i = 0; i < count && (!p->comm || weft_comm_rank(p->comm) == 0); i++)
        WEFT_TRY(tell_cut(p, i, prompts[i]));
    for (r.first = 0; r.first < count; r.first += batch) {
        const int64_t now = count - r.first < batch ? count - r.first : batch;
        WEFT_TRY(encode_text(p, prompts + r.first, now));
        for (int64_t i = 0; i < batch; i++)
            begin_with(p, &r, i, p->x + i * p->latent_floats);
        WEFT_TRY(weft_sampler_run(p->options.sampler, &p->scheduler.solver, p->leg + p->skipped,
                                  p->options.steps - p->skipped, p->x, all, p->latent_floats,
                                  p->work, &callbacks));
        for (int64_t i = 0; i < batch; i++)
            end_with(p, p->x + i * p->latent_floats);
        WEFT_TRY(decode_all(p, &r, now));
    }
    return WEFT_OK;
}
