#include "generate/generator/sound_decoder.h"

#include "base/json.h"
#include "exec/execute.h"
#include "exec/store/weights.h"
#include "graph/builder_helpers.h"
#include "model/key_mapping.h"

#include <math.h>
#include <stdio.h>

struct weft_sound_decoder {
    const weft_sound_models *models;
    const weft_backend *backend;
    int64_t steps;
    weft_graph *graph;
    weft_program *program;
    weft_store *store;
};

/* ---- models --------------------------------------------------------------------------------- */

/* Checks that an audio latent is the autoencoder's channels of some mel bins, and that its
 * statistics fit. */
static weft_status check_features(const weft_sound_models *m, const weft_model *denoiser)
{
    const int64_t channels = m->grid.channels, bins = m->features / channels;
    if (m->features % channels || (m->grid.own_frames && m->grid.own_frames != bins) ||
        m->features > WEFT_MAX_STATISTICS)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = m->vae_folder, WEFT_NUMBER(m->features)),
            "%s has %" PRId64 " channels of an audio latent, which are not mel bins "
            "x %" PRId64 " channels of this %s, or whose number its statistics do not have",
            weft_model_class(denoiser), m->features, channels, weft_model_class(&m->vae));
    return WEFT_OK;
}

static weft_status read_rate(weft_sound_models *m)
{
    json_t *config = weft_model_write(&m->vocoder);
    m->rate = json_integer_value(json_object_get(config, "output_sampling_rate"));
    json_decref(config);
    return m->rate > 0 ? WEFT_OK : weft_no_memory("the vocoder");
}

weft_status weft_sound_models_open(const char *folder, const weft_model *denoiser,
                                   weft_sound_models *m)
{
    const weft_model_size one = {1, 1, 1, 1, 1};
    if (!weft_model_takes(denoiser, WEFT_PORT_AUDIO))
        return WEFT_OK;
    WEFT_TRY(weft_model_open_in(folder, WEFT_ROLE_AUDIO_AUTOENCODER, &m->vae_folder, &m->vae));
    WEFT_TRY(weft_key_mapping_statistics(m->vae_folder, &m->vae));
    WEFT_TRY(weft_model_open_in(folder, WEFT_ROLE_VOCODER, &m->vocoder_folder, &m->vocoder));
    m->grid = weft_model_grid(&m->vae);
    m->features = weft_model_shape(denoiser, &one, WEFT_PORT_AUDIO).dim[2];
    WEFT_TRY(check_features(m, denoiser));
    return read_rate(m);
}

void weft_sound_models_close(weft_sound_models *m)
{
    weft_free(m->vae_folder);
    weft_free(m->vocoder_folder);
    *m = (weft_sound_models){0};
}

int64_t weft_sound_models_steps(const weft_sound_models *m, int64_t frames, double fps)
{
    const int64_t steps = (int64_t)rint((double)frames / fps * m->grid.latents_per_second);
    return steps > 0 ? steps : 1;
}

/* ---- the program ---------------------------------------------------------------------------- */

/* Spectrogram (1,1,S,M,C) of the autoencoder as (1,C,S,M). */
static weft_value channels_first(weft_graph *g, weft_value x)
{
    if (weft_graph_check(g) != WEFT_OK)
        return x;
    const int64_t *d = weft_value_get(g, x)->shape.dim;
    return weft_permute(g, weft_reshape(g, x, WEFT_SHAPE(d[0], d[2], d[3], d[4])),
                        (int[]){0, 3, 1, 2});
}

