#include "train/graph/preference.h"

#include "graph/builder_helpers.h"
#include "train/graph/denoiser_call.h"
#include "train/graph/run_networks.h"

/* Gives the network the noisy sound of a clip. */
static void give_sound(weft_graph *g, const weft_preference *p, weft_value data, weft_ports *ports)
{
    const weft_sound_stream *s = p->sound;
    const weft_value noisy =
        weft_run_process(p->run)->input(g, &s->noised, data, s->noise, &s->level);
    weft_sound_stream_give(g, p->models, s, noisy, s->level.time, p->level->time, ports);
}

/* The mean squared error of each sample's sound (B,1,1): 0 without sound. */
static weft_value sound_error(weft_graph *g, const weft_preference *p, weft_value data,
                              const weft_ports *ports)
{
    const weft_sound_stream *s = p->sound;
    const weft_value target =
                         weft_run_process(p->run)->target(g, &s->noised, data, s->noise, &s->level),
                     error = weft_sub(g, ports->at[WEFT_PORT_AUDIO_PREDICTION], target),
                     heard = weft_sound_stream_masked(g, s, error);
    return weft_mean(g, weft_unary(g, WEFT_OP_SQUARE, heard), 1u << 1 | 1u << 2);
}

/* The error of each sample (B,1,1,1,1), by the network in `scope`. */
static weft_value error_of(weft_graph *g, const weft_preference *p, const char *scope,
                           const weft_preference_clip *clip, weft_ports *ports)
{
    const weft_noise_process *process = weft_run_process(p->run);
    const bool sounds = weft_value_ok(p->sound->data);
    const weft_value data = clip->video;
    const weft_denoiser_call call = {.run = p->run,
                                     .models = p->models,
                                     .scope = scope,
                                     .data = data,
                                     .given = clip->given,
                                     .input =
                                         process->input(g, p->noised, data, p->noise, p->level),
                                     .time = p->level->time};
    if (sounds)
        give_sound(g, p, clip->sound, ports);
    const weft_value prediction = weft_denoiser_call_build(g, &call, ports),
                     target = process->target(g, p->noised, data, p->noise, p->level);
    weft_value error = weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, prediction, target));
    if (weft_denoiser_call_gives_frame(p->run, p->models))
        error = weft_denoiser_call_rest(g, error);
    error = weft_mean(g, error, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4);
    if (!sounds)
        return error;
    const weft_value sound =
        weft_reshape(g, sound_error(g, p, clip->sound, ports), weft_value_get(g, error)->shape);
    return weft_add(g, error, weft_affine(g, sound, p->run->sound.loss_weight, 0));
}

static weft_value reference_error(weft_graph *g, const weft_preference *p, const char *scope,
                                  const weft_preference_clip *clip)
{
    weft_ports ports = p->conditioning;
    return weft_unary(g, WEFT_OP_STOP, error_of(g, p, scope, clip, &ports));
}

/* log(1 + exp(x)), as (x + |x|) / 2 + log(1 + exp(-|x|)), which is finite for large |x|. |x| is
 * sqrt(x^2 + 1e-12): its slope at 0, where a training starts, is 0. */
static weft_value softplus(weft_graph *g, weft_value x)
{
    const weft_value square = weft_unary(g, WEFT_OP_SQUARE, x),
                     size = weft_unary(g, WEFT_OP_SQRT, weft_affine(g, square, 1, 1e-12)),
                     small = weft_unary(g, WEFT_OP_EXP, weft_affine(g, size, -1, 0)),
                     rest = weft_unary(g, WEFT_OP_LOG, weft_affine(g, small, 1, 1));
    return weft_add(g, weft_affine(g, weft_add(g, x, size), 0.5, 0), rest);
}

weft_value weft_preference_loss(weft_graph *g, const weft_preference *p, weft_ports *called)
{
    const double sharp = 1e30;
    const weft_preference_clip *preferred = &p->preferred, *rejected = &p->rejected;
    weft_ports other = p->conditioning;
    *called = p->conditioning;
    const weft_value good = error_of(g, p, NULL, preferred, called),
                     bad = error_of(g, p, WEFT_REJECTED_SCOPE, rejected, &other),
                     good_before = reference_error(g, p, WEFT_REFERENCE_SCOPE, preferred),
                     bad_before = reference_error(g, p, WEFT_REFERENCE_REJECTED_SCOPE, rejected),
                     worse =
                         weft_sub(g, weft_sub(g, good, good_before), weft_sub(g, bad, bad_before));
    if (weft_value_ok(p->sound->data))
        weft_output(g, "with_sound", weft_mean_all(g, p->sound->with_sound));
    weft_output(g, "accuracy",
                weft_mean_all(g, weft_clamp(g, weft_affine(g, worse, -sharp, 0), 0, 1)));
    return weft_mean_all(g, softplus(g, weft_affine(g, worse, p->run->preference.beta / 2, 0)));
}
