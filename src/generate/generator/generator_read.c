#include "generate/generator/generator_read.h"

#include "base/fs.h"
#include "base/given.h"
#include "base/hash.h"
#include "base/log.h"
#include "comm/comm_world.h"
#include "generate/conditioning/control_check.h"
#include "generate/generator/causal_blocks.h"
#include "generate/generator/generator_graphs.h"
#include "generate/generator/generator_parts.h"
#include "generate/generator/latent_stages.h"
#include "generate/generator/resident_weights.h"
#include "model/key_mapping.h"

#include <string.h>
#include <unistd.h>

/* Checks that height and width are multiples of the VAE's compression times the denoiser's patch,
 * if the denoiser does not pad. */
static weft_status check_pixels(const weft_generator *p, const int64_t size[2])
{
    for (int i = 0; i < 2; i++) {
        const int64_t step = weft_grid_pixel_step(&p->model.grid, &p->model.patch, 1 + i);
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
    if (p->options.visual.coarse.file) {
        WEFT_TRY(weft_refinement_check_frames(&p->options.visual.coarse, size[0]));
        return check_pixels(p, size + 1);
    }
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
    if (weft_model_takes_port(p->model.denoiser).form == WEFT_FRAME_CONDITION_HISTORY)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = "--window-mode", .value = "continue"),
                          "%s continues its sections itself. Omit the option, and give all frames "
                          "with --frames.",
                          weft_model_class(p->model.denoiser));
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

/* Checks that the generator has every input that the denoiser needs. */
static weft_status check_ports(const weft_generator_model *m)
{
    enum { OWN = 16 };
    /* a label is given together with sizes only: as Hunyuan-DiT's style */
    const bool sized = m->published && weft_model_takes(m->denoiser, WEFT_PORT_SIZES);
    weft_port ports[OWN + WEFT_MAX_CONDITIONING] = {WEFT_PORT_LATENTS,
                                                    WEFT_PORT_TIMESTEP,
                                                    WEFT_PORT_GUIDANCE,
                                                    WEFT_PORT_IMAGE,
                                                    WEFT_PORT_FPS,
                                                    WEFT_PORT_HEIGHT,
                                                    WEFT_PORT_WIDTH,
                                                    WEFT_PORT_OFFSET,
                                                    WEFT_PORT_SPACING,
                                                    WEFT_PORT_CONDITION,
                                                    WEFT_PORT_CONTROL,
                                                    WEFT_PORT_FACE,
                                                    WEFT_PORT_AUDIO,
                                                    WEFT_PORT_LEVEL,
                                                    sized ? WEFT_PORT_SIZES : WEFT_PORT_LATENTS,
                                                    sized ? WEFT_PORT_LABEL : WEFT_PORT_LATENTS};
    for (int i = 0; i < m->text.entries; i++)
        ports[OWN + i] = m->text.entry[i].port;
    return weft_model_accepts(m->denoiser, ports, OWN + m->text.entries, "generate");
}

/* Checks that the video has whole blocks of the denoiser's frames. */
static weft_status check_blocks(const weft_generator *p)
{
    const int64_t block = p->model.patch.block * p->model.patch.factor[0];
    const int64_t latent = p->shape.latent[0];
    if (block <= 1 || latent % block == 0)
        return WEFT_OK;
    return weft_error(WEFT_MSG_VIDEO_SIZE,
                      WEFT_AT(.key = "--frames", WEFT_NUMBER(p->options.frames)),
                      "this %s generates blocks of %" PRId64 " latent frames, and %" PRId64
                      " frames are %" PRId64 " latent frames; the next possible number is %" PRId64,
                      weft_model_class(p->model.denoiser), block, p->options.frames, latent,
                      weft_grid_frames(&p->model.grid, (latent / block + 1) * block));
}

