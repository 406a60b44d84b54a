/* Settings of generation that the file of a distilled adapter has for its user, as metadata of the
 * safetensors header: "weft.steps", "weft.guidance_scale", "weft.sampler", "weft.shift". */
#ifndef WEFT_MODEL_ADAPTER_SETTINGS_H
#define WEFT_MODEL_ADAPTER_SETTINGS_H

#include "format/tensors/safetensors_write.h"

typedef struct weft_adapter_settings {
    int64_t steps;    /* 0: none, and the other members have no meaning */
    double guidance;  /* guidance scale */
    char sampler[32]; /* "": the base model's */
    double shift;     /* of the noise levels; 0: the base model's */
} weft_adapter_settings;

/* Reads the settings of the adapter at `path`, a file or a PEFT folder. Without any, steps is 0. */
weft_status weft_adapter_settings_read(const char *path, weft_adapter_settings *settings);
/* Writes the settings as options of weft generate: "--steps 4, --guidance-scale 1". */
enum { WEFT_ADAPTER_SETTINGS_TEXT = 160 };
void weft_adapter_settings_print(const weft_adapter_settings *settings,
                                 char text[WEFT_ADAPTER_SETTINGS_TEXT]);
/* Writes settings with steps above 0. */
weft_status weft_adapter_settings_write(const weft_adapter_settings *settings,
                                        weft_tensors_writer *writer);

#endif
