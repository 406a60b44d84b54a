#include "train/graph/preference.h"

#include "graph/builder_helpers.h"
#include "train/graph/denoiser_call.h"
#include "train/graph/run_networks.h"

/* The mean squared error of each sample (B,1,1,1,1), by the network in `scope`. */
static weft_value error_of(weft_graph *g, const weft_preference *p, const char *scope,
                           weft_value data, weft_ports *ports)
{
    const weft_noise_process *process = weft_run_process(p->run);
    const weft_denoiser_call call = {.run = p->run,
                                     .models = p->models,
                                     .scope = scope,
                                     .data = data,
                                     .input =
                                         process->input(g, p->noised, data, p->noise, p->level),
                                     .time = p->level->time};
    const weft_value prediction = weft_denoiser_call_build(g, &call, ports),
                     target = process->target(g, p->noised, data, p->noise, p->level);
    weft_value error = weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, prediction, target));
    if (weft_denoiser_call_gives_frame(p->run, p->models))
        error = weft_denoiser_call_rest(g, error);
    return weft_mean(g, error, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4);
}

static weft_value reference_error(weft_graph *g, const weft_preference *p, const char *scope,
                                  weft_value data)
{
    weft_ports text = p->text;
    return weft_unary(g, WEFT_OP_STOP, error_of(g, p, scope, data, &text));
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
    weft_ports other = p->text;
    *called = p->text;
    const weft_value good = error_of(g, p, NULL, p->preferred, called),
                     bad = error_of(g, p, WEFT_REJECTED_SCOPE, p->rejected, &other),
                     good_before = reference_error(g, p, WEFT_REFERENCE_SCOPE, p->preferred),
                     bad_before = reference_error(g, p, WEFT_REFERENCE_REJECTED_SCOPE, p->rejected),
                     worse =
                         weft_sub(g, weft_sub(g, good, good_before), weft_sub(g, bad, bad_before));
    weft_output(g, "accuracy",
                weft_mean_all(g, weft_clamp(g, weft_affine(g, worse, -sharp, 0), 0, 1)));
    return weft_mean_all(g, softplus(g, weft_affine(g, worse, p->run->preference.beta / 2, 0)));
}