/* Checks that the model takes reference images, and that all frames are denoised together. */
static weft_status check_references(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    const char *class_name = weft_model_class(p->model.denoiser);
    if (!o->visual.references)
        return WEFT_OK;
    if (!weft_control_has_mask(p->model.denoiser, &p->model.grid))
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = "--reference-image", .value = o->visual.reference[0]),
                          "%s takes no reference images. WanVACETransformer3DModel does. Omit "
                          "--reference-image.",
                          class_name);
    if (o->visual.video)
        return weft_error(WEFT_MSG_OPTION_CONFLICT,
                          WEFT_AT(.key = "--video", .value = o->visual.video),
                          "the latent frames of reference images have no noisy video. Give the "
                          "video with --control FILE, or omit --reference-image.");
    if (o->window || o->continues || o->chains)
        return weft_error(WEFT_MSG_OPTION_CONFLICT,
                          WEFT_AT(.key = o->window ? "--window" : "--window-mode"),
                          "only the first window of %s would see the images of --reference-image. "
                          "Omit the windows or the images.",
                          class_name);
    return WEFT_OK;
}

static weft_status check_sizes(weft_generator *p)
{
    const int64_t references = p->options.visual.references, patch = p->model.patch.factor[0];
    WEFT_TRY(check_ports(&p->model));
    WEFT_TRY(check_references(p));
    p->shape.latent[0] = weft_grid_latent_frames(&p->model.grid, p->options.frames);
    p->shape.before = references + (patch - (p->shape.latent[0] + references) % patch) % patch;
    const bool character =
        weft_model_takes_port(p->model.denoiser).form == WEFT_FRAME_CONDITION_CHARACTER;
    p->shape.before += character;
    p->shape.lead = p->model.published ? weft_model_takes_port(p->model.denoiser).lead : 0;
    if (p->shape.lead && p->options.continues)
        return weft_error(
            WEFT_MSG_MODEL_INPUT_UNSUPPORTED, WEFT_AT(.key = "--window-mode", .value = "continue"),
            "videos of this %s begin %" PRId64
            " frames after the given frame, so windows cannot continue "
            "each other. Use --window-mode blend for longer videos.",
            weft_model_class(p->model.denoiser), p->shape.lead * p->model.grid.factor[0]);
    if (p->shape.before && p->options.visual.prefix_frames && !character)
        return weft_error(
            WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--window", WEFT_NUMBER(p->options.frames)),
            "windows that continue each other need whole tokens of %" PRId64 " latent "
            "frames, and %" PRId64 " frames are not; the nearest is %" PRId64,
            p->model.patch.factor[0], p->options.frames,
            weft_grid_frames(&p->model.grid, p->shape.latent[0] + p->shape.before));
    p->shape.latent[0] += p->shape.before + p->shape.lead;
    WEFT_TRY(check_blocks(p));
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
    p->shape.item_floats = p->shape.latent_floats =
        p->shape.latent[0] * p->shape.latent[1] * p->shape.latent[2] * p->model.grid.channels;
    return WEFT_OK;
}

/* The order of the sections: of the options, or of the training. */
static bool is_forward(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    return o->sections_forward || (p->model.trained.forward && !o->sections_reverse);
}

static weft_status check_sections(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    const char *class_name = weft_model_class(p->model.denoiser);
    if (o->visual.video)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = "--video", .value = o->visual.video),
                          "%s denoises a video section by section%s", class_name,
                          weft_model_takes_port(p->model.denoiser).precedes
                              ? ". Give --given-frames N for the frames of --video that precede it."
                              : " from an image. Give --image FILE.");
    if (o->sections_forward && weft_model_takes_port(p->model.denoiser).precedes)
        return weft_error(
            WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--sections", .value = "forward"),
            "%s always denoises from the first section to the last. Omit the option.", class_name);
    if (o->window_overlap)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                          WEFT_AT(.key = "--window-overlap", WEFT_NUMBER(o->window_overlap)),
                          "the sections of %s do not overlap. Omit the option.", class_name);
    if (o->frame_lag || o->chains)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = o->frame_lag ? "--frame-lag" : "--window-mode"),
                          "%s denoises section by section, with one noise level. Omit the option.",
                          class_name);
    if (o->batch > 1)
        return weft_error(WEFT_MSG_OPTION_CONFLICT,
                          WEFT_AT(.key = "--batch-size", WEFT_NUMBER(o->batch)),
                          "%s generates one video at a time, because each section has a history "
                          "of its own; remove --batch-size %" PRId64,
                          class_name, o->batch);
    if (o->visual.last_image && is_forward(p))
        return weft_error(WEFT_MSG_OPTION_CONFLICT,
                          WEFT_AT(.key = "--last-image", .value = o->visual.last_image),
                          "sections from the first to the last have no last frame. Omit "
                          "--last-image, or give --sections reverse.");
    return WEFT_OK;
}

