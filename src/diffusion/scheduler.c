#include "diffusion/scheduler.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/log.h"
#include "diffusion/sampler.h"
#include "diffusion/sampler_jump.h"
#include "diffusion/sampler_lms.h"
#include "diffusion/sampler_multistep.h"
#include "diffusion/sampler_pndm.h"
#include "diffusion/sampler_singlestep.h"
#include "diffusion/sampler_unipc.h"
#include "diffusion/scheduler_flow.h"
#include "diffusion/scheduler_levels.h"
#include "diffusion/scheduler_stages.h"
#include "diffusion/scheduler_ve.h"
#include "diffusion/scheduler_vp.h"

#include <math.h>
#include <string.h>

const char *const weft_prediction_names[] = {"epsilon", "v_prediction", "sample", "flow_prediction",
                                             NULL};

/* ---- classes -------------------------------------------------------------------------------- */

static const weft_scheduler common = {
    .times = 1000,
    .betas = {1000, 0.0001, 0.02, WEFT_BETAS_LINEAR, false, false, 1, 0},
    .ends_at_one = true,
    .least_lambda = -INFINITY,
    .lcm_times = 50,
    .shift = 1,
    .base_shift = 0.5,
    .max_shift = 1.15,
    .base_tokens = 256,
    .max_tokens = 4096,
    .sigma_min = NAN,
    .sigma_max = NAN,
    .sigma_data = NAN,
    .rho = 7,
    .stages = 1,
    .stage_range = {0, 1. / 3, 2. / 3, 1},
    .gamma = 1. / 3,
};

static void flow(weft_scheduler *s)
{
    s->path = WEFT_PATH_FLOW;
    s->prediction = WEFT_PREDICT_FLOW;
}

static void multistep(weft_scheduler *s)
{
    s->path = WEFT_PATH_VP;
    s->betas.floor = ldexp(1, -24);
}

static void unipc(weft_scheduler *s)
{
    multistep(s);
    s->solver.form = WEFT_SOLVER_BH2;
}

static void rflow(weft_scheduler *s)
{
    flow(s);
    s->by_video = true;
}

static void helios(weft_scheduler *s)
{
    flow(s);
    s->flow = true;
    s->solver.form = WEFT_SOLVER_BH2;
    s->stages = 3;
}

static void helios_dmd(weft_scheduler *s)
{
    helios(s);
    s->shift_is_mu = true;
}

static void discrete(weft_scheduler *s)
{
    s->path = WEFT_PATH_VP;
    s->spacing = WEFT_SPACING_LEADING;
    s->solver.clip = WEFT_SAMPLE_CLAMP_RANGE;
}

static void lcm(weft_scheduler *s)
{
    discrete(s);
    s->solver.clip = WEFT_SAMPLE_CLAMP_NONE;
    s->betas.start = 0.00085;
    s->betas.end = 0.012;
    s->betas.schedule = WEFT_BETAS_SCALED_LINEAR;
}

static void cogvideox(weft_scheduler *s)
{
    lcm(s);
    s->betas.direct = true;
    s->betas.snr_scale = 3;
}

static void pndm(weft_scheduler *s)
{
    s->path = WEFT_PATH_VP;
    s->spacing = WEFT_SPACING_LEADING;
    s->ends_at_one = false;
    s->solver.skips_prk = false;
}

static void ve(weft_scheduler *s)
{
    s->path = WEFT_PATH_VE;
    s->betas.floor = ldexp(1, -24);
}

static void singlestep(weft_scheduler *s)
{
    multistep(s);
    s->solver.lower_at_end = false;
}

static void edm(weft_scheduler *s)
{
    s->path = WEFT_PATH_EDM;
    s->karras = true;
    s->sigma_min = 0.002;
    s->sigma_max = 80;
    s->sigma_data = 0.5;
}

