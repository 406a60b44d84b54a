#include "generate/conditioning/control_video.h"

#include "base/memory.h"
#include "model/model.h"

#include <string.h>

/* The pixels of one kind, for the encoder. */
typedef struct pixels {
    const weft_canvas *canvas;
    weft_frame_source *frame_source; /* NULL: grey frames */
    const uint8_t *is_new;           /* (frames, height, width) 1: new; NULL: all pixels are new */
    bool new_pixels;                 /* keeps the new pixels; false: the others */
} pixels;

static int64_t latent_cells(const weft_control_video *c)
{
    return weft_grid_latent_frames(&c->grid, c->canvas.frames) *
           (c->canvas.height / c->grid.factor[1]) * (c->canvas.width / c->grid.factor[2]);
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

/* Encodes the pixels of one kind to the channels of the control from `channel` on. */
static weft_status encode_pixels(const weft_control_video *c, weft_vae *vae, pixels *p,
                                 int64_t channel, float *latents, float *to)
{
    const int64_t channels = c->grid.channels, all = weft_control_channels(&c->grid),
                  cells = latent_cells(c),
                  area = cells / weft_grid_latent_frames(&c->grid, c->canvas.frames);
    WEFT_TRY(weft_vae_encode_boxes(vae, read_pixels, p, c->canvas.frames, latents));
    for (int64_t i = 0; i < cells; i++)
        for (int64_t k = 0; k < channels; k++) {
            const int64_t at = weft_grid_statistics_at(&c->grid, i / area) + k;
            to[i * all + channel + k] = (latents[i * channels + k] - (float)c->grid.mean[at]) /
                                        (float)c->grid.deviation[at];
        }
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

weft_status weft_control_encode(const weft_control_video *c, weft_vae *vae, float *to)
{
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