/* Splits the frames after the first into sections of --window frames. */
static weft_status lay_sections(weft_generator *p)
{
    weft_generator_options *o = &p->options;
    weft_video_sections *s = &p->shape.sections;
    const int64_t f = p->model.grid.factor[0];
    const weft_frame_condition how = weft_model_takes_port(p->model.denoiser);
    WEFT_TRY(check_sections(p));
    if (!o->window)
        o->window = p->model.trained.window ? p->model.trained.window : how.section * f;
    if (!how.precedes && o->window % f)
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--window", WEFT_NUMBER(o->window)),
                          "sections have a multiple of %" PRId64 " frames, not %" PRId64, f,
                          o->window);
    s->forward = is_forward(p) || how.precedes;
    s->precedes = how.precedes;
    s->frames = how.precedes ? p->model.grid.section : o->window / f;
    s->count = (p->shape.latent[0] - !s->precedes) / s->frames;
    if (!s->precedes && (!s->count || 1 + s->count * s->frames != p->shape.latent[0]))
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--frames", WEFT_NUMBER(o->frames)),
                          "this model generates 1 + %" PRId64 " n frames, in sections of %" PRId64
                          ", not %" PRId64 "; the next possible number is %" PRId64,
                          o->window, o->window, o->frames, 1 + (s->count + 1) * o->window);
    p->shape.sampled_frames = s->frames;
    p->shape.sampled_floats = p->shape.latent_floats / p->shape.latent[0] * s->frames;
    p->shape.windows = weft_temporal_windows_arrange(s->frames, s->frames, 0);
    return weft_latent_stages_lay(p);
}

/* The frames of the first steps. */
static weft_status lay_reasoning(weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    weft_generator_shape *s = &p->shape;
    char rule[32];
    if (!o->reasoning_frames && !o->reasoning_steps)
        return WEFT_OK;
    if (!weft_model_takes_port(p->model.denoiser).reasons)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED, WEFT_AT(.key = "--reasoning-frames"),
                          "%s has no reasoning frames. ChronoEditTransformer3DModel has them.",
                          weft_model_class(p->model.denoiser));
    if (!o->reasoning_frames || !o->reasoning_steps || o->reasoning_steps >= o->steps)
        return weft_error(WEFT_MSG_OPTION_REQUIRED,
                          WEFT_AT(.key = "--reasoning-steps", WEFT_NUMBER(o->reasoning_steps)),
                          "the first steps have reasoning frames. Give --reasoning-frames N, and "
                          "--reasoning-steps below the %" PRId64 " steps.",
                          o->steps);
    s->reasoning_frames = weft_grid_latent_frames(&p->model.grid, o->reasoning_frames);
    if (s->latent[0] != 2 || s->reasoning_frames <= 2 ||
        !weft_grid_takes_frames(&p->model.grid, o->reasoning_frames))
        return weft_error(WEFT_MSG_VIDEO_SIZE,
                          WEFT_AT(.key = "--reasoning-frames", WEFT_NUMBER(o->reasoning_frames)),
                          "an edited image is a video of %" PRId64 " frames, which has %s frames, "
                          "and more, in its first steps",
                          weft_grid_frames(&p->model.grid, 2),
                          weft_grid_rule(&p->model.grid, rule));
    const bool other = o->batch > 1 || o->guided[1] > 0 || o->visual.video || o->window ||
                       (o->cache && strcmp(o->cache, "off") != 0);
    if (other)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--reasoning-frames"),
                          "reasoning frames cannot be combined with --batch-size above 1, "
                          "--guidance-start, --guidance-end, --video, --window or --feature-cache");
    s->reasoning_steps = o->reasoning_steps;
    s->begun_floats = s->latent_floats / s->latent[0] * s->reasoning_frames;
    return WEFT_OK;
}

