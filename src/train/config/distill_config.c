#include "train/config/distill_config.h"

#include "train/config/packing_config.h"
#include "train/config/train_config.h"

static const char *const method_names[] = {"none", "lcm", "dmd2", "self_forcing", NULL};
static const char *const loss_names[] = {"huber", "l2", NULL};
static const weft_key fake_keys[] = {
    {"lr", WEFT_KEY_F64, offsetof(weft_optimizer_apart, lr), "1", "",
     "learning rate as a multiple of the training stage's", .min = 0, .max = 1e3},
    {"beta1", WEFT_KEY_F64, offsetof(weft_optimizer_apart, beta1), "0.9", "",
     "decay of the first moment", .min = 0, .max = 0.9999},
    {"beta2", WEFT_KEY_F64, offsetof(weft_optimizer_apart, beta2), "0.99", "",
     "decay of the second moment", .min = 0, .max = 0.999999},
    {"weight_decay", WEFT_KEY_F64, offsetof(weft_optimizer_apart, weight_decay), "0.01", "",
     "decoupled weight decay", .min = 0, .max = 1},
    {"clip_norm", WEFT_KEY_F64, offsetof(weft_optimizer_apart, clip_norm), "1", "",
     "largest gradient norm before clipping. 0: no gradient clipping", .min = 0, .max = 1e9},
};
static const weft_section fake_section = {
    "fake", "dmd2, self_forcing: optimizer of the fake score, which has its own steps",
    sizeof(weft_optimizer_apart), fake_keys, WEFT_COUNT(fake_keys)};
static const weft_key distill_keys[] = {
    {"method", WEFT_KEY_ENUM, offsetof(weft_run, distill.method), "none", "",
     "lcm: consistency along the teacher's path; dmd2: matching of the teacher's distribution; "
     "self_forcing: the same for a causal transformer, with videos that it generates itself. The "
     "teacher is transformer.weights, or distill.teacher",
     .choices = method_names},
    {"guidance", WEFT_KEY_F64, offsetof(weft_run, distill.guidance), "1", "",
     "guidance scale of the teacher, which the student learns and then needs no more. 1: none",
     .min = 0, .max = 100},
    {"solver_steps", WEFT_KEY_I64, offsetof(weft_run, distill.solver_steps), "50", "steps",
     "steps that the teacher needs from noise to data; the student learns to equal itself one "
     "such step further",
     .min = 1, .max = 1000},
    {"loss", WEFT_KEY_ENUM, offsetof(weft_run, distill.loss), "huber", "",
     "distance of the two clean samples; huber: sqrt(e^2 + huber_c^2) - huber_c, l2: e^2",
     .choices = loss_names},
    {"huber_c", WEFT_KEY_F64, offsetof(weft_run, distill.huber_c), "0.001", "",
     "error at which huber changes from quadratic to linear", .min = 1e-9, .max = 1e3},
    {"target_decay", WEFT_KEY_F64, offsetof(weft_run, optimizer.target_decay), "0", "",
     "lcm: decay per step of the EMA that computes the target, e.g. 0.95; needs memory for one "
     "more model. 0: the student computes its target",
     .min = 0, .max = 0.999999},
    {"student_steps", WEFT_KEY_I64, offsetof(weft_run, distill.student_steps), "4", "steps",
     "dmd2, self_forcing: steps with which the finished model generates; training draws one of "
     "their levels. With timestep_min or timestep_max: steps of all experts",
     .min = 1, .max = WEFT_DISTILL_MOST_STEPS},
    {"generator_interval", WEFT_KEY_I64, offsetof(weft_run, distill.interval), "5", "steps",
     "dmd2, self_forcing: the student is updated once in this number of steps, the fake score in "
     "every step",
     .min = 1, .max = 1000},
    {"teacher", WEFT_KEY_STRING, offsetof(weft_run, distill.teacher), "", "",
     "folder of the teacher, which may be larger than the student. Empty: transformer.weights. "
     "self_forcing: a transformer that sees all frames, such as Wan 2.1 for causal Wan"},
    {"fake_weights", WEFT_KEY_STRING, offsetof(weft_run, distill.fake_weights), "", "",
     "dmd2, self_forcing: folder of the transformer with which the fake score starts, which may be "
     "smaller than the teacher. Empty: the teacher"},
    {"context_noise", WEFT_KEY_F64, offsetof(weft_run, distill.context_noise), "0", "",
     "self_forcing: timestep of the noise of a finished block that later blocks see", .min = 0,
     .max = 1000},
    {"fake", WEFT_KEY_SECTION, offsetof(weft_run, optimizer.fake), .section = &fake_section},
};
const weft_section weft_distill_section = {
    "distill",
    "step distillation of a transformer of flow matching: the finished model needs few steps and "
    "no guidance",
    sizeof(weft_run),
    distill_keys,
    WEFT_COUNT(distill_keys),
    .single = "method"};

