#include "generate/generator/decode_time.h"

#include "base/message.h"
#include "base/rng.h"
#include "model/model.h"

weft_status weft_decode_time_check(const weft_decode_time *time, const char *folder)
{
    weft_model model;
    if (time->timestep == 0 && time->noise == 0)
        return WEFT_OK;
    WEFT_TRY(weft_model_open_as(folder, WEFT_ROLE_AUTOENCODER, &model));
    if (weft_model_decode_timestep(&model))
        return WEFT_OK;
    return weft_error(
        WEFT_MSG_OPTION_NO_EFFECT,
        WEFT_AT(.file = folder, .key = "--decode-timestep", WEFT_NUMBER(time->timestep)),
        "the decoder of a %s takes no timestep. Omit --decode-timestep and "
        "--decode-noise-scale.",
        weft_model_class(&model));
}

void weft_decode_time_mix(const weft_decode_time *time, uint64_t seed, int64_t first, int64_t end,
                          float *x)
{
    const float share = (float)time->noise;
    for (int64_t i = first; i < end && share > 0; i++)
        x[i] = (1 - share) * x[i] + share * weft_random_normal(seed, WEFT_RNG_DECODED, (uint64_t)i);
}