static weft_status build(weft_sound_decoder *d)
{
    const weft_sound_models *m = d->models;
    const weft_model_size size = {1, 1, d->steps, m->features / m->grid.channels, 1};
    const weft_call decode = {WEFT_CALL_DECODE, WEFT_STREAM_ALONE},
                    forward = {WEFT_CALL_FORWARD, WEFT_STREAM_ALONE};
    weft_ports p = weft_ports_none();
    d->graph = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(d->graph, "the decoder of sound"));
    p.at[WEFT_PORT_LATENTS] =
        weft_input(d->graph, "in", WEFT_F32, weft_model_shape(&m->vae, &size, WEFT_PORT_LATENTS));
    weft_model_call(d->graph, &m->vae, decode, true, &p);
    p.at[WEFT_PORT_SPECTROGRAM] = channels_first(d->graph, p.at[WEFT_PORT_RECONSTRUCTION]);
    weft_model_call(d->graph, &m->vocoder, forward, true, &p);
    weft_output(d->graph, "out", p.at[WEFT_PORT_WAVEFORM]);
    return weft_graph_check(d->graph);
}

weft_status weft_sound_decoder_open(const weft_sound_models *models, const weft_backend *backend,
                                    int64_t steps, weft_sound_decoder **decoder)
{
    weft_sound_decoder *d;
    WEFT_TRY(WEFT_NEW(d, 1, "the decoder of sound"));
    *d = (weft_sound_decoder){.models = models, .backend = backend, .steps = steps};
    weft_status_code status = WEFT_OK;
    WEFT_GO(build(d));
    WEFT_GO(
        weft_program_compile(d->graph, &(weft_program_options){.backend = backend}, &d->program));
    *decoder = d;
    return WEFT_OK;
out:
    weft_sound_decoder_free(d);
    return status;
}

void weft_sound_decoder_free(weft_sound_decoder *d)
{
    if (!d)
        return;
    weft_program_free(d->program);
    weft_store_free(d->store);
    weft_graph_free(d->graph);
    weft_free(d);
}

int64_t weft_sound_decoder_bytes(const weft_sound_decoder *d)
{
    return d ? weft_program_bytes(d->program) + weft_program_plan(d->program)->source_bytes : 0;
}

const weft_graph *weft_sound_decoder_graph(const weft_sound_decoder *d)
{
    return d->graph;
}

weft_program *weft_sound_decoder_program(weft_sound_decoder *d)
{
    return d->program;
}

static weft_status load(weft_sound_decoder *d, const weft_model *model, const char *folder)
{
    char prefix[64];
    weft_tensors *file;
    snprintf(prefix, sizeof prefix, "%s.", model->family->scope);
    WEFT_TRY(weft_key_mapping_open(model->family, d->graph, prefix, folder, &file));
    return weft_weights_load(d->store, d->graph, prefix, file, true);
}

weft_status weft_sound_decoder_bind(weft_sound_decoder *d)
{
    const weft_sound_models *m = d->models;
    d->store = weft_store_create_for(d->backend);
    WEFT_TRY(WEFT_ALLOCATED(d->store, "the decoder of sound"));
    WEFT_TRY(weft_weights_prepare(d->store, d->graph));
    WEFT_TRY(load(d, &m->vae, m->vae_folder));
    WEFT_TRY(load(d, &m->vocoder, m->vocoder_folder));
    return weft_program_bind(d->program, d->store, NULL);
}

void weft_sound_decoder_unbind(weft_sound_decoder *d)
{
    weft_program_unbind(d->program);
    weft_store_free(d->store);
    d->store = NULL;
}

weft_status weft_sound_decoder_run(weft_sound_decoder *d, const float *latents, weft_sound *sound)
{
    const weft_grid *grid = &d->models->grid;
    const int64_t channels = grid->channels, bins = d->models->features / channels;
    float *in = weft_program_input(d->program, "in")->data;
    for (int64_t s = 0; s < d->steps; s++)
        for (int64_t i = 0; i < bins * channels; i++) { /* channels fastest, as the statistics */
            const int64_t at = grid->own_frames ? i : i % channels;
            const float x = latents[s * bins * channels + i % channels * bins + i / channels];
            *in++ = x * (float)grid->deviation[at] + (float)grid->mean[at];
        }
    WEFT_TRY(weft_program_run(d->program));
    const weft_tensor *out = weft_program_output(d->program, "out");
    *sound = (weft_sound){.samples = out->data,
                          .channels = out->shape.dim[1],
                          .count = out->shape.dim[2],
                          .rate = d->models->rate};
    return WEFT_OK;
}
