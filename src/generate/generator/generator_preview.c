#include "generate/generator/generator_preview.h"

#include "generate/generator/decode.h"
#include "generate/generator/latent_stages.h"

/* Previews: the middle latent frame of each video, as predicted by the last evaluation of a step,
 * decoded as a video of one latent frame. */

static bool is_due(const weft_generator *p, int64_t step)
{
    return p->options.preview > 0 && (step + 1) % p->options.preview == 0;
}

static int64_t frame_floats(const weft_generator *p)
{
    return p->shape.latent_floats / p->shape.latent[0];
}

weft_status weft_generator_open_preview(weft_generator *p)
{
    const weft_vae_options o = {.backend = p->options.backend,
                                .halves = WEFT_VAE_DECODER,
                                .frames = weft_grid_frames(&p->model.grid, 1),
                                .height = p->options.height,
                                .width = p->options.width,
                                .products = p->options.vae_products,
                                .timestep = p->options.decode_time.timestep};
    const bool shows = !p->comm || weft_comm_rank(p->comm) == 0;
    const int64_t steps = weft_generator_steps(p);
    weft_tile chosen;
    if (p->options.preview > steps)
        return weft_error(WEFT_MSG_OPTION_INVALID,
                          WEFT_AT(.key = "--preview-interval", WEFT_NUMBER(p->options.preview)),
                          "an image every %" PRId64 " steps shows none of %" PRId64
                          " steps. Use at most %" PRId64 ", "
                          "which shows the last step.",
                          p->options.preview, steps, steps);
    if (!p->options.preview || !shows)
        return WEFT_OK;
    return weft_vae_open_within(p->model.vae_folder, &o, p->options.memory, &p->decoder.preview,
                                &chosen);
}

int64_t weft_generator_preview_bytes(const weft_generator *p)
{
    return p->decoder.preview
               ? weft_vae_bytes(p->decoder.preview) + p->options.batch * frame_floats(p) * 4
               : 0;
}

weft_status weft_generator_bind_preview(weft_generator *p)
{
    if (!p->decoder.preview)
        return WEFT_OK;
    p->decoder.seen = weft_alloc_aligned((p->options.batch + 1) * frame_floats(p) * 4);
    return p->decoder.seen ? weft_vae_bind(p->decoder.preview)
                           : weft_no_memory("--preview-interval");
}

/* The element of smaller latents that shows element i of the middle frame. */
static int64_t middle_of_stage(const weft_generator *p, int64_t i)
{
    const int64_t channels = p->model.grid.channels, columns = p->shape.latent[2];
    int64_t area[2];
    weft_latent_stages_area(p, p->shape.stage, area);
    const int64_t scale = columns / area[1], y = i / channels / columns / scale,
                  x = i / channels % columns / scale;
    return ((p->shape.sampled_frames / 2 * area[0] + y) * area[1] + x) * channels + i % channels;
}

void weft_generator_see(weft_generator *p, int64_t step, const float *x,
                        const weft_noise_level *level, const float *prediction)
{
    const int64_t frame = frame_floats(p), sampled = p->shape.sampled_floats,
                  middle = p->shape.sampled_frames / 2;
    if (!p->decoder.preview || !is_due(p, step))
        return;
    for (int64_t b = 0; b < p->options.batch; b++)
        for (int64_t i = 0; i < frame; i++) {
            const int64_t at =
                b * sampled + (p->shape.stages ? middle_of_stage(p, i) : middle * frame + i);
            p->decoder.seen[b * frame + i] =
                (float)(level->skip * (double)x[at] + level->out * (double)prediction[at]);
        }
}

typedef struct showing {
    const weft_generator_sink *sink;
    int64_t prompt;
} showing;

/* Takes the first of the frames that one latent frame decodes to. */
static weft_status_code on_frame(void *user, int64_t first, int64_t count, const float *frames)
{
    const showing *s = user;
    (void)count;
    return first ? WEFT_OK : s->sink->preview(s->sink->user, s->prompt, frames);
}

weft_status weft_generator_show(weft_generator *p, int64_t step, const weft_generator_sink *sink)
{
    const int64_t frame = frame_floats(p);
    if (!p->decoder.preview || !sink->preview || !is_due(p, step))
        return WEFT_OK;
    for (int64_t b = 0; b < p->options.batch && p->request.first + b < p->request.count; b++) {
        showing s = {sink, p->request.first + b};
        float *x = p->decoder.seen + p->options.batch * frame;
        weft_latents_unnormalise(&p->model.grid, weft_generator_scale(p),
                                 p->decoder.seen + b * frame, 0, 1, frame, x);
        WEFT_TRY(weft_vae_decode(p->decoder.preview, x, 1, on_frame, &s));
    }
    return WEFT_OK;
}
