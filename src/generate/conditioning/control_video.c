#include "generate/conditioning/control_video.h"

#include "base/memory.h"
#include "model/model.h"
#include "video/reader.h"
#include "video/resample.h"

#include <string.h>

/* The pixels of one kind, for the encoder. */
typedef struct pixels {
    const weft_canvas *canvas;
    weft_frame_source *frame_source; /* NULL: grey frames */
    const uint8_t *is_new;           /* (frames, height, width) 1: new; NULL: all pixels are new */
    bool new_pixels;                 /* keeps the new pixels; false: the others */
} pixels;

static int64_t frame_cells(const weft_control_video *c)
{
    return (c->canvas.height / c->grid.factor[1]) * (c->canvas.width / c->grid.factor[2]);
}

static int64_t latent_cells(const weft_control_video *c)
{
    return weft_grid_latent_frames(&c->grid, c->canvas.frames) * frame_cells(c);
}

static int64_t pixel_count(const weft_control_video *c)
{
    return c->canvas.frames * c->canvas.height * c->canvas.width;
}

int64_t weft_control_channels(const weft_grid *grid)
{
    return 2 * grid->channels + grid->factor[1] * grid->factor[2];
}

int64_t weft_control_workspace_bytes(const weft_control_video *c)
{
    return latent_cells(c) * c->grid.channels * 4 + (c->mask ? pixel_count(c) : 0) +
           c->canvas.height * c->canvas.width * 6;
}

/* Like weft_frame_source_box, with grey in place of pixels of the other kind. */
static weft_status_code read_pixels(void *user, const int64_t first[3], const int64_t size[3],
                                    float *to)
{
    const pixels *p = user;
    const int64_t height = p->canvas->height, width = p->canvas->width;
    if (!p->frame_source || (!p->is_new && !p->new_pixels)) {
        memset(to, 0, (size_t)(size[0] * size[1] * size[2] * 3) * sizeof *to);
        return WEFT_OK;
    }
    WEFT_TRY(weft_frame_source_box(p->frame_source, first, size, to));
    for (int64_t i = 0; p->is_new && i < size[0] * size[1] * size[2]; i++) {
        const int64_t t = first[0] + i / (size[1] * size[2]), y = first[1] + i / size[2] % size[1],
                      x = first[2] + i % size[2];
        if (p->is_new[(t * height + y) * width + x] != p->new_pixels)
            memset(to + i * 3, 0, 3 * sizeof *to);
    }
    return WEFT_OK;
}

/* Writes `cells` latents, normalised, to the channels of the control from `channel` on. */
static void put_latents(const weft_control_video *c, const float *latents, int64_t cells,
                        int64_t channel, float *to)
{
    const int64_t channels = c->grid.channels, all = weft_control_channels(&c->grid),
                  area = frame_cells(c);
    for (int64_t i = 0; i < cells; i++)
        for (int64_t k = 0; k < channels; k++) {
            const int64_t at = weft_grid_statistics_at(&c->grid, i / area) + k;
            to[i * all + channel + k] = (latents[i * channels + k] - (float)c->grid.mean[at]) /
                                        (float)c->grid.deviation[at];
        }
}

/* Encodes the pixels of one kind to the channels of the control from `channel` on. */
static weft_status encode_pixels(const weft_control_video *c, weft_vae *vae, pixels *p,
                                 int64_t channel, float *latents, float *to)
{
    WEFT_TRY(weft_vae_encode_boxes(vae, read_pixels, p, c->canvas.frames, latents));
    put_latents(c, latents, latent_cells(c), channel, to);
    return WEFT_OK;
}

/* Fills the mask's channels. Each latent frame has the mask of the frame in the middle of its share
 * of the video. */
static void fill_mask(const weft_control_video *c, const uint8_t *is_new, float *to)
{
    const int64_t *f = c->grid.factor, all = weft_control_channels(&c->grid),
                  frames = weft_grid_latent_frames(&c->grid, c->canvas.frames),
                  rows = c->canvas.height / f[1], columns = c->canvas.width / f[2];
    for (int64_t i = 0; i < frames * rows * columns; i++) {
        const int64_t t = (2 * (i / (rows * columns)) + 1) * c->canvas.frames / (2 * frames),
                      y = i / columns % rows * f[1], x = i % columns * f[2];
        for (int64_t k = 0; k < f[1] * f[2]; k++) {
            const int64_t pixel = (t * c->canvas.height + y + k / f[2]) * c->canvas.width + x;
            to[i * all + 2 * c->grid.channels + k] = is_new ? is_new[pixel + k % f[2]] : 1;
        }
    }
}

typedef struct mask_frames {
    uint8_t *to;
    int64_t area;
} mask_frames;

static void put_mask(void *user, int64_t frame, const uint8_t *mask)
{
    const mask_frames *m = user;
    memcpy(m->to + frame * m->area, mask, (size_t)m->area);
}

/* ---- reference images ------------------------------------------------------------------------ */

int64_t weft_control_reference_bytes(const weft_control_video *c)
{
    return c->references
               ? c->canvas.height * c->canvas.width * 3 * 8 + frame_cells(c) * c->grid.channels * 4
               : 0;
}

/* Sizes of an image of width x height: cut down to whole latent cells, and then fitted into the
 * canvas. */
typedef struct fit {
    int64_t cut_h, cut_w, h, w;
} fit;

