/* Noise levels of the straight and the EDM paths. */
#include "diffusion/scheduler_flow.h"

#include "base/memory.h"
#include "diffusion/flow.h"
#include "diffusion/sampler_multistep.h"
#include "diffusion/scheduler_levels.h"
#include "diffusion/scheduler_space.h"
#include "diffusion/scheduler_stages.h"

#include <math.h>

weft_status weft_check_flow(const weft_scheduler *s, const char *where)
{
    const bool edm = s->path == WEFT_PATH_FLOW_EDM,
               consistency = s->kind->sampler == &weft_sampler_consistency;
    if (edm && !(s->karras && s->sigma_min > 0 && s->sigma_max > s->sigma_min))
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "sigma_data", WEFT_NUMBER(s->sigma_data)),
                          "noise levels of EDM need \"use_karras_sigmas\": true and 0 < "
                          "\"sigma_min\" < \"sigma_max\"");
    if (edm && (s->inverted || s->solver.stochastic || s->sigma_data != 1))
        return weft_error(
            WEFT_MSG_SCHEDULER_UNSUPPORTED,
            WEFT_AT(.file = where, .key = "sigma_data", WEFT_NUMBER(s->sigma_data)),
            "only 1 is supported, without \"invert_sigmas\" and \"stochastic_sampling\"");
    if (s->inverted && (s->solver.stochastic || consistency))
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "invert_sigmas"),
                          "true cannot be combined with %s",
                          consistency ? s->kind->name : "\"stochastic_sampling\"");
    if (s->terminal < 0 || s->terminal >= 1)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT(.file = where, .key = "shift_terminal", WEFT_NUMBER(s->terminal)),
                          "%g is not at least 0 and below 1", s->terminal);
    if (s->by_resolution && s->base_tokens == s->max_tokens)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG,
            WEFT_AT(.file = where, .key = "base_image_seq_len", WEFT_NUMBER(s->base_tokens)),
            "%" PRId64 " is also \"max_image_seq_len\"; the two must differ", s->base_tokens);
    return WEFT_OK;
}

/* Fills the levels before the spacing: requested levels, or even steps of the training schedule. */
static void begin(const weft_scheduler *s, const weft_timestep_request *w, double *sigma)
{
    const bool fixed = !s->by_resolution && s->times == 1000;
    if (w->time) {
        for (int64_t i = 0; i < w->steps; i++)
            sigma[i] = weft_scheduler_shift(s, w->mu, w->time[i] / (double)s->times);
        return;
    }
    if (!w->sigma && fixed) {
        weft_flow_schedule(w->steps, s->shift, sigma);
        return;
    }
    const double least = 1 / (double)s->times;
    const double last = s->by_resolution ? least : weft_flow_shift(s->shift, least);
    for (int64_t i = 0; i < w->steps; i++) {
        const double even = w->steps > 1 ? 1 + (last - 1) * (double)i / (double)(w->steps - 1) : 1;
        sigma[i] = weft_scheduler_shift(s, w->mu, w->sigma ? w->sigma[i] : even);
    }
}

static weft_noise_level middle(const weft_scheduler *s, const weft_noise_level *a,
                               const weft_noise_level *b)
{
    const double ratio = sqrt(a->sigma / a->alpha * (b->sigma / b->alpha));
    if (s->path == WEFT_PATH_FLOW_EDM)
        return weft_noise_level_flow(s, ratio, 0);
    const double sigma = isfinite(ratio) ? ratio / (1 + ratio) : b->sigma;
    return weft_noise_level_flow(s, sigma, (double)s->times * (s->inverted ? 1 - sigma : sigma));
}

void weft_chain_flow(const weft_scheduler *s, int64_t steps, const double *sigma,
                     weft_solver_step *step)
{
    weft_noise_level next = {0};
    for (int64_t i = steps; i >= 0; i--) {
        const double at = s->inverted ? 1 - sigma[i] : sigma[i];
        const weft_noise_level now = weft_noise_level_flow(s, sigma[i], (double)s->times * at);
        if (i < steps)
            step[i] = (weft_solver_step){now, middle(s, &now, &next), next, i == steps - 1};
        next = now;
    }
}

weft_status weft_lay_flow(const weft_scheduler *s, const weft_timestep_request *w,
                          weft_solver_step *step)
{
    double *sigma;
    WEFT_TRY(WEFT_NEW(sigma, w->steps + 1, "%" PRId64 " noise levels", w->steps));
    weft_status_code status = WEFT_OK;
    begin(s, w, sigma);
    if (s->terminal > 0 && w->steps > 0)
        WEFT_GO(weft_stretch_sigmas(s, w->steps, sigma));
    weft_space(s, isnan(s->sigma_max) ? sigma[0] : s->sigma_max,
               isnan(s->sigma_min) ? sigma[w->steps - 1] : s->sigma_min, w->steps, sigma);
    sigma[w->steps] = 0;
    if (s->path == WEFT_PATH_FLOW_EDM && !s->solver.ends_at_zero)
        sigma[w->steps] = sigma[w->steps - 1];
    weft_chain_flow(s, w->steps, sigma, step);
    /* the model gets given times as they are, and levels are shifted: as in the reference */
    for (int64_t i = 0; w->time && !s->inverted && i < w->steps; i++) {
        step[i].from.time = w->time[i];
        if (i > 0)
            step[i - 1].to.time = w->time[i];
    }
out:
    weft_free(sigma);
    return status;
}

/* ---- Helios --------------------------------------------------------------------------------- */

