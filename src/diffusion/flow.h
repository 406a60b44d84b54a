/* Flow matching (rectified flow): the path, the noise levels of training, the schedule of sampling.
 *
 *   x(sigma) = (1 - sigma) data + sigma noise,   sigma in [0, 1]
 *   velocity = dx/dsigma = noise - data          what the model predicts
 *   timestep = 1000 sigma                        what the model is told (Wan, SD3 and kin) */
#ifndef WEFT_DIFFUSION_FLOW_H
#define WEFT_DIFFUSION_FLOW_H

#include "base/config.h"
#include "graph/graph.h"

typedef struct weft_flow_config {
    double logit_mean, logit_std; /* sigma = sigmoid(mean + std normal), before the shift */
    double shift;                 /* s sigma / (1 + (s - 1) sigma): more noise for larger videos */
} weft_flow_config;
extern const weft_section weft_flow_section;

double weft_flow_shift(double shift, double sigma);

/* key i64 (B) -> sigma f32 (B), drawn per sample. */
weft_value weft_flow_sigma(weft_graph *g, const weft_flow_config *config, weft_value key_b);
/* data, noise (B,...), sigma (B) -> x(sigma). */
weft_value weft_flow_mix(weft_graph *g, weft_value data, weft_value noise, weft_value sigma_b);

/* Noise levels for `steps` sampler steps: sigma[0] = 1 ... sigma[steps] = 0, into an array of steps
 * + 1. The spacing is that of diffusers' FlowMatchEulerDiscreteScheduler: even between the ends of
 * a 1000-step training schedule with this shift, then shifted. */
void weft_flow_schedule(int64_t steps, double shift, double *sigma);

#endif
