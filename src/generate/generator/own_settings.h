/* Settings of a generation that a distilled model or adapter brings, in place of the usual ones.
 *
 *   options  >  the first adapter with settings (model/adapter_settings.h)  >  weft.json  >  usual
 */
#ifndef WEFT_GENERATE_GENERATOR_OWN_SETTINGS_H
#define WEFT_GENERATE_GENERATOR_OWN_SETTINGS_H

#include "generate/generator/generator.h"

enum { WEFT_USUAL_STEPS = 30 };

/* Reads "steps" and "guidance_scale" of the weft.json of a model's folder. 0 and a scale below 0:
 * the model has none. */
weft_status weft_own_settings_read(const char *folder, int64_t *steps, double *guidance);
/* Sets unset options from the adapters of the options or from the model: steps (unset: 0), guidance
 * (below 0), sampler (NULL) and shift (0). Without either, steps are `usual`. `prints`: reports the
 * settings. */
weft_status weft_own_settings_take(const char *folder, bool prints, int64_t usual,
                                   weft_generator_options *options);

#endif
