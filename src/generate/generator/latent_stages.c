#include "generate/generator/latent_stages.h"

#include "base/given.h"
#include "base/rng.h"
#include "diffusion/block_noise.h"
#include "diffusion/scheduler_stages.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void weft_latent_stages_area(const weft_generator *p, int64_t stage, int64_t area[2])
{
    for (int d = 0; d < 2; d++)
        area[d] = p->shape.latent[1 + d] >> (p->shape.stages ? p->shape.stages - 1 - stage : 0);
}

void weft_latent_stages_set(weft_generator *p, int64_t stage)
{
    int64_t area[2];
    p->shape.stage = stage;
    weft_latent_stages_area(p, stage, area);
    p->shape.sampled_floats = p->shape.sampled_frames * area[0] * area[1] * p->model.grid.channels;
}

const char *weft_latent_stages_name(const weft_generator *p, const weft_generator_part *part,
                                    char text[64])
{
    text[0] = '\0';
    for (int64_t k = 0; k + 1 < p->shape.stages; k++) {
        int64_t area[2];
        weft_latent_stages_area(p, k, area);
        if (part == &p->parts.smaller[k])
            snprintf(text, 64, ", %" PRId64 "x%" PRId64 " latents", area[0], area[1]);
    }
    return text;
}

/* Whether section `section` has twice the steps of the others. */
static bool is_doubled(const weft_generator *p, int64_t section)
{
    return p->options.doubles_first_section && section == 0;
}

int64_t weft_latent_stages_steps(const weft_generator *p, int64_t section, int64_t stage)
{
    return p->trajectory.stage_steps[stage] * (is_doubled(p, section) ? 2 : 1);
}

int64_t weft_latent_stages_at(const weft_generator *p, int64_t section, int64_t step)
{
    int64_t stage = 0, end = weft_latent_stages_steps(p, section, 0);
    while (step >= end && stage + 1 < p->shape.stages)
        end += weft_latent_stages_steps(p, section, ++stage);
    return stage;
}

const weft_solver_step *weft_latent_stages_levels(const weft_generator *p, int64_t section)
{
    return p->trajectory.solver_step + (is_doubled(p, section) ? p->options.steps : 0);
}

/* ---- checks --------------------------------------------------------------------------------- */

static weft_status check_pipeline(const weft_generator *p)
{
    const weft_scheduler *s = &p->trajectory.scheduler;
    const char *staged = p->model.denoiser->family->staged_pipeline;
    if (p->model.staged && s->stages < 2)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = p->model.folder, .key = "stages"),
                          "%s needs a scheduler with at least 2 \"stages\"", staged);
    if (s->stages < 2 || p->model.staged)
        return WEFT_OK;
    return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                      WEFT_AT(.file = p->model.folder, .key = "stages", WEFT_NUMBER(s->stages)),
                      "the scheduler is for %s, but model_index.json has another pipeline. Use "
                      "\"stages\": 1, or the class of the other pipeline.",
                      staged ? staged : "HeliosPyramidPipeline");
}

/* Options that need one size of latents, or another number of stages. */
static weft_status check_options(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    const weft_given other[] = {{"--guidance-end", o->guided[1] > 0},
                                {"--sigmas", o->timestep_schedule.sigmas != NULL},
                                {"--timesteps", o->timestep_schedule.timesteps != NULL}};
    const char *given = weft_first_given(other, WEFT_COUNT(other));
    if (given)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = given),
                          "the pipeline denoises latents of several sizes, each with its own "
                          "steps. Omit the option.");
    if (o->doubles_first_section && p->trajectory.scheduler.kind->sampler != &weft_sampler_dmd)
        return weft_error(
            WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--first-section-steps"),
            "%s has the same steps in all sections; only HeliosDMDScheduler can double "
            "them in the first. Omit the option.",
            p->trajectory.scheduler.kind->name);
    return WEFT_OK;
}

static weft_status check_area(const weft_generator *p, int64_t stages)
{
    for (int d = 0; d < 2; d++) {
        const int64_t cells = p->model.patch.factor[1 + d] << (stages - 1),
                      pixels = cells * p->model.grid.factor[1 + d],
                      own = d ? p->options.width : p->options.height;
        if (own % pixels)
            return weft_error(
                WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = d ? "--width" : "--height", WEFT_NUMBER(own)),
                "%" PRId64 " is not a multiple of %" PRId64 ", which %" PRId64
                " sizes of latents need; the nearest is %" PRId64,
                own, pixels, stages, own < pixels ? pixels : (own + pixels / 2) / pixels * pixels);
    }
    return WEFT_OK;
}

