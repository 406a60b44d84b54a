/* What an autoencoder is judged by beside the error of pixels: a perceptual distance, whose net
 * stays as its files have it, and a discriminator, which is trained in the same step. */
#ifndef WEFT_TRAIN_LOSSES_H
#define WEFT_TRAIN_LOSSES_H

#include "base/json.h"
#include "model/lpips.h"
#include "model/patchgan.h"
#include "runtime/runtime.h"
#include "train/run.h"

/* Scope of the first; that of the second is the optimizer's, which steps it apart. */
#define WEFT_LPIPS_SCOPE "lpips"
/* The discriminator's file, without its extension. */
#define WEFT_DISCRIMINATOR_STEM "diffusion_pytorch_model"

typedef struct weft_loss_nets {
    weft_lpips lpips;            /* where loss.lpips.weight is above 0 */
    weft_patchgan discriminator; /* where loss.adversarial.weight is */
} weft_loss_nets;

/* Looks at the files, and at whether the stages' sizes are large enough. */
weft_status weft_loss_nets_read(const weft_run *run, const char *path, weft_loss_nets *nets);
/* Of the discriminator's config.json; new reference. */
json_t *weft_discriminator_write(const weft_patchgan *c);
/* The weights that files have into the store; `whole` is a graph of the objective. */
weft_status weft_loss_nets_begin(const weft_run *run, const weft_graph *whole, weft_store *store);

/* Adds to `loss`, of pixels, what the run has beside: x (B,T,Y,X,3) is what was to be made, `made`
 * what is, `seen` that behind a stop where there is a discriminator, else itself; all parameters of
 * what makes are in the graph. Outputs "lpips", "generator", "discriminator",
 * "adversarial_weight", input "loss.adversarial": 1 once the discriminator takes part, else 0.
 *
 * The value is that of the autoencoder's own terms: neither the discriminator's loss nor the
 * generator's, which mean nothing by their size, are in it, while their gradients are. */
weft_value weft_losses_add(weft_graph *g, const weft_run *run, const weft_loss_nets *nets,
                           weft_value loss, weft_value x, weft_value made, weft_value seen);
static inline bool weft_run_perceives(const weft_run *run)
{
    return run->loss.lpips.weight > 0;
}
static inline bool weft_run_fights(const weft_run *run)
{
    return run->loss.adversarial.weight > 0;
}

#endif
