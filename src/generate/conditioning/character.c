#include "generate/conditioning/character.h"

#include "base/memory.h"
#include "latent/vae_chunks.h"
#include "model/model.h"
#include "video/reader.h"
#include "video/resample.h"

#include <math.h>
#include <string.h>

/* The videos. */
enum { POSE, FACE, BACKGROUND, MASK, VIDEOS };

struct weft_character {
    weft_visual_inputs files;
    weft_grid grid;
    weft_canvas canvas, face; /* of a window, without the image */
    weft_vae *image_vae, *video_vae;
    bool bound;
    int64_t length[VIDEOS]; /* frames of each file */
};

/* A video from frame `first` of the window on. */
typedef struct video {
    weft_frame_source *source;
    int64_t length, first;
} video;

/* ---- checks --------------------------------------------------------------------------------- */

static const char *file_of(const weft_visual_inputs *f, int i)
{
    return (const char *[]){f->control, f->face, f->video, f->mask}[i];
}

static weft_status check_files(const weft_visual_inputs *f,
                               const weft_visual_condition_setup *setup)
{
    const char *class_name = weft_model_class(setup->denoiser);
    const int64_t *o = f->outpaint;
    if (!f->control || !f->face)
        return weft_error(
            WEFT_MSG_VIDEO_INPUT,
            WEFT_AT(.file = setup->folder, .key = f->control ? "--face" : "--control"),
            "%s moves the character of --image by a video of poses and a video of the "
            "face. Give --control FILE and --face FILE.",
            class_name);
    if (!f->video != !f->mask)
        return weft_error(
            WEFT_MSG_VIDEO_INPUT, WEFT_AT(.key = f->video ? "--mask" : "--video"),
            "the character replaces what is white in --mask in the video of --video, which needs "
            "both. Give --video FILE and --mask FILE, or no background.");
    if (o[0] || o[1] || o[2] || o[3])
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED, WEFT_AT(.key = "--outpaint"),
                          "%s has no latents around a video. Omit the option.", class_name);
    return WEFT_OK;
}

static weft_status check_shared(const weft_character *c)
{
    const int64_t shared = c->files.prefix_frames;
    char rule[32];
    if (shared && (!weft_grid_takes_frames(&c->grid, shared) || shared >= c->canvas.frames))
        return weft_error(WEFT_MSG_VIDEO_SIZE,
                          WEFT_AT(.key = "--window-overlap", WEFT_NUMBER(shared)),
                          "windows of %" PRId64 " frames share fewer frames, and the autoencoder "
                          "takes %s frames; the pipeline has 1 or 5",
                          c->canvas.frames, weft_grid_rule(&c->grid, rule));
    return WEFT_OK;
}

/* Counts the frames of a file: the count of a container may be wrong. */
static weft_status count_frames(const char *path, int64_t *count)
{
    weft_video_reader *reader;
    weft_video_frame frame;
    bool got = true;
    WEFT_TRY(
        weft_video_reader_open(path, &(weft_video_options){.format = WEFT_VIDEO_RGB24}, &reader));
    weft_status_code status = WEFT_OK;
    *count = 0;
    while (status == WEFT_OK && got) {
        status = weft_video_reader_next(reader, &frame, &got);
        *count += got && status == WEFT_OK;
    }
    weft_video_reader_close(reader);
    WEFT_TRY(status);
    return *count ? WEFT_OK
                  : weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = path),
                               "the file has no frame");
}

/* ---- opening --------------------------------------------------------------------------------- */

static weft_status set_counts(const weft_character *c, const weft_visual_condition_setup *setup,
                              weft_visual_condition *g)
{
    const weft_model_size one = {1, 2, 1, 1, 1};
    const int64_t marks = c->grid.factor[0];
    g->form = WEFT_FRAME_CONDITION_CHARACTER;
    g->extra_channel_count = weft_model_grid(setup->denoiser).channels - g->channels;
    g->control_channels = weft_model_shape(setup->denoiser, &one, WEFT_PORT_CONTROL).dim[4];
    g->face_floats = c->face.frames * c->face.height * c->face.width * 3;
    return g->extra_channel_count == marks + g->channels && g->control_channels == g->channels
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = setup->folder),
                            "the transformer has %" PRId64
                            " channels after the noisy ones, and %" PRId64
                            " of poses. The latents of the VAE have %" PRId64
                            ", and the marks of given frames %" PRId64 ".",
                            g->extra_channel_count, g->control_channels, g->channels, marks);
}

