/* Reads a model of a run: a new one of a class and its config, or a trained one of a folder. */
#ifndef WEFT_TRAIN_CONFIG_RUN_MODEL_H
#define WEFT_TRAIN_CONFIG_RUN_MODEL_H

#include "train/config/train_config.h"

/* The use of a model in a run. */
typedef struct weft_model_use {
    weft_role role;
    const char *path, *key;       /* config file and section, in messages; borrowed */
    int64_t channels, text_width; /* of the models that it is connected to; 0: unknown */
} weft_model_use;
/* Omitted channels and text width of a new model are set from `use`. */
weft_status weft_run_model_read(const weft_run_model *m, const weft_model_use *use,
                                weft_model *model);
/* Folder of the connectors of a text encoder. */
void weft_run_connectors_folder(const weft_run_model *text, char *folder, size_t bytes);

#endif
