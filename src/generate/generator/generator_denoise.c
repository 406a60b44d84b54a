#include "generate/generator/generator_denoise.h"

#include "base/log.h"
#include "base/rng.h"
#include "comm/comm_world.h"
#include "comm/common_clock.h"
#include "exec/execute.h"
#include "exec/store/tensor_shard.h"
#include "exec/trace/timeline_file.h"
#include "generate/generator/causal_blocks.h"
#include "generate/generator/decode.h"
#include "generate/generator/first_frames.h"
#include "generate/generator/generator_decoder.h"
#include "generate/generator/generator_graphs.h"
#include "generate/generator/generator_parts.h"
#include "generate/generator/generator_preview.h"
#include "generate/generator/generator_rows.h"
#include "generate/generator/generator_sound.h"
#include "generate/generator/generator_steps.h"
#include "generate/generator/latent_stages.h"
#include "prompt/no_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns this rank's rows of a part's batch, and sets *first to the first row. */
static int64_t own_rows(const weft_generator_part *s, const char *input, int64_t *first)
{
    const weft_tensor own = weft_tensor_of(s->own, weft_graph_find(s->own, input));
    *first = own.start[0];
    return own.shape.dim[0];
}

/* Adapts the conditioning of a negative prompt, row r, to its prompt. */
static void pair_negative(weft_generator *p, int64_t r)
{
    const int64_t batch = p->options.batch, floats = p->model.text.floats;
    const char *text = weft_generator_negative(p, p->request.first + r % batch);
    const float *prompt = p->memory.context + (r - batch) * floats;
    float *negative = p->memory.context + r * floats;
    weft_text_conditioning_pair(&p->model.text, prompt, negative);
    for (int i = 0; i < p->model.text.encoders; i++)
        if (p->model.no_text[i] && (!text || !*text))
            weft_no_text_set_negative(&p->model.text, i, p->model.no_text[i], prompt, negative);
}

/* Encodes this rank's rows: rows 0..batch-1 are the prompts, rows batch.. the negative prompts. */
static weft_status encode_own_text(weft_generator *p)
{
    const int64_t batch = p->options.batch;
    for (int i = 0; i < p->model.text.encoders; i++) {
        weft_program *program = p->parts.encoder[i].program;
        int64_t first;
        char name[32];
        const int64_t rows =
            own_rows(&p->parts.encoder[i], weft_text_conditioning_input("tokens", i, name), &first);
        for (int64_t r = 0; r < rows; r++) {
            const int64_t row = first + r;
            const int64_t prompt = p->request.first + row % batch;
            const char *text = row >= batch                ? weft_generator_negative(p, prompt)
                               : prompt < p->request.count ? p->request.prompts[prompt]
                                                           : NULL;
            p->model.tokenizers.kind = row >= batch ? WEFT_TEXT_NEGATIVE : WEFT_TEXT_PROMPT;
            WEFT_TRY(weft_text_conditioning_tokenize(&p->model.text, &p->model.tokenizers, i,
                                                     weft_text_conditioning_program_input, program,
                                                     r, text ? text : ""));
            const int64_t side = p->inputs.setup.vision_side,
                          black = row >= batch ? side * side * 3 : 0;
            weft_text_conditioning_set_image(
                &p->model.text, i, weft_text_conditioning_program_input, program, r,
                p->inputs.visual.edit.count ? p->inputs.visual.edit.seen
                                            : p->inputs.visual.vision_image + black);
        }
        WEFT_TRY(weft_program_run(program));
        weft_text_conditioning_get(&p->model.text, i, program, p->shape.text_rows,
                                   p->memory.context);
    }
    for (int64_t r = batch; r < p->shape.text_rows; r++)
        pair_negative(p, r);
    return WEFT_OK;
}

/* Fills `context` for all rows. If one rank has the text encoders, that rank broadcasts the
 * result. */
static weft_status encode_text(weft_generator *p)
{
    const int64_t bytes =
        p->shape.text_rows * p->model.text.floats * (int64_t)sizeof *p->memory.context;
    if (weft_generator_has_texts(p))
        WEFT_TRY(encode_own_text(p));
    return p->layout.text_rank < 0
               ? WEFT_OK
               : weft_comm_broadcast(p->comm, p->memory.context, bytes, p->layout.text_rank);
}

static weft_status_code ask(weft_generator *p, const weft_generator_part *expert,
                            const weft_denoiser_query *a, const float *x)
{
    const int64_t batch = p->options.batch;
    int64_t first;
    const int64_t rows = own_rows(expert, "batch.latents", &first);
    if (p->shape.cached)
        weft_causal_blocks_fill_places(p, a);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t branch = (first + r) / batch,
                      text = first + r < p->shape.text_rows ? first + r : (first + r) % batch;
        weft_generator_fill_row(p, a, r, text < batch,
                                x + (first + r) % batch * p->shape.sampled_floats);
        weft_generator_weaken_row(p, a, r, branch);
        weft_text_conditioning_set(&p->model.text, weft_text_conditioning_program_input, a->program,
                                   r, p->memory.context + text * p->model.text.floats);
    }
    return weft_generator_has_equal_branches(p, rows) ? weft_generator_check_rows(a) : WEFT_OK;
}

/* One prediction of the sampler. */
typedef struct evaluation {
    int64_t step;
    const float *x;
    const weft_noise_level *level;
    const float *times;      /* timestep of each latent frame; NULL: of `level` */
    weft_timeline *timeline; /* timeline of the step; NULL: not recorded */
} evaluation;

