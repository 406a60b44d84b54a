/* Noise processes: how training adds noise to data, and what the model predicts. A process is a
 * row. Every process works with every denoiser. The row also writes a scheduler next to the trained
 * model, which defines how to sample from the model (diffusion/scheduler.h).
 *
 *   prediction = model(input(data, noise, level), time)
 *   loss       = mean of weight (prediction - target(data, noise, level))^2 */
#ifndef WEFT_DIFFUSION_PROCESS_H
#define WEFT_DIFFUSION_PROCESS_H

#include "base/json.h"
#include "diffusion/ddpm.h"
#include "diffusion/edm.h"
#include "diffusion/flow.h"

/* Inputs of the rows: each row reads its own member, and all rows read the range of times. */
typedef struct weft_noise_process_config {
    weft_flow_config flow;
    weft_edm_config edm;
    weft_ddpm_config ddpm;
    /* sampler row written for the finished model; "": the default of the process */
    const char *sampler;
    /* range of training times, within 0 ... 1; an expert covers a part of the range */
    double from, to;
} weft_noise_process_config;

/* The noise levels of a batch, shape (B) each: x = alpha data + sigma noise. */
typedef struct weft_noised {
    weft_value sigma;
    weft_value alpha;  /* WEFT_NONE: the process's own function of sigma */
    weft_value time;   /* time input of the model */
    weft_value weight; /* WEFT_NONE: 1 */
} weft_noised;

/* A scheduler class for a finished model. Lists end with a NULL sampler. */
typedef struct weft_noise_process_scheduler {
    const char *sampler, *class_name;
} weft_noise_process_scheduler;

typedef struct weft_noise_process {
    const char *name;
    /* Draws the levels of each sample from key i64 (B). */
    weft_noised (*level)(weft_graph *g, const weft_noise_process_config *config, weft_value key_b);
    /* Returns the model's scaled input for data and noise (B,...). */
    weft_value (*input)(weft_graph *g, const weft_noise_process_config *config, weft_value data,
                        weft_value noise, const weft_noised *level);
    weft_value (*target)(weft_graph *g, const weft_noise_process_config *config, weft_value data,
                         weft_value noise, const weft_noised *level);
    /* Returns the standard deviation that the process expects of data. NULL: 1. */
    double (*scale)(const weft_noise_process_config *config);
    /* Adapts the config to videos of `tokens` tokens; NULL: independent of the size. */
    void (*resolve)(weft_noise_process_config *config, int64_t tokens);
    /* Rejects values that cannot be combined. `where` begins the message. NULL: no check. */
    weft_status (*check)(const weft_noise_process_config *config, const char *where);
    /* Scheduler classes that can sample from the trained model; the first is the default. */
    const weft_noise_process_scheduler *(*schedulers)(const weft_noise_process_config *config);
    /* Returns the scheduler_config.json of a class (new reference). NULL: out of memory. */
    json_t *(*write)(const weft_noise_process_config *config, const char *class_name);
} weft_noise_process;

extern const weft_noise_process *const weft_processes[]; /* NULL-terminated */
extern const char *const weft_noise_process_names[];     /* names of the rows; NULL-terminated */
extern const weft_noise_process_config weft_noise_process_defaults;
/* Returns the standard deviation that the process expects of data; 1 by default. */
double weft_noise_process_scale(const weft_noise_process *process,
                                const weft_noise_process_config *config);
weft_noise_process_config weft_noise_process_resolve(const weft_noise_process *process,
                                                     const weft_noise_process_config *config,
                                                     int64_t tokens);
weft_status weft_noise_process_check(const weft_noise_process *process,
                                     const weft_noise_process_config *config, const char *where);

/* Returns the class name of scheduler_config.json, and its contents. NULL: out of memory. */
const char *weft_noise_process_class(const weft_noise_process *process,
                                     const weft_noise_process_config *config);
json_t *weft_noise_process_write(const weft_noise_process *process,
                                 const weft_noise_process_config *config);

/* Returns the scalar loss of `prediction` (B,...). */
weft_value weft_noise_process_loss(weft_graph *g, const weft_noise_process *process,
                                   const weft_noise_process_config *config, weft_value prediction,
                                   weft_value data, weft_value noise, const weft_noised *level);

#endif