/* clang-format off */
#define ROW(name, sampler, defaults, check, lay, given) \
    {name, &weft_sampler_##sampler, defaults, check, lay, WEFT_GIVEN_##given},
const weft_scheduler_class weft_scheduler_classes[] = {
    ROW("FlowMatchEulerDiscreteScheduler", euler, flow, weft_check_flow, weft_lay_flow, ANY)
    ROW("FlowMatchHeunDiscreteScheduler", heun, flow, weft_check_flow, weft_lay_flow, NONE)
    ROW("UniPCMultistepScheduler", unipc, unipc, weft_check_multistep, weft_lay_multistep, NONE)
    ROW("DPMSolverMultistepScheduler", dpmpp, multistep, weft_check_multistep,
        weft_lay_multistep, WHOLE)
    ROW("DDIMScheduler", ddim, discrete, weft_check_discrete, weft_lay_discrete, NONE)
    ROW("DDPMScheduler", ddpm, discrete, weft_check_discrete, weft_lay_chained, WHOLE)
    ROW("CogVideoXDDIMScheduler", ddim, cogvideox, weft_check_discrete, weft_lay_discrete, NONE)
    ROW("CogVideoXDPMScheduler", cogvideox_dpm, cogvideox, weft_check_discrete,
        weft_lay_discrete, NONE)
    ROW("LCMScheduler", lcm, lcm, weft_check_discrete, weft_lay_lcm, WHOLE)
    ROW("EDMEulerScheduler", euler, edm, weft_check_edm, weft_lay_edm, NONE)
    ROW("EDMDPMSolverMultistepScheduler", dpmpp, edm, weft_check_edm, weft_lay_edm, NONE)
    ROW("PNDMScheduler", pndm, pndm, weft_check_pndm, weft_lay_pndm, NONE)
    ROW("EulerDiscreteScheduler", euler, ve, weft_check_ve, weft_lay_ve, ANY)
    ROW("EulerAncestralDiscreteScheduler", euler_ancestral, ve, weft_check_ve, weft_lay_ve, NONE)
    ROW("LMSDiscreteScheduler", lms, ve, weft_check_ve, weft_lay_ve, NONE)
    ROW("DPMSolverSinglestepScheduler", dpm_singlestep, singlestep, weft_check_singlestep,
        weft_lay_multistep, WHOLE)
    ROW("FlowMatchLCMScheduler", consistency, flow, weft_check_flow, weft_lay_flow, ANY)
    {"HeliosScheduler", &weft_sampler_unipc, helios, weft_check_helios, weft_lay_helios,
     WEFT_GIVEN_NONE, .alone = true},
    {"HeliosDMDScheduler", &weft_sampler_dmd, helios_dmd, weft_check_helios, weft_lay_helios,
     WEFT_GIVEN_NONE, .alone = true},
    {"RFlowScheduler", &weft_sampler_euler, rflow, weft_check_flow, weft_lay_rflow,
     WEFT_GIVEN_ANY, .alone = true},
    {NULL}};

/* Sets of classes: bit i is row i. */
enum {
    FLOW_EULER = 1, FLOW_HEUN = 2, UNIPC = 4, DPM = 8, DDIM = 16, DDPM = 32, COG_DDIM = 64,
    COG_DPM = 128, LCM = 256, EDM_EULER = 512, EDM_DPM = 1024, PNDM = 2048, EULER = 4096,
    ANCESTRAL = 8192, LMS = 16384, SINGLE = 32768, FLOW_LCM = 65536, HELIOS = 131072,
    HELIOS_DMD = 262144, RFLOW = 524288, ANY = 1048575, STAGED = HELIOS | HELIOS_DMD,
    CUTTING = UNIPC | DPM | DDIM | DDPM | LCM | EDM_DPM | SINGLE, /* dynamic thresholding */
    COG = COG_DDIM | COG_DPM, EDM = EDM_EULER | EDM_DPM, DPMS = DPM | SINGLE,
    MULTI = UNIPC | DPMS, BOTH_UNIPC = UNIPC | HELIOS, SOLVES = MULTI | HELIOS,
    DISCRETE = DDIM | DDPM | COG | LCM,
    RESCALED = UNIPC | DPM | DISCRETE | EULER | ANCESTRAL, /* rescale_betas_zero_snr */
    TIMED = RESCALED | PNDM | LMS,                         /* timestep_spacing */
    TABLE = TIMED | SINGLE, PREDICTS = TABLE | EDM,
    SHIFTED = FLOW_EULER | FLOW_LCM, MOVING = MULTI | SHIFTED, SPACED = MOVING | EULER | LMS,
    RANGED = FLOW_EULER | UNIPC | DPM | EULER, /* sigma_min, sigma_max */
    ENDED = EDM | MULTI | FLOW_EULER | EULER,  /* final_sigmas_type */
};
/* clang-format on */

weft_status weft_scheduler_of(const char *class_name, const char *where, weft_scheduler *s)
{
    weft_buf known = {0};
    for (int i = 0; weft_scheduler_classes[i].name; i++) {
        if (!strcmp(weft_scheduler_classes[i].name, class_name)) {
            weft_buf_free(&known);
            *s = common;
            s->solver = weft_solver_defaults;
            s->kind = &weft_scheduler_classes[i];
            s->kind->defaults(s);
            return WEFT_OK;
        }
        weft_buf_printf(&known, "%s%s", i ? ", " : "", weft_scheduler_classes[i].name);
    }
    const weft_status_code status =
        weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                   WEFT_AT(.file = where, .key = "_class_name", .value = class_name),
                   "the scheduler class \"%s\" is not known; known: %s", class_name,
                   known.data ? known.data : "?");
    weft_buf_free(&known);
    return status;
}

/* ---- fields --------------------------------------------------------------------------------- */

typedef enum field_type {
    BOOL,
    I64,
    F64,     /* null: unchanged */
    CHOICE,  /* int: index into choices */
    EITHER,  /* bool: the second of two choices */
    NOTHING, /* null, false or an empty list; other values are unsupported */
    IGNORED  /* any value; has no effect on this class */
} field_type;

typedef struct field {
    const char *name;
    field_type type;
    size_t at;
    int classes;
    const char *const *choices;
} field;

static const char *const spacings[] = {"linspace", "leading", "trailing", NULL};
static const char *const forms[] = {"midpoint", "heun", "bh1", "bh2", "logrho", NULL};
static const char *const algorithms[] = {
    "dpmsolver++", "sde-dpmsolver++", "dpmsolver", "sde-dpmsolver", "deis", NULL};
