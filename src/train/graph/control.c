#include "train/graph/control.h"

#include "graph/builder_helpers.h"
#include "train/graph/character_inputs.h"
#include "train/graph/sample_dropout.h"

/* Channels of WEFT_PORT_CONTROL. 0: the model has no such input. */
static int64_t port_channels(const weft_model *model)
{
    const weft_model_size one = {1, 1, 1, 1, 1};
    return weft_model_takes(model, WEFT_PORT_CONTROL)
               ? weft_model_shape(model, &one, WEFT_PORT_CONTROL).dim[4]
               : 0;
}

bool weft_control_needs_grey(const weft_run *run, const weft_run_models *m)
{
    if (run->condition != WEFT_CONDITION_CONTROL) /* an autoencoder's run has no denoiser */
        return false;
    if (weft_run_moves_character(m))
        return !run->control.background[0];
    const int64_t channels = port_channels(&m->denoiser);
    return channels && channels != m->grid.channels;
}

weft_value weft_control_latents(weft_graph *g, const weft_run *run, const char *name,
                                weft_shape shape)
{
    const double scale = weft_noise_process_scale(weft_run_process(run), &run->noise);
    const weft_value x = weft_input(g, name, WEFT_F32, shape);
    return scale == 1 ? x : weft_affine(g, x, 1 / scale, 0);
}

weft_value weft_control_build(weft_graph *g, const weft_run *run, const weft_run_models *m,
                              weft_shape latents, weft_value key, weft_ports *ports)
{
    const bool drops = run->control.dropout > 0, fills = weft_control_needs_grey(run, m);
    const weft_value kept =
        drops ? weft_sample_kept(g, key, WEFT_RNG_CONTROL, run->control.dropout, 5) : WEFT_NONE;
    weft_value control = weft_control_latents(g, run, "batch.control", latents);
    if (drops && !fills)
        control = weft_mul(g, control, kept);
    if (!weft_model_takes(&m->denoiser, WEFT_PORT_CONTROL))
        return control;
    if (!fills)
        return ports->at[WEFT_PORT_CONTROL] = control;
    const weft_value grey = weft_control_latents(g, run, "batch.grey", latents);
    if (drops)
        control = weft_sample_choose(g, kept, control, grey);
    latents.dim[4] = m->grid.factor[1] * m->grid.factor[2];
    const weft_value part[] = {grey, control, weft_fill(g, WEFT_F32, latents, 1)};
    return ports->at[WEFT_PORT_CONTROL] = weft_concat(g, part, WEFT_COUNT(part), 4);
}

void weft_control_give_unguided(weft_graph *g, const weft_ports *with, weft_ports *empty)
{
    const weft_value face = with->at[WEFT_PORT_FACE];
    empty->at[WEFT_PORT_CONTROL] = with->at[WEFT_PORT_CONTROL];
    empty->at[WEFT_PORT_IMAGE] = with->at[WEFT_PORT_IMAGE];
    empty->at[WEFT_PORT_FACE] = weft_value_ok(face) ? weft_affine(g, face, 0, -1) : WEFT_NONE;
}

weft_status weft_control_check_models(const weft_run_models *m, const char *path)
{
    const weft_model *model = &m->denoiser;
    const char *name = weft_model_class(model);
    const int64_t z = m->grid.channels, all = 2 * z + m->grid.factor[1] * m->grid.factor[2];
    if (!weft_model_takes(model, WEFT_PORT_CONTROL))
        return m->patch.channels == 2 * z
                   ? WEFT_OK
                   : weft_error(
                         WEFT_MSG_CONFIG_VALUE,
                         WEFT_AT(.file = path, .key = "transformer", WEFT_NUMBER(2 * z)),
                         "with a control video, %s needs %" PRId64
                         " channels: noisy latents and the latents of the control. Write config: "
                         "{in_channels: %" PRId64 ", out_channels: %" PRId64
                         "}, or use WanVACETransformer3DModel or Cosmos Transfer 2.5.",
                         name, 2 * z, 2 * z, z);
    const int64_t takes = port_channels(model);
    return takes == all || takes == z
               ? WEFT_OK
               : weft_error(WEFT_MSG_CONFIG_VALUE,
                            WEFT_AT(.file = path, .key = "transformer", WEFT_NUMBER(all)),
                            "the control of the transformer has %" PRId64
                            " channels. Two latents of the autoencoder and the pixels of a mask "
                            "are %" PRId64 ". Write config: {vace_in_channels: %" PRId64 "}.",
                            takes, all, all);
}
