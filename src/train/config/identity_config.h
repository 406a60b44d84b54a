/* The images and the image encoder of the section `identity`. */
#ifndef WEFT_TRAIN_CONFIG_IDENTITY_CONFIG_H
#define WEFT_TRAIN_CONFIG_IDENTITY_CONFIG_H

#include "train/config/train_config.h"

/* Rejects images and image encoders that cannot be combined with other keys. */
weft_status weft_identity_check(const weft_run *run, const char *path);

#endif