weft_status weft_character_open(const weft_visual_inputs *files,
                                const weft_visual_condition_setup *setup,
                                weft_visual_condition *visual, weft_character **character)
{
    const weft_model_size one = {1, 2, 1, 1, 1};
    const int64_t side = weft_model_shape(setup->denoiser, &one, WEFT_PORT_FACE).dim[2];
    weft_character *c;
    WEFT_TRY(check_files(files, setup));
    WEFT_TRY(WEFT_NEW(c, 1, "the character"));
    c->files = *files;
    c->grid = *setup->grid;
    c->canvas = (weft_canvas){.frames = setup->frames - setup->grid->factor[0],
                              .height = setup->height,
                              .width = setup->width,
                              .fit = (weft_fit)files->fit};
    c->face = c->canvas;
    c->face.height = c->face.width = side;
    weft_status_code status = WEFT_OK;
    WEFT_GO(check_shared(c));
    WEFT_GO(set_counts(c, setup, visual));
    for (int i = 0; i < VIDEOS; i++)
        if (file_of(files, i)) {
            WEFT_GO(count_frames(file_of(files, i), &c->length[i]));
            if (!setup->silent)
                WEFT_GO(weft_picture_warn_resized(file_of(files, i),
                                                  i == FACE ? &c->face : &c->canvas));
        }
    WEFT_GO(weft_visual_condition_encoder(setup, 1, setup->height, setup->width, &c->image_vae));
    WEFT_GO(weft_visual_condition_encoder(setup, c->canvas.frames, setup->height, setup->width,
                                          &c->video_vae));
    *character = c;
out:
    if (status != WEFT_OK)
        weft_character_free(c);
    return status;
}

int64_t weft_character_bytes(const weft_character *c)
{
    const int64_t *f = c->grid.factor, frame = c->canvas.height * c->canvas.width * 3,
                  latent = frame / 3 / (f[1] * f[2]) * c->grid.channels *
                           weft_grid_latent_frames(&c->grid, c->canvas.frames);
    return weft_vae_bytes(c->image_vae) + weft_vae_bytes(c->video_vae) + latent * 4 + frame * 6;
}

