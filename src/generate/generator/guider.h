/* The guider of a pipeline's folder: a guidance method with its settings, in the form of diffusers'
 * guiders. */
#ifndef WEFT_GENERATE_GENERATOR_GUIDER_H
#define WEFT_GENERATE_GENERATOR_GUIDER_H

#include "base/status.h"
#include "diffusion/guidance.h"

typedef struct weft_guider {
    double scale;
    /* NULL: the folder has no guider, or one of classifier-free guidance; the family or the scale
     * decides the method. Otherwise this method: */
    const weft_guidance *method;
    double eta, most, momentum; /* as in weft_guidance_params */
    bool averages;              /* the differences of the predictions have a momentum */
    bool from_conditional;      /* the update is added to the conditional prediction */
    int64_t zero_steps;         /* first steps whose prediction is 0 */
    bool per_frame;             /* norms are over a latent frame, not over a video */
} weft_guider;

/* Reads guider/guider_config.json of a model's folder if it exists. `fallback`: scale of folders
 * without one. A guider or a setting that is not implemented is an error with its name. */
weft_status weft_guider_read(const char *folder, double fallback, weft_guider *guider);
/* The scale at which the guider has no effect. */
double weft_guider_off(const weft_guider *guider);

#endif