weft_status weft_check_helios(const weft_scheduler *s, const char *where)
{
    if (s->stages != 1 || s->kind->sampler == &weft_sampler_dmd)
        WEFT_TRY(weft_check_stages(s, where));
    else if (s->shift != 1)
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "shift", WEFT_NUMBER(s->shift)),
                          "%g has no effect on the levels of the pipeline; use 1", s->shift);
    if (s->prediction != WEFT_PREDICT_FLOW || s->solver.of_noise || !s->flow)
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "prediction_type",
                                  .value = weft_prediction_names[s->prediction]),
                          "%s needs \"flow_prediction\", with \"predict_x0\" and "
                          "\"use_flow_sigmas\" true",
                          s->kind->name);
    return s->solver.lower_at_end || s->euler || s->kind->sampler == &weft_sampler_dmd
               ? WEFT_OK
               : weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                            WEFT_AT(.file = where, .key = "lower_order_final"),
                            "false is not supported: the last step of HeliosScheduler ends at the "
                            "level 1e-8");
}

weft_status weft_lay_helios(const weft_scheduler *s, const weft_timestep_request *w,
                            weft_solver_step *step)
{
    weft_timestep_request own = *w;
    double *sigma;
    if (s->stages > 1)
        return weft_lay_stage(s, w, step);
    if (w->sigma)
        return weft_lay_flow(s, w, step);
    WEFT_TRY(WEFT_NEW(sigma, w->steps, "%" PRId64 " noise levels", w->steps));
    for (int64_t i = 0; i < w->steps; i++)
        sigma[i] = 1 + (1 / (double)s->times - 1) * (double)i / (double)w->steps;
    own.sigma = sigma;
    const weft_status_code status = weft_lay_flow(s, &own, step);
    weft_free(sigma);
    return status;
}

/* ---- Open-Sora 1.2 -------------------------------------------------------------------------- */

weft_status weft_lay_rflow(const weft_scheduler *s, const weft_timestep_request *w,
                           weft_solver_step *step)
{
    weft_timestep_request own = *w;
    double *sigma;
    if (w->sigma || w->time)
        return weft_lay_flow(s, w, step);
    WEFT_TRY(WEFT_NEW(sigma, w->steps, "%" PRId64 " noise levels", w->steps));
    for (int64_t i = 0; i < w->steps; i++)
        sigma[i] = 1 - (double)i / (double)w->steps;
    own.sigma = sigma;
    const weft_status_code status = weft_lay_flow(s, &own, step);
    weft_free(sigma);
    return status;
}

/* ---- EDM ------------------------------------------------------------------------------------ */

weft_status weft_check_edm(const weft_scheduler *s, const char *where)
{
    if (!(s->sigma_min > 0 && s->sigma_min < s->sigma_max && s->sigma_data > 0 && s->rho > 0))
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT(.file = where, .key = "sigma_min", WEFT_NUMBER(s->sigma_min)),
                          "%g with \"sigma_max\" %g, \"sigma_data\" %g and \"rho\" %g: all must be "
                          "above 0, and sigma_min below sigma_max",
                          s->sigma_min, s->sigma_max, s->sigma_data, s->rho);
    if (s->prediction != WEFT_PREDICT_NOISE && s->prediction != WEFT_PREDICT_V)
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                          WEFT_AT(.file = where, .key = "prediction_type",
                                  .value = weft_prediction_names[s->prediction]),
                          "%s has no prediction \"%s\"; known: epsilon, v_prediction",
                          s->kind->name, weft_prediction_names[s->prediction]);
    if (s->solver.stochastic && s->solver.order > 2)
        return weft_error(
            WEFT_MSG_SCHEDULER_UNSUPPORTED,
            WEFT_AT(.file = where, .key = "algorithm_type", .value = "sde-dpmsolver++"),
            "sde-dpmsolver++ supports \"solver_order\" up to 2, not %" PRId64, s->solver.order);
    return s->kind->sampler != &weft_sampler_dpmpp || s->solver.order <= 3
               ? WEFT_OK
               : weft_error(
                     WEFT_MSG_SCHEDULER_UNSUPPORTED,
                     WEFT_AT(.file = where, .key = "solver_order", WEFT_NUMBER(s->solver.order)),
                     "%" PRId64 " is not from 1 to 3", s->solver.order);
}

weft_status weft_lay_edm(const weft_scheduler *s, const weft_timestep_request *w,
                         weft_solver_step *step)
{
    double *sigma;
    WEFT_TRY(WEFT_NEW(sigma, w->steps + 1, "%" PRId64 " noise levels", w->steps));
    if (w->sigma)
        for (int64_t i = 0; i < w->steps; i++)
            sigma[i] = w->sigma[i];
    else if (s->karras)
        weft_space_karras(s->sigma_max, s->sigma_min, s->rho, w->steps, sigma);
    else
        weft_space_exponential(s->sigma_max, s->sigma_min, w->steps, sigma);
    sigma[w->steps] = s->solver.ends_at_zero                    ? 0
                      : s->kind->sampler == &weft_sampler_dpmpp ? s->sigma_min
                                                                : sigma[w->steps - 1];
    for (int64_t i = 0; i < w->steps; i++)
        step[i] = (weft_solver_step){weft_noise_level_edm(s, sigma[i]),
                                     weft_noise_level_edm(s, sqrt(sigma[i] * sigma[i + 1])),
                                     weft_noise_level_edm(s, sigma[i + 1]), i == w->steps - 1};
    weft_free(sigma);
    return WEFT_OK;
}