void weft_character_free(weft_character *c)
{
    if (c) {
        weft_vae_free(c->image_vae);
        weft_vae_free(c->video_vae);
    }
    weft_free(c);
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* The frame of a file of `length` frames that plays at `at`: 0 1 2 3 2 1 0 1 ... */
static int64_t mirrored(int64_t at, int64_t length)
{
    const int64_t period = 2 * (length - 1), i = period ? at % period : 0;
    return i < length ? i : period - i;
}

static weft_status video_open(const weft_character *c, int which, int64_t first, video *f)
{
    *f = (video){.length = c->length[which], .first = first};
    return weft_frame_source_open(file_of(&c->files, which), which == FACE ? &c->face : &c->canvas,
                                  &f->source);
}

/* weft_box_fn of a video. */
static weft_status_code video_box(void *user, const int64_t first[3], const int64_t size[3],
                                  float *to)
{
    const video *f = user;
    const int64_t one[3] = {1, size[1], size[2]};
    for (int64_t t = 0; t < size[0]; t++, to += size[1] * size[2] * 3) {
        const int64_t at[3] = {mirrored(f->first + first[0] + t, f->length), first[1], first[2]};
        WEFT_TRY(weft_frame_source_box(f->source, at, one, to));
    }
    return WEFT_OK;
}

/* Frames that are given: of the window before, then of the background; NULL: grey. */
typedef struct given {
    const weft_canvas *canvas;
    const float *carried;
    int64_t carried_frames;
    video *background;
} given;

static weft_status_code given_box(void *user, const int64_t first[3], const int64_t size[3],
                                  float *to)
{
    const given *g = user;
    const int64_t one[3] = {1, size[1], size[2]}, row = size[2] * 3;
    for (int64_t t = 0; t < size[0]; t++, to += size[1] * row) {
        const int64_t at[3] = {first[0] + t, first[1], first[2]};
        if (at[0] >= g->carried_frames && g->background) {
            WEFT_TRY(video_box(g->background, at, one, to));
            continue;
        }
        memset(to, 0, (size_t)(size[1] * row) * sizeof *to);
        for (int64_t y = 0; y < size[1] && at[0] < g->carried_frames; y++)
            memcpy(to + y * row,
                   g->carried +
                       ((at[0] * g->canvas->height + at[1] + y) * g->canvas->width + at[2]) * 3,
                   (size_t)row * sizeof *to);
    }
    return WEFT_OK;
}

/* The image with its aspect, centred on black: (height,width,3) in [-1,1]. */
static weft_status read_image(const weft_character *c, float *to)
{
    const int64_t height = c->canvas.height, width = c->canvas.width;
    uint8_t *rgb, *sized = NULL;
    int64_t w, h;
    WEFT_TRY(weft_picture_load(c->files.image, &rgb, &w, &h));
    const bool wide = width * h < w * height; /* black above and below */
    const int64_t fit_w = wide || width * h == w * height ? width : w * height / h,
                  fit_h = wide ? h * width / w : height;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(sized, fit_w * fit_h * 3, "%s: its pixels", c->files.image));
    WEFT_GO(weft_image_resample(WEFT_RESAMPLE_LANCZOS, rgb, w, h, 3, sized, fit_w, fit_h));
    for (int64_t i = 0; i < height * width * 3; i++) {
        const int64_t y = i / (width * 3) - (height / 2 - fit_h / 2),
                      x = i / 3 % width - (width / 2 - fit_w / 2);
        const bool inside = y >= 0 && y < fit_h && x >= 0 && x < fit_w;
        to[i] = inside ? 2 * ((float)sized[(y * fit_w + x) * 3 + i % 3] / 255) - 1 : -1;
    }
out:
    weft_free(sized);
    weft_free(rgb);
    return status;
}

/* ---- latents --------------------------------------------------------------------------------- */

/* Copies normalised latents of `cells` cells to `to`, `stride` floats apart. */
static void put_latents(const weft_character *c, const float *latents, int64_t cells,
                        int64_t stride, float *to)
{
    const int64_t z = c->grid.channels;
    for (int64_t i = 0; i < cells * z; i++)
        to[i / z * stride + i % z] =
            (latents[i] - (float)c->grid.mean[i % z]) / (float)c->grid.deviation[i % z];
}

static weft_status encode_image(weft_character *c, weft_visual_condition *g, float *latents)
{
    const int64_t area = g->latent[1] * g->latent[2], marks = c->grid.factor[0];
    float *pixels;
    WEFT_TRY(
        WEFT_NEW(pixels, c->canvas.height * c->canvas.width * 3, "%s: its pixels", c->files.image));
    weft_status_code status = WEFT_OK;
    WEFT_GO(read_image(c, pixels));
    WEFT_GO(weft_vae_encode(c->image_vae, pixels, 1, latents));
    put_latents(c, latents, area, g->extra_channel_count, g->extra_channels + marks);
    for (int64_t i = 0; i < area * marks; i++)
        g->extra_channels[i / marks * g->extra_channel_count + i % marks] = 1;
out:
    weft_free(pixels);
    return status;
}

/* Encodes the poses. */
static weft_status encode_poses(weft_character *c, weft_visual_condition *g, int64_t first,
                                float *latents)
{
    video poses;
    WEFT_TRY(video_open(c, POSE, first, &poses));
    const weft_status_code status =
        weft_vae_encode_boxes(c->video_vae, video_box, &poses, c->canvas.frames, latents);
    weft_frame_source_close(poses.source);
    WEFT_TRY(status);
    put_latents(c, latents, (g->latent[0] - 1) * g->latent[1] * g->latent[2], g->channels,
                g->control);
    return WEFT_OK;
}

