#include "generate/generator/generator_trajectory.h"

#include "base/fs.h"
#include "diffusion/scheduler_flow.h"
#include "generate/generator/latent_stages.h"
#include "model/noise_levels.h"

#include <math.h>
#include <string.h>

/* Replaces the shift of the scheduler's config by the option. */
static weft_status take_shift(weft_generator_options *o, weft_scheduler *s)
{
    const bool straight = s->path == WEFT_PATH_FLOW;
    if (straight && o->shift > 0) {
        s->shift = o->shift;
        s->by_resolution = false;
    } else if (o->shift > 0) {
        return weft_error(
            WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--shift", WEFT_NUMBER(o->shift)),
            "the noise levels of this model (%s) have no shift. Omit the option.", s->kind->name);
    }
    o->shift = straight && !s->by_resolution ? s->shift : 0;
    return WEFT_OK;
}

/* Whether the last error is a scheduler class that weft does not have. */
static bool is_unknown_class(void)
{
    const char *key = weft_error_fields()->key;
    return weft_error_class() == WEFT_MSG_SCHEDULER_UNSUPPORTED && key &&
           !strcmp(key, "_class_name");
}

/* Checks that the given schedule has the steps of the run, and the form that the class takes. */
static weft_status check_schedule(const weft_generator_options *o, const weft_scheduler *s)
{
    const weft_timestep_schedule *given = &o->timestep_schedule;
    const weft_noise_path path = s->path;
    const char *option = given->sigmas ? "--sigmas" : "--timesteps";
    if (!given->count)
        return WEFT_OK;
    if (given->count != o->steps)
        return weft_error(WEFT_MSG_OPTION_CONFLICT,
                          WEFT_AT(.key = option, WEFT_NUMBER(given->count)),
                          "the schedule has %" PRId64 " steps, but the video has %" PRId64
                          "; omit its number of steps",
                          given->count, o->steps);
    if (given->sigmas && (path == WEFT_PATH_EDM || path == WEFT_PATH_FLOW_EDM))
        return weft_error(
            WEFT_MSG_SAMPLING_INVALID, WEFT_AT(.key = option),
            "%s computes its noise levels from sigma_min and sigma_max, so none can be "
            "given",
            s->kind->name);
    if (given->sigmas && path == WEFT_PATH_VE && !given->ends)
        return weft_error(
            WEFT_MSG_SAMPLING_INVALID, WEFT_AT(.key = option),
            "the list of %s also has the level at which the last step ends. Write 0 at "
            "its end.",
            s->kind->name);
    return WEFT_OK;
}

/* Reads the scheduler's config; without one, uses FlowMatchEulerDiscreteScheduler. */
weft_status weft_generator_trajectory_open(const weft_generator_model *m, weft_generator_options *o,
                                           weft_generator_trajectory *t)
{
    WEFT_TRY(weft_generator_model_check_folder(m, "scheduler"));
    char *path = weft_path_join(m->folder, "scheduler/scheduler_config.json");
    WEFT_TRY(WEFT_ALLOCATED(path, "the model"));
    weft_status_code status =
        weft_path_exists(path)
            ? weft_scheduler_load(path, &t->scheduler)
            : weft_scheduler_of("FlowMatchEulerDiscreteScheduler", path, &t->scheduler);
    if (status != WEFT_OK && o->sampler && is_unknown_class())
        status = weft_scheduler_load_for(path, o->sampler, &t->scheduler);
    weft_free(path);
    WEFT_TRY(status);
    if (!o->sampler)
        o->sampler = weft_scheduler_sampler(&t->scheduler);
    if (o->eta > 0 && o->sampler != weft_sampler_find("ddim"))
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--eta", WEFT_NUMBER(o->eta)),
                          "%g has no effect with the sampler %s, which adds no noise. Use "
                          "--sampler ddim, or omit --eta.",
                          o->eta, o->sampler->name);
    t->scheduler.solver.eta = o->eta;
    WEFT_TRY(check_schedule(o, &t->scheduler));
    return take_shift(o, &t->scheduler);
}

/* Whether the scale is the one at which the guider of the folder has no effect, or a distilled
 * model's 1. */
