#include "latent/sound_encoder.h"

#include "base/json.h"
#include "exec/execute.h"
#include "exec/store/weights.h"
#include "model/key_mapping.h"

#include <math.h>
#include <stdio.h>

enum { WINDOW = 1024 }; /* samples of a transform: n_fft of the published preprocessing */

struct weft_sound_encoder {
    const weft_model *vae;
    weft_sound_format format;
    int64_t samples;
    weft_graph *graph;
    weft_program *program;
};

weft_status weft_sound_format_of(const weft_model *vae, weft_sound_format *f)
{
    const weft_grid grid = weft_model_grid(vae);
    json_t *config = weft_model_write(vae);
    WEFT_TRY(WEFT_ALLOCATED(config, "an autoencoder of audio"));
    *f = (weft_sound_format){
        .mel = {.rate = json_integer_value(json_object_get(config, "sample_rate")),
                .window = WINDOW,
                .hop = json_integer_value(json_object_get(config, "mel_hop_length")),
                .bins = json_integer_value(json_object_get(config, "mel_bins"))},
        .channels = json_integer_value(json_object_get(config, "in_channels")),
        .factor = grid.factor[1]};
    json_decref(config);
    f->features = f->mel.bins / grid.factor[2] * grid.channels;
    return f->mel.bins > 0 && f->mel.bins % grid.factor[2] == 0
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(WEFT_NUMBER(f->mel.bins)),
                            "%s has %" PRId64 " mel_bins, which must be a multiple of %" PRId64
                            " to encode sound",
                            weft_model_class(vae), f->mel.bins, grid.factor[2]);
}

int64_t weft_sound_samples(const weft_sound_format *f, int64_t frames, double fps)
{
    return (int64_t)floor((double)frames / fps * (double)f->mel.rate + 1e-6);
}

int64_t weft_sound_latent_count(const weft_sound_format *f, int64_t samples)
{
    return (weft_mel_steps(&f->mel, samples) + f->factor - 1) / f->factor;
}

static weft_status build(weft_sound_encoder *e)
{
    const weft_model_size size = {1, 1, weft_mel_steps(&e->format.mel, e->samples),
                                  e->format.mel.bins, 1};
    const weft_call encode = {WEFT_CALL_ENCODE, WEFT_STREAM_ALONE};
    weft_ports p = weft_ports_none();
    e->graph = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(e->graph, "the encoder of sound"));
    p.at[WEFT_PORT_VIDEO] =
        weft_input(e->graph, "in", WEFT_F32, weft_model_shape(e->vae, &size, WEFT_PORT_VIDEO));
    weft_model_call(e->graph, e->vae, encode, true, &p);
    weft_output(e->graph, "out", p.at[WEFT_PORT_MEAN]);
    return weft_graph_check(e->graph);
}

weft_status weft_sound_encoder_open(const weft_model *vae, const weft_backend *backend,
                                    int64_t samples, weft_sound_encoder **encoder)
{
    weft_sound_encoder *e;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(e, 1, "the encoder of sound"));
    *e = (weft_sound_encoder){.vae = vae, .samples = samples};
    WEFT_GO(weft_sound_format_of(vae, &e->format));
    WEFT_GO(build(e));
    WEFT_GO(
        weft_program_compile(e->graph, &(weft_program_options){.backend = backend}, &e->program));
    *encoder = e;
    return WEFT_OK;
out:
    weft_sound_encoder_free(e);
    return status;
}

void weft_sound_encoder_free(weft_sound_encoder *e)
{
    if (!e)
        return;
    weft_program_free(e->program);
    weft_graph_free(e->graph);
    weft_free(e);
}

int64_t weft_sound_encoder_bytes(const weft_sound_encoder *e)
{
    return e ? weft_program_bytes(e->program) : 0;
}

int64_t weft_sound_encoder_weight_bytes(const weft_sound_encoder *e)
{
    return e ? weft_program_plan(e->program)->source_bytes : 0;
}

weft_status weft_sound_encoder_load(const weft_sound_encoder *e, const char *folder,
                                    weft_store *store)
{
    char prefix[64];
    weft_tensors *file;
    WEFT_TRY(weft_store_init(store, e->graph, 0));
    snprintf(prefix, sizeof prefix, "%s.", e->vae->family->scope);
    WEFT_TRY(weft_key_mapping_open(e->vae->family, e->graph, prefix, folder, &file));
    return weft_weights_load(store, e->graph, prefix, file, true);
}

weft_status weft_sound_encoder_bind(weft_sound_encoder *e, weft_store *store)
{
    return weft_program_bind(e->program, store, NULL);
}

weft_status weft_sound_encoder_run(weft_sound_encoder *e, const float *sound, float *latents)
{
    const weft_sound_format *f = &e->format;
    float *in = weft_program_input(e->program, "in")->data;
    WEFT_TRY(weft_mel_spectrogram(&f->mel, sound, f->channels, e->samples, in));
    WEFT_TRY(weft_program_run(e->program));
    const weft_tensor *out = weft_program_output(e->program, "out"); /* (1,1,S,M,C) */
    const int64_t *dim = out->shape.dim;
    const float *from = out->data;
    for (int64_t s = 0; s < dim[2]; s++)
        for (int64_t m = 0; m < dim[3]; m++)
            for (int64_t c = 0; c < dim[4]; c++)
                latents[s * f->features + c * dim[3] + m] = *from++;
    return WEFT_OK;
}

void weft_sound_normalise(const weft_grid *grid, int64_t features, int64_t count, float *latents)
{
    const int64_t channels = grid->channels, bins = features / channels;
    for (int64_t i = 0; i < features; i++) {
        const int64_t c = i / bins, at = grid->own_frames ? i % bins * channels + c : c;
        for (int64_t s = 0; s < count; s++) {
            float *x = &latents[s * features + i];
            *x = (float)((*x - grid->mean[at]) / grid->deviation[at]);
        }
    }
}
