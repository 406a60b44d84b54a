/* Straight and EDM paths. */
#include "base/memory.h"
#include "diffusion/flow.h"
#include "diffusion/scheduler_walk.h"

#include <math.h>

weft_status weft_check_flow(const weft_scheduler *s, const char *where)
{
    const bool edm = s->path == WEFT_PATH_FLOW_EDM;
    if (edm && !(s->karras && s->sigma_min > 0 && s->sigma_max > s->sigma_min))
        return weft_fail(
            WEFT_E_UNSUPPORTED,
            "%s: with \"sigma_data\" levels are those of EDM: \"use_karras_sigmas\" is "
            "true and 0 < \"sigma_min\" < \"sigma_max\"",
            where);
    if (edm && (s->inverted || s->solver.stochastic || s->sigma_data != 1))
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: with \"sigma_data\" (which is 1) neither \"invert_sigmas\" nor "
                         "\"stochastic_sampling\" is built in",
                         where);
    if (s->inverted && s->solver.stochastic)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: \"invert_sigmas\" and \"stochastic_sampling\" do not go together",
                         where);
    if (s->terminal < 0 || s->terminal >= 1)
        return weft_fail(WEFT_E_FORMAT, "%s: \"shift_terminal\": %g is not from 0 to 1", where,
                         s->terminal);
    if (s->by_resolution && s->base_tokens == s->max_tokens)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: \"base_image_seq_len\" and \"max_image_seq_len\" are both %lld",
                         where, (long long)s->base_tokens);
    return WEFT_OK;
}

/* Levels before any other spacing: as given, or those of the training schedule, evenly. */
static void begin(const weft_scheduler *s, const weft_walk *w, double *sigma)
{
    const bool fixed = !s->by_resolution && s->times == 1000;
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

static weft_level middle(const weft_scheduler *s, const weft_level *a, const weft_level *b)
{
    const double ratio = sqrt(a->sigma / a->alpha * (b->sigma / b->alpha));
    if (s->path == WEFT_PATH_FLOW_EDM)
        return weft_level_flow(s, ratio, 0);
    const double sigma = isfinite(ratio) ? ratio / (1 + ratio) : b->sigma;
    return weft_level_flow(s, sigma, (double)s->times * (s->inverted ? 1 - sigma : sigma));
}

static void chain(const weft_scheduler *s, int64_t steps, const double *sigma, weft_leg *leg)
{
    weft_level next = {0};
    for (int64_t i = steps; i >= 0; i--) {
        const double at = s->inverted ? 1 - sigma[i] : sigma[i];
        const weft_level now = weft_level_flow(s, sigma[i], (double)s->times * at);
        if (i < steps)
            leg[i] = (weft_leg){now, middle(s, &now, &next), next, i == steps - 1};
        next = now;
    }
}

weft_status weft_lay_flow(const weft_scheduler *s, const weft_walk *w, weft_leg *leg)
{
    double *sigma = weft_alloc((w->steps + 1) * (int64_t)sizeof *sigma);
    if (!sigma)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld noise levels", (long long)w->steps);
    begin(s, w, sigma);
    if (s->terminal > 0 && w->steps > 0)
        weft_stretch_sigmas(s, w->steps, sigma);
    weft_space(s, isnan(s->sigma_max) ? sigma[0] : s->sigma_max,
               isnan(s->sigma_min) ? sigma[w->steps - 1] : s->sigma_min, w->steps, sigma);
    sigma[w->steps] = 0;
    if (s->path == WEFT_PATH_FLOW_EDM && !s->solver.ends_at_zero)
        sigma[w->steps] = sigma[w->steps - 1];
    chain(s, w->steps, sigma, leg);
    weft_free(sigma);
    return WEFT_OK;
}

/* ---- EDM ------------------------------------------------------------------------------------ */

weft_status weft_check_edm(const weft_scheduler *s, const char *where)
{
    if (!(s->sigma_min > 0 && s->sigma_min < s->sigma_max && s->sigma_data > 0 && s->rho > 0))
        return weft_fail(WEFT_E_FORMAT,
                         "%s: sigma_min %g, sigma_max %g, sigma_data %g, rho %g: all are above 0, "
                         "and sigma_min is below sigma_max",
                         where, s->sigma_min, s->sigma_max, s->sigma_data, s->rho);
    if (s->prediction != WEFT_PREDICT_NOISE && s->prediction != WEFT_PREDICT_V)
        return weft_fail(
            WEFT_E_UNSUPPORTED,
            "%s: \"prediction_type\": \"%s\" is not known to %s; known are epsilon and "
            "v_prediction",
            where, weft_prediction_names[s->prediction], s->kind->name);
    if (s->solver.stochastic && s->solver.order > 2)
        return weft_fail(
            WEFT_E_UNSUPPORTED,
            "%s: \"algorithm_type\": \"sde-dpmsolver++\" goes up to \"solver_order\" 2", where);
    return s->kind->sampler != &weft_sampler_dpmpp || s->solver.order <= 3
               ? WEFT_OK
               : weft_fail(WEFT_E_UNSUPPORTED, "%s: \"solver_order\": %lld: known are 1 to 3",
                           where, (long long)s->solver.order);
}

weft_status weft_lay_edm(const weft_scheduler *s, const weft_walk *w, weft_leg *leg)
{
    double *sigma = weft_alloc((w->steps + 1) * (int64_t)sizeof *sigma);
    if (!sigma)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld noise levels", (long long)w->steps);
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
        leg[i] = (weft_leg){weft_level_edm(s, sigma[i]),
                            weft_level_edm(s, sqrt(sigma[i] * sigma[i + 1])),
                            weft_level_edm(s, sigma[i + 1]), i == w->steps - 1};
    weft_free(sigma);
    return WEFT_OK;
}