/* Evaluates window i in step `own` of this denoiser; *out: its prediction. */
static weft_status_code predict_window(weft_generator *p, const weft_generator_part *part,
                                       const evaluation *e, int64_t own, int64_t i, float **out)
{
    weft_denoiser_query a = {part->program, e->level,
                             weft_temporal_windows_first(&p->shape.windows, i), e->times};
    if (part->cache)
        WEFT_TRY(weft_feature_cache_begin_step(part->cache, i, own, &a.program));
    WEFT_TRY(ask(p, part, &a, e->x));
    WEFT_TRY(part->cache ? weft_feature_cache_end_step(part->cache, &a.program)
                         : weft_program_run(a.program));
    if (e->timeline)
        WEFT_TRY(weft_timeline_add_program(e->timeline, a.program));
    *out =
        (float *)weft_program_output(a.program, "prediction")->data + weft_causal_blocks_begin(p);
    return WEFT_OK;
}

/* Whether brightness and background of the windows are the model's choice. With a given image,
 * video or control they are given. */
static bool is_free(const weft_generator *p)
{
    const weft_visual_inputs *given = &p->options.visual;
    return !given->image && !given->video && !given->control && !given->references;
}

/* Sets memory.windows[2] to the shift of the predictions of window i, out (batch, window...). Every
 * channel of the denoised window gets the first window's mean, so that colours do not drift.
 * `branch` 1: without prompt. Window 0 is shifted by 0. */
static void align(const weft_generator *p, const evaluation *e, int64_t i, const float *out,
                  int branch)
{
    const weft_temporal_windows *w = &p->shape.windows;
    const int64_t frame = p->shape.sampled_floats / p->shape.sampled_frames,
                  channels = p->model.grid.channels, all = p->options.batch * channels;
    float *first = p->memory.windows + branch * all, *shift = p->memory.windows + 2 * all;
    memset(shift, 0, (size_t)all * sizeof *shift);
    if (!is_free(p))
        return;
    for (int64_t row = 0; row < p->options.batch; row++) {
        const weft_window_values values = {.x = e->x + row * p->shape.sampled_floats +
                                                weft_temporal_windows_first(w, i) * frame,
                                           .out = out + row * w->window * frame,
                                           .cells = frame / channels,
                                           .channels = channels,
                                           .skip = e->level->skip,
                                           .scale = e->level->out};
        float *mean = (i ? shift : first) + row * channels;
        weft_temporal_windows_mean(w, p->model.grid.causal ? 1 : 0, &values, mean);
        if (i)
            weft_temporal_windows_shift(&values, first + row * channels, mean);
    }
}

/* Adds the weighted predictions of window i, out (batch, window...), to `prediction`. */
static void blend(const weft_generator *p, const evaluation *e, int64_t i, const float *out,
                  int branch, float *prediction)
{
    const weft_temporal_windows *w = &p->shape.windows;
    const int64_t frame = p->shape.sampled_floats / p->shape.sampled_frames,
                  channels = p->model.grid.channels, first = weft_temporal_windows_first(w, i);
    align(p, e, i, out, branch);
    for (int64_t k = 0; k < p->options.batch * w->window; k++) {
        const int64_t at = first + k % w->window;
        const float share = (float)weft_temporal_windows_share(w, i, at);
        const float *shift = p->memory.windows + (2 * p->options.batch + k / w->window) * channels;
        float *to = prediction + k / w->window * p->shape.sampled_floats + at * frame;
        for (int64_t c = 0; c < frame; c++)
            to[c] += share * (out[k * frame + c] + shift[c % channels]);
    }
}

/* Whether frame t keeps a part of its noise (weft_frame_condition.keeps_noise). */
static bool keeps_noise(const weft_generator *p, int64_t t)
{
    const weft_visual_condition *g = &p->inputs.visual;
    return g->keeps_noise && g->clean_frames[t] && p->trajectory.scheduler.path == WEFT_PATH_FLOW;
}

/* Replaces the prediction by the one that leads to `latents`, at the cells of keep_mask. Every
 * sampler then stays on the line from its noise to `latents`. A frame that keeps noise has the
 * noise itself at the first level, and the line reaches `latents` that much below level 0. */
static void pin_known(const weft_generator *p, const float *x, const weft_noise_level *level,
                      float *prediction)
{
    const weft_visual_condition *g = &p->inputs.visual;
    const int64_t channels = p->model.grid.channels,
                  frame = p->shape.latent_floats / p->shape.latent[0];
    const double data =
        p->trajectory.scheduler.path == WEFT_PATH_EDM ? p->trajectory.scheduler.sigma_data : 1;
    const double missing = 1 - p->trajectory.solver_step[p->trajectory.skipped].from.sigma;
    for (int64_t i = 0; i < p->options.batch * p->shape.item_floats; i++) {
        const int64_t at = i % p->shape.item_floats;
        if (at >= p->shape.latent_floats || !g->keep_mask[at / channels])
            continue;
        const double known = (double)g->latents[at];
        prediction[i] = keeps_noise(p, at / frame)
                            ? (float)(((double)x[i] - known) / (level->sigma + missing))
                            : (float)((data * known - level->skip * (double)x[i]) / level->out);
    }
}

