#include "generate/conditioning/preceding_frames.h"

#include "base/memory.h"
#include "base/message.h"
#include "base/rng.h"
#include "latent/vae_chunks.h"

#include <string.h>

/* Range of the share of noise in a latent frame. */
static const double least_noise = 0.111, most_noise = 0.135;

static weft_status check(const weft_visual_inputs *f, const weft_visual_condition_setup *setup)
{
    const char *class_name = weft_model_class(setup->denoiser);
    char rule[32];
    if (f->last_image)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = "--last-image", .value = f->last_image),
                          "%s has no last frame. Omit --last-image.", class_name);
    if (f->more_images)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = "--image", .value = f->more_image[0]),
                          "%s takes one image. Give --image once.", class_name);
    if (f->image && f->before)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--image", .value = f->image),
                          "the image and the last frames of --video would both precede the video. "
                          "Omit one of the two options.");
    if (f->before && !weft_grid_takes_frames(setup->grid, f->before_frames))
        return weft_error(WEFT_MSG_VIDEO_SIZE,
                          WEFT_AT(.key = "--given-frames", WEFT_NUMBER(f->before_frames)),
                          "%s takes whole sections of a video, %s frames, not %" PRId64
                          "; the nearest is %" PRId64,
                          class_name, weft_grid_rule(setup->grid, rule), f->before_frames,
                          weft_grid_nearest_frames(setup->grid, f->before_frames));
    return WEFT_OK;
}

weft_status weft_preceding_frames_open(const weft_visual_inputs *files,
                                       const weft_visual_condition_setup *setup,
                                       weft_preceding_frames *frames)
{
    const weft_grid *grid = setup->grid;
    weft_preceding_frames p = {.image = files->image, .video = files->before, .grid = *grid};
    WEFT_TRY(check(files, setup));
    if (!p.image && !p.video)
        return WEFT_OK;
    p.canvas = (weft_canvas){.frames = weft_grid_frames(grid, grid->section),
                             .height = setup->height,
                             .width = setup->width,
                             .fit = (weft_fit)files->fit};
    p.floats = setup->height / grid->factor[1] * (setup->width / grid->factor[2]) * grid->channels;
    p.sections = p.video ? files->before_frames / p.canvas.frames : 1;
    p.given = p.video ? p.sections * grid->section : 1;
    if (!setup->silent)
        WEFT_TRY(weft_picture_warn_resized(p.image ? p.image : p.video, &p.canvas));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_visual_condition_encoder(setup, 1, setup->height, setup->width, &p.one));
    WEFT_GO(weft_visual_condition_encoder(setup, p.canvas.frames, setup->height, setup->width,
                                          &p.whole));
    *frames = p;
out:
    if (status != WEFT_OK)
        weft_preceding_frames_free(&p);
    return status;
}

int64_t weft_preceding_frames_bytes(const weft_preceding_frames *p)
{
    return p->given ? 2 * (1 + p->given) * p->floats * 4 : 0;
}

/* Pixels of the sections, or of an image in a section. */
static int64_t pixel_floats(const weft_preceding_frames *p)
{
    return p->sections * p->canvas.frames * p->canvas.height * p->canvas.width * 3;
}

int64_t weft_preceding_frames_workspace_bytes(const weft_preceding_frames *p)
{
    if (!p->one || !p->whole)
        return 0;
    const int64_t one = weft_vae_bytes(p->one), whole = weft_vae_bytes(p->whole);
    return (one > whole ? one : whole) + (pixel_floats(p) + p->grid.section * p->floats) * 4;
}

static void normalise(const weft_preceding_frames *p, int64_t floats, float *x)
{
    const int64_t channels = p->grid.channels;
    for (int64_t i = 0; i < floats; i++) {
        const int64_t at = i % channels;
        x[i] = (x[i] - (float)p->grid.mean[at]) / (float)p->grid.deviation[at];
    }
}

/* Encodes the first frame, and frees its encoder. `pixels`: memory of a frame. */
static weft_status encode_image(weft_preceding_frames *p, float *pixels)
{
    weft_canvas frame = p->canvas;
    frame.frames = 1;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_pictures_read(p->image ? p->image : p->video, &frame, pixels));
    WEFT_GO(weft_vae_bind(p->one));
    WEFT_GO(weft_vae_encode(p->one, pixels, 1, p->latents));
    normalise(p, p->floats, p->latents);
out:
    weft_vae_free(p->one);
    p->one = NULL;
    return status;
}

/* Encodes the sections, and frees their encoder. */
static weft_status encode_sections(weft_preceding_frames *p, float *pixels)
{
    const int64_t section = p->grid.section * p->floats;
    weft_canvas all = p->canvas;
    float *latents = NULL, *to = p->latents + p->floats;
    all.frames *= p->sections;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(latents, section, "the latents of a section"));
    WEFT_GO(p->video ? weft_pictures_read_last(p->video, &all, pixels)
                     : weft_pictures_read(p->image, &all, pixels));
    WEFT_GO(weft_vae_bind(p->whole));
    for (int64_t i = 0; i < p->sections; i++) {
        const int64_t first = p->video ? 0 : p->grid.section - 1,
                      count = p->video ? section : p->floats;
        WEFT_GO(weft_vae_encode(p->whole, pixels + i * (pixel_floats(p) / p->sections),
                                p->canvas.frames, latents));
        memcpy(to + i * section, latents + first * p->floats, (size_t)count * sizeof *to);
    }
    normalise(p, p->given * p->floats, to);
out:
    weft_free(latents);
    weft_vae_free(p->whole);
    p->whole = NULL;
    return status;
}

weft_status weft_preceding_frames_read(weft_preceding_frames *p)
{
    const int64_t floats = (1 + p->given) * p->floats;
    float *pixels = NULL;
    if (!p->given)
        return WEFT_OK;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(p->latents, floats, "the frames before the video"));
    WEFT_GO(WEFT_NEW(p->noisy, floats, "the frames before the video"));
    WEFT_GO(WEFT_NEW(pixels, pixel_floats(p), "the pixels before the video"));
    WEFT_GO(encode_image(p, pixels));
    WEFT_GO(encode_sections(p, pixels));
out:
    weft_free(pixels);
    return status;
}

void weft_preceding_frames_set_seed(weft_preceding_frames *p, uint64_t seed)
{
    for (int64_t t = 0; p->given && t <= p->given; t++) {
        const float share = (float)(least_noise + (most_noise - least_noise) *
                                                      (double)weft_random_uniform(
                                                          seed, WEFT_RNG_GIVEN, (uint64_t)t));
        for (int64_t i = t * p->floats; i < (t + 1) * p->floats; i++)
            p->noisy[i] = share * weft_random_normal(seed, WEFT_RNG_GIVEN, (uint64_t)i) +
                          (1 - share) * p->latents[i];
    }
}

void weft_preceding_frames_free(weft_preceding_frames *p)
{
    weft_free(p->latents);
    weft_free(p->noisy);
    weft_vae_free(p->one);
    weft_vae_free(p->whole);
    *p = (weft_preceding_frames){0};
}