static bool is_off(const weft_generator_model *m, const weft_generator_options *o)
{
    return o->guidance == (o->own_guidance ? 1 : weft_guider_off(&m->guider));
}

/* Returns the guidance method of the family's pipeline, if the scale enables guidance. A distilled
 * model takes the scale as embedded guidance. */
static const weft_guidance *own_guidance(const weft_generator_model *m,
                                         const weft_generator_options *o)
{
    const char *own = m->denoiser->family->guidance;
    const double sound = m->sound.vae.family ? o->audio_guidance.value : 0;
    if (o->true_cfg > 1)
        return weft_guidance_find("true_cfg");
    if (m->guider.method && !is_off(m, o))
        return m->guider.method;
    if (m->guider.method && weft_guider_off(&m->guider) != 1)
        return weft_guidance_find("none");
    if (own && o->guidance > 1)
        return weft_guidance_find(own);
    return weft_model_takes(m->denoiser, WEFT_PORT_GUIDANCE)
               ? weft_guidance_find("distilled")
               : weft_guidance_of(fmax(o->guidance, sound));
}

/* Checks that the rescaling of the sound has an effect. */
static weft_status check_sound_rescale(const weft_generator_model *m,
                                       const weft_generator_options *o,
                                       const weft_guidance *guidance)
{
    const double rescale = o->audio_guidance_rescale.value;
    if (!(rescale > 0) || !m->sound.vae.family || guidance == weft_guidance_find("rescale"))
        return WEFT_OK;
    return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                      WEFT_AT(.key = "--audio-guidance-rescale", WEFT_NUMBER(rescale)),
                      "%g has no effect, because the method of guidance is not rescale. Use "
                      "--guidance-method rescale, or omit the option.",
                      rescale);
}

/* The option that turns on guidance with two predictions. */
static const char *scale_of_guidance(const weft_generator_model *m)
{
    return weft_model_takes(m->denoiser, WEFT_PORT_GUIDANCE) ? "Give --true-cfg-scale above 1"
                                                             : "Give --guidance-scale above 1";
}

/* Checks that the scale of the method true_cfg and the negative prompt have an effect. */
static weft_status check_true_cfg(const weft_generator_model *m, const weft_generator_options *o,
                                  const weft_guidance *guidance)
{
    const bool chosen = guidance == weft_guidance_find("true_cfg");
    if (chosen && !(o->true_cfg > 1))
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--true-cfg-scale"),
                          "the method true_cfg needs a scale above 1. Give --true-cfg-scale G.");
    if (o->true_cfg > 1 && !chosen)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                          WEFT_AT(.key = "--true-cfg-scale", WEFT_NUMBER(o->true_cfg)),
                          "%g has no effect with the method %s. Omit one of the two options.",
                          o->true_cfg, guidance->name);
    if (o->negative && *o->negative && guidance->rows < 2)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                          WEFT_AT(.key = "--negative-prompt", .value = o->negative),
                          "the negative prompt has no effect, because guidance is %s. %s, or omit "
                          "the negative prompt.",
                          guidance->name, scale_of_guidance(m));
    return WEFT_OK;
}

/* Checks that the scale below the boundary has an effect. The value of the other scale is allowed,
 * such as 1 and 1. */
static weft_status check_low_scale(const weft_generator_model *m, const weft_generator_options *o,
                                   const weft_guidance *guidance)
{
    const double low = o->guidance_low.value;
    if (!o->guidance_low.given || guidance->combine || low == o->guidance)
        return WEFT_OK;
    return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                      WEFT_AT(.key = "--guidance-scale-2", WEFT_NUMBER(low)),
                      "%g has no effect, because guidance is %s. %s, or omit the option.", low,
                      guidance->name, scale_of_guidance(m));
}

