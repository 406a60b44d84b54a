/* Models from JSON text, for tests. */
#ifndef TESTS_MODEL_OF_H
#define TESTS_MODEL_OF_H

#include "model/model.h"
#include "prompt/text_conditioning.h"

#include <stdlib.h>
#include <string.h>

static inline weft_model model_of(const char *text)
{
    json_t *json;
    weft_model model = {0};
    if (weft_json_parse(text, (int64_t)strlen(text), "test", &json) != WEFT_OK ||
        weft_model_read(json, "test", &model) != WEFT_OK)
        abort();
    json_decref(json);
    return model;
}

/* The captions of a denoiser with the one text encoder of this config. */
static inline weft_text_conditioning captions_of(const weft_model *denoiser, const char *text)
{
    const weft_text_encoder_spec spec = {.model = model_of(text)};
    weft_text_conditioning captions;
    if (weft_text_conditioning_open(denoiser, &spec, 1, "test", &captions) != WEFT_OK)
        abort();
    return captions;
}

/* A denoiser's prediction. */
static inline weft_value denoise(weft_graph *g, const weft_model *model, weft_value latents,
                                 weft_value timestep, weft_value text)
{
    weft_ports p = weft_ports_none();
    p.at[WEFT_PORT_LATENTS] = latents;
    p.at[WEFT_PORT_TIMESTEP] = timestep;
    p.at[WEFT_PORT_TEXT] = text;
    weft_model_call(g, model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &p);
    return p.at[WEFT_PORT_PREDICTION];
}

#endif
