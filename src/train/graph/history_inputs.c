#include "train/graph/history_inputs.h"

#include "base/rng.h"

#include <string.h>

/* The ports of the history, by scale: latents and time positions. */
static const weft_port ports_of[WEFT_HISTORY_SCALES][2] = {
    {WEFT_PORT_HISTORY, WEFT_PORT_HISTORY_INDEX},
    {WEFT_PORT_HISTORY_2X, WEFT_PORT_HISTORY_2X_INDEX},
    {WEFT_PORT_HISTORY_4X, WEFT_PORT_HISTORY_4X_INDEX}};

weft_video_sections weft_history_inputs_sections(const weft_run_models *m, int64_t frames)
{
    weft_video_sections s = m->sections;
    s.count = s.frames ? (frames - !s.precedes) / s.frames : 0;
    return s;
}

void weft_history_inputs_build(weft_graph *g, const weft_run_models *m, const weft_model_size *size,
                               weft_ports *ports)
{
    weft_model_size own = *size;
    for (int k = 0; k < WEFT_HISTORY_SCALES; k++)
        own.history[k] = weft_history_frames[k] + (k == 0); /* with the image */
    ports->at[WEFT_PORT_INDEX] = weft_model_input(g, &m->denoiser, &own, WEFT_PORT_INDEX, "batch.");
    for (int k = 0; k < WEFT_HISTORY_SCALES; k++)
        for (int i = 0; i < 2; i++)
            ports->at[ports_of[k][i]] =
                weft_model_input(g, &m->denoiser, &own, ports_of[k][i], "batch.");
}

/* ---- values --------------------------------------------------------------------------------- */

int64_t weft_history_inputs_draw(const weft_video_sections *s, int64_t key)
{
    weft_rng rng = weft_rng_make((uint64_t)key, WEFT_RNG_SECTION);
    return (int64_t)weft_rng_below(&rng, (uint64_t)s->count);
}

/* Copies latent frame `from` of the clip, normalised and times `scale`. */
static void copy_frame(const weft_history_clip *c, int64_t from, double scale, float *to)
{
    const float *x = c->latents + from * c->frame;
    for (int64_t i = 0; i < c->frame; i++) {
        const int64_t at = weft_grid_statistics_at(c->grid, from) + i % c->grid->channels;
        to[i] = (float)(scale * (x[i] - c->grid->mean[at]) / c->grid->deviation[at]);
    }
}

/* Row `row` of an input of `floats` elements a row. NULL: this rank does not need the input. */
static float *row_of(weft_input_lookup *find, void *user, weft_port port, int64_t row,
                     int64_t floats)
{
    char name[64];
    snprintf(name, sizeof name, "batch.%s", weft_port_name(port));
    weft_tensor *t = find(user, name);
    return t ? (float *)t->data + row * floats : NULL;
}

void weft_history_inputs_fill(const weft_video_sections *s, int64_t at, const weft_history_clip *c,
                              int64_t row, weft_input_lookup *find, void *user)
{
    float *section = row_of(find, user, WEFT_PORT_LATENTS, row, s->frames * c->frame),
          *index = row_of(find, user, WEFT_PORT_INDEX, row, s->frames);
    for (int64_t i = 0; i < s->frames; i++) {
        if (section)
            copy_frame(c, weft_video_section_first(s, at) + i, c->scale, section + i * c->frame);
        if (index)
            index[i] = (float)weft_video_section_index(s, at, i);
    }
    for (int k = 0; k < WEFT_HISTORY_SCALES; k++) {
        const int64_t frames = weft_history_frames[k] + (k == 0);
        float *latents = row_of(find, user, ports_of[k][0], row, frames * c->frame),
              *place = row_of(find, user, ports_of[k][1], row, frames);
        for (int64_t i = 0; i < frames; i++) {
            const int64_t from = weft_video_section_source(s, at, k, i, false);
            if (place)
                place[i] = (float)weft_video_section_history_index(s, at, k, i);
            if (latents && from >= 0)
                copy_frame(c, from, 1, latents + i * c->frame);
            else if (latents)
                memset(latents + i * c->frame, 0, (size_t)c->frame * sizeof *latents);
        }
    }
}

/* ---- checks --------------------------------------------------------------------------------- */