/* Combines the branches of guidance in all frames, or without the first `visual.apart` frames. */
static void combine(const weft_generator *p, const weft_guidance_params *params, float *prediction,
                    const float *other)
{
    const int64_t each = p->shape.sampled_floats, batch = p->options.batch,
                  skip = p->inputs.visual.apart * (p->shape.latent_floats / p->shape.latent[0]);
    weft_guidance_params rest = *params;
    if (!skip || p->shape.sections.count) { /* sections have no given frames */
        p->trajectory.guidance->combine(params, prediction, other, batch * each);
        return;
    }
    rest.each = params->each < each ? params->each : each - skip;
    for (int64_t at = skip; at < batch * each; at += each) {
        rest.average = params->average ? params->average + at : NULL;
        p->trajectory.guidance->combine(&rest, prediction + at, other + at, each - skip);
    }
}

/* The prediction of the model with guidance. */
static weft_status_code predict_guided(weft_generator *p, const evaluation *e, float *prediction)
{
    const double time = e->level->time / (double)p->trajectory.scheduler.times;
    const weft_generator_part *part = weft_steps_denoiser(p, e->level, e->step);
    const int64_t all = p->options.batch * p->shape.sampled_floats,
                  own = weft_steps_own(p, part, e->step);
    const bool alone = part == p->parts.alone || part == p->parts.alone + 1;
    const bool guided = p->trajectory.guidance->rows > 1 && !alone;
    float *other = p->memory.other, *out;
    if (p->shape.windows.count > 1) {
        memset(prediction, 0, (size_t)all * 4);
        memset(other, 0, (size_t)all * 4);
    }
    for (int64_t i = 0; i < p->shape.windows.count; i++) {
        WEFT_TRY(predict_window(p, part, e, own, i, &out));
        const int64_t half =
            all / p->shape.sampled_frames *
            (p->shape.causal ? weft_causal_blocks_frames(p) : p->shape.windows.window);
        if (p->shape.windows.count > 1) {
            blend(p, e, i, out, 0, prediction);
            if (guided)
                blend(p, e, i, out + half, 1, other);
        } else if (p->shape.sound_steps) {
            weft_generator_take_both(p, part->program, 0, prediction);
            if (guided)
                weft_generator_take_both(p, part->program, 1, other);
            if (!alone)
                weft_generator_take_weakened(p, part->program);
        } else {
            memcpy(prediction, out, (size_t)all * 4);
            other = out + half;
        }
    }
    const double scale =
        p->trajectory.guidance->takes_scale ? p->options.true_cfg : p->options.guidance;
    const weft_guider *guider = &p->model.guider;
    const int64_t frame = p->shape.latent_floats / p->shape.latent[0];
    int64_t area[2];
    weft_latent_stages_area(p, p->shape.stage, area);
    const weft_guidance_params params = {
        .scale = scale,
        .low_scale = weft_given_or(p->options.guidance_low, scale),
        .boundary = p->options.boundary.value,
        .rescale = p->options.guidance_rescale,
        .each = guider->per_frame ? frame : p->shape.sampled_floats,
        .eta = guider->eta,
        .most = guider->most,
        .momentum = guider->momentum,
        .from_conditional = guider->from_conditional && p->trajectory.guidance == guider->method,
        .average = p->memory.average,
        .size = {area[0], area[1], p->model.grid.channels},
        .token = {p->model.patch.factor[1], p->model.patch.factor[2]},
        .time = time,
        .timestep = e->level->time,
        .steps = p->options.steps};
    if (p->shape.sound_steps && p->shape.branches > 1 && !alone)
        weft_generator_combine_both(p, &params, e->x, e->level->sigma, prediction,
                                    guided ? other : NULL);
    else if (p->trajectory.guidance->combine && (guided || p->trajectory.guidance->rows == 1))
        combine(p, &params, prediction, other);
    return WEFT_OK;
}

static weft_status_code predict_at(weft_generator *p, const evaluation *e, float *prediction)
{
    const size_t bytes = (size_t)(p->options.batch * p->shape.sampled_floats) * sizeof *prediction;
    if (weft_steps_predict_zero(p, e->step))
        memset(prediction, 0, bytes);
    else
        WEFT_TRY(predict_guided(p, e, prediction));
    if (p->inputs.visual.keep_mask && p->inputs.visual.latents && !p->shape.sections.count &&
        !p->shape.level_frames)
        pin_known(p, e->x, e->level, prediction);
    return WEFT_OK;
}

typedef struct run_state {
    weft_generator *generator;
    const weft_generator_sink *sink;
    int64_t prompt;             /* prompt being decoded */
    int64_t passed;             /* its frames that the sink has */
    weft_sampler_cursor cursor; /* position in the current stage of the section */
    int64_t before;             /* steps of the section's stages before the current one */
} run_state;

/* Computes the prediction and writes its timeline; the timelines of all ranks have the same
 * origin. */
static weft_status_code trace_prediction(weft_generator *p, evaluation e, float *prediction)
{
    const int rank = p->comm ? weft_comm_rank(p->comm) : 0;
    char path[1100];
    weft_timeline timeline = weft_timeline_open(rank, 1);
    if (p->comm)
        WEFT_TRY(weft_timeline_open_together(p->comm, NULL, &timeline));
    e.timeline = &timeline;
    snprintf(path, sizeof path, "%.1000s/trace-%d.json", p->options.trace, rank);
    weft_status_code status = WEFT_OK;
    WEFT_GO(predict_at(p, &e, prediction));
    WEFT_GO(weft_timeline_write(&timeline, path));
out:
    weft_timeline_free(&timeline);
    return status;
}