static const char *const shift_types[] = {"exponential", "linear", NULL};
static const char *const variances[] = {"fixed_small", "fixed_large", "fixed_small_log", NULL};
static const char *const ends[] = {"sigma_min", "zero", NULL};
static const char *const edm_spacings[] = {"exponential", "karras", NULL};
static const char *const time_types[] = {"discrete", "continuous", NULL};
static const char *const helios_types[] = {"unipc", "euler", NULL};
static const char *const interpolations[] = {"linear", "log_linear", NULL};

/* clang-format off */
#define AT(member) offsetof(weft_scheduler, member)
#define PREDICTIONS weft_prediction_names
static const field fields[] = {
    {"num_train_timesteps",         I64,     AT(times),               ANY},
    {"beta_start",                  F64,     AT(betas.start),         TABLE},
    {"beta_end",                    F64,     AT(betas.end),           TABLE},
    {"beta_schedule",               CHOICE,  AT(betas.schedule),      TABLE, weft_betas_names},
    {"rescale_betas_zero_snr",      BOOL,    AT(betas.zero_snr),      RESCALED},
    {"snr_shift_scale",             F64,     AT(betas.snr_scale),     COG},
    {"prediction_type",             CHOICE,  AT(prediction),  PREDICTS | STAGED, PREDICTIONS},
    {"timestep_spacing",            CHOICE,  AT(spacing),             TIMED, spacings},
    {"timestep_type",               EITHER,  AT(continuous),          EULER, time_types},
    {"interpolation_type",          EITHER,  AT(log_linear),          EULER, interpolations},
    {"steps_offset",                I64,     AT(offset),              TIMED},
    {"set_alpha_to_one",            BOOL,    AT(ends_at_one),         DDIM | COG | LCM | PNDM},
    {"skip_prk_steps",              BOOL,    AT(solver.skips_prk),    PNDM},
    {"sample_max_value",            IGNORED, 0,                       COG},
    {"clip_sample_range",           F64,     AT(solver.clip_range),   DDIM | DDPM | LCM},
    {"dynamic_thresholding_ratio",  F64,     AT(solver.quantile),     CUTTING},
    {"sample_max_value",            F64,     AT(solver.most),         CUTTING},
    {"variance_type",               CHOICE,  AT(solver.variance),     DDPM, variances},
    {"variance_type",               NOTHING, 0,                       DPMS},
    {"original_inference_steps",    I64,     AT(lcm_times),           LCM},
    {"timestep_scaling",            F64,     AT(solver.time_scale),   LCM},
    {"solver_order",                I64,     AT(solver.order),        SOLVES | EDM_DPM},
    {"lower_order_final",           BOOL,    AT(solver.lower_at_end), SOLVES | EDM_DPM},
    {"euler_at_final",              BOOL,    AT(solver.euler_at_end), DPM | EDM_DPM},
    {"solver_p",                    NOTHING, 0,                       BOTH_UNIPC},
    {"final_sigmas_type",           EITHER,  AT(solver.ends_at_zero), ENDED, ends},
    {"use_karras_sigmas",           BOOL,    AT(karras),              SPACED},
    {"use_exponential_sigmas",      BOOL,    AT(exponential),         SPACED},
    {"use_beta_sigmas",             BOOL,    AT(beta),                SPACED},
    {"use_lu_lambdas",              BOOL,    AT(lu),                  DPM},
    {"lambda_min_clipped",          F64,     AT(least_lambda),        DPMS},
    {"use_flow_sigmas",             BOOL,    AT(flow),                SOLVES | HELIOS_DMD},
    {"flow_shift",                  F64,     AT(shift),               MULTI},
    {"shift",                       F64,     AT(shift),               SHIFTED | FLOW_HEUN | STAGED},
    {"use_dynamic_shifting",        BOOL,    AT(by_resolution),       MOVING | STAGED},
    {"time_shift_type",             EITHER,  AT(shift_is_mu),  MOVING | STAGED, shift_types},
    {"base_shift",                  F64,     AT(base_shift),          SHIFTED},
    {"max_shift",                   F64,     AT(max_shift),           SHIFTED},
    {"base_image_seq_len",          I64,     AT(base_tokens),         SHIFTED},
    {"max_image_seq_len",           I64,     AT(max_tokens),          SHIFTED},
    {"shift_terminal",              F64,     AT(terminal),            SHIFTED | UNIPC},
    {"invert_sigmas",               BOOL,    AT(inverted),            SHIFTED},
    {"stochastic_sampling",         BOOL,    AT(solver.stochastic),   FLOW_EULER},
    {"num_timesteps",               I64,     AT(times),               RFLOW},
    {"use_timestep_transform",      BOOL,    AT(by_resolution),       RFLOW},
    {"use_discrete_timesteps",      NOTHING, 0,                       RFLOW},
    {"num_sampling_steps",          IGNORED, 0,                       RFLOW}, /* an option */
    {"cfg_scale",                   IGNORED, 0,                       RFLOW}, /* an option */
    {"sample_method",               IGNORED, 0,                       RFLOW}, /* of training */
    {"loc",                         IGNORED, 0,                       RFLOW}, /* of training */
    {"scale",                       IGNORED, 0,                       RFLOW}, /* of training */
    {"transform_scale",             IGNORED, 0,                       RFLOW}, /* of training */
    {"scale_factors",               NOTHING, 0,                       FLOW_LCM},
    {"upscale_mode",                IGNORED, 0,                       FLOW_LCM},
    {"sigma_min",                   F64,     AT(sigma_min),           EDM | RANGED},
    {"sigma_max",                   F64,     AT(sigma_max),           EDM | RANGED},
    {"sigma_data",                  F64,     AT(sigma_data),          EDM | FLOW_EULER},
    {"rho",                         F64,     AT(rho),                 EDM},
    {"sigma_schedule",              EITHER,  AT(karras),              EDM, edm_spacings},
    {"stages",                      I64,     AT(stages),              STAGED},
    {"stage_range",                 IGNORED, 0,                       STAGED},
    {"gamma",                       F64,     AT(gamma),               STAGED},
    {"scheduler_type",              EITHER,  AT(euler),               HELIOS, helios_types},
    {"thresholding",                NOTHING, 0,                       HELIOS},
    /* read by functions below */
    {"trained_betas",               IGNORED, 0,                       TABLE},
    {"thresholding",                IGNORED, 0,                       CUTTING},
    {"solver_type",                 IGNORED, 0,                       SOLVES | EDM_DPM},
    {"algorithm_type",              IGNORED, 0,                       DPMS | EDM_DPM},
    {"predict_x0",                  IGNORED, 0,                       BOTH_UNIPC},
    {"disable_corrector",           IGNORED, 0,                       BOTH_UNIPC},
    /* fields without effect: metadata of other tools, and fields of other classes */
    {"_class_name",                 IGNORED, 0,                       ANY},
    {"_diffusers_version",          IGNORED, 0,                       ANY},
    {"_name_or_path",               IGNORED, 0,                       ANY},
    {"_use_default_values",         IGNORED, 0,                       ANY},
    {"skip_prk_steps",              IGNORED, 0,                       ANY},
    {"interpolation_type",          IGNORED, 0,                       ANY},
    {"clip_sample",                 IGNORED, 0,                       ANY},
    {"clip_sample_range",           IGNORED, 0,                       ANY},
    {"set_alpha_to_one",            IGNORED, 0,                       ANY},
};
/* clang-format on */

