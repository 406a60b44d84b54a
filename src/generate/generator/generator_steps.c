#include "generate/generator/generator_steps.h"

#include "generate/generator/latent_stages.h"

#include <string.h>

/* Steps of a section, or of a video without sections. */
int64_t weft_steps_of_section(const weft_generator *p)
{
    return p->shape.stages ? weft_generator_rounds(p, p->sampling.section)
                           : p->options.steps - p->trajectory.skipped;
}

/* The steps of a section. */
const weft_solver_step *weft_levels_of_section(const weft_generator *p)
{
    return p->shape.stages ? weft_latent_stages_levels(p, p->sampling.section)
                           : p->trajectory.solver_step + p->trajectory.skipped;
}

uint64_t weft_steps_noise_at(const weft_generator *p, int64_t draw)
{
    const int64_t stages = p->shape.stages, stage = p->shape.stage, own = p->shape.sampled_floats;
    /* frames after kept ones have the noise that they have without the cache */
    const int64_t kept = p->shape.kept ? p->shape.latent_floats - own : 0;
    /* draws are numbered as draws of the largest latents */
    const int64_t numbers = stages                     ? own << 2 * (stages - 1 - stage)
                            : p->shape.reasoning_steps ? p->shape.begun_floats
                                                       : kept + own;
    draw += p->sampling.section * WEFT_DRAWS_OF_SECTION +
            stage * (WEFT_DRAWS_OF_SECTION / WEFT_MAX_STAGES);
    return (uint64_t)(draw * numbers + kept);
}

/* Whether guidance sets the prediction of a step to 0, in the first stage of a section. */
bool weft_steps_predict_zero(const weft_generator *p, int64_t step)
{
    return step < p->trajectory.zero_steps &&
           (!p->shape.stages || weft_latent_stages_at(p, p->sampling.section, step) == 0);
}

/* Index of the expert that is evaluated at a noise level. */
static int expert_of(const weft_generator *p, const weft_noise_level *level)
{
    return p->model.experts > 1 &&
           level->time / (double)p->trajectory.scheduler.times < p->options.boundary.value;
}

/* Whether guidance is used in a step. */
static bool guides(const weft_generator *p, int64_t step)
{
    const double *guided = p->options.guided, steps = (double)p->options.steps;
    const double at = (double)(p->trajectory.skipped + step);
    return !(guided[1] > 0) || (at >= guided[0] * steps - 1e-9 && at < guided[1] * steps - 1e-9);
}

weft_generator_part *weft_steps_denoiser(weft_generator *p, const weft_noise_level *level,
                                         int64_t step)
{
    const int expert = expert_of(p, level);
    if (step < p->shape.reasoning_steps)
        return &p->parts.reasoning;
    const int64_t stage = p->shape.stages ? weft_latent_stages_at(p, p->sampling.section, step) : 0;
    if (stage + 1 < p->shape.stages)
        return &p->parts.smaller[stage];
    return p->parts.alone[expert].graph && !guides(p, step) ? &p->parts.alone[expert]
                                                            : &p->parts.denoiser[expert];
}

typedef struct counting {
    weft_generator *generator;
    int64_t *count;
    int64_t before; /* steps of the section before the sampler's */
} counting;

static weft_status_code count_prediction(void *user, int64_t step, const float *x,
                                         const weft_noise_level *level, float *prediction)
{
    const counting *c = user;
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS],
        *at = weft_steps_denoiser(c->generator, level, c->before + step);
    const int parts = weft_generator_denoisers(c->generator, part);
    for (int i = 0; i < parts && !weft_steps_predict_zero(c->generator, c->before + step); i++)
        c->count[i] += part[i] == at;
    *prediction = *x;
    return WEFT_OK;
}

weft_status_code weft_steps_no_noise(void *user, int64_t draw, float *noise)
{
    (void)user;
    (void)draw;
    *noise = 0;
    return WEFT_OK;
}

/* Stages of a section; 1 in pipelines with one size of latents. */
int64_t weft_steps_stages(const weft_generator *p)
{
    return p->shape.stages ? p->shape.stages : 1;
}

/* Steps of a stage of the section. */
int64_t weft_steps_of_stage(const weft_generator *p, int64_t stage)
{
    return p->shape.stages ? weft_latent_stages_steps(p, p->sampling.section, stage)
                           : weft_steps_of_section(p);
}

/* Counts the evaluations of the section, by a trajectory of one number. */
static weft_status count_section(weft_generator *p, int64_t *count, float *work)
{
    const weft_solver *solver = &p->trajectory.scheduler.solver;
    counting c = {.generator = p, .count = count};
    const weft_sampler_callbacks callbacks = {
        .predict = count_prediction, .noise = weft_steps_no_noise, .user = &c};
    for (int64_t k = 0; k < weft_steps_stages(p); k++) {
        const int64_t steps = weft_steps_of_stage(p, k);
        float x = 0.5f;
        WEFT_TRY(weft_sampler_run(p->options.sampler, solver, weft_levels_of_section(p) + c.before,
                                  steps, &x, 1, 1, work, NULL, &callbacks));
        c.before += steps;
    }
    return WEFT_OK;
}

weft_status weft_generator_answers(weft_generator *p, int64_t count[WEFT_GENERATOR_DENOISERS])
{
    const weft_sampler *sampler = p->options.sampler;
    const int64_t section = p->sampling.section;
    weft_status_code status = WEFT_OK;
    memset(count, 0, WEFT_GENERATOR_DENOISERS * sizeof *count);
    if (p->shape.level_frames) {
        count[0] = weft_generator_steps(p);
        return WEFT_OK;
    }
    WEFT_TRY(weft_generator_trajectory_set_levels(p));
    float *work;
    WEFT_TRY(WEFT_NEW(
        work, weft_sampler_workspace_floats(sampler, &p->trajectory.scheduler.solver, 1) + 1,
        "a sampling trajectory"));
    for (int64_t at = 0; at == 0 || at < p->shape.sections.count; at++) {
        p->sampling.section = at;
        WEFT_GO(count_section(p, count, work));
    }
    if (p->parts.context.graph) /* before the video, or after each block but the last */
        count[1] = p->shape.kept ? 1 : p->shape.sections.count - 1;
out:
    p->sampling.section = section;
    weft_free(work);
    return status;
}

/* Steps of the trajectory before `until` that this denoiser evaluates. */
int64_t weft_steps_own(weft_generator *p, const weft_generator_part *part, int64_t until)
{
    int64_t count = 0;
    for (int64_t i = 0; i < until; i++)
        count += weft_steps_denoiser(p, &weft_levels_of_section(p)[i].from, i) == part &&
                 !weft_steps_predict_zero(p, i);
    return count;
}

void weft_generator_find_section(weft_generator *p, int64_t done)
{
    p->sampling.section = 0;
    while (p->sampling.section + 1 < p->shape.sections.count &&
           done >= weft_generator_rounds(p, p->sampling.section))
        done -= weft_generator_rounds(p, p->sampling.section++);
}