static weft_status_code on_predict(void *user, int64_t step, const float *x,
                                   const weft_noise_level *level, float *prediction)
{
    const run_state *r = user;
    weft_generator *p = r->generator;
    step += r->before;
    const evaluation e = {.step = step, .x = x, .level = level};
    const bool traced = p->options.trace && step + 1 == weft_steps_of_section(p);
    WEFT_TRY(traced ? trace_prediction(p, e, prediction) : predict_at(p, &e, prediction));
    weft_generator_see(p, step, x, level, prediction);
    return WEFT_OK;
}

/* Noise of a draw: a function of the video's seed, the draw and the position, the same in any
 * batch. */
static weft_status_code on_noise(void *user, int64_t draw, float *noise)
{
    const run_state *r = user;
    const int64_t each = r->generator->shape.sampled_floats, batch = r->generator->options.batch;
    const uint64_t first = weft_steps_noise_at(r->generator, draw);
    for (int64_t i = 0; i < batch * each; i++) {
        const int64_t prompt = r->generator->request.first + i / each;
        const uint64_t seed =
            prompt < r->generator->request.count ? r->generator->request.seeds[prompt] : 0;
        noise[i] = weft_random_normal(seed, WEFT_RNG_SAMPLER, first + (uint64_t)(i % each));
    }
    return WEFT_OK;
}

static weft_status_code on_step(void *user, int64_t done, int64_t steps)
{
    (void)steps;
    const run_state *r = user;
    weft_generator *p = r->generator;
    int64_t before = r->before;
    done += r->before;
    for (int64_t i = 0; i < p->sampling.section; i++)
        before += weft_generator_rounds(p, i);
    weft_scratch_drop(&p->memory.sampler_buffer);
    p->sampling.cursor = r->cursor;
    p->sampling.cursor.step += before;
    p->sampling.cursor.end = 0;
    WEFT_TRY(weft_generator_show(p, done - 1, r->sink));
    return r->sink->step ? r->sink->step(r->sink->user, p->request.first, p->sampling.cursor.step,
                                         weft_generator_steps(p))
                         : WEFT_OK;
}

/* A decoder that got less memory begins again; the sink gets each frame once. */
static weft_status_code on_frames(void *user, int64_t first_frame, int64_t count,
                                  const float *frames)
{
    run_state *r = user;
    const weft_generator_options *o = &r->generator->options;
    const int64_t known = r->passed > first_frame ? r->passed - first_frame : 0;
    if (known >= count)
        return WEFT_OK;
    WEFT_TRY(r->sink->frames(r->sink->user, r->prompt, first_frame + known, count - known,
                             frames + known * o->height * o->width * 3));
    r->passed = first_frame + count;
    return WEFT_OK;
}

/* Computes the autoencoder's values of the latent frames from `first` to `end` of a video of the
 * batch, and returns the values of the video. They are in p->memory.other: it is unused between
 * batches, and blocks of causal models do not use it. x stays for another attempt. */
static const float *decoder_input(weft_generator *p, run_state *r, int64_t video, int64_t first,
                                  int64_t end)
{
    float *to = p->memory.other;
    const int64_t frame = p->shape.latent_floats / p->shape.latent[0];
    if (r->prompt != p->request.first + video)
        r->passed = 0;
    r->prompt = p->request.first + video;
    weft_latents_unnormalise(&p->model.grid, weft_generator_scale(p),
                             p->memory.x + video * p->shape.item_floats + p->shape.before * frame,
                             first, end, frame, to);
    weft_decode_time_mix(&p->options.decode_time, p->request.seeds[r->prompt], first * frame,
                         end * frame, to);
    return to;
}

/* Decodes the latent frames from `place` to `ready`, of a video of `frames`, with less memory if
 * necessary. `before`: frames of the complete video before this one. */
static weft_status decode_next(weft_generator *p, run_state *r, const float *latents,
                               int64_t frames, int64_t ready, int64_t before, weft_vae_place *place)
{
    const weft_refinement *refined = &p->shape.refinement;
    weft_frames_skip skip = {.sink = on_frames,
                             .user = r,
                             .lead = p->shape.lead * p->model.grid.factor[0] + refined->front,
                             .frame = p->options.height * p->options.width * 3,
                             .before = before,
                             .end = refined->frames};
    weft_status_code status = weft_vae_decode_next(p->decoder.vae, latents, frames, ready, place,
                                                   weft_frames_skip_sink, &skip);
    while (status == WEFT_E_MEMORY && weft_generator_decoder_may_shrink(p)) {
        WEFT_TRY(weft_generator_decoder_shrink(p));
        *place = (weft_vae_place){0};
        status = weft_vae_decode_next(p->decoder.vae, latents, frames, ready, place,
                                      weft_frames_skip_sink, &skip);
    }
    return status;
}

/* Decodes what the first `ready` latent frames of a video of the batch complete, after `place`. */
static weft_status decode_ready(weft_generator *p, run_state *r, int64_t video, int64_t ready,
                                weft_vae_place *place)
{
    const int64_t frames = p->shape.latent[0] - p->shape.before;
    ready -= p->shape.before;
    const bool reads = weft_vae_reads(p->decoder.vae, frames, ready);
    const float *latents = decoder_input(p, r, video, reads ? place->latents : ready, ready);
    return decode_next(p, r, latents, frames, ready, 0, place);
}

