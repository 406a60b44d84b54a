/* Flow matching (rectified flow): the path, the noise levels of training, the schedule of sampling.
 *
 *   x(sigma) = (1 - sigma) data + sigma noise,   sigma in [0, 1]
 *   velocity = dx/dsigma = noise - data          what the model predicts
 *   timestep = 1000 sigma                        what the model is told (Wan, SD3 and kin) */
#ifndef WEFT_DIFFUSION_FLOW_H
#define WEFT_DIFFUSION_FLOW_H

#include "base/config.h"
#include "graph/graph.h"

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
    double mode_scale;            /* MODE: of Esser et al. 2024; 0 is uniform */
    double shift;                 /* s sigma / (1 + (s - 1) sigma): more noise for larger videos */
    bool by_resolution;           /* shift = e^mu instead, mu linear in the tokens of a video: */
    double base_shift, max_shift; /* mu at ... */
    int64_t base_tokens, max_tokens;
    int weighting; /* weft_flow_weighting of the loss */
} weft_flow_config;
extern const weft_section weft_flow_section;

double weft_flow_shift(double shift, double sigma);
/* sigma of a uniform u, before the shift (LOGIT_NORMAL: of a normal). */
double weft_flow_draw(const weft_flow_config *config, double u);
double weft_flow_weight(int weighting, double sigma);

/* key i64 (B) -> sigma f32 (B), drawn per sample. */
weft_value weft_flow_sigma(weft_graph *g, const weft_flow_config *config, weft_value key_b);
/* data, noise (B,...), sigma (B) -> x(sigma). */
weft_value weft_flow_mix(weft_graph *g, weft_value data, weft_value noise, weft_value sigma_b);

/* Noise levels for `steps` sampler steps: sigma[0] = 1 ... sigma[steps] = 0, into an array of steps
 * + 1. The spacing is that of diffusers' FlowMatchEulerDiscreteScheduler: even between the ends of
 * a 1000-step training schedule with this shift, then shifted. */
void weft_flow_schedule(int64_t steps, double shift, double *sigma);

#endif