static weft_status check_flow(const weft_generator *p, const char *what)
{
    return p->trajectory.scheduler.path == WEFT_PATH_FLOW
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = p->model.folder),
                            "%s a scheduler of flow matching, not %s", what,
                            p->trajectory.scheduler.kind->name);
}

/* Checks settings that have no meaning with a noise level per block of frames. */
static weft_status check_levels(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    const weft_given other[] = {{"--batch-size", o->batch > 1},
                                {"--feature-cache", o->cache && strcmp(o->cache, "off") != 0},
                                {"--guidance-end", o->guided[1] > 0},
                                {"--preview-interval", o->preview > 0},
                                {"--trace", o->trace != NULL},
                                {"--strength", o->strength > 0},
                                {"--video", o->visual.video && !o->chains},
                                {"--mask", o->visual.mask != NULL},
                                {"--last-image", o->visual.last_image != NULL}};
    const char *given = weft_first_given(other, WEFT_COUNT(other));
    if (given)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = given),
                          "frames of %s have noise levels of their own (--frame-lag, --image or "
                          "--window-mode history), and the option needs one level. Omit it.",
                          weft_model_class(p->model.denoiser));
    return check_flow(p, "noise levels per frame need");
}

/* Windows in sequence: --window frames, of which --window-overlap are of the window before. */
static weft_status lay_chain(weft_generator *p)
{
    weft_generator_options *o = &p->options;
    weft_video_sections *s = &p->shape.sections;
    char rule[32];
    const int64_t given[2] = {o->window, o->window_overlap};
    static const char *const key[2] = {"--window", "--window-overlap"};
    for (int i = 0; i < 2; i++)
        if (!given[i] || !weft_grid_takes_frames(&p->model.grid, given[i]))
            return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = key[i], WEFT_NUMBER(given[i])),
                              "--window-mode history needs %s frames, not %" PRId64,
                              weft_grid_rule(&p->model.grid, rule), given[i]);
    s->frames = weft_grid_latent_frames(&p->model.grid, o->window);
    s->shared = weft_grid_latent_frames(&p->model.grid, o->window_overlap);
    const int64_t step = s->frames - s->shared, rest = p->shape.latent[0] - s->frames;
    if (step < 1 || rest < 0 || rest % step)
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--frames", WEFT_NUMBER(o->frames)),
                          "windows of %" PRId64 " frames that share %" PRId64 " make %" PRId64
                          " + %" PRId64 " n frames, not %" PRId64,
                          o->window, o->window_overlap, o->window, step * p->model.grid.factor[0],
                          o->frames);
    s->count = 1 + rest / step;
    o->visual.before = o->visual.video;
    o->visual.before_frames = o->visual.video ? o->window_overlap : 0;
    o->visual.video = NULL;
    if (o->visual.before && o->visual.image)
        return weft_error(WEFT_MSG_OPTION_CONFLICT,
                          WEFT_AT(.key = "--image", .value = o->visual.image),
                          "the video begins with the last frames of --video. Omit --image.");
    if (s->shared % p->shape.level_frames || s->frames % p->shape.level_frames)
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--window", WEFT_NUMBER(o->window)),
                          "windows of %" PRId64 " latent frames that share %" PRId64
                          " do not have whole blocks of %" PRId64,
                          s->frames, s->shared, p->shape.level_frames);
    p->shape.sampled_frames = s->frames;
    p->shape.sampled_floats = p->shape.latent_floats / p->shape.latent[0] * s->frames;
    return WEFT_OK;
}