/* Decodes a video of the batch, section by section if each is a video of its own to the decoder. */
static weft_status decode_video(weft_generator *p, run_state *r, int64_t video)
{
    const int64_t frames = p->shape.latent[0] - p->shape.before;
    const int64_t section = p->model.grid.section ? p->model.grid.section : frames;
    const int64_t frame = p->shape.latent_floats / p->shape.latent[0];
    const float *latents = decoder_input(p, r, video, 0, frames);
    for (int64_t at = 0; at < frames; at += section) {
        weft_vae_place place = {0};
        WEFT_TRY(decode_next(p, r, latents + at * frame, section, section,
                             at ? weft_grid_frames(&p->model.grid, at) : 0, &place));
    }
    return WEFT_OK;
}

/* Passes on the finished latents and the sound of a batch, and decodes the frames that are left. */
static weft_status decode_all(weft_generator *p, run_state *r, int64_t count)
{
    const bool first_rank = !p->comm || weft_comm_rank(p->comm) == 0;
    int64_t dim[4];
    weft_generator_latents(p, dim);
    for (int64_t i = 0; i < count && r->sink->latents && first_rank; i++) {
        const float *x = p->memory.x + i * p->shape.item_floats;
        const int64_t sound[2] = {p->shape.sound_steps, p->model.sound.features};
        if (p->shape.sound_steps && r->sink->audio_latents)
            WEFT_TRY(r->sink->audio_latents(r->sink->user, p->request.first + i, sound,
                                            x + p->shape.latent_floats));
        WEFT_TRY(r->sink->latents(r->sink->user, p->request.first + i, dim, x));
    }
    for (int64_t i = 0; i < count; i++) {
        if (first_rank)
            WEFT_TRY(weft_generator_decode_sound(p, p->request.first + i,
                                                 p->memory.x + i * p->shape.item_floats, r->sink));
        WEFT_TRY(p->shape.causal ? decode_ready(p, r, i, p->shape.latent[0], &p->sampling.decoded)
                                 : decode_video(p, r, i));
    }
    return WEFT_OK;
}

/* Warns with one line for each encoder that truncates a prompt. */
static weft_status warn_truncation(const weft_generator *p, int64_t prompt, const char *text)
{
    weft_buf out = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(
        weft_text_conditioning_format_truncation(&p->model.text, &p->model.tokenizers, text, &out));
    for (char *line = out.data, *end; line && (end = strchr(line, '\n')); line = end + 1)
        weft_warning(WEFT_MSG_PROMPT_TRUNCATED, WEFT_NOWHERE, "prompt %" PRId64 " %.*s", prompt + 1,
                     (int)(end - line), line);
out:
    weft_buf_free(&out);
    return status;
}

void weft_generator_begin_caches(weft_generator *p)
{
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < parts; i++)
        if (part[i]->cache)
            weft_feature_cache_begin(part[i]->cache,
                                     weft_steps_own(p, part[i], weft_steps_of_section(p)));
}

/* First element of the noise of a latent frame. Frames after the first of several windows have its
 * noise again: brightness and background depend on the noise, and would drift from window to
 * window. */
static int64_t noise_of_frame(const weft_generator *p, uint64_t seed, int64_t frame)
{
    const int64_t source =
        weft_temporal_windows_noise(&p->shape.windows, p->model.grid.causal ? 1 : 0, seed, frame);
    return source * (p->shape.latent_floats / p->shape.latent[0]);
}

/* Initial x of a video: noise at the first level that is run, with the known latents added. */
static void begin_with(const weft_generator *p, int64_t row, float *x)
{
    const weft_visual_condition *g = &p->inputs.visual;
    const int64_t prompt = p->request.first + row, channels = p->model.grid.channels;
    /* rows after the last prompt are discarded */
    const uint64_t seed = prompt < p->request.count ? p->request.seeds[prompt] : 0;
    const float *noise =
        prompt < p->request.noises ? p->request.noise + prompt * p->shape.begun_floats : NULL;
    const weft_noise_level *from = &p->trajectory.solver_step[p->trajectory.skipped].from;
    const double data =
        p->trajectory.scheduler.path == WEFT_PATH_EDM ? p->trajectory.scheduler.sigma_data : 1;
    const float begin = (float)weft_scheduler_first(&p->trajectory.scheduler,
                                                    p->trajectory.solver_step),
                tint = (float)g->image_noise_share;
    const int64_t area = p->shape.latent[1] * p->shape.latent[2], frame = area * channels;
    const int64_t video = p->shape.begun_floats - p->shape.sound_floats;
    int64_t drawn = 0;
    for (int64_t i = video; i < p->shape.begun_floats; i++)
        x[i] = begin * (noise ? noise[i] : weft_random_normal(seed, WEFT_RNG_NOISE, (uint64_t)i));
    for (int64_t i = 0; i < video; i++, drawn++) {
        if (i % frame == 0)
            drawn = noise_of_frame(p, seed, i / frame);
        const float n =
            noise ? noise[i] : weft_random_normal(seed, WEFT_RNG_NOISE, (uint64_t)drawn);
        const bool kept = g->keep_mask && g->keep_mask[i / channels],
                   known = g->latents && !keeps_noise(p, i / frame) &&
                           (p->trajectory.skipped || p->trajectory.first_level > 0 || kept);
        if (known && kept &&
            (p->shape.sections.count || p->shape.level_frames)) { /* no sampler denoises it */
            x[i] = g->latents[i];
            continue;
        }
        const int64_t cell = i / channels % area;
        const float own =
            g->image_noise_share > 0
                ? n * (1 - tint) + weft_visual_condition_noise_image(g, cell)[i % channels] * tint
                : n;
        x[i] = known ? (float)(from->alpha * data * (double)g->latents[i] + from->sigma * (double)n)
                     : begin * own;
    }
}