static const field *find(const char *name, int classes)
{
    for (int i = 0; i < WEFT_COUNT(fields); i++)
        if (!strcmp(fields[i].name, name) && fields[i].classes & classes)
            return &fields[i];
    return NULL;
}

static bool is_nothing(const json_t *v)
{
    return json_is_null(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v));
}

static weft_status refuse(const char *where, const char *name, const json_t *v, const char *why)
{
    char *text = weft_json_line(v);
    const weft_status_code code = weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED,
                                             WEFT_AT(.file = where, .key = name, .value = text),
                                             "%.80s %s", text ? text : "?", why);
    weft_free(text);
    return code;
}

static weft_status choose(const char *where, const field *f, const json_t *v, int *index)
{
    weft_buf known = {0};
    const char *text = json_is_string(v) ? json_string_value(v) : "";
    for (int i = 0; f->choices[i]; i++) {
        if (!strcmp(f->choices[i], text)) {
            weft_buf_free(&known);
            *index = i;
            return WEFT_OK;
        }
        weft_buf_printf(&known, "%s%s", i ? ", " : "is not supported; known: ", f->choices[i]);
    }
    const weft_status_code code = refuse(where, f->name, v, known.data ? known.data : "?");
    weft_buf_free(&known);
    return code;
}

static weft_status read_field(const json_t *json, const char *where, const field *f,
                              const json_t *v, weft_scheduler *s)
{
    void *to = (char *)s + f->at;
    int index = 0;
    if (json_is_null(v) || f->type == IGNORED)
        return WEFT_OK;
    switch (f->type) {
    case BOOL: return weft_json_get_bool(json, f->name, where, to);
    case I64: return weft_json_get_i64(json, f->name, where, to);
    case F64: return weft_json_get_f64(json, f->name, where, to);
    case CHOICE:
    case EITHER:
        WEFT_TRY(choose(where, f, v, &index));
        if (f->type == CHOICE)
            *(int *)to = index;
        else
            *(bool *)to = index != 0;
        return WEFT_OK;
    default:
        return is_nothing(v) ? WEFT_OK
                             : refuse(where, f->name, v, "is not supported; only null is");
    }
}

/* Values of fields that functions below read, as the reference's classes set them. */
static const struct {
    const char *name, *value;
} usual[] = {
    {"solver_type", "midpoint"}, {"solver_type", "bh2"}, {"algorithm_type", "dpmsolver++"}};

static size_t bytes_of(field_type type)
{
    return type == BOOL || type == EITHER ? sizeof(bool)
           : type == CHOICE               ? sizeof(int)
           : type == I64                  ? sizeof(int64_t)
                                          : sizeof(double);
}

/* Returns true if the value of a field of another class is that class's default: tools write all
 * fields of a class, and keep them when a user changes the class. */