/* Sets the length of a section in latent frames. */
static weft_status set_length(const weft_run *run, weft_run_models *m,
                              const weft_frame_condition *how, const char *path)
{
    const int64_t f = m->grid.factor[0],
                  window = run->history.window ? run->history.window : m->trained_sections.window;
    char rule[32];
    m->sections.frames = how->section;
    if (!window)
        return WEFT_OK;
    if (how->precedes ? !weft_grid_takes_frames(&m->grid, window) : window % f != 0)
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.file = path, .key = "history.window", WEFT_NUMBER(window)),
                          how->precedes
                              ? "a section of %s has %s frames, as a video of its own for "
                                "the autoencoder"
                              : "a section of %s has a multiple of %s frames",
                          weft_model_class(&m->denoiser),
                          how->precedes ? weft_grid_rule(&m->grid, rule)
                                        : (snprintf(rule, sizeof rule, "%" PRId64, f), rule));
    m->sections.frames = how->precedes ? weft_grid_latent_frames(&m->grid, window) : window / f;
    return WEFT_OK;
}

int64_t weft_history_inputs_window(const weft_run_models *m)
{
    return m->sections.precedes ? weft_grid_frames(&m->grid, m->sections.frames)
                                : m->sections.frames * m->grid.factor[0];
}

/* Checks that every clip has whole sections, after its first latent frame if that is the image. */
static weft_status check_clips(const weft_run *run, const weft_run_models *m, const char *path)
{
    const int64_t window = weft_history_inputs_window(m), before = !m->sections.precedes;
    const weft_train_stage *stage = run->train_stages.item;
    for (int64_t i = 0; i < run->train_stages.count; i++)
        for (int b = 0; b < weft_train_stage_bucket_count(&stage[i]); b++) {
            const int64_t frames = weft_train_stage_bucket(&stage[i], b)->frames,
                          count = (frames - before) / window;
            char key[64];
            if (count >= 1 && before + count * window == frames)
                continue;
            return weft_error(WEFT_MSG_CONFIG_VALUE,
                              WEFT_AT(.file = path,
                                      .key = weft_train_stage_bucket_key(&stage[i], i, b, key),
                                      WEFT_NUMBER(frames)),
                              "%" PRId64 " frames are not %s sections of %" PRId64
                              " frames. Use %" PRId64 " frames, or another history.window.",
                              frames, before ? "a first frame and" : "whole", window,
                              before + (count > 0 ? count + 1 : 1) * window);
        }
    return WEFT_OK;
}

weft_status weft_history_inputs_read(const weft_run *run, weft_run_models *m, const char *path)
{
    if (run->condition != WEFT_CONDITION_HISTORY)
        return WEFT_OK;
    const weft_frame_condition how = weft_model_takes_port(&m->denoiser);
    const int order = run->history.sections;
    if (how.form != WEFT_FRAME_CONDITION_HISTORY)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.file = path, .key = "condition", .value = "history"),
                          "this %s has no history of other latent frames. "
                          "HunyuanVideoFramepackTransformer3DModel and HeliosTransformer3DModel "
                          "have it.",
                          weft_model_class(&m->denoiser));
    if (how.precedes && order == WEFT_HISTORY_ORDER_REVERSE)
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.file = path, .key = "history.sections", .value = "reverse"),
                          "%s always denoises from the first section to the last. Remove the key.",
                          weft_model_class(&m->denoiser));
    if (!m->grid.causal)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "condition"),
                          "the latents of this autoencoder have no separate frame for the first "
                          "frame of a video; use a causal autoencoder, such as AutoencoderKLWan");
    if (how.precedes && run->autoencoder.tile && run->autoencoder.tile[0] &&
        strcmp(run->autoencoder.tile, "off") != 0)
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT,
            WEFT_AT(.file = path, .key = "autoencoder.tile", .value = run->autoencoder.tile),
            "each section of %s is encoded as a video of its own, which tiles do not support. "
            "Remove the key.",
            weft_model_class(&m->denoiser));
    const bool as_before = order == WEFT_HISTORY_ORDER_AUTO && m->trained_sections.forward;
    m->sections = (weft_video_sections){.forward = how.precedes || as_before ||
                                                   order == WEFT_HISTORY_ORDER_FORWARD,
                                        .precedes = how.precedes};
    WEFT_TRY(set_length(run, m, &how, path));
    WEFT_TRY(check_clips(run, m, path));
    if (how.precedes)
        m->grid.section = m->sections.frames;
    return WEFT_OK;
}