/* Sets kept cells to their known latents, bitwise. */
static void end_with(const weft_generator *p, float *x)
{
    const weft_visual_condition *g = &p->inputs.visual;
    const double data =
        p->trajectory.scheduler.path == WEFT_PATH_EDM ? p->trajectory.scheduler.sigma_data : 1;
    const int64_t frame = p->shape.latent_floats / p->shape.latent[0];
    if (p->shape.level_frames)
        return;
    for (int64_t i = 0; g->latents && i < p->shape.latent_floats; i++)
        if (g->keep_mask[i / p->model.grid.channels] && !keeps_noise(p, i / frame))
            x[i] = (float)(data * (double)g->latents[i]);
}

/* ---- a noise level per block of frames ------------------------------------------------------ */

/* A block that runs a step: its part of the prediction, and the source of its noise. */
typedef struct block_step {
    weft_generator *generator;
    const float *prediction; /* the block's part */
    int64_t floats;          /* floats of the block */
    int64_t number;          /* position of the block in the video */
    int calls;
} block_step;

static weft_status_code predict_block(void *user, int64_t step, const float *x,
                                      const weft_noise_level *level, float *prediction)
{
    block_step *b = user;
    (void)step;
    (void)x;
    (void)level;
    if (b->calls++)
        return weft_error(WEFT_MSG_OPTION_CONFLICT,
                          WEFT_AT(.key = "--sampler", .value = b->generator->options.sampler->name),
                          "the sampler evaluates the model more than once in a step. Noise levels "
                          "per frame need one evaluation, such as with unipc or euler.");
    memcpy(prediction, b->prediction, (size_t)b->floats * sizeof *prediction);
    return WEFT_OK;
}

static weft_status_code noise_of_block(void *user, int64_t draw, float *noise)
{
    const block_step *b = user;
    const uint64_t seed = b->generator->request.seeds[b->generator->request.first];
    draw += b->number * WEFT_DRAWS_OF_SECTION;
    for (int64_t i = 0; i < b->floats; i++)
        noise[i] = weft_random_normal(seed, WEFT_RNG_SAMPLER, (uint64_t)(draw * b->floats + i));
    return WEFT_OK;
}

/* Rounds of a section. cursor[k]: the sampler's position after k steps, the same for all blocks. */
typedef struct level_rounds {
    weft_frame_levels levels;
    weft_sampler_cursor *cursor; /* [steps + 1] */
    float *times;                /* [sampled_frames] */
    int64_t floats;              /* floats of a block */
    int64_t history;             /* floats of a block's history */
} level_rounds;

static weft_status_code record_cursor(void *user, int64_t done, int64_t steps)
{
    level_rounds *l = user;
    (void)steps;
    l->cursor[done] = l->cursor[0];
    return WEFT_OK;
}

static weft_status_code predict_nothing(void *user, int64_t step, const float *x,
                                        const weft_noise_level *level, float *prediction)
{
    (void)user;
    (void)step;
    (void)level;
    *prediction = *x;
    return WEFT_OK;
}

/* Records the sampler's positions by a trajectory of one number. */
static weft_status record_cursors(weft_generator *p, level_rounds *l)
{
    const weft_solver *solver = &p->trajectory.scheduler.solver;
    const weft_sampler_callbacks callbacks = {.predict = predict_nothing,
                                              .noise = weft_steps_no_noise,
                                              .progress = record_cursor,
                                              .user = l};
    float x = 0.5f, *work;
    WEFT_TRY(WEFT_NEW(work, weft_sampler_workspace_floats(p->options.sampler, solver, 1) + 1,
                      "a sampling trajectory"));
    const weft_status_code status =
        weft_sampler_run(p->options.sampler, solver, p->trajectory.solver_step, l->levels.steps, &x,
                         1, 1, work, &l->cursor[0], &callbacks);
    weft_free(work);
    l->cursor[0] = (weft_sampler_cursor){0};
    return status;
}

/* Runs one step of block i at `x`, with the prediction for the section. */
static weft_status step_block(weft_generator *p, level_rounds *l, int64_t i, float *x,
                              const float *prediction)
{
    const int64_t all = p->shape.sampled_floats, step = l->levels.row[i] - 1;
    const weft_solver *solver = &p->trajectory.scheduler.solver;
    float *history = p->memory.work + i * l->history,
          *work = p->memory.work + weft_sampler_history_floats(p->options.sampler, solver, all);
    block_step b = {.generator = p,
                    .prediction = prediction + i * l->floats,
                    .floats = l->floats,
                    .number = p->sampling.section * l->levels.blocks + i};
    const weft_sampler_callbacks callbacks = {
        .predict = predict_block, .noise = noise_of_block, .user = &b};
    weft_sampler_cursor cursor = l->cursor[step];
    cursor.end = step + 1;
    memcpy(work, history, (size_t)l->history * sizeof *work);
    WEFT_TRY(weft_sampler_run(p->options.sampler, solver, p->trajectory.solver_step,
                              l->levels.steps, x + i * l->floats, l->floats, l->floats, work,
                              &cursor, &callbacks));
    memcpy(history, work, (size_t)l->history * sizeof *work);
    return WEFT_OK;
}