static bool is_default(const json_t *json, const char *key, const json_t *v)
{
    for (int i = 0; i < WEFT_COUNT(usual); i++)
        if (!strcmp(usual[i].name, key) && json_is_string(v) &&
            !strcmp(usual[i].value, json_string_value(v)))
            return true;
    if (!strcmp(key, "predict_x0"))
        return json_is_true(v);
    for (int i = 0; i < WEFT_COUNT(fields); i++) {
        const field *f = &fields[i];
        if (strcmp(f->name, key) != 0 || f->type == NOTHING || f->type == IGNORED)
            continue;
        for (int k = 0; weft_scheduler_classes[k].name; k++) {
            weft_scheduler plain, changed;
            if (!(f->classes & 1 << k) ||
                weft_scheduler_of(weft_scheduler_classes[k].name, "", &plain) != WEFT_OK)
                continue;
            changed = plain;
            if (read_field(json, "", f, v, &changed) == WEFT_OK &&
                !memcmp((char *)&plain + f->at, (char *)&changed + f->at, bytes_of(f->type)))
                return true;
        }
    }
    weft_error_clear();
    return false;
}

static weft_status read_fields(const json_t *json, const char *where, weft_scheduler *s)
{
    const int own = 1 << (s->kind - weft_scheduler_classes);
    const char *key, *names[WEFT_COUNT(fields)];
    const json_t *v;
    int count = 0;
    for (int i = 0; i < WEFT_COUNT(fields); i++)
        if (fields[i].classes & own)
            names[count++] = fields[i].name;
    for (void *at = json_object_iter((json_t *)json); at;
         at = json_object_iter_next((json_t *)json, at)) {
        key = json_object_iter_key(at);
        v = json_object_iter_value(at);
        const field *f = find(key, own);
        if (f) {
            WEFT_TRY(read_field(json, where, f, v, s));
            continue;
        }
        if (find(key, ANY) && (is_nothing(v) || is_default(json, key, v)))
            continue;
        const char *near = weft_nearest_name(key, names, count);
        return weft_error(WEFT_MSG_SCHEDULER_UNSUPPORTED, WEFT_AT(.file = where, .key = key),
                          "%s has no such field%s%s%s", s->kind->name,
                          near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    return WEFT_OK;
}

/* ---- settings from several fields ----------------------------------------------------------- */

static weft_status read_clip(const json_t *json, const char *where, int own, weft_scheduler *s)
{
    bool on = s->solver.clip == WEFT_SAMPLE_CLAMP_RANGE;
    if (own & (DDIM | DDPM | LCM)) {
        if (json_object_get(json, "clip_sample"))
            WEFT_TRY(weft_json_get_bool(json, "clip_sample", where, &on));
        s->solver.clip = on ? WEFT_SAMPLE_CLAMP_RANGE : WEFT_SAMPLE_CLAMP_NONE;
    } else {
        s->solver.clip = WEFT_SAMPLE_CLAMP_NONE;
    }
    on = false;
    if (json_object_get(json, "thresholding") && find("thresholding", own))
        WEFT_TRY(weft_json_get_bool(json, "thresholding", where, &on));
    s->solver.clip = on ? WEFT_SAMPLE_CLAMP_QUANTILE : s->solver.clip;
    return WEFT_OK;
}

/* Reads the solver variant. As in the reference, names of the other family of solvers map to this
 * class, because users reuse a file with another class. */
static weft_status read_form(const json_t *json, const char *where, int own, weft_scheduler *s)
{
    static const field any = {"solver_type", CHOICE, 0, ANY, forms};
    const json_t *v = json_object_get(json, "solver_type");
    int form;
    if (!v || json_is_null(v) || !(own & (SOLVES | EDM_DPM)))
        return WEFT_OK;
    WEFT_TRY(choose(where, &any, v, &form));
    if (own & BOTH_UNIPC)
        s->solver.form = form == WEFT_SOLVER_BH1 ? WEFT_SOLVER_BH1 : WEFT_SOLVER_BH2;
    else
        s->solver.form = form == WEFT_SOLVER_HEUN ? WEFT_SOLVER_HEUN : WEFT_SOLVER_MIDPOINT;
    return WEFT_OK;
}

static weft_status read_algorithm(const json_t *json, const char *where, int own, weft_scheduler *s)
{
    static const field any = {"algorithm_type", CHOICE, 0, ANY, algorithms};
    const json_t *v = json_object_get(json, "algorithm_type");
    int kind = 0;
    if (!v || json_is_null(v) || !(own & (DPMS | EDM_DPM)))
        return WEFT_OK;
    WEFT_TRY(choose(where, &any, v, &kind));
    if ((own & EDM_DPM && (kind == 2 || kind == 3)) || (own & SINGLE && kind == 3)) {
        char why[96];
        snprintf(why, sizeof why, "is not supported by %s", s->kind->name);
        return refuse(where, "algorithm_type", v, why);
    }
    s->solver.stochastic = kind == 1 || kind == 3;
    s->solver.of_noise = kind == 2 || kind == 3;
    return WEFT_OK;
}

static weft_status read_corrector(const json_t *json, const char *where, int own, weft_scheduler *s)
{
    const json_t *list = json_object_get(json, "disable_corrector");
    bool data = true;
    if (!(own & BOTH_UNIPC))
        return WEFT_OK;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_int_t at = json_integer_value(json_array_get(list, i));
        if (!json_is_integer(json_array_get(list, i)) || at < 0 || at >= WEFT_SOLVER_UNCORRECTED)
            return refuse(where, "disable_corrector", list,
                          "has an item that is not a step from 0 to 63");
        s->solver.uncorrected |= UINT64_C(1) << at;
    }
    if (list && !json_is_array(list) && !json_is_null(list))
        return refuse(where, "disable_corrector", list, "is not a list of steps");
    if (json_object_get(json, "predict_x0"))
        WEFT_TRY(weft_json_get_bool(json, "predict_x0", where, &data));
    s->solver.of_noise = !data;
    if (s->solver.of_noise)
        s->solver.clip = WEFT_SAMPLE_CLAMP_NONE; /* only data predictions are clipped */
    return WEFT_OK;
}

/* Reads betas that replace the schedule, one for each time of training. */
static weft_status read_trained(const json_t *json, const char *where, int own, weft_scheduler *s)
{
    const json_t *list = json_object_get(json, "trained_betas");
    if (!list || is_nothing(list) || !(own & TABLE))
        return WEFT_OK;
    if ((int64_t)json_array_size(list) != s->times || s->times > WEFT_TRAINED_BETAS)
        return refuse(where, "trained_betas", list,
                      "is not a list of \"num_train_timesteps\" numbers, at most 1000");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const double beta = json_number_value(json_array_get(list, i));
        if (!(beta > 0 && beta < 1))
            return refuse(where, "trained_betas", list, "has an item that is not between 0 and 1");
        s->betas.trained[i] = (float)beta;
    }
    s->betas.listed = true;
    return WEFT_OK;
}

