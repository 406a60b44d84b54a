#include "train/graph/student_levels.h"

#include "diffusion/flow.h"
#include "diffusion/process.h"
#include "model/noise_levels.h"

#include <math.h>

weft_noise_process_config weft_student_process(const weft_run *run)
{
    weft_noise_process_config process = run->noise;
    if (run->distill.method && !(process.sampler && process.sampler[0]))
        process.sampler = "consistency";
    return process;
}

weft_status weft_student_levels(const weft_run *run, const weft_run_models *models, int64_t tokens,
                                double *sigma)
{
    const weft_noise_process_config process = weft_student_process(run);
    const weft_timestep_request request = {.steps = run->distill.student_steps, .end = NAN};
    weft_solver_step step[WEFT_DISTILL_MOST_STEPS] = {0};
    weft_scheduler scheduler;
    json_t *json = weft_noise_process_write(weft_run_process(run), &process);
    WEFT_TRY(WEFT_ALLOCATED(json, "a scheduler"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_scheduler_read(json, "the scheduler of the distilled model", &scheduler));
    WEFT_GO(weft_noise_levels_set(models->denoiser.family, &scheduler, tokens, &request, step));
    for (int64_t i = 0; i < request.steps; i++)
        sigma[i] = step[i].from.sigma;
out:
    json_decref(json);
    return status;
}

weft_status weft_student_levels_changed(const weft_run *run, const weft_run_models *models,
                                        const weft_bucket *size, bool *changed)
{
    const int64_t tokens = weft_run_tokens(models, size), steps = run->distill.student_steps;
    const weft_noise_process_config process =
        weft_noise_process_resolve(weft_run_process(run), &run->noise, tokens);
    const double shift = process.flow.shift;
    double sigma[WEFT_DISTILL_MOST_STEPS], before[WEFT_DISTILL_MOST_STEPS + 1];
    WEFT_TRY(weft_student_levels(run, models, tokens, sigma));
    weft_flow_schedule(steps, shift, before); /* dmd2 */
    for (int64_t k = 0; k < steps && run->distill.method == WEFT_DISTILL_SELF_FORCING; k++)
        before[k] = weft_flow_shift(shift, 1 - (double)k / (double)steps);
    *changed = false;
    for (int64_t k = 0; k < steps; k++)
        *changed |= fabs(sigma[k] - before[k]) > 1e-4;
    return WEFT_OK;
}

bool weft_student_levels_build(weft_graph *g, const weft_run *run, const weft_run_models *models,
                               int64_t tokens, double *sigma)
{
    if (weft_student_levels(run, models, tokens, sigma) == WEFT_OK)
        return true;
    weft_graph_fail(g, WEFT_MSG_INTERNAL_ERROR, "%s", weft_error_message());
    return false;
}