/* Evaluates the model once for all frames of a section, then runs the blocks of a round. */
static weft_status run_round(weft_generator *p, level_rounds *l, float *x)
{
    const int64_t frames = p->shape.level_frames, steps = l->levels.steps;
    float *prediction = p->memory.prediction;
    for (int64_t t = 0; t < p->shape.sampled_frames; t++) {
        const int64_t row = l->levels.row[t / frames];
        /* timesteps are whole numbers; frames before their first step have the one of noise */
        l->times[t] = row == 0      ? 999
                      : row > steps ? 0
                                    : (float)floor(p->trajectory.solver_step[row - 1].from.time);
    }
    const evaluation e = {.x = x, .level = &p->trajectory.solver_step->from, .times = l->times};
    WEFT_TRY(predict_at(p, &e, prediction));
    for (int64_t i = 0; i < l->levels.blocks; i++)
        if (l->levels.runs[i])
            WEFT_TRY(step_block(p, l, i, x, prediction));
    return WEFT_OK;
}

/* Denoises a section from round `done` on. */
static weft_status sample_levels(weft_generator *p, run_state *r, int64_t done, float *x)
{
    const int64_t blocks = p->shape.sampled_frames / p->shape.level_frames,
                  steps = weft_steps_of_section(p),
                  rounds = weft_generator_rounds(p, p->sampling.section);
    const weft_solver *solver = &p->trajectory.scheduler.solver;
    level_rounds l = {.levels = {.blocks = blocks,
                                 .steps = steps,
                                 .lag = p->options.frame_lag,
                                 .ready = weft_generator_ready_blocks(p, p->sampling.section)},
                      .floats = p->shape.sampled_floats / blocks};
    weft_status_code status = WEFT_OK;
    l.history = weft_sampler_history_floats(p->options.sampler, solver, l.floats);
    WEFT_GO(WEFT_NEW(l.levels.row, blocks, "blocks of frames"));
    WEFT_GO(WEFT_NEW(l.levels.runs, blocks, "blocks of frames"));
    WEFT_GO(WEFT_NEW(l.cursor, steps + 1, "steps"));
    WEFT_GO(WEFT_NEW(l.times, p->shape.sampled_frames, "timesteps"));
    WEFT_GO(record_cursors(p, &l));
    weft_frame_levels_begin(&l.levels);
    for (int64_t round = 0; weft_frame_levels_next(&l.levels); round++) {
        if (round < done) /* before the saved state */
            continue;
        WEFT_GO(run_round(p, &l, x));
        r->cursor = (weft_sampler_cursor){.step = round + 1};
        WEFT_GO(on_step(r, round + 1, rounds));
    }
out:
    weft_free(l.levels.row);
    weft_free(l.levels.runs);
    weft_free(l.cursor);
    weft_free(l.times);
    return status;
}

/* ---- frames of the first steps only --------------------------------------------------------- */

/* Keeps the first and the last latent frame of each of `count` arrays of reasoning_frames. */
static void drop_reasoning(const weft_generator *p, int64_t count, float *arrays)
{
    const int64_t frame = p->shape.latent_floats / p->shape.latent[0],
                  frames = p->shape.reasoning_frames;
    for (int64_t i = 0; i < count; i++) {
        const float *from = arrays + i * frames * frame;
        float *to = arrays + 2 * i * frame;
        memmove(to, from, (size_t)frame * sizeof *to);
        memmove(to + frame, from + (frames - 1) * frame, (size_t)frame * sizeof *to);
    }
}

/* Denoises an edited image: first with reasoning frames, then without. */
static weft_status sample_reasoning(weft_generator *p, run_state *r)
{
    const weft_solver *solver = &p->trajectory.scheduler.solver;
    const weft_sampler_callbacks callbacks = {
        .predict = on_predict, .noise = on_noise, .progress = on_step, .user = r};
    const int64_t done = p->sampling.cursor.step, until = p->shape.reasoning_steps;
    p->sampling.section = 0;
    r->cursor = p->sampling.cursor;
    for (int part = done > until; part < 2; part++) {
        weft_generator_set_reasoning(p, !part);
        if (part && done <= until) {
            drop_reasoning(p, 1, p->memory.x);
            drop_reasoning(p, weft_sampler_history_floats(p->options.sampler, solver, 1),
                           p->memory.work);
        }
        r->cursor.end = part ? 0 : until;
        WEFT_TRY(weft_sampler_run(p->options.sampler, solver, p->trajectory.solver_step,
                                  weft_steps_of_section(p), p->memory.x, p->shape.sampled_floats,
                                  p->shape.sampled_floats, p->memory.work, &r->cursor, &callbacks));
    }
    return WEFT_OK;
}

/* ---- blocks of causal models ---------------------------------------------------------------- */

/* Fills the cache with the keys and values of the given frames, which begin the video. */
static weft_status keep_given(weft_generator *p)
{
    const weft_noise_level clean = {.alpha = 1, .in = 1};
    const weft_denoiser_query a = {.program = p->parts.context.program, .level = &clean};
    WEFT_TRY(ask(p, &p->parts.context, &a, p->memory.x));
    return weft_program_run(a.program);
}

/* Adds finished block `at` to the cache, and decodes its frames. The last block is decoded
 * with the finished video. */