/* Steps of the stages: given, or equal parts of --steps, of which the first ones are larger. */
static weft_status set_steps(weft_generator *p, int64_t stages)
{
    const weft_generator_options *o = &p->options;
    int64_t *steps = p->trajectory.stage_steps, all = 0;
    if (o->stage_count && o->stage_count != stages)
        return weft_error(
            WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--stage-steps", WEFT_NUMBER(o->stage_count)),
            "the list has %" PRId64 " numbers, but this pipeline has %" PRId64 " sizes of latents",
            o->stage_count, stages);
    if (!o->stage_count && o->steps < stages)
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--steps", WEFT_NUMBER(o->steps)),
                          "%" PRId64 " steps are fewer than the %" PRId64 " sizes of latents",
                          o->steps, stages);
    for (int64_t i = 0; i < stages; i++) {
        steps[i] = o->stage_count ? o->stage_steps[i] : (o->steps + stages - 1 - i) / stages;
        all += steps[i];
    }
    return all == o->steps ? WEFT_OK
                           : weft_error(WEFT_MSG_OPTION_CONFLICT,
                                        WEFT_AT(.key = "--stage-steps", WEFT_NUMBER(all)),
                                        "the list has %" PRId64 " steps, but the video has %" PRId64
                                        "; omit its number of steps",
                                        all, o->steps);
}

weft_status weft_latent_stages_lay(weft_generator *p)
{
    const int64_t stages = p->trajectory.scheduler.stages;
    const weft_generator_options *o = &p->options;
    WEFT_TRY(check_pipeline(p));
    if (stages < 2 && (o->stage_count || o->doubles_first_section))
        return weft_error(
            WEFT_MSG_OPTION_NO_EFFECT,
            WEFT_AT(.key = o->stage_count ? "--stage-steps" : "--first-section-steps"),
            "%s denoises latents of one size. Omit the option.",
            weft_model_class(p->model.denoiser));
    if (stages < 2)
        return WEFT_OK;
    WEFT_TRY(check_options(p));
    WEFT_TRY(check_area(p, stages));
    WEFT_TRY(set_steps(p, stages));
    p->shape.stages = stages;
    weft_latent_stages_set(p, stages - 1);
    return WEFT_OK;
}

/* ---- levels --------------------------------------------------------------------------------- */

/* Fills the steps of a section. The shift is for the size of the stage before, as in the
 * reference. */
static weft_status fill_section(const weft_generator *p, int64_t section, weft_solver_step *step)
{
    const weft_scheduler *s = &p->trajectory.scheduler;
    const int64_t frames = p->shape.sampled_frames / p->model.patch.factor[0];
    for (int64_t i = 0; i < p->shape.stages; i++) {
        int64_t area[2];
        weft_latent_stages_area(p, i ? i - 1 : 0, area);
        const int64_t tokens =
            frames * (area[0] / p->model.patch.factor[1]) * (area[1] / p->model.patch.factor[2]);
        const int64_t size[3] = {p->options.frames, area[0] * p->model.grid.factor[1],
                                 area[1] * p->model.grid.factor[2]};
        const weft_timestep_request request = {.steps = weft_latent_stages_steps(p, section, i),
                                               .mu = weft_scheduler_mu(s, tokens, size),
                                               .end = NAN,
                                               .stage = i};
        WEFT_TRY(weft_scheduler_set_timesteps(s, &request, step));
        step += request.steps;
    }
    return WEFT_OK;
}

weft_status weft_latent_stages_set_levels(weft_generator *p)
{
    const int64_t steps = p->options.steps, more = p->options.doubles_first_section ? 2 : 0;
    weft_solver_step **step = &p->trajectory.solver_step;
    WEFT_TRY(WEFT_NEW(*step, steps * (1 + more), "%" PRId64 " levels", steps));
    if (more)
        WEFT_TRY(fill_section(p, 0, *step + steps));
    return fill_section(p, 1, *step);
}

/* ---- latents -------------------------------------------------------------------------------- */

typedef struct own_noise {
    uint64_t seed, first;
} own_noise;

static float normal_of(const void *user, int64_t i)
{
    const own_noise *n = user;
    return weft_random_normal(n->seed, WEFT_RNG_STAGE, n->first + (uint64_t)i);
}

/* Numbers reserved for the noise of a stage. */
static const uint64_t numbers_of_stage = UINT64_C(1) << 40;

void weft_latent_stages_begin(const weft_generator *p, float *x)
{
    const weft_scheduler *s = &p->trajectory.scheduler;
    const int64_t stage = p->shape.stage, stages = p->shape.stages;
    weft_latent_size size = {.frames = p->shape.sampled_frames,
                             .rows = p->shape.latent[1],
                             .columns = p->shape.latent[2],
                             .channels = p->model.grid.channels};
    if (stage == 0) {
        for (int64_t i = 1; i < stages; i++, size.rows /= 2, size.columns /= 2)
            weft_latents_halve(&size, x);
        return;
    }
    const weft_stage how = weft_scheduler_stage(s, stage);
    const uint64_t at = (uint64_t)(p->sampling.section * stages + stage);
    const own_noise noise = {p->request.seeds[p->request.first], at * numbers_of_stage};
    double factor[4][4];
    int64_t area[2];
    weft_latent_stages_area(p, stage - 1, area);
    size.rows = area[0];
    size.columns = area[1];
    weft_latents_double(&size, x);
    size.rows *= 2;
    size.columns *= 2;
    weft_block_noise_factor(s->gamma, factor);
    weft_block_noise_add(&size, how.keep, how.noise, (const double(*)[4])factor, normal_of, &noise,
                         x);
}
