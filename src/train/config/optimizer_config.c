#include "train/config/optimizer_config.h"

#include <stddef.h>

static const weft_key apart_keys[] = {
    {"lr", WEFT_KEY_F64, offsetof(weft_optimizer_apart, lr), "1", "",
     "learning rate as a multiple of the training stage's", .min = 0, .max = 1e3},
    {"beta1", WEFT_KEY_F64, offsetof(weft_optimizer_apart, beta1), "0.5", "",
     "decay of the first moment", .min = 0, .max = 0.9999},
    {"beta2", WEFT_KEY_F64, offsetof(weft_optimizer_apart, beta2), "0.9", "",
     "decay of the second moment", .min = 0, .max = 0.999999},
    {"weight_decay", WEFT_KEY_F64, offsetof(weft_optimizer_apart, weight_decay), "0", "",
     "decoupled weight decay", .min = 0, .max = 1},
    {"clip_norm", WEFT_KEY_F64, offsetof(weft_optimizer_apart, clip_norm), "1", "",
     "largest gradient norm before clipping. 0: no gradient clipping", .min = 0, .max = 1e9},
};

static const weft_section apart_section = {
    "discriminator", "optimizer of loss.adversarial, which has its own steps",
    sizeof(weft_optimizer_apart), apart_keys, WEFT_COUNT(apart_keys)};

static const weft_key optimizer_keys[] = {
    {"beta1", WEFT_KEY_F64, offsetof(weft_optimizer_config, beta1), "0.9", "",
     "decay of the first moment", .min = 0, .max = 0.9999},
    {"beta2", WEFT_KEY_F64, offsetof(weft_optimizer_config, beta2), "0.99", "",
     "decay of the second moment", .min = 0, .max = 0.999999},
    {"eps", WEFT_KEY_F64, offsetof(weft_optimizer_config, eps), "1e-8", "",
     "term added to the root of the second moment", .min = 0, .max = 1},
    {"weight_decay", WEFT_KEY_F64, offsetof(weft_optimizer_config, weight_decay), "0.01", "",
     "decoupled weight decay", .min = 0, .max = 1},
    {"clip_norm", WEFT_KEY_F64, offsetof(weft_optimizer_config, clip_norm), "1", "",
     "largest norm of the whole gradient before clipping. 0: no gradient clipping", .min = 0,
     .max = 1e9},
    {"decay_all", WEFT_KEY_BOOL, offsetof(weft_optimizer_config, decay_all), "false", "",
     "apply weight decay also to biases, norms and other parameters of rank below 2"},
    {"ema_decay", WEFT_KEY_F64, offsetof(weft_optimizer_config, ema_decay), "0", "",
     "decay per step of the EMA of the weights. 0: no EMA", .min = 0, .max = 0.999999},
    {"discriminator", WEFT_KEY_SECTION, offsetof(weft_optimizer_config, discriminator),
     .section = &apart_section},
};
const weft_section weft_optimizer_section = {"optimizer", "AdamW, gradient clipping, EMA",
                                             sizeof(weft_optimizer_config), optimizer_keys,
                                             WEFT_COUNT(optimizer_keys)};