/* Checks that the model was trained with a level per frame, and that a frame is generated. */
static weft_status check_forcing(const weft_generator *p, const weft_frame_condition *how)
{
    const weft_generator_options *o = &p->options;
    if (how->asks && !p->model.expands_timesteps && !p->model.first_frame)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.file = p->model.folder, .key = o->frame_lag ? "--frame-lag"
                                                                  : o->chains  ? "--window-mode"
                                                                               : "--image"),
                          "the model was not trained with a noise level per frame: its "
                          "model_index.json names no pipeline of diffusion forcing. Omit the "
                          "option.");
    if (o->visual.image && p->shape.latent[0] == 1)
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--frames", WEFT_NUMBER(o->frames)),
                          "the image is the only frame of the video. Use at least %" PRId64
                          " frames.",
                          weft_grid_frames(&p->model.grid, 2));
    return WEFT_OK;
}

/* Models with a timestep per frame: whether blocks of frames have levels of their own. */
static weft_status lay_levels(weft_generator *p, bool *done)
{
    const weft_generator_options *o = &p->options;
    const weft_frame_condition how = weft_model_takes_port(p->model.denoiser);
    const bool asked = o->frame_lag || o->chains;
    *done = how.frame_levels && (asked || o->visual.image);
    if (how.frame_levels && o->visual.before)
        return weft_error(WEFT_MSG_OPTION_CONFLICT,
                          WEFT_AT(.key = "--given-frames", WEFT_NUMBER(o->visual.before_frames)),
                          "%s continues a video with --window-mode history, whose --window-overlap "
                          "is the number of frames",
                          weft_model_class(p->model.denoiser));
    if (asked && !how.frame_levels)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = o->frame_lag ? "--frame-lag" : "--window-mode"),
                          "%s has one noise level for all frames. Models of diffusion forcing "
                          "(SkyReelsV2Transformer3DModel) have a level per frame.",
                          weft_model_class(p->model.denoiser));
    if (!*done)
        return WEFT_OK;
    WEFT_TRY(check_forcing(p, &how));
    p->shape.level_frames =
        (p->model.patch.block > 1 ? p->model.patch.block : 1) * p->model.patch.factor[0];
    WEFT_TRY(check_levels(p));
    if (o->chains)
        WEFT_TRY(lay_chain(p));
    p->shape.windows =
        weft_temporal_windows_arrange(p->shape.sampled_frames, p->shape.sampled_frames, 0);
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
    if (weft_model_takes_port(p->model.denoiser).form == WEFT_FRAME_CONDITION_CHARACTER)
        return weft_error(
            WEFT_MSG_MODEL_INPUT_UNSUPPORTED, WEFT_AT(.key = "--window-mode", .value = "blend"),
            "each window of %s begins with the image of the character, so windows are "
            "not blended. Use --window-mode continue.",
            weft_model_class(p->model.denoiser));
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
    if (p->model.grid.clip && (o->window_overlap % f || o->window_overlap / f >= window))
        return weft_error(
            WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--window-overlap", WEFT_NUMBER(o->window_overlap)),
            "windows of %" PRId64 " frames have %" PRId64 " latent frames. Give %" PRId64
            " frames for each latent frame that two "
            "windows share: a multiple of %" PRId64 " up to %" PRId64 ", not %" PRId64,
            o->window, window, f, f, (window - 1) * f, o->window_overlap);
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

/* Checks that no scale of guidance is for the sound. */
static weft_status check_no_sound(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    const weft_given sound[] = {{"--audio-guidance-scale", o->audio_guidance.given},
                                {"--audio-guidance-rescale", o->audio_guidance_rescale.given},
                                {"--audio-stg-scale", o->audio_stg_scale.given},
                                {"--audio-modality-scale", o->audio_modality_scale.given}};
    const char *given = weft_first_given(sound, WEFT_COUNT(sound));
    return given ? weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = given),
                              "%s generates no sound. Omit the option.",
                              weft_model_class(p->model.denoiser))
                 : WEFT_OK;
}