weft_status weft_generator_trajectory_choose_guidance(const weft_generator_model *m,
                                                      const weft_generator_options *o,
                                                      weft_generator_trajectory *t)
{
    t->guidance = o->guidance_method ? o->guidance_method : own_guidance(m, o);
    const weft_noise_path path = t->scheduler.path;
    if (t->guidance->takes_scale && !weft_model_takes(m->denoiser, WEFT_PORT_GUIDANCE))
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = "--guidance-method", .value = t->guidance->name),
                          "%s has no input for the guidance scale of %s. Use cfg, and "
                          "--guidance-scale for its scale.",
                          weft_model_class(m->denoiser), t->guidance->name);
    WEFT_TRY(check_true_cfg(m, o, t->guidance));
    WEFT_TRY(check_low_scale(m, o, t->guidance));
    const bool zero_star = t->guidance == weft_guidance_find("zero_star");
    if (o->zero_steps && !zero_star)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                          WEFT_AT(.key = "--zero-init-steps", WEFT_NUMBER(o->zero_steps)),
                          "%" PRId64 " has no effect with the method %s. Use --guidance-method "
                          "zero_star, or omit the option.",
                          o->zero_steps > 0 ? o->zero_steps : 0, t->guidance->name);
    t->zero_steps = !zero_star || o->zero_steps < 0 ? 0
                    : o->zero_steps                 ? o->zero_steps
                                                    : m->guider.zero_steps;
    if (o->audio_guidance.value > 1 && t->guidance->rows < 2)
        return weft_error(
            WEFT_MSG_OPTION_NO_EFFECT,
            WEFT_AT(.key = "--audio-guidance-scale", WEFT_NUMBER(o->audio_guidance.value)),
            "%g has no effect with the method %s. Omit one of the two options.",
            o->audio_guidance.value, t->guidance->name);
    WEFT_TRY(check_sound_rescale(m, o, t->guidance));
    if (o->boundary.value > 0 && (path == WEFT_PATH_EDM || path == WEFT_PATH_FLOW_EDM))
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT,
                          WEFT_AT(.key = "--boundary-ratio", WEFT_NUMBER(o->boundary.value)),
                          "the noise levels of %s have no times from 0 to 1. Omit the option.",
                          t->scheduler.kind->name);
    return WEFT_OK;
}

int64_t weft_generator_averages(const weft_generator *p)
{
    return p->model.guider.averages && p->trajectory.guidance == p->model.guider.method;
}

/* The steps of the scheduler's own noise levels, or of the levels of the family's pipeline. */
static weft_status lay_schedule(const weft_generator *p, int64_t steps, weft_solver_step *step)
{
    const weft_timestep_schedule *given = &p->options.timestep_schedule;
    const weft_generator_options *o = &p->options;
    const weft_timestep_request request = {.steps = steps,
                                           .sigma = given->count ? given->sigmas : NULL,
                                           .time = given->timesteps,
                                           .end = NAN,
                                           .pixels = {o->frames, o->height, o->width}};
    return weft_noise_levels_set(p->model.denoiser->family, &p->trajectory.scheduler,
                                 weft_generator_tokens(p), &request, step);
}

/* The level at which the tail of a schedule begins. */
static const double tail_level = 0.5;

/* Lays the complete schedule in new memory, and counts its first steps above a level. */
static weft_status lay_above(const weft_generator *p, double level, weft_solver_step **step,
                             int64_t *count)
{
    const int64_t steps = p->trajectory.schedule_steps;
    weft_solver_step *made;
    WEFT_TRY(WEFT_NEW(made, steps, "%" PRId64 " levels", steps));
    const weft_status_code status = lay_schedule(p, steps, made);
    for (*count = 0; status == WEFT_OK && *count < steps; ++*count)
        if (!(made[*count].from.sigma > level))
            break;
    *step = made;
    if (status != WEFT_OK)
        weft_free(made);
    return status;
}

/* A level of the schedule that differs from a refinement's by rounding is the same level. */
static double refined_from(const weft_generator *p)
{
    return p->trajectory.first_level * (1 - 1e-6);
}

/* Steps of the tail: of the option, or of the model's pipeline after a given video. */
static int64_t steps_of_tail(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    const bool own = o->visual.before && !p->shape.refinement.frames &&
                     !o->timestep_schedule.count && p->trajectory.scheduler.path == WEFT_PATH_FLOW;
    return o->tail_steps < 0 ? 0
           : o->tail_steps   ? o->tail_steps
           : own             ? weft_model_takes_port(p->model.denoiser).tail_steps
                             : 0;
}