static weft_status encode_given(weft_character *c, weft_visual_condition *g, int64_t first,
                                const float *carried, float *latents)
{
    const int64_t area = g->latent[1] * g->latent[2], marks = c->grid.factor[0];
    video background = {0};
    given frames = {.canvas = &c->canvas,
                    .carried = carried,
                    .carried_frames = carried ? c->files.prefix_frames : 0,
                    .background = c->files.video ? &background : NULL};
    if (c->files.video)
        WEFT_TRY(video_open(c, BACKGROUND, first, &background));
    const weft_status_code status =
        weft_vae_encode_boxes(c->video_vae, given_box, &frames, c->canvas.frames, latents);
    weft_frame_source_close(background.source);
    WEFT_TRY(status);
    put_latents(c, latents, (g->latent[0] - 1) * area, g->extra_channel_count,
                g->extra_channels + area * g->extra_channel_count + marks);
    return WEFT_OK;
}

float weft_character_kept(const float rgb[3])
{
    uint32_t level[3];
    for (int i = 0; i < 3; i++)
        level[i] = (uint32_t)lrintf((rgb[i] + 1) * 127.5f);
    /* luma of ITU-R BT.601 in 16 bits, as the reference's image library rounds it */
    const uint32_t grey = (level[0] * 19595 + level[1] * 38470 + level[2] * 7471 + 0x8000) >> 16;
    return 1 - (float)grey / 255;
}

static weft_status kept_at(video *mask, int64_t frame, int64_t y, int64_t x, float *kept)
{
    const int64_t at[3] = {frame, y, x}, one[3] = {1, 1, 1};
    float rgb[3];
    WEFT_TRY(video_box(mask, at, one, rgb));
    *kept = weft_character_kept(rgb);
    return WEFT_OK;
}

/* Fills the marks of the frames after the image. The first frame fills a latent frame alone. */
static weft_status fill_marks(weft_character *c, weft_visual_condition *g, int64_t first,
                              const float *carried)
{
    const int64_t *f = c->grid.factor, marks = f[0], columns = g->latent[2],
                  area = g->latent[1] * columns, known = carried ? c->files.prefix_frames : 0;
    video mask = {0};
    weft_status_code status = WEFT_OK;
    if (c->files.mask)
        WEFT_TRY(video_open(c, MASK, first, &mask));
    for (int64_t t = 0; t < g->latent[0] - 1; t++)
        for (int64_t k = 0; k < marks; k++)
            for (int64_t i = 0; i < area; i++) {
                const int64_t frame = t ? 1 + (t - 1) * marks + k : 0;
                float *to = g->extra_channels + ((t + 1) * area + i) * g->extra_channel_count + k;
                *to = frame < known;
                if (frame >= known && mask.source)
                    WEFT_GO(kept_at(&mask, frame, i / columns * f[1], i % columns * f[2], to));
            }
out:
    weft_frame_source_close(mask.source);
    return status;
}

static weft_status read_face(weft_character *c, weft_visual_condition *g, int64_t first)
{
    const int64_t from[3] = {0}, size[3] = {c->face.frames, c->face.height, c->face.width};
    video face;
    WEFT_TRY(video_open(c, FACE, first, &face));
    const weft_status_code status = video_box(&face, from, size, g->face);
    weft_frame_source_close(face.source);
    return status;
}

weft_status weft_character_read(weft_character *c, weft_visual_condition *g, int64_t window,
                                const float *carried)
{
    const int64_t first = window * (c->canvas.frames - c->files.prefix_frames),
                  floats = (g->latent[0] - 1) * g->latent[1] * g->latent[2] * g->channels;
    float *latents;
    WEFT_TRY(WEFT_NEW(latents, floats, "the poses"));
    weft_status_code status = WEFT_OK;
    if (!c->bound) {
        WEFT_GO(weft_vae_bind(c->image_vae));
        WEFT_GO(weft_vae_bind(c->video_vae));
        c->bound = true;
    }
    WEFT_GO(encode_image(c, g, latents));
    WEFT_GO(encode_poses(c, g, first, latents));
    WEFT_GO(encode_given(c, g, first, carried, latents));
    WEFT_GO(fill_marks(c, g, first, carried));
    WEFT_GO(read_face(c, g, first));
out:
    weft_free(latents);
    return status;
}