/* Reads the shares of the times at which stages begin and end. Further items have no effect. */
static weft_status read_stages(const json_t *json, const char *where, int own, weft_scheduler *s)
{
    const json_t *list = json_object_get(json, "stage_range");
    if (!(own & STAGED) || s->stages < 2 || s->stages > WEFT_MAX_STAGES)
        return WEFT_OK; /* checked by the class */
    const size_t count = list && !json_is_null(list) ? json_array_size(list) : 4;
    if (count < (size_t)s->stages + 1)
        return refuse(where, "stage_range", list, "has not one item more than \"stages\"");
    for (size_t i = 0; i <= (size_t)s->stages && list && !json_is_null(list); i++) {
        s->stage_range[i] = json_number_value(json_array_get(list, i));
        if (!json_is_number(json_array_get(list, i)) ||
            !(s->stage_range[i] >= 0 && s->stage_range[i] <= 1) ||
            (i && s->stage_range[i] <= s->stage_range[i - 1]))
            return refuse(where, "stage_range", list, "does not rise from 0 to 1");
    }
    return WEFT_OK;
}

static weft_status check_numbers(const weft_scheduler *s, const char *where)
{
    const weft_betas_config *b = &s->betas;
    const bool noisy = s->path == WEFT_PATH_VP || s->path == WEFT_PATH_VE;
    if (s->times < 1 || s->times > 1000000)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG,
            WEFT_AT(.file = where, .key = "num_train_timesteps", WEFT_NUMBER(s->times)),
            "%" PRId64 " is not from 1 to 1000000", s->times);
    if (noisy && !(b->start > 0 && b->start < 1 && b->end > 0 && b->end < 1))
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT(.file = where, .key = "beta_start", WEFT_NUMBER(b->start)),
                          "%g and \"beta_end\" %g are not both between 0 and 1", b->start, b->end);
    if (!(b->snr_scale > 0) || !(s->shift > 0))
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT(.file = where, .key = s->shift > 0 ? "snr_shift_scale" : "shift",
                                  WEFT_NUMBER(s->shift > 0 ? b->snr_scale : s->shift)),
                          "%g is not above 0", s->shift > 0 ? b->snr_scale : s->shift);
    if (s->solver.order < 1 || s->solver.order > WEFT_SOLVER_ORDER)
        return weft_error(
            WEFT_MSG_SCHEDULER_UNSUPPORTED,
            WEFT_AT(.file = where, .key = "solver_order", WEFT_NUMBER(s->solver.order)),
            "%" PRId64 " is not from 1 to %d", s->solver.order, WEFT_SOLVER_ORDER);
    if (s->karras + s->exponential + s->beta + s->lu > 1)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = where),
                          "more than one of use_karras_sigmas, use_exponential_sigmas, "
                          "use_beta_sigmas and use_lu_lambdas is true");
    if (!(s->solver.quantile > 0 && s->solver.quantile <= 1 && s->solver.most >= 1) &&
        s->solver.clip == WEFT_SAMPLE_CLAMP_QUANTILE)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT(.file = where, .key = "dynamic_thresholding_ratio",
                                  WEFT_NUMBER(s->solver.quantile)),
                          "%g is not above 0 and at most 1, or \"sample_max_value\" %g is below 1",
                          s->solver.quantile, s->solver.most);
    return WEFT_OK;
}

