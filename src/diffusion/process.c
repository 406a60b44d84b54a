#include "diffusion/process.h"

#include "diffusion/per_sample.h"

#include <string.h>

/* A process is its file and its line here. */
const weft_process *const weft_processes[] = {&weft_process_flow, &weft_process_edm, NULL};
const char *const weft_process_names[] = {"flow", "edm", NULL};

const weft_process_config weft_process_defaults = {
    .flow = {.logit_std = 1, .shift = 1},
    .edm = {.p_mean = -1.2,
            .p_std = 1.2,
            .sigma_data = 0.5,
            .sigma_min = 0.002,
            .sigma_max = 80,
            .rho = 7},
};

double weft_process_first(const weft_process *process, const weft_process_config *config)
{
    return process->first ? process->first(config) : 1;
}

double weft_process_scale(const weft_process *process, const weft_process_config *config)
{
    return process->scale ? process->scale(config) : 1;
}

const weft_process *weft_process_of_scheduler(const char *class_name)
{
    for (int i = 0; weft_processes[i]; i++)
        if (!strcmp(weft_processes[i]->scheduler, class_name))
            return weft_processes[i];
    return NULL;
}

weft_value weft_process_loss(weft_graph *g, const weft_process *process,
                             const weft_process_config *config, weft_value prediction,
                             weft_value data, weft_value noise, weft_value sigma_b)
{
    const weft_value target = process->target(g, config, data, noise, sigma_b);
    weft_value error = weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, prediction, target));
    if (process->weight)
        error =
            weft_mul(g, error, weft_per_sample(g, process->weight(g, config, sigma_b), prediction));
    return weft_mean_all(g, error);
}

void weft_process_slope(weft_precondition p, double sigma, const float *x, float *answer,
                        int64_t count)
{
    const float of_x = (float)((1 - p.skip) / sigma), of_answer = (float)(-p.out / sigma);
    if (of_x == 0 && of_answer == 1) /* a flow's model answers with the slope */
        return;
    for (int64_t i = 0; i < count; i++)
        answer[i] = of_x * x[i] + of_answer * answer[i];
}
