/* Processes: how data becomes noise in training, and what a model is asked about it. A process is a
 * row; any process works with any denoiser. How a trained model is sampled from is told by the
 * scheduler that the row writes beside it (diffusion/scheduler.h).
 *
 *   x = input(data, noise, level) and a time go into the model; its answer is held against
 *   target(data, noise, level): mean of weight (answer - target)^2 */
#ifndef WEFT_DIFFUSION_PROCESS_H
#define WEFT_DIFFUSION_PROCESS_H

#include "base/json.h"
#include "diffusion/ddpm.h"
#include "diffusion/edm.h"
#include "diffusion/flow.h"

/* What the rows read: each its own member, and all of them the part of the times that is drawn. */
typedef struct weft_process_config {
    weft_flow_config flow;
    weft_edm_config edm;
    weft_ddpm_config ddpm;
    /* row that the finished model is sampled with; "": the process's own */
    const char *sampler;
    /* 0 ... 1, of the times that the model is told; an expert has a part of them */
    double from, to;
} weft_process_config;

/* Where samples are, (B) each: x = alpha data + sigma noise. */
typedef struct weft_noised {
    weft_value sigma;
    weft_value alpha;  /* WEFT_NONE: the process's own function of sigma */
    weft_value time;   /* what the model is told */
    weft_value weight; /* WEFT_NONE: 1 */
} weft_noised;

/* A list of them ends with a NULL sampler. */
typedef struct weft_process_scheduler {
    const char *sampler, *class_name;
} weft_process_scheduler;

typedef struct weft_process {
    const char *name;
    /* key i64 (B) -> levels, drawn per sample. */
    weft_noised (*level)(weft_graph *g, const weft_process_config *config, weft_value key_b);
    /* data, noise (B,...) -> what goes into the model, already scaled. */
    weft_value (*input)(weft_graph *g, const weft_process_config *config, weft_value data,
                        weft_value noise, const weft_noised *level);
    weft_value (*target)(weft_graph *g, const weft_process_config *config, weft_value data,
                         weft_value noise, const weft_noised *level);
    /* Deviation of the data; NULL: 1. */
    double (*scale)(const weft_process_config *config);
    /* The config for videos of so many tokens; NULL: the same for all. */
    void (*resolve)(weft_process_config *config, int64_t tokens);
    /* Values that do not go together; NULL: all do. `where` begins the message. */
    weft_status (*check)(const weft_process_config *config, const char *where);
    /* The classes that a model so trained is sampled with, by row; the first is its own. */
    const weft_process_scheduler *(*schedulers)(const weft_process_config *config);
    /* The public scheduler_config.json of one; NULL: out of memory. */
    json_t *(*write)(const weft_process_config *config, const char *class_name);
} weft_process;

extern const weft_process weft_process_flow, weft_process_edm, weft_process_ddpm;
extern const weft_process *const weft_processes[]; /* NULL-terminated */
extern const char *const weft_process_names[];     /* the same order; NULL-terminated */
extern const weft_process_config weft_process_defaults;
/* 1 where the row says nothing. */
double weft_process_scale(const weft_process *process, const weft_process_config *config);
weft_process_config weft_process_resolve(const weft_process *process,
                                         const weft_process_config *config, int64_t tokens);
weft_status weft_process_check(const weft_process *process, const weft_process_config *config,
                               const char *where);

/* The class of the public scheduler_config.json, and the file; NULL: out of memory. */
const char *weft_process_class(const weft_process *process, const weft_process_config *config);
json_t *weft_process_write(const weft_process *process, const weft_process_config *config);

/* The scalar loss of `prediction`, (B,...). */
weft_value weft_process_loss(weft_graph *g, const weft_process *process,
                             const weft_process_config *config, weft_value prediction,
                             weft_value data, weft_value noise, const weft_noised *level);

#endif
