/* The scheduler_config.json of a model: noise levels, sampler and settings of the sampler. Each
 * class of the public files is a row. An unknown field of a class and an unsupported value are
 * errors with the field's name. */
#ifndef WEFT_DIFFUSION_SCHEDULER_H
#define WEFT_DIFFUSION_SCHEDULER_H

#include "base/json.h"
#include "diffusion/betas.h"
#include "diffusion/sampler.h"

/* The model's prediction, on a variance-preserving or straight path. */
typedef enum weft_prediction {
    WEFT_PREDICT_NOISE,
    WEFT_PREDICT_V, /* alpha noise - sigma data */
    WEFT_PREDICT_DATA,
    WEFT_PREDICT_FLOW, /* noise - data */
} weft_prediction;
extern const char *const weft_prediction_names[]; /* names in scheduler_config.json */

typedef enum weft_spacing {
    WEFT_SPACING_LINSPACE,
    WEFT_SPACING_LEADING,
    WEFT_SPACING_TRAILING
} weft_spacing;

typedef enum weft_noise_path {
    WEFT_PATH_FLOW, /* alpha = 1 - sigma */
    WEFT_PATH_VP,   /* alpha^2 + sigma^2 = 1 */
    WEFT_PATH_VE,   /* alpha = 1 around a model that was trained on WEFT_PATH_VP */
    WEFT_PATH_EDM,  /* alpha = 1, preconditioned */
    /* alpha = 1 around a model that was trained on the straight path (Cosmos 2) */
    WEFT_PATH_FLOW_EDM,
} weft_noise_path;

/* Most sizes of latents of a trajectory that begins with small latents (scheduler_stages.h). */
enum { WEFT_MAX_STAGES = 4 };

typedef struct weft_scheduler weft_scheduler;
/* The user's settings of a sampling trajectory, in addition to the file's. */
typedef struct weft_timestep_request {
    int64_t steps;
    const double *sigma; /* [steps] levels set by a pipeline, before the shift; NULL: none */
    double mu;           /* ln of a shift by resolution; NAN: none */
    const double *time;  /* [steps] times, from the highest; NULL: none */
    double end;          /* level at which the last step ends; NAN: the scheduler's */
    int64_t stage;       /* of a scheduler with several stages, from 0: the smallest latents */
    int64_t pixels[3];   /* frames, rows and columns of the video; 0 (default): unknown */
} weft_timestep_request;

/* Times that a class takes in place of its own: none, times of its table, or any. */
typedef enum weft_given_times {
    WEFT_GIVEN_NONE,
    WEFT_GIVEN_WHOLE,
    WEFT_GIVEN_ANY
} weft_given_times;

typedef struct weft_scheduler_class {
    const char *name;            /* class name in scheduler_config.json */
    const weft_sampler *sampler; /* default sampler; every sampler can use its levels */
    void (*defaults)(weft_scheduler *s);
    weft_status (*check)(const weft_scheduler *s,
                         const char *where); /* rejects values that cannot be combined */
    weft_status (*lay)(const weft_scheduler *s, const weft_timestep_request *request,
                       weft_solver_step *step);
    weft_given_times given;
    bool alone; /* no file of an unknown class is read as this one */
} weft_scheduler_class;
/* Rows; the last has no name. */
extern const weft_scheduler_class weft_scheduler_classes[];

struct weft_scheduler {
    const weft_scheduler_class *kind;
    weft_noise_path path;
    int64_t times; /* num_train_timesteps: limit of the model's time input */
    int prediction;
    weft_solver solver;
    /* variance preserving */
    weft_betas_config betas;
    int spacing; /* spacing of discrete times: weft_spacing */
    int64_t offset;
    bool ends_at_one;    /* the last step reaches alpha = 1, else the alpha of time 0 */
    double least_lambda; /* smallest ln(alpha/sigma) of a used time */
    int64_t lcm_times;   /* number of times of the distilled schedule */
    /* spacing of levels; at most one is true */
    bool karras, exponential, beta, lu;
    bool flow;       /* levels of the straight path, in a class that also supports other paths */
    bool log_linear; /* Euler: levels are even in their logarithm, and times are even */
    bool continuous; /* Euler: the model's time is ln(sigma) / 4 */
    /* straight path. The last level is 0 (solver.ends_at_zero), else the smallest */
    double shift;
    bool by_resolution; /* shift e^mu (or mu: shift_is_mu), mu linear in tokens */
    bool shift_is_mu;
    bool by_video; /* the shift depends on frames and pixels (Open-Sora 1.2), not on tokens */
    double base_shift, max_shift; /* mu at base_tokens and at max_tokens */
    int64_t base_tokens, max_tokens;
    double terminal; /* level at which the stretched levels end; 0: not stretched */
    bool inverted;
    /* EDM; NAN in others: not given */
    double sigma_min, sigma_max, sigma_data, rho;
    /* Helios: sizes of the latents, from the smallest (scheduler_stages.h); and Euler's method */
    int64_t stages;
    double stage_range[WEFT_MAX_STAGES + 1]; /* shares of the times at which stages begin and end */
    double gamma; /* covariance of the noise that is added between sizes (block_noise.h) */
    bool euler;
};

/* Sets the defaults of a class by its name. WEFT_E_UNSUPPORTED: unknown name; the message lists the
 * known names. */
weft_status weft_scheduler_of(const char *class_name, const char *where, weft_scheduler *s);
/* Loads a file. Infinity, which Python writes into JSON, counts as null. */
weft_status weft_scheduler_load(const char *path, weft_scheduler *s);
/* Loads a file of an unknown class as another class of the same path: the first class that has the
 * sampler by default, or FlowMatchEulerDiscreteScheduler or DDIMScheduler. Warns with both classes,
 * and the ignored fields. */
weft_status weft_scheduler_load_for(const char *path, const weft_sampler *sampler,
                                    weft_scheduler *s);
/* Reads all fields of a scheduler_config.json. `where` begins messages. */
weft_status weft_scheduler_read(const json_t *json, const char *where, weft_scheduler *s);

/* Fills the `steps` solver steps of the request. WEFT_E_ARG: the schedule does not have this number
 * of steps or these levels. */
weft_status weft_scheduler_set_timesteps(const weft_scheduler *s,
                                         const weft_timestep_request *request,
                                         weft_solver_step *step);
/* Returns the sampler of the file, or of its class. */
const weft_sampler *weft_scheduler_sampler(const weft_scheduler *s);
/* Returns the standard deviation of the initial noise of a trajectory that begins with `step`. */
double weft_scheduler_first(const weft_scheduler *s, const weft_solver_step *step);
/* Returns ln of the shift for a video of `tokens` tokens, of pixels[0] frames with pixels[1] rows
 * and pixels[2] columns; 0 frames: unknown. NAN: the shift does not depend on the resolution, or on
 * an unknown one. */
double weft_scheduler_mu(const weft_scheduler *s, int64_t tokens, const int64_t pixels[3]);

#endif
