#include "train/graph/student_levels.h"

#include "diffusion/flow.h"
#include "diffusion/process.h"
#include "model/noise_levels.h"

#include <math.h>

weft_noise_process_config weft_student_process(const weft_run *run)
{
    weft_noise_process_config process = run->noise;
    if (run->distill.method && !(process.sampler && process.sampler[0]))
        process.sampler = run->distill.method == WEFT_DISTILL_LCM && run->noise.from > 0
                              ? "euler"
                              : "consistency";
    return process;
}

int64_t weft_student_steps(const weft_run *run)
{
    enum { USUAL = 4 };
    return weft_distill_matches(&run->distill) ? run->distill.student_steps : USUAL;
}

double weft_student_lowest(const weft_run *run, const weft_flow_config *flow)
{
    return weft_flow_shift(1 / flow->shift, run->noise.from);
}

double weft_student_highest(const weft_run *run, const weft_flow_config *flow)
{
    return weft_flow_shift(1 / flow->shift, run->noise.to);
}

/* Keeps the levels of an expert, which begins at timestep_min and ends below timestep_max. */
static weft_status take_range(const weft_run *run, double *sigma, int64_t *count)
{
    const double from = run->noise.from, to = run->noise.to;
    int64_t kept = 0;
    for (int64_t i = 0; i < *count; i++)
        if (sigma[i] >= from && (sigma[i] < to || to >= 1))
            sigma[kept++] = sigma[i];
    *count = kept;
    return kept ? WEFT_OK
                : weft_error(WEFT_MSG_CONFIG_VALUE,
                             WEFT_AT(.key = "distill.student_steps",
                                     WEFT_NUMBER(run->distill.student_steps)),
                             "no step of %" PRId64 " is between timestep_min: %g and "
                             "timestep_max: %g. It counts the steps of all experts; use more, or "
                             "another flow.shift.",
                             run->distill.student_steps, from, to);
}

weft_status weft_student_levels(const weft_run *run, const weft_run_models *models, int64_t tokens,
                                double *sigma, int64_t *count)
{
    const weft_noise_process_config process = weft_student_process(run);
    const weft_timestep_request request = {.steps = run->distill.student_steps, .end = NAN};
    weft_solver_step step[WEFT_DISTILL_MOST_STEPS] = {0};
    weft_scheduler scheduler;
    json_t *json = weft_noise_process_write(weft_run_process(run), &process);
    WEFT_TRY(WEFT_ALLOCATED(json, "a scheduler"));
    weft_status_code status = WEFT_OK;
    const weft_message_fields *at =
        WEFT_AT(.key = "distill.student_steps", WEFT_NUMBER(request.steps));
    WEFT_GO(weft_error_at(
        weft_scheduler_read(json, "the scheduler of the distilled model", &scheduler), at));
    WEFT_GO(weft_error_at(
        weft_noise_levels_set(models->denoiser.family, &scheduler, tokens, &request, step), at));
    for (int64_t i = 0; i < request.steps; i++)
        sigma[i] = step[i].from.sigma;
    *count = request.steps;
    WEFT_GO(take_range(run, sigma, count));
out:
    json_decref(json);
    return status;
}

weft_status weft_student_levels_changed(const weft_run *run, const weft_run_models *models,
                                        const weft_bucket *size, bool *changed)
{
    const int64_t tokens = weft_run_tokens(models, size), steps = run->distill.student_steps;
    int64_t count;
    const weft_noise_process_config process =
        weft_noise_process_resolve(weft_run_process(run), &run->noise, tokens);
    const double shift = process.flow.shift;
    double sigma[WEFT_DISTILL_MOST_STEPS], before[WEFT_DISTILL_MOST_STEPS + 1];
    WEFT_TRY(weft_student_levels(run, models, tokens, sigma, &count));
    weft_flow_schedule(steps, shift, before); /* dmd2 */
    for (int64_t k = 0; k < steps && run->distill.method == WEFT_DISTILL_SELF_FORCING; k++)
        before[k] = weft_flow_shift(shift, 1 - (double)k / (double)steps);
    *changed = count != steps; /* earlier versions refused a range of levels */
    for (int64_t k = 0; k < count; k++)
        *changed |= fabs(sigma[k] - before[k]) > 1e-4;
    return WEFT_OK;
}

bool weft_student_levels_build(weft_graph *g, const weft_run *run, const weft_run_models *models,
                               int64_t tokens, double *sigma, int64_t *count)
{
    if (weft_student_levels(run, models, tokens, sigma, count) == WEFT_OK)
        return true;
    weft_graph_fail(g, weft_error_class(), "%s", weft_error_message());
    return false;
}
