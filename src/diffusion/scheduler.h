/* What a model's scheduler_config.json says: how its noise levels lie, which sampler goes down them
 * and with what switches. A class of the public files is a row here; a field that a class does not
 * know, and a value that is not built in, is refused by name. */
#ifndef WEFT_DIFFUSION_SCHEDULER_H
#define WEFT_DIFFUSION_SCHEDULER_H

#include "base/json.h"
#include "diffusion/betas.h"
#include "diffusion/sampler.h"

/* What the model answers with, on a variance-preserving or straight path. */
typedef enum weft_prediction {
    WEFT_PREDICT_NOISE,
    WEFT_PREDICT_V, /* alpha noise - sigma data */
    WEFT_PREDICT_DATA,
    WEFT_PREDICT_FLOW, /* noise - data */
} weft_prediction;
extern const char *const weft_prediction_names[]; /* as in scheduler_config.json */

typedef enum weft_spacing {
    WEFT_SPACING_LINSPACE,
    WEFT_SPACING_LEADING,
    WEFT_SPACING_TRAILING
} weft_spacing;

typedef enum weft_noise_path {
    WEFT_PATH_FLOW, /* alpha = 1 - sigma */
    WEFT_PATH_VP,   /* alpha^2 + sigma^2 = 1 */
    WEFT_PATH_EDM,  /* alpha = 1, preconditioned */
    /* alpha = 1 around a model that was trained on the straight path (Cosmos 2) */
    WEFT_PATH_FLOW_EDM,
} weft_noise_path;

typedef struct weft_scheduler weft_scheduler;
/* What a walk from noise to data is asked for, beside what the file says. */
typedef struct weft_walk {
    int64_t steps;
    const double *sigma; /* [steps]: levels given by a pipeline, before the shift; NULL: none */
    double mu;           /* ln of a shift that goes by resolution; NAN: none */
} weft_walk;

typedef struct weft_scheduler_class {
    const char *name;            /* in scheduler_config.json */
    const weft_sampler *sampler; /* its own; any other may go down its levels */
    void (*defaults)(weft_scheduler *s);
    weft_status (*check)(const weft_scheduler *s,
                         const char *where); /* what does not go together */
    weft_status (*lay)(const weft_scheduler *s, const weft_walk *walk, weft_leg *leg);
} weft_scheduler_class;
/* NULL name at the end. */
extern const weft_scheduler_class weft_scheduler_classes[];

struct weft_scheduler {
    const weft_scheduler_class *kind;
    weft_noise_path path;
    int64_t times; /* num_train_timesteps: the model is told up to this */
    int prediction;
    weft_solver solver;
    /* variance preserving */
    weft_betas_config betas;
    int spacing; /* of discrete times: weft_spacing */
    int64_t offset;
    bool ends_at_one;    /* the last step reaches alpha = 1, else that of time 0 */
    double least_lambda; /* ln(alpha/sigma) below which no time is used */
    int64_t lcm_times;   /* of the distilled schedule */
    /* spacing of levels: one at most */
    bool karras, exponential, beta, lu;
    bool flow; /* levels of the straight path, in a class that has others too */
    /* the last level is 0 (solver.ends_at_zero), else the least */
    /* straight */
    double shift;
    bool by_resolution; /* shift e^mu (or mu: shift_is_mu), mu linear in tokens */
    bool shift_is_mu;
    double base_shift, max_shift; /* mu at ... */
    int64_t base_tokens, max_tokens;
    double terminal; /* levels are stretched to end here; 0: they are not */
    bool inverted;
    /* EDM; NAN in others: not given */
    double sigma_min, sigma_max, sigma_data, rho;
};

/* The class by name with its defaults; WEFT_E_UNSUPPORTED names those that are known. */
weft_status weft_scheduler_of(const char *class_name, const char *where, weft_scheduler *s);
/* A file; Infinity, which Python writes into JSON, counts as null. */
weft_status weft_scheduler_load(const char *path, weft_scheduler *s);
/* All fields of a scheduler_config.json. `where` begins messages. */
weft_status weft_scheduler_read(const json_t *json, const char *where, weft_scheduler *s);

/* Fills leg[walk->steps]. WEFT_E_ARG: so many steps, or such levels, cannot be had. */
weft_status weft_scheduler_lay(const weft_scheduler *s, const weft_walk *walk, weft_leg *leg);
/* The level at alpha and sigma on the scheduler's path; EDM's alone says its time too. */
weft_level weft_scheduler_level(const weft_scheduler *s, double alpha, double sigma);
/* Where a level of the straight path is moved to; mu: as in weft_walk. */
double weft_scheduler_shift(const weft_scheduler *s, double mu, double sigma);
/* Deviation of what sampling begins with. */
double weft_scheduler_first(const weft_scheduler *s);
/* ln of the shift for so many tokens; NAN where it does not go by resolution. */
double weft_scheduler_mu(const weft_scheduler *s, int64_t tokens);

#endif