/* Begins with the level of a refinement. */
static weft_status begin_refinement(weft_generator *p)
{
    weft_generator_trajectory *t = &p->trajectory;
    weft_generator_options *o = &p->options;
    weft_solver_step *step;
    int64_t count;
    if (!(o->refine_level > 0))
        o->refine_level = weft_model_takes_port(p->model.denoiser).refine_level;
    t->first_level = o->refine_level;
    WEFT_TRY(lay_above(p, refined_from(p), &step, &count));
    weft_free(step);
    o->steps += 1 - count;
    return WEFT_OK;
}

weft_status weft_generator_trajectory_fit_steps(weft_generator *p)
{
    weft_generator_trajectory *t = &p->trajectory;
    weft_generator_options *o = &p->options;
    weft_solver_step *step;
    int64_t count;
    t->tail_steps = steps_of_tail(p);
    t->schedule_steps = o->steps;
    if (p->shape.refinement.frames)
        return begin_refinement(p);
    if (!t->tail_steps)
        return WEFT_OK;
    if (o->timestep_schedule.count || t->scheduler.path != WEFT_PATH_FLOW || p->shape.stages)
        return weft_error(WEFT_MSG_OPTION_CONFLICT,
                          WEFT_AT(.key = "--tail-steps", WEFT_NUMBER(t->tail_steps)),
                          "%s. Omit the option.",
                          o->timestep_schedule.count
                              ? "--sigmas or --timesteps gives the levels of all steps"
                              : "the steps have no levels of one schedule of flow matching");
    WEFT_TRY(lay_above(p, tail_level, &step, &count));
    weft_free(step);
    o->steps = count + t->tail_steps;
    return WEFT_OK;
}

/* The schedule's steps above the tail, and the tail. */
static weft_status lay_with_tail(weft_generator *p)
{
    const int64_t steps = p->options.steps, tail = p->trajectory.tail_steps;
    weft_solver_step *step;
    double *sigma = NULL;
    int64_t count;
    WEFT_TRY(lay_above(p, tail_level, &step, &count));
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(sigma, steps + 1, "%" PRId64 " levels", steps));
    for (int64_t i = 0; i < count; i++)
        sigma[i] = step[i].from.sigma;
    for (int64_t i = 0; i <= tail; i++)
        sigma[count + i] = tail_level * (double)(tail - i) / (double)tail;
    weft_chain_flow(&p->trajectory.scheduler, steps, sigma, p->trajectory.solver_step);
out:
    weft_free(sigma);
    weft_free(step);
    return status;
}

/* The level of a refinement, and the schedule's levels below it. */
static weft_status lay_from_level(weft_generator *p)
{
    const int64_t steps = p->options.steps;
    weft_solver_step *step;
    double *sigma = NULL;
    int64_t count;
    WEFT_TRY(lay_above(p, refined_from(p), &step, &count));
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(sigma, steps + 1, "%" PRId64 " levels", steps));
    sigma[0] = p->trajectory.first_level;
    for (int64_t i = 1; i < steps; i++)
        sigma[i] = step[count + i - 1].from.sigma;
    sigma[steps] = 0;
    weft_chain_flow(&p->trajectory.scheduler, steps, sigma, p->trajectory.solver_step);
out:
    weft_free(sigma);
    weft_free(step);
    return status;
}

weft_status weft_generator_trajectory_set_levels(weft_generator *p)
{
    const int64_t steps = p->options.steps;
    if (p->trajectory.solver_step)
        return WEFT_OK;
    if (p->shape.stages)
        return weft_latent_stages_set_levels(p);
    WEFT_TRY(WEFT_NEW(p->trajectory.solver_step, steps, "%" PRId64 " levels", steps));
    if (p->trajectory.first_level > 0)
        return lay_from_level(p);
    return p->trajectory.tail_steps ? lay_with_tail(p)
                                    : lay_schedule(p, steps, p->trajectory.solver_step);
}

void weft_generator_trajectory_close(weft_generator_trajectory *t)
{
    weft_free(t->solver_step);
    *t = (weft_generator_trajectory){0};
}
