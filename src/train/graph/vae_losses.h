/* Losses of an autoencoder in addition to the pixel error: a perceptual distance (LPIPS) with
 * frozen weights, and a discriminator that is trained in the same step. */
#ifndef WEFT_TRAIN_GRAPH_VAE_LOSSES_H
#define WEFT_TRAIN_GRAPH_VAE_LOSSES_H

#include "base/json.h"
#include "model/critics/lpips.h"
#include "model/critics/patchgan.h"
#include "train/config/train_config.h"

/* Scope of the LPIPS network. The discriminator's scope is WEFT_DISCRIMINATOR_SCOPE. */
#define WEFT_LPIPS_SCOPE "lpips"
/* File name of the discriminator's weights, without extension. */
#define WEFT_DISCRIMINATOR_STEM "diffusion_pytorch_model"

typedef struct weft_loss_nets {
    weft_lpips lpips;            /* if loss.lpips.weight > 0 */
    weft_patchgan discriminator; /* if loss.adversarial.weight > 0 */
} weft_loss_nets;

/* Reads the configs of the networks. Checks the LPIPS files, and that the sizes of all training
 * stages are large enough. */
weft_status weft_loss_nets_read(const weft_run *run, const char *path, weft_loss_nets *nets);
/* Content of the discriminator's config.json; new reference. */
json_t *weft_discriminator_write(const weft_patchgan *c);
/* Loads the initial weights of the networks from their files into the store. `whole`: a graph of
 * the objective. */
weft_status weft_loss_nets_begin(const weft_run *run, const weft_graph *whole, weft_store *store);

/* Adds the run's further losses to the pixel loss `loss` and returns the sum. `x` (B,T,Y,X,3) is
 * the target and `made` the reconstruction. `seen` is weft_stop of `made` with a discriminator,
 * otherwise `made`. All generator parameters must already be in the graph. Outputs "lpips",
 * "generator", "discriminator", "adversarial_weight". Input "loss.adversarial": 1 if the
 * discriminator is active, otherwise 0.
 *
 * The value of the sum includes the autoencoder's own terms only. The losses of the discriminator
 * and the generator contribute their gradients but not their values, whose size has no meaning. */
weft_value weft_losses_add(weft_graph *g, const weft_run *run, const weft_loss_nets *nets,
                           weft_value loss, weft_value x, weft_value made, weft_value seen);
static inline bool weft_run_uses_lpips(const weft_run *run)
{
    return run->loss.lpips.weight > 0;
}
static inline bool weft_run_uses_discriminator(const weft_run *run)
{
    return run->loss.adversarial.weight > 0;
}

#endif