weft_status weft_scheduler_read(const json_t *json, const char *where, weft_scheduler *out)
{
    const char *name;
    weft_scheduler s;
    WEFT_TRY(weft_json_get_string(json, "_class_name", where, &name));
    WEFT_TRY(weft_scheduler_of(name, where, &s));
    const int own = 1 << (s.kind - weft_scheduler_classes);
    WEFT_TRY(read_fields(json, where, &s));
    WEFT_TRY(read_clip(json, where, own, &s));
    WEFT_TRY(read_form(json, where, own, &s));
    WEFT_TRY(read_algorithm(json, where, own, &s));
    WEFT_TRY(read_corrector(json, where, own, &s));
    WEFT_TRY(read_trained(json, where, own, &s));
    WEFT_TRY(read_stages(json, where, own, &s));
    s.betas.times = s.times;
    if (own & MULTI && s.flow)
        s.path = WEFT_PATH_FLOW;
    if (own & FLOW_EULER && !isnan(s.sigma_data))
        s.path = WEFT_PATH_FLOW_EDM;
    WEFT_TRY(check_numbers(&s, where));
    WEFT_TRY(s.kind->check(&s, where));
    *out = s;
    return WEFT_OK;
}

/* Replaces Infinity, which Python writes into JSON, by null: in place, outside of strings. */
static void null_infinities(char *text, int64_t bytes)
{
    static const char *const words[] = {"-Infinity", "Infinity"};
    bool inside = false;
    for (int64_t i = 0; i < bytes; i++) {
        inside ^= text[i] == '"' && (i == 0 || text[i - 1] != '\\');
        for (int k = 0; !inside && k < WEFT_COUNT(words); k++) {
            const int64_t len = (int64_t)strlen(words[k]);
            if (bytes - i < len || strncmp(text + i, words[k], (size_t)len) != 0)
                continue;
            memcpy(memset(text + i, ' ', (size_t)len), "null", 4);
        }
    }
}

static weft_status load_json(const char *path, json_t **json)
{
    char *text;
    int64_t bytes;
    WEFT_TRY(weft_file_read(path, 1 << 20, &text, &bytes));
    null_infinities(text, bytes);
    const weft_status_code status = weft_json_parse(text, bytes, path, json);
    weft_free(text);
    return status;
}

weft_status weft_scheduler_load(const char *path, weft_scheduler *s)
{
    json_t *json = NULL;
    WEFT_TRY(load_json(path, &json));
    const weft_status_code status = weft_scheduler_read(json, path, s);
    json_decref(json);
    return status;
}

/* Returns the class of a path that has the sampler by default. */
static const weft_scheduler_class *class_for(const weft_sampler *sampler, bool flow)
{
    for (int i = 0; weft_scheduler_classes[i].name; i++) {
        weft_scheduler s = common;
        weft_scheduler_classes[i].defaults(&s);
        if (!weft_scheduler_classes[i].alone && weft_scheduler_classes[i].sampler == sampler &&
            (s.path == WEFT_PATH_FLOW) == flow)
            return &weft_scheduler_classes[i];
    }
    return class_for(flow ? &weft_sampler_euler : &weft_sampler_ddim, flow);
}

weft_status weft_scheduler_load_for(const char *path, const weft_sampler *sampler,
                                    weft_scheduler *s)
{
    json_t *json = NULL, *kept = json_object();
    const char *name = NULL, *key;
    json_t *v;
    weft_buf left = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(kept, "%s", path));
    WEFT_GO(load_json(path, &json));
    WEFT_GO(weft_json_get_string(json, "_class_name", path, &name));
    const weft_scheduler_class *class = class_for(sampler, !strncmp(name, "FlowMatch", 9));
    const int own = 1 << (class - weft_scheduler_classes);
    json_object_foreach(json, key, v) if (find(key, own)) json_object_set(kept, key, v);
    else if (!is_nothing(v) && !is_default(json, key, v))
        weft_buf_printf(&left, "%s%s", left.len ? ", " : "; without ", key);
    json_object_set_new(kept, "_class_name", json_string(class->name));
    WEFT_GO(weft_buf_check(&left));
    WEFT_GO(weft_scheduler_read(kept, path, s));
    weft_warning(WEFT_MSG_SCHEDULER_REPLACED,
                 WEFT_AT(.file = path, .key = "_class_name", .value = name),
                 "the class %s is not known; its file is read as one of %s%s", name, class->name,
                 left.data ? left.data : "");
out:
    weft_buf_free(&left);
    json_decref(kept);
    json_decref(json);
    return status;
}

const weft_sampler *weft_scheduler_sampler(const weft_scheduler *s)
{
    return s->euler ? &weft_sampler_euler : s->kind->sampler;
}

double weft_scheduler_first(const weft_scheduler *s, const weft_solver_step *step)
{
    const double sigma = step->from.sigma;
    if (s->path == WEFT_PATH_VE) /* the spacing leading does not begin at the last time */
        return s->spacing == WEFT_SPACING_LEADING ? sqrt(sigma * sigma + 1) : sigma;
    if (s->path == WEFT_PATH_EDM)
        return sqrt(s->sigma_max * s->sigma_max + 1); /* noise plus data of deviation 1 */
    return s->path == WEFT_PATH_FLOW_EDM ? s->sigma_max : 1;
}

/* Open-Sora 1.2: the root of the area over 512 x 512, and of 5 per 17 frames. A video of fewer
 * frames counts as an image. */
