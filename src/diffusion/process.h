/* Processes: how data becomes noise, what a model is asked about it, and what its answer means. A
 * process is a row; any process works with any denoiser and any sampler.
 *
 *   training    x = input(data, noise, sigma) and a time go into the model; its answer is held
 *               against target(data, noise, sigma): mean of weight(sigma) (answer - target)^2
 *   sampling    denoised  = skip x + out model(in x, time) at each noise level
 *               dx/dsigma = (x - denoised) / sigma, which samplers integrate */
#ifndef WEFT_DIFFUSION_PROCESS_H
#define WEFT_DIFFUSION_PROCESS_H

#include "base/json.h"
#include "diffusion/edm.h"
#include "diffusion/flow.h"

/* What the rows read: each its own member. */
typedef struct weft_process_config {
    weft_flow_config flow;
    weft_edm_config edm;
} weft_process_config;

/* How the model is called at one noise level, and how its answer gives what is denoised. */
typedef struct weft_precondition {
    double in, time, skip, out;
} weft_precondition;

typedef struct weft_process {
    const char *name;
    const char *scheduler; /* its class in the public scheduler_config.json */
    /* key i64 (B) -> sigma f32 (B), drawn per sample, and what the model is told of it (B). */
    void (*level)(weft_graph *g, const weft_process_config *config, weft_value key_b,
                  weft_value *sigma_b, weft_value *time_b);
    /* data, noise (B,...), sigma (B) -> what goes into the model, already scaled. */
    weft_value (*input)(weft_graph *g, const weft_process_config *config, weft_value data,
                        weft_value noise, weft_value sigma_b);
    weft_value (*target)(weft_graph *g, const weft_process_config *config, weft_value data,
                         weft_value noise, weft_value sigma_b);
    /* sigma (B) -> (B); NULL: 1. */
    weft_value (*weight)(weft_graph *g, const weft_process_config *config, weft_value sigma_b);
    /* Noise levels of `steps` sampler steps into sigma[steps + 1]; the last is 0. */
    void (*schedule)(const weft_process_config *config, int64_t steps, double *sigma);
    weft_precondition (*at)(const weft_process_config *config, double sigma);
    /* Deviation of what sampling begins with, and of the data; NULL: 1. */
    double (*first)(const weft_process_config *config);
    double (*scale)(const weft_process_config *config);
    /* The config's schedule shift; NULL: it has none. */
    double *(*shift)(weft_process_config *config);
    /* The public scheduler_config.json; what it leaves out is as in `config`. */
    weft_status (*read)(const json_t *json, const char *where, weft_process_config *config);
    json_t *(*write)(const weft_process_config *config); /* NULL: out of memory */
} weft_process;

extern const weft_process weft_process_flow, weft_process_edm;
extern const weft_process *const weft_processes[]; /* NULL-terminated */
extern const char *const weft_process_names[];     /* the same order; NULL-terminated */
/* What a scheduler_config.json begins with. */
extern const weft_process_config weft_process_defaults;
/* 1 where the row says nothing. */
double weft_process_first(const weft_process *process, const weft_process_config *config);
double weft_process_scale(const weft_process *process, const weft_process_config *config);
/* The one of a scheduler's class; NULL: none. */
const weft_process *weft_process_of_scheduler(const char *class_name);

/* The scalar loss of `prediction`, (B,...). */
weft_value weft_process_loss(weft_graph *g, const weft_process *process,
                             const weft_process_config *config, weft_value prediction,
                             weft_value data, weft_value noise, weft_value sigma_b);
/* answer[count] of the model at x, in place, to dx/dsigma. */
void weft_process_slope(weft_precondition p, double sigma, const float *x, float *answer,
                        int64_t count);

#endif
