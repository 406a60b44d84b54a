#include "generate/generator/timed_decoder.h"

#include "base/memory.h"
#include "base/message.h"
#include "base/rng.h"
#include "model/model.h"

/* Opens the VAE again for another timestep, in the tiles that fit. */
static weft_status open_at(const weft_model *model, const char *folder,
                           const weft_vae_options *options, int64_t limit, weft_timed_decoder *d)
{
    weft_vae_options o = *options;
    weft_tile tile;
    int64_t room = limit;
    WEFT_TRY(WEFT_ALLOCATED(d->folder = weft_strdup(folder), "the VAE"));
    WEFT_TRY(WEFT_ALLOCATED(d->weights = weft_store_create(), "the VAE"));
    o.tile = &tile;
    for (int attempt = 0; attempt < 2; attempt++) { /* the second one has room for f32 weights */
        weft_vae *stored;
        WEFT_TRY(weft_vae_open_within(folder, options, room, &stored, &tile));
        const int64_t bytes = weft_vae_bytes(stored);
        weft_vae_free(stored);
        weft_vae_free(d->vae);
        d->vae = NULL;
        WEFT_TRY(weft_vae_open_model(model, &o, &d->vae));
        if (weft_vae_bytes(d->vae) <= limit)
            break;
        room = limit - (weft_vae_bytes(d->vae) - bytes);
    }
    return WEFT_OK;
}

weft_status weft_timed_decoder_open(const char *folder, const weft_vae_options *options,
                                    int64_t limit, const weft_decode_time *time,
                                    weft_timed_decoder *d)
{
    weft_model model;
    weft_tile chosen;
    WEFT_TRY(weft_model_open_as(folder, WEFT_ROLE_AUTOENCODER, &model));
    double *timestep = weft_model_decode_timestep(&model);
    if (!timestep && (time->timestep > 0 || time->noise > 0))
        return weft_error(
            WEFT_MSG_OPTION_NO_EFFECT,
            WEFT_AT(.file = folder, .key = "--decode-timestep", WEFT_NUMBER(time->timestep)),
            "the decoder of a %s takes no timestep. Omit --decode-timestep and "
            "--decode-noise-scale.",
            weft_model_class(&model));
    if (time->timestep == 0)
        return weft_vae_open_within(folder, options, limit, &d->vae, &chosen);
    *timestep = time->timestep;
    return open_at(&model, folder, options, limit, d);
}

weft_status weft_timed_decoder_bind(weft_timed_decoder *d)
{
    if (!d->weights)
        return weft_vae_bind(d->vae);
    WEFT_TRY(weft_vae_load(d->vae, d->folder, d->weights));
    return weft_vae_bind_to(d->vae, d->weights);
}

void weft_timed_decoder_close(weft_timed_decoder *d)
{
    weft_vae_free(d->vae);
    weft_store_free(d->weights);
    weft_free(d->folder);
    *d = (weft_timed_decoder){0};
}

void weft_decode_time_mix(const weft_decode_time *time, uint64_t seed, int64_t floats, float *x)
{
    const float share = (float)time->noise;
    for (int64_t i = 0; i < floats && share > 0; i++)
        x[i] = (1 - share) * x[i] + share * weft_random_normal(seed, WEFT_RNG_DECODER, (uint64_t)i);
}