static double shift_of_video(const int64_t pixels[3])
{
    const double area = (double)pixels[1] * (double)pixels[2] / (512 * 512),
                 latents = (double)(pixels[0] / 17 * 5);
    return sqrt(area) * sqrt(latents > 1 ? latents : 1);
}

double weft_scheduler_mu(const weft_scheduler *s, int64_t tokens, const int64_t pixels[3])
{
    if (!s->by_resolution)
        return NAN;
    if (s->by_video)
        return pixels[0] > 0 ? log(shift_of_video(pixels)) : NAN;
    const double slope = (s->max_shift - s->base_shift) / (double)(s->max_tokens - s->base_tokens);
    return s->base_shift + slope * (double)(tokens - s->base_tokens);
}

/* Checks given levels: finite, each below the one before, and in the range of the path. */
static weft_status check_sigmas(const weft_scheduler *s, const weft_timestep_request *w)
{
    const bool flow = s->path == WEFT_PATH_FLOW && !s->inverted, ve = s->path == WEFT_PATH_VE;
    for (int64_t i = 0; w->sigma && i < w->steps; i++) {
        const double now = w->sigma[i], before = i ? w->sigma[i - 1] : flow ? 1 : INFINITY;
        if (!isfinite(now))
            return weft_error(WEFT_MSG_SAMPLING_INVALID, WEFT_AT(.key = "sigmas", WEFT_NUMBER(now)),
                              "noise level %" PRId64 " is %g, which is not finite", i, now);
        if ((flow || ve) && !(now > 0 && (i ? now < before : now <= before)))
            return weft_error(WEFT_MSG_SAMPLING_INVALID, WEFT_AT(.key = "sigmas", WEFT_NUMBER(now)),
                              "noise level %" PRId64
                              " is %g; levels of %s fall%s, and stay above 0",
                              i, now, s->kind->name, flow ? " from at most 1" : "");
    }
    if (w->sigma && ve && !(isnan(w->end) || (w->end >= 0 && w->end < w->sigma[w->steps - 1])))
        return weft_error(WEFT_MSG_SAMPLING_INVALID, WEFT_AT(.key = "sigmas", WEFT_NUMBER(w->end)),
                          "the last step ends at %g, which is not from 0 to its start %g", w->end,
                          w->sigma[w->steps - 1]);
    return WEFT_OK;
}

/* Checks given times: each below the one before, and times of the model. */
static weft_status check_times(const weft_scheduler *s, const weft_timestep_request *w)
{
    const bool flow = s->path == WEFT_PATH_FLOW, whole = s->kind->given == WEFT_GIVEN_WHOLE;
    const double high = (double)s->times - !flow;
    if (!w->time)
        return WEFT_OK;
    if (w->sigma)
        return weft_error(WEFT_MSG_SAMPLING_INVALID, WEFT_AT(.key = "timesteps"),
                          "timesteps and noise levels are both given; omit one");
    if (s->kind->given == WEFT_GIVEN_NONE || (s->flow && whole) || s->path == WEFT_PATH_FLOW_EDM ||
        s->continuous)
        return weft_error(WEFT_MSG_SAMPLING_INVALID, WEFT_AT(.key = "timesteps"),
                          "%s%s computes its timesteps, so none can be given", s->kind->name,
                          s->flow         ? " with \"use_flow_sigmas\""
                          : s->continuous ? " with \"timestep_type\": \"continuous\""
                                          : "");
    if (s->karras || s->exponential || s->beta || s->lu)
        return weft_error(WEFT_MSG_SAMPLING_INVALID, WEFT_AT(.key = "timesteps"),
                          "timesteps cannot be given, because the scheduler's file has %s",
                          s->karras        ? "use_karras_sigmas"
                          : s->exponential ? "use_exponential_sigmas"
                          : s->beta        ? "use_beta_sigmas"
                                           : "use_lu_lambdas");
    for (int64_t i = 0; i < w->steps; i++) {
        const double now = w->time[i];
        if (!(now <= high && (flow ? now > 0 : now >= 0) && (!i || now < w->time[i - 1])) ||
            (whole && now != floor(now)))
            return weft_error(
                WEFT_MSG_SAMPLING_INVALID, WEFT_AT(.key = "timesteps", WEFT_NUMBER(now)),
                "timestep %" PRId64 " is %g; timesteps of %s are %s that fall from at "
                "most %g to %s 0",
                i, now, s->kind->name, whole ? "integers" : "numbers", high,
                flow ? "above" : "at least");
    }
    return WEFT_OK;
}

weft_status weft_scheduler_set_timesteps(const weft_scheduler *s,
                                         const weft_timestep_request *request,
                                         weft_solver_step *step)
{
    if (request->steps < 1)
        return weft_error(WEFT_MSG_SAMPLING_INVALID, WEFT_AT(WEFT_NUMBER(request->steps)),
                          "%" PRId64 " steps; at least one is needed", request->steps);
    if (s->by_resolution && s->path == WEFT_PATH_FLOW && !isfinite(request->mu))
        return weft_error(WEFT_MSG_SAMPLING_INVALID, WEFT_NOWHERE,
                          "the scheduler's shift depends on the resolution, which is not given");
    WEFT_TRY(check_sigmas(s, request));
    WEFT_TRY(check_times(s, request));
    return s->kind->lay(s, request, step);
}
