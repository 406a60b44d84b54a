#include "train/objective.h"

static weft_value vae_loss(weft_graph *g, const weft_run *run, const weft_wan_vae_config *vae,
                           const weft_bucket *s)
{
    const weft_value x = weft_input(g, "batch.video", WEFT_F32,
                                    WEFT_SHAPE(s->batch, s->frames, s->height, s->width, 3));
    const weft_value key = weft_input(g, "batch.key", WEFT_I64, WEFT_SHAPE(s->batch));
    weft_value mean, logvar;
    weft_graph_push(g, "vae");
    weft_wan_vae_moments(g, weft_wan_vae_encode(g, vae, WEFT_VAE_ALONE, x), &mean, &logvar);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const weft_shape latent = weft_value_get(g, mean)->shape;
    const weft_value noise = weft_random_like(g, WEFT_OP_RANDOM_NORMAL, key, WEFT_RNG_VAE, latent);
    const weft_value deviation = weft_unary(g, WEFT_OP_EXP, weft_affine(g, logvar, 0.5, 0));
    const weft_value z = weft_add(g, mean, weft_mul(g, deviation, noise));
    const weft_value y = weft_wan_vae_decode(g, vae, WEFT_VAE_ALONE, z);
    weft_graph_pop(g);
    const weft_value error = weft_sub(g, y, x);
    const weft_value mse = weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, error));
    /* KL(N(mean, var) || N(0, 1)) = (mean^2 + var - 1 - logvar) / 2, summed over a sample's latent
     */
    weft_value kl =
        weft_add(g, weft_unary(g, WEFT_OP_SQUARE, mean), weft_unary(g, WEFT_OP_EXP, logvar));
    kl = weft_sub(g, weft_affine(g, kl, 1, -1), logvar);
    kl = weft_affine(g, weft_mean_all(g, kl), 0.5 * (double)(weft_shape_count(&latent) / s->batch),
                     0);
    weft_output(g, "mse", mse);
    weft_output(g, "kl", kl);
    weft_value loss =
        weft_add(g, weft_affine(g, mse, run->loss.l2, 0), weft_affine(g, kl, run->loss.kl, 0));
    if (run->loss.l1 > 0) {
        /* |e| as sqrt(e^2 + 1e-6): smooth at 0 (Charbonnier) */
        weft_value l1 = weft_affine(g, weft_unary(g, WEFT_OP_SQUARE, error), 1, 1e-6);
        l1 = weft_mean_all(g, weft_unary(g, WEFT_OP_SQRT, l1));
        loss = weft_add(g, loss, weft_affine(g, l1, run->loss.l1, 0));
    }
    return loss;
}

static weft_value encode_text(weft_graph *g, const weft_bytes_config *text, int64_t batch)
{
    const weft_value tokens =
        weft_input(g, "batch.tokens", WEFT_I32, WEFT_SHAPE(batch, text->max_length));
    weft_graph_push(g, "text_encoder");
    const weft_value embedding = weft_bytes_encoder(g, text, tokens);
    weft_graph_pop(g);
    return embedding;
}

static weft_value text_of(weft_graph *g, const weft_run *run, const weft_bytes_config *text,
                          int64_t batch)
{
    if (run->text.path[0])
        return weft_input(g, "batch.text", WEFT_F32,
                          WEFT_SHAPE(batch, text->max_length, text->dim));
    return encode_text(g, text, batch);
}

void weft_text_build(weft_graph *g, const weft_bytes_config *text, int64_t batch)
{
    weft_output(g, "text", encode_text(g, text, batch));
}

static weft_value dit_loss(weft_graph *g, const weft_run *run, const weft_run_models *m,
                           const weft_bucket *s)
{
    const int64_t space = weft_wan_vae_space_factor(&m->vae);
    const weft_shape shape = WEFT_SHAPE(s->batch, weft_wan_vae_latent_frames(&m->vae, s->frames),
                                        s->height / space, s->width / space, m->dit.in_channels);
    const weft_value x = weft_input(g, "batch.latents", WEFT_F32, shape);
    const weft_value text = text_of(g, run, &m->text, s->batch);
    const weft_value key = weft_input(g, "batch.key", WEFT_I64, WEFT_SHAPE(s->batch));
    const weft_value noise = weft_random_like(g, WEFT_OP_RANDOM_NORMAL, key, WEFT_RNG_NOISE, shape);
    const weft_value sigma = weft_flow_sigma(g, &run->flow, key);
    const weft_value noisy = weft_flow_mix(g, x, noise, sigma);
    weft_graph_push(g, "transformer");
    const weft_value velocity =
        weft_wan_dit(g, &m->dit, noisy, weft_affine(g, sigma, 1000, 0), text);
    weft_graph_pop(g);
    return weft_flow_loss(g, velocity, x, noise);
}

weft_status weft_run_models_read(const weft_run *run, const char *path, weft_run_models *models)
{
    weft_run_models m = {0};
    weft_model vae;
    if (run->what == WEFT_RUN_VAE) {
        WEFT_TRY(weft_run_vae_model(run, path, &m.vae));
    } else {
        const weft_status_code status = weft_model_open(run->vae_path, &vae);
        if (status != WEFT_OK)
            return weft_fail_context(status, "%s: vae_path", path);
        if (vae.family != WEFT_FAMILY_WAN_VAE)
            return weft_fail(WEFT_E_CONFIG, "%s: vae_path: %s is no video autoencoder but a %s",
                             path, run->vae_path, weft_model_class(&vae));
        m.vae = vae.vae;
        WEFT_TRY(weft_run_text_model(run, path, &m.text));
        WEFT_TRY(weft_run_dit_model(run, path, vae.vae.z_dim, m.text.dim, &m.dit));
    }
    *models = m;
    return WEFT_OK;
}

weft_value weft_objective_build(weft_graph *g, const weft_run *run, const weft_run_models *models,
                                const weft_bucket *size)
{
    const weft_value loss = run->what == WEFT_RUN_VAE ? vae_loss(g, run, &models->vae, size)
                                                      : dit_loss(g, run, models, size);
    weft_output(g, "objective", loss);
    return loss;
}

void weft_encoder_build(weft_graph *g, const weft_wan_vae_config *vae, int64_t batch,
                        int64_t frames, int64_t height, int64_t width)
{
    const weft_value x =
        weft_input(g, "batch.video", WEFT_F32, WEFT_SHAPE(batch, frames, height, width, 3));
    weft_value mean, logvar;
    weft_graph_push(g, "vae");
    weft_wan_vae_moments(g, weft_wan_vae_encode(g, vae, WEFT_VAE_ALONE, x), &mean, &logvar);
    weft_graph_pop(g);
    weft_output(g, "latents", mean);
}