/* Adds the audio latents of models with sound. */
static weft_status lay_sound(weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    weft_generator_shape *s = &p->shape;
    if (!p->model.sound.vae.family)
        return check_no_sound(p);
    const weft_given other[] = {{"--window", o->window || o->continues || o->chains},
                                {"--video", o->visual.video != NULL},
                                {"--control", o->visual.control != NULL},
                                {"--feature-cache", o->cache && strcmp(o->cache, "off") != 0},
                                {"--identity-image", o->identity.images > 0}};
    const char *given = weft_first_given(other, WEFT_COUNT(other));
    if (given)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED, WEFT_AT(.key = given),
                          "%s generates sound with the video, which is not possible with this "
                          "option. Omit it.",
                          weft_model_class(p->model.denoiser));
    s->sound_steps = weft_sound_models_steps(&p->model.sound, o->frames,
                                             weft_generator_number(p, WEFT_PORT_FPS));
    s->sound_floats = s->sound_steps * p->model.sound.features;
    s->item_floats = s->sampled_floats = s->begun_floats = s->latent_floats + s->sound_floats;
    return WEFT_OK;
}

/* Checks that the model refines videos, and that no other option changes the video as a whole. */
static weft_status check_refinement(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    const weft_visual_inputs *f = &o->visual;
    const weft_given other[] = {{"--video", f->video != NULL},
                                {"--control", f->control != NULL},
                                {"--face", f->face != NULL},
                                {"--mask", f->mask != NULL},
                                {"--last-image", f->last_image != NULL},
                                {"--strength", o->strength > 0},
                                {"--tail-steps", o->tail_steps != 0},
                                {"--window", o->window > 0},
                                {"--window-overlap", o->window_overlap > 0},
                                {"--window-mode", o->continues || o->chains},
                                {"--frame-lag", o->frame_lag > 0},
                                {"--reasoning-frames", o->reasoning_frames > 0}};
    const char *given = weft_first_given(other, WEFT_COUNT(other));
    if (!(weft_model_takes_port(p->model.denoiser).refine_level > 0))
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = "--refine", .value = f->coarse.file),
                          "%s has no pipeline that refines a coarse video. "
                          "LongCatVideoTransformer3DModel has one. Use --video FILE to change a "
                          "video with any model.",
                          weft_model_class(p->model.denoiser));
    if (given)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = given),
                          "%s cannot be combined with --refine, which begins with the whole "
                          "coarse video%s. Omit one of the two options.",
                          given, f->video ? " (--video needs --given-frames)" : "");
    return check_flow(p, "refinement needs");
}

/* Refinement: sets the number of frames that are encoded and decoded, with the frames that complete
 * blocks. */
static weft_status arrange_refinement(weft_generator *p)
{
    weft_generator_options *o = &p->options;
    const weft_visual_inputs *f = &o->visual;
    weft_refinement *r = &p->shape.refinement;
    if (!f->coarse.file)
        return WEFT_OK;
    WEFT_TRY(check_refinement(p));
    WEFT_TRY(weft_refinement_lay(
        &f->coarse, o->frames, f->before ? f->before_frames : f->image != NULL,
        weft_model_takes_port(p->model.denoiser).refine_whole, &p->model.grid, r));
    WEFT_TRY(weft_refinement_rate(&f->coarse, &p->model.fps));
    o->frames = weft_grid_frames(&p->model.grid, r->latent);
    return WEFT_OK;
}

/* A video has whole sections, if sections are videos of their own. */
static weft_status arrange_sections(weft_generator *p)
{
    weft_generator_options *o = &p->options;
    const weft_frame_condition how = weft_model_takes_port(p->model.denoiser);
    if (!p->model.grid.section)
        return WEFT_OK;
    if (!o->window)
        o->window = p->model.trained.window ? p->model.trained.window
                                            : weft_grid_frames(&p->model.grid, how.section);
    p->model.grid.section = 0;
    WEFT_TRY(check_frames(p, "--window", o->window));
    p->model.grid.section = weft_grid_latent_frames(&p->model.grid, o->window);
    return WEFT_OK;
}