static weft_status finish_block(weft_generator *p, run_state *r, int64_t at)
{
    const weft_noise_level clean = {.alpha = 1, .in = 1, .time = p->model.context_noise};
    const weft_denoiser_query a = {.program = p->parts.context.program, .level = &clean};
    const int64_t block = p->shape.sections.frames;
    if (at + 1 == p->shape.sections.count)
        return WEFT_OK;
    if (p->shape.cached) {
        WEFT_TRY(ask(p, &p->parts.context, &a, p->memory.x + at * p->shape.sampled_floats));
        WEFT_TRY(weft_program_run(a.program));
    }
    return decode_ready(p, r, 0, (at + 1) * block, &p->sampling.decoded);
}

/* ---- stages of a section -------------------------------------------------------------------- */

/* Denoises the section at x from step `done` on. With stages, each begins with its own latents. */
static weft_status sample_section(weft_generator *p, run_state *r, int64_t done, float *x)
{
    const weft_sampler_callbacks callbacks = {
        .predict = on_predict, .noise = on_noise, .progress = on_step, .user = r};
    r->before = 0;
    for (int64_t k = 0; k < weft_steps_stages(p); k++) {
        const int64_t steps = weft_steps_of_stage(p, k);
        if (p->shape.stages)
            weft_latent_stages_set(p, k);
        if (done < r->before + steps) { /* not before the saved state */
            if (done <= r->before && p->shape.stages) {
                r->cursor = (weft_sampler_cursor){0};
                weft_latent_stages_begin(p, x);
            }
            r->cursor.step = done > r->before ? done - r->before : 0;
            WEFT_TRY(weft_sampler_run(p->options.sampler, &p->trajectory.scheduler.solver,
                                      weft_levels_of_section(p) + r->before, steps, x,
                                      p->options.batch * p->shape.sampled_floats,
                                      p->shape.sampled_floats, p->memory.work, &r->cursor,
                                      &callbacks));
        }
        r->before += steps;
    }
    r->before = 0;
    return WEFT_OK;
}

/* Denoises the sections of a batch in sequence, from the cursor on. A video without sections is one
 * section. */
static weft_status sample(weft_generator *p, run_state *r, bool resumed)
{
    const int64_t frame = p->shape.latent_floats / p->shape.latent[0];
    const weft_video_sections *sections = &p->shape.sections;
    if (p->shape.reasoning_steps)
        return sample_reasoning(p, r);
    if (p->shape.kept)
        WEFT_TRY(keep_given(p));
    int64_t left = p->sampling.cursor.step; /* finished steps from the current section on */
    r->cursor = p->sampling.cursor;
    for (int64_t at = 0; at == 0 || at < sections->count; at++) {
        const int64_t rounds = weft_generator_rounds(p, at), done = left < rounds ? left : rounds;
        float *x =
            p->memory.x + (sections->count ? weft_video_section_first(sections, at) : 0) * frame;
        p->sampling.section = at;
        left -= done;
        if (done == rounds) { /* before the saved state */
            if (p->shape.causal)
                WEFT_TRY(finish_block(p, r, at));
            continue;
        }
        if (p->shape.level_frames) {
            WEFT_TRY(sample_levels(p, r, done, x));
            continue;
        }
        if (!resumed || done == 0) {
            r->cursor = (weft_sampler_cursor){0};
            weft_generator_begin_caches(p);
            if (p->memory.average)
                memset(p->memory.average, 0,
                       (size_t)(p->options.batch * p->shape.sampled_floats) * sizeof *x);
        }
        WEFT_TRY(sample_section(p, r, done, x));
        if (p->shape.causal)
            WEFT_TRY(finish_block(p, r, at));
    }
    return WEFT_OK;
}

weft_status weft_generator_run(weft_generator *p, const char *const *prompts, const uint64_t *seeds,
                               int64_t count, const weft_generator_sink *sink)
{
    const int64_t batch = p->options.batch;
    run_state r = {.generator = p, .sink = sink};
    weft_generator_set_request(p, prompts, seeds, count);
    for (int64_t i = 0; i < count && (!p->comm || weft_comm_rank(p->comm) == 0); i++)
        WEFT_TRY(warn_truncation(p, i, prompts[i]));
    for (p->request.first = 0; p->request.first < count; p->request.first += batch) {
        const int64_t now = count - p->request.first < batch ? count - p->request.first : batch;
        if (!p->sampling.resumed)
            p->sampling.cursor = (weft_sampler_cursor){0};
        WEFT_TRY(encode_text(p));
        weft_preceding_frames_set_seed(&p->inputs.preceding, seeds[p->request.first]);
        const bool resumed = p->sampling.resumed;
        for (int64_t i = 0; i < batch && !resumed; i++)
            begin_with(p, i, p->memory.x + i * p->shape.begun_floats);
        p->sampling.resumed = false;
        p->sampling.decoded = (weft_vae_place){0};
        if (sink->begin)
            sink->begin(sink->user, p->request.first);
        WEFT_TRY(weft_causal_blocks_forget(p));
        WEFT_TRY(sample(p, &r, resumed));
        for (int64_t i = 0; i < batch; i++)
            end_with(p, p->memory.x + i * p->shape.item_floats);
        for (int64_t i = 0; i < batch && p->inputs.visual.settled; i++)
            weft_first_frames_settle(p->inputs.visual.settled, p->shape.latent[0],
                                     p->shape.latent_floats / p->shape.latent[0],
                                     p->memory.x + i * p->shape.item_floats);
        WEFT_TRY(decode_all(p, &r, now));
    }
    return WEFT_OK;
}
