/* Flow matching (rectified flow): path, noise levels of training and schedule of sampling.
 *
 *   x(sigma) = (1 - sigma) data + sigma noise,   sigma in [0, 1]
 *   velocity = dx/dsigma = noise - data          the model's prediction
 *   timestep = 1000 sigma                        the model's time input (Wan, SD3 and similar) */
#ifndef WEFT_DIFFUSION_FLOW_H
#define WEFT_DIFFUSION_FLOW_H

#include "base/config.h"
#include "graph/graph.h"

typedef struct weft_noise_process weft_noise_process;

typedef enum weft_flow_times {
    WEFT_FLOW_LOGIT_NORMAL,
    WEFT_FLOW_UNIFORM,
    WEFT_FLOW_MODE
} weft_flow_times;
typedef enum weft_flow_weighting {
    WEFT_FLOW_EVEN,
    WEFT_FLOW_SIGMA_SQRT,
    WEFT_FLOW_COSMAP
} weft_flow_weighting;

typedef struct weft_flow_config {
    int times;                    /* weft_flow_times: how sigma is drawn, before the shift */
    double logit_mean, logit_std; /* LOGIT_NORMAL: sigmoid(mean + std normal) */
    double mode_scale;            /* MODE: scale s of Esser et al. 2024; 0: uniform */
    double shift;                 /* s in s sigma / (1 + (s - 1) sigma); larger: more noise */
    bool by_resolution;           /* shift is e^mu, with mu linear in the tokens of a video */
    double base_shift, max_shift; /* mu at base_tokens and at max_tokens */
    int64_t base_tokens, max_tokens;
    int weighting; /* weft_flow_weighting of the loss */
} weft_flow_config;
extern const weft_section weft_flow_section;

double weft_flow_shift(double shift, double sigma);
/* Returns sigma for a uniform u (LOGIT_NORMAL: for a normal draw), before the shift. */
double weft_flow_draw(const weft_flow_config *config, double u);
double weft_flow_weight(int weighting, double sigma);

/* Draws sigma f32 (B), one per sample, from key i64 (B). */
weft_value weft_flow_sigma(weft_graph *g, const weft_flow_config *config, weft_value key_b);
/* Returns sigma (any shape) after the shift. */
weft_value weft_flow_shifted(weft_graph *g, double shift, weft_value sigma);
/* Returns x(sigma) of data and noise (B,...) at sigma (B). */
weft_value weft_flow_mix(weft_graph *g, weft_value data, weft_value noise, weft_value sigma_b);

/* Noise levels for `steps` sampler steps: sigma[0] = 1 ... sigma[steps] = 0, into an array of steps
 * + 1. The spacing follows diffusers' FlowMatchEulerDiscreteScheduler: even between the ends of a
 * 1000-step training schedule with this shift, then shifted. */
void weft_flow_schedule(int64_t steps, double shift, double *sigma);

extern const weft_noise_process weft_noise_process_flow;

#endif