/* Sets the shape of the video, without the rows of the batch. */
/* Warns of more frames than the published pipeline generates in one piece. */
static void warn_of_length(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    const weft_model *m = p->model.denoiser;
    const int64_t most = m->family->piece ? m->family->piece(m->config) : 0,
                  frames = o->window ? o->window : o->frames;
    if (most && frames > most && !(p->comm && weft_comm_rank(p->comm)))
        weft_warning(WEFT_MSG_CONFIG_UNUSUAL,
                     WEFT_AT(.key = o->window ? "--window" : "--frames", WEFT_NUMBER(frames)),
                     "%" PRId64
                     " frames are generated in one piece; the model was trained with %" PRId64
                     ", and its pipeline divides longer videos. Use at most %" PRId64 ".",
                     frames, most, most);
}

static weft_status arrange_shape(weft_generator *p)
{
    WEFT_TRY(arrange_sections(p));
    WEFT_TRY(arrange_continuation(p));
    WEFT_TRY(arrange_refinement(p));
    const int64_t size[3] = {p->options.frames, p->options.height, p->options.width};
    WEFT_TRY(p->shape.refinement.frames ? check_pixels(p, size + 1)
                                        : weft_generator_check_size(p, size));
    WEFT_TRY(check_sizes(p));
    warn_of_length(p);
    p->shape.sampled_frames = p->shape.latent[0];
    p->shape.sampled_floats = p->shape.begun_floats = p->shape.latent_floats;
    WEFT_TRY(lay_reasoning(p));
    const weft_frame_condition how = weft_model_takes_port(p->model.denoiser);
    if (p->model.in_sections)
        return lay_sections(p);
    WEFT_TRY(weft_latent_stages_lay(p));
    if (p->options.sections_forward)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                          WEFT_AT(.key = "--sections", .value = "forward"),
                          "%s denoises all frames of a video together. Omit the option.",
                          weft_model_class(p->model.denoiser));
    if (p->model.patch.caches)
        return weft_causal_blocks_lay(p);
    const bool given = p->options.visual.before || p->shape.refinement.given;
    if (p->options.no_kv_cache && !(how.caches_given && given))
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--kv-cache", .value = "off"),
                          "%s has no cache of keys and values%s. Omit the option.",
                          weft_model_class(p->model.denoiser),
                          how.caches_given ? " without --given-frames"
                                           : ", which causal models have");
    if (p->options.context_noise.given)
        return weft_error(
            WEFT_MSG_OPTION_NO_EFFECT,
            WEFT_AT(.key = "--context-noise", WEFT_NUMBER(p->options.context_noise.value)),
            "%s does not generate a video block by block, as causal models do. Omit the option.",
            weft_model_class(p->model.denoiser));
    bool levels;
    WEFT_TRY(lay_levels(p, &levels));
    WEFT_TRY(levels ? WEFT_OK : lay_windows(p));
    WEFT_TRY(lay_sound(p));
    return weft_causal_blocks_keep_given(p);
}

weft_status weft_generator_share(weft_comm *comm, const weft_generator_options *o, int64_t *bytes)
{
    typedef struct share {
        uint64_t machine; /* hash of its host name */
        int64_t free;
        int64_t resident; /* loaded weights of the rank, which it can unload */
    } share;
    if (*bytes)
        return WEFT_OK;
    const int ranks = comm ? weft_comm_ranks(comm) : 1;
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    const weft_device *device = weft_backend_device(o->backend);
    const bool own_memory = device && device->available;
    share own = {XXH3_64bits(name, strlen(name)), weft_device_available(device, 1),
                 o->resident ? weft_resident_bytes(o->resident) : 0};
    share *all;
    WEFT_TRY(WEFT_NEW(all, ranks, "the model"));
    all[0] = own;
    weft_status_code status = WEFT_OK;
    if (comm)
        WEFT_GO(weft_comm_all_gather(comm, &own, sizeof own, all));
    int64_t least = INT64_MAX;
    for (int i = 0; i < ranks; i++) {
        int local_ranks = 0;
        for (int k = 0; k < ranks; k++)
            local_ranks += all[k].machine == all[i].machine;
        const int64_t each = all[i].free / (own_memory ? 1 : local_ranks) + all[i].resident;
        least = each < least ? each : least;
    }
    *bytes = least;
out:
    weft_free(all);
    return status;
}

