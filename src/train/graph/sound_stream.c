#include "train/graph/sound_stream.h"

#include "base/rng.h"
#include "graph/builder_helpers.h"

int64_t weft_sound_stream_key(int64_t key)
{
    enum { SOUND = 0x736f756e };
    return (int64_t)weft_seed_mix((uint64_t)key, SOUND);
}

weft_sound_stream weft_sound_stream_inputs(weft_graph *g, const weft_run *run,
                                           const weft_run_models *m, const weft_model_size *size)
{
    weft_sound_stream s = {.data = WEFT_NONE};
    if (!weft_run_has_sound(&m->sound))
        return s;
    const weft_shape each = WEFT_SHAPE(size->batch),
                     latents = weft_model_shape(&m->denoiser, size, WEFT_PORT_AUDIO);
    s.key = weft_input(g, "batch.sound_key", WEFT_I64, each);
    s.data = weft_input(g, "batch.sound", WEFT_F32, latents);
    s.with_sound = weft_input(g, "batch.with_sound", WEFT_F32, each);
    s.noise = weft_random_like(g, WEFT_OP_RANDOM_NORMAL, s.key, WEFT_RNG_NOISE, latents);
    s.noised = weft_noise_process_resolve(weft_run_process(run), &run->noise, size->audio);
    return s;
}

void weft_sound_stream_give(weft_graph *g, const weft_run_models *m, const weft_sound_stream *s,
                            weft_value noisy, weft_value time, weft_value video_time, weft_ports *p)
{
    const weft_shape each = weft_value_get(g, s->with_sound)->shape;
    p->at[WEFT_PORT_AUDIO] = noisy;
    p->at[WEFT_PORT_AUDIO_TIMESTEP] = p->at[WEFT_PORT_AUDIO_LEVEL] = time;
    p->at[WEFT_PORT_LEVEL] = video_time;
    p->at[WEFT_PORT_JOINED] = s->with_sound;
    p->at[WEFT_PORT_FPS] = weft_fill(g, WEFT_F32, each, m->sound.fps);
}

weft_sound_stream weft_sound_stream_noised(weft_graph *g, const weft_run *run,
                                           const weft_run_models *m, const weft_model_size *size,
                                           const weft_noised *video)
{
    weft_sound_stream s = weft_sound_stream_inputs(g, run, m, size);
    if (weft_value_ok(s.data))
        s.level = run->sound.times == WEFT_SOUND_TIMES_SHARED
                      ? *video
                      : weft_run_process(run)->level(g, &s.noised, s.key);
    return s;
}

weft_sound_stream weft_sound_stream_build(weft_graph *g, const weft_run *run,
                                          const weft_run_models *m, const weft_model_size *size,
                                          const weft_noised *video, weft_ports *p)
{
    weft_sound_stream s = weft_sound_stream_noised(g, run, m, size, video);
    if (!weft_value_ok(s.data))
        return s;
    const weft_noise_process *process = weft_run_process(run);
    weft_sound_stream_give(g, m, &s, process->input(g, &s.noised, s.data, s.noise, &s.level),
                           s.level.time, video->time, p);
    return s;
}

weft_value weft_sound_stream_masked(weft_graph *g, const weft_sound_stream *s, weft_value x)
{
    return weft_mul(
        g, x, weft_reshape(g, s->with_sound, WEFT_SHAPE(weft_dim(g, s->with_sound, 0), 1, 1)));
}

weft_value weft_sound_stream_total(weft_graph *g, const weft_run *run, const weft_sound_stream *s,
                                   weft_value video_loss, weft_value sound_loss)
{
    weft_output(g, "video_loss", video_loss);
    weft_output(g, "sound_loss", sound_loss);
    weft_output(g, "with_sound", weft_mean_all(g, s->with_sound));
    return weft_add(g, video_loss, weft_affine(g, sound_loss, run->sound.loss_weight, 0));
}

weft_value weft_sound_stream_loss(weft_graph *g, const weft_run *run, const weft_sound_stream *s,
                                  const weft_ports *ports, weft_value video_loss)
{
    if (!weft_value_ok(s->data))
        return video_loss;
    /* the target is linear in data and noise, so the error of masked values is the masked error */
    const weft_value loss = weft_noise_process_loss(
        g, weft_run_process(run), &s->noised,
        weft_sound_stream_masked(g, s, ports->at[WEFT_PORT_AUDIO_PREDICTION]),
        weft_sound_stream_masked(g, s, s->data), weft_sound_stream_masked(g, s, s->noise),
        &s->level);
    return weft_sound_stream_total(g, run, s, video_loss, loss);
}