static weft_status conflict(const char *path, const char *key, const char *why)
{
    return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = key),
                      "it cannot be combined with distill.method: %s. Remove one of the two.", why);
}

static weft_status check_models(const weft_run *run, const char *path)
{
    if (!weft_run_model_given(&run->transformer))
        return weft_error(WEFT_MSG_CONFIG_NO_EFFECT, WEFT_AT(.file = path, .key = "distill.method"),
                          "distillation is for a transformer, and the config trains an "
                          "autoencoder. Add transformer: {weights: FOLDER}, or remove distill.");
    if (!run->transformer.weights[0])
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY,
                          WEFT_AT(.file = path, .key = "transformer.weights"),
                          "the teacher and the student start with the weights of a trained "
                          "transformer. Give its folder.");
    if (weft_run_process(run) != &weft_noise_process_flow)
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT,
            WEFT_AT(.file = path, .key = "process", .value = weft_run_process(run)->name),
            "distillation needs the straight path of process: flow");
    return WEFT_OK;
}

/* Keys of method: self_forcing. */
static weft_status check_self_forcing(const weft_run *run, const char *path)
{
    const weft_distill_config *c = &run->distill;
    if (c->method != WEFT_DISTILL_SELF_FORCING)
        return c->context_noise > 0
                   ? weft_error(WEFT_MSG_CONFIG_NO_EFFECT,
                                WEFT_AT(.file = path, .key = "distill.context_noise"),
                                "only method: self_forcing uses it. Remove the key.")
                   : WEFT_OK;
    if (!c->teacher[0])
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY,
                          WEFT_AT(.file = path, .key = "distill.teacher"),
                          "the teacher of a causal transformer sees all frames. Give the folder of "
                          "one, such as wan-1.3b/transformer.");
    if (run->condition != WEFT_CONDITION_NONE)
        return conflict(path, "condition", "the student generates whole videos from noise");
    if (run->noise.from > 0 || run->noise.to < 1)
        return conflict(path, run->noise.from > 0 ? "timestep_min" : "timestep_max",
                        "the student generates whole videos from noise");
    return WEFT_OK;
}

weft_status weft_distill_check(const weft_run *run, const char *path)
{
    if (!run->distill.method)
        return run->optimizer.target_decay > 0 || run->distill.guidance != 1 ||
                       run->distill.teacher[0] || run->distill.fake_weights[0]
                   ? weft_error(
                         WEFT_MSG_CONFIG_NO_EFFECT, WEFT_AT(.file = path, .key = "distill"),
                         "its keys have no effect without a method. Add method: lcm, dmd2 or "
                         "self_forcing.")
                   : WEFT_OK;
    WEFT_TRY(check_models(run, path));
    WEFT_TRY(check_self_forcing(run, path));
    if (weft_run_packs(run))
        return conflict(path, "data.packing", "a row has samples of several levels");
    if (weft_cascades_planned(&run->cascades) != WEFT_CASCADES_NONE)
        return conflict(path, "parallel.cascades", "the planner knows one call of the model");
    if (run->parallel.pp != 1)
        return conflict(path, "parallel.pp", "a pipeline has the stages of one call of the model");
    if (weft_run_model_given(&run->identity))
        return conflict(path, "identity", "the teacher has not learned its tokens");
    if (run->noise.flow.weighting)
        return conflict(path, "flow.weighting", "its loss has its own weights");
    if (run->transformer.lora.rank && run->optimizer.target_decay > 0)
        return conflict(path, "distill.target_decay", "with lora the student computes its target");
    if (run->distill.method != WEFT_DISTILL_LCM && run->optimizer.target_decay > 0)
        return weft_error(WEFT_MSG_CONFIG_NO_EFFECT,
                          WEFT_AT(.file = path, .key = "distill.target_decay",
                                  WEFT_NUMBER(run->optimizer.target_decay)),
                          "only method: lcm has a target network. Remove the key.");
    if (!weft_distill_matches(&run->distill) && run->distill.fake_weights[0])
        return weft_error(WEFT_MSG_CONFIG_NO_EFFECT,
                          WEFT_AT(.file = path, .key = "distill.fake_weights"),
                          "method: lcm has no fake score. Remove the key.");
    return WEFT_OK;
}