/* Checks that the denoiser has an input for the strength of the control. */
static weft_status check_control_scale(const weft_generator *p)
{
    const double scale = p->options.control_scale;
    return scale > 0 && scale != 1 && !weft_model_takes(p->model.denoiser, WEFT_PORT_CONTROL_SCALE)
               ? weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                            WEFT_AT(.key = "--control-scale", WEFT_NUMBER(scale)),
                            "%s has no control blocks, whose strength this is. Omit the option.",
                            weft_model_class(p->model.denoiser))
               : WEFT_OK;
}

static weft_status check_stg_blocks(const weft_generator_options *o, bool perturbed)
{
    if (perturbed && !o->stg_blocks_given)
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--stg-blocks"),
                          "--stg-scale needs the blocks without self-attention. Give --stg-blocks "
                          "LIST (LTX-2.3: 28).");
    if (o->stg_blocks_given && !perturbed)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--stg-blocks"),
                          "the blocks have no effect without a scale. Give --stg-scale G.");
    return WEFT_OK;
}

/* Adds the weakened branches of guidance. */
static weft_status lay_branches(weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    const weft_guidance *by = p->trajectory.guidance;
    const weft_model *model = p->model.denoiser;
    const bool perturbed = o->stg_scale > 0 || o->audio_stg_scale.value > 0,
               isolated = o->modality_scale.value > 1 || o->audio_modality_scale.value > 1;
    const char *key = perturbed ? "--stg-scale" : "--modality-scale";
    p->shape.branches = by->rows;
    WEFT_TRY(check_stg_blocks(o, perturbed));
    if (!perturbed && !isolated)
        return WEFT_OK;
    if ((perturbed && !weft_model_takes(model, WEFT_PORT_ATTENDED)) ||
        (isolated && !weft_model_takes(model, WEFT_PORT_JOINED)) || !p->shape.sound_steps)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED, WEFT_AT(.key = key),
                          "%s has no %s. Omit the option.", weft_model_class(model),
                          perturbed ? "self-attention that can be perturbed (perturbed_attn)"
                                    : "attention between video and sound");
    if (by->combine && strcmp(by->name, "cfg") != 0 && strcmp(by->name, "rescale") != 0)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = key),
                          "%s cannot be combined with the method %s. Use --guidance-method cfg or "
                          "rescale.",
                          key, by->name);
    p->shape.perturbed_branch = perturbed ? p->shape.branches++ : 0;
    p->shape.isolated_branch = isolated ? p->shape.branches++ : 0;
    return WEFT_OK;
}

weft_status weft_generator_read(weft_generator *p, const char *folder)
{
    weft_generator_options *o = &p->options;
    WEFT_TRY(weft_generator_model_open(folder, o, &p->model));
    WEFT_TRY(weft_generator_trajectory_open(&p->model, o, &p->trajectory));
    WEFT_TRY(weft_generator_model_read_settings(&p->model, o));
    WEFT_TRY(check_control_scale(p));
    WEFT_TRY(arrange_shape(p));
    WEFT_TRY(weft_generator_trajectory_fit_steps(p));
    WEFT_TRY(weft_generator_share(p->comm, o, &o->memory));
    WEFT_TRY(weft_generator_inputs_open(p));
    WEFT_TRY(weft_generator_trajectory_choose_guidance(&p->model, o, &p->trajectory));
    p->shape.text_rows = o->batch * p->trajectory.guidance->rows;
    WEFT_TRY(lay_branches(p));
    p->shape.rows = o->batch * p->shape.branches;
    return WEFT_OK;
}