static weft_status fit_sizes(const weft_control_video *c, const char *path, int64_t width,
                             int64_t height, fit *to)
{
    const int64_t *f = c->grid.factor;
    const weft_message_fields *at = WEFT_AT(.file = path, .key = "--reference-image");
    *to = (fit){.cut_h = height - height % f[1], .cut_w = width - width % f[2]};
    if (!to->cut_h || !to->cut_w)
        return weft_error(WEFT_MSG_VIDEO_INPUT, at,
                          "%" PRId64 "x%" PRId64 " is smaller than a latent of %" PRId64 "x%" PRId64
                          " pixels. Give a larger image.",
                          width, height, f[2], f[1]);
    const double by_h = (double)c->canvas.height / (double)to->cut_h,
                 by_w = (double)c->canvas.width / (double)to->cut_w,
                 scale = by_h < by_w ? by_h : by_w;
    to->h = (int64_t)((double)to->cut_h * scale);
    to->w = (int64_t)((double)to->cut_w * scale);
    return to->h && to->w ? WEFT_OK
                          : weft_error(WEFT_MSG_VIDEO_INPUT, at,
                                       "%" PRId64 "x%" PRId64
                                       " is thinner than one pixel in a video of %" PRId64
                                       "x%" PRId64 ". Crop the image.",
                                       width, height, c->canvas.width, c->canvas.height);
}

weft_status weft_control_check_references(const weft_control_video *c)
{
    weft_video_info info;
    fit sizes;
    for (int i = 0; i < c->references; i++) {
        WEFT_TRY(weft_video_probe(c->reference[i], &info));
        WEFT_TRY(fit_sizes(c, c->reference[i], info.width, info.height, &sizes));
    }
    return WEFT_OK;
}

/* Reads an image and resizes it: *fitted (h,w,3) in [0,255]. */
static weft_status read_fitted(const weft_control_video *c, const char *path, float **fitted,
                               fit *s)
{
    uint8_t *rgb, *whole = NULL;
    int64_t width, height;
    WEFT_TRY(weft_picture_load(path, &rgb, &width, &height));
    weft_status_code status = WEFT_OK;
    WEFT_GO(fit_sizes(c, path, width, height, s));
    WEFT_GO(WEFT_NEW(whole, s->cut_h * s->cut_w * 3, "%s: its pixels", path));
    WEFT_GO(WEFT_NEW(*fitted, s->h * s->w * 3, "%s: its pixels", path));
    WEFT_GO(weft_image_resample(WEFT_RESAMPLE_LANCZOS, rgb, width, height, 3, whole, s->cut_w,
                                s->cut_h));
    WEFT_GO(weft_image_interpolate(false, whole, s->cut_w, s->cut_h, 3, *fitted, s->w, s->h));
out:
    weft_free(whole);
    weft_free(rgb);
    return status;
}

/* Centres an image on white: canvas (height,width,3) in [-1,1]. */
static weft_status read_reference(const weft_control_video *c, const char *path, float *canvas)
{
    const int64_t height = c->canvas.height, width = c->canvas.width;
    float *fitted = NULL;
    fit s = {0};
    const weft_status_code status = read_fitted(c, path, &fitted, &s);
    for (int64_t i = 0; status == WEFT_OK && i < height * width; i++) {
        const int64_t y = i / width - (height - s.h) / 2, x = i % width - (width - s.w) / 2;
        const bool inside = y >= 0 && y < s.h && x >= 0 && x < s.w;
        for (int64_t k = 0; k < 3; k++)
            canvas[i * 3 + k] = inside ? 2 * (fitted[(y * s.w + x) * 3 + k] / 255) - 1 : 1;
    }
    weft_free(fitted);
    return status;
}

weft_status weft_control_encode_references(const weft_control_video *c, weft_vae *vae, float *to)
{
    const int64_t cells = frame_cells(c), floats = cells * weft_control_channels(&c->grid);
    float *canvas, *latents = NULL;
    WEFT_TRY(WEFT_NEW(canvas, c->canvas.height * c->canvas.width * 3, "a reference image"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(latents, cells * c->grid.channels, "a reference image"));
    memset(to, 0, (size_t)(c->references * floats) * sizeof *to);
    for (int64_t i = 0; i < c->references; i++) {
        WEFT_GO(read_reference(c, c->reference[i], canvas));
        WEFT_GO(weft_vae_encode(vae, canvas, 1, latents));
        put_latents(c, latents, cells, 0, to + (c->references - 1 - i) * floats);
    }
out:
    weft_free(latents);
    weft_free(canvas);
    return status;
}

/* ---- the video ------------------------------------------------------------------------------- */

weft_status weft_control_encode(const weft_control_video *c, weft_vae *vae, float *to)
{
    to += c->references * frame_cells(c) * weft_control_channels(&c->grid);
    weft_status_code status = WEFT_OK;
    float *latents = weft_alloc(latent_cells(c) * c->grid.channels * (int64_t)sizeof *latents);
    uint8_t *is_new = c->mask ? weft_alloc(pixel_count(c)) : NULL;
    mask_frames mask = {is_new, c->canvas.height * c->canvas.width};
    pixels p = {.canvas = &c->canvas, .is_new = is_new};
    WEFT_GO(WEFT_ALLOCATED(latents && (!c->mask || is_new), "the control video"));
    if (c->mask)
        WEFT_GO(weft_mask_read(c->mask, &c->canvas, put_mask, &mask));
    if (c->video)
        WEFT_GO(weft_frame_source_open(c->video, &c->canvas, &p.frame_source));
    WEFT_GO(encode_pixels(c, vae, &p, 0, latents, to));
    p.new_pixels = true;
    WEFT_GO(encode_pixels(c, vae, &p, c->grid.channels, latents, to));
    fill_mask(c, is_new, to);
out:
    weft_frame_source_close(p.frame_source);
    weft_free(is_new);
    weft_free(latents);
    return status;
}
