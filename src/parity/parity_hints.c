/* weft parity of the two models of Cosmos Transfer 2.5, as they are published: the transformer,
 * whose hints are inputs, and the control branch, whose outputs are the hints. */
#include "parity/parity_hints.h"

#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/denoisers/cosmos_control.h"
#include "model/denoisers/cosmos_dit.h"
#include "parity/parity_model.h"

#include <stdio.h>
#include <string.h>

/* The golden names of the ports. `latents` differs between the two models. */
static void add_inputs(weft_parity *p, const char *latents, weft_ports *in)
{
    const struct {
        weft_port port;
        const char *name;
    } inputs[] = {
        {WEFT_PORT_LATENTS, latents},
        {WEFT_PORT_TIMESTEP, "in.timestep"},
        {WEFT_PORT_TEXT, "in.encoder_hidden_states"},
        {WEFT_PORT_FPS, "in.fps"},
        {WEFT_PORT_CONDITION, "in.condition_mask"},
        {WEFT_PORT_PADDING, "in.padding_mask"},
        {WEFT_PORT_IMAGE, "in.image_context"},
        {WEFT_PORT_CONTROL, "in.controls_latents"},
        {WEFT_PORT_CONTROL_SCALE, "in.conditioning_scale"},
    };
    *in = weft_ports_none();
    for (int i = 0; i < WEFT_COUNT(inputs); i++)
        if (weft_tensors_find(p->golden, inputs[i].name))
            in->at[inputs[i].port] = weft_parity_input(p, inputs[i].name);
    weft_value *time = &in->at[WEFT_PORT_TIMESTEP];
    if (weft_graph_check(p->graph) == WEFT_OK && weft_value_get(p->graph, *time)->shape.rank == 5)
        *time =
            weft_reshape(p->graph, *time,
                         WEFT_SHAPE(weft_dim(p->graph, *time, 0), weft_dim(p->graph, *time, 1)));
}

/* The mean squared error against the input `target`. */
static weft_value error_of(weft_parity *p, weft_value made, const char *target)
{
    const weft_value expected = weft_parity_input(p, target);
    if (weft_graph_check(p->graph) != WEFT_OK)
        return WEFT_NONE;
    return weft_mean_all(p->graph,
                         weft_unary(p->graph, WEFT_OP_SQUARE, weft_sub(p->graph, made, expected)));
}

static weft_status run(weft_parity *p, weft_value loss)
{
    double worst[2] = {0, 0};
    WEFT_TRY(weft_graph_check(p->graph));
    weft_output(p->graph, "loss", loss);
    weft_parity_output_slopes(p, loss);
    WEFT_TRY(weft_parity_run(p, NULL, worst));
    weft_parity_measured_both(p, worst);
    return WEFT_OK;
}

/* ---- the transformer ------------------------------------------------------------------------ */

static bool is_hinted(const json_t *json)
{
    return weft_parity_is_class(json, "CosmosTransformer3DModel") &&
           json_is_integer(json_object_get(json, "controlnet_block_every_n")) &&
           !json_object_get(json, "controlnet");
}

static weft_status compare_hinted(weft_parity *p)
{
    weft_value hint[WEFT_COSMOS_MAX_HINTS];
    weft_ports in;
    WEFT_TRY(weft_parity_open_model(p));
    const int64_t hints = weft_cosmos_hints(&p->model);
    if (hints > WEFT_COSMOS_MAX_HINTS)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG,
            WEFT_AT(.file = p->config_file, .key = "controlnet_block_every_n", WEFT_NUMBER(hints)),
            "%" PRId64 " hints; at most %d are possible", hints, WEFT_COSMOS_MAX_HINTS);
    add_inputs(p, "in.hidden_states", &in);
    for (int64_t i = 0; i < hints; i++) {
        char name[64];
        snprintf(name, sizeof name, "in.block_controlnet_hidden_states.%" PRId64, i);
        hint[i] = weft_parity_input(p, name);
    }
    WEFT_TRY(weft_graph_check(p->graph));
    const weft_value sample = weft_cosmos_hinted(p->graph, &p->model, &in, hint);
    WEFT_TRY(weft_graph_check(p->graph));
    weft_output(p->graph, "sample", sample);
    return run(p, error_of(p, sample, "in.target"));
}

const weft_parity_kind weft_parity_hints = {"model with hints", is_hinted, compare_hinted};

/* ---- the control branch --------------------------------------------------------------------- */

static bool is_branch(const json_t *json)
{
    return weft_parity_is_class(json, weft_family_cosmos_control.class_name);
}

static weft_status read_branch(const weft_parity *p, weft_cosmos_control *c)
{
    json_t *config = weft_parity_config(p);
    WEFT_TRY(WEFT_ALLOCATED(config, "the comparison"));
    const weft_config_locations at = {.where = p->config_file, .strict = true};
    const weft_status_code status = weft_fields_read(&weft_family_cosmos_control, config, &at, c);
    json_decref(config);
    return status;
}

/* The loss is the sum of the errors of all hints. */
static weft_status compare_branch(weft_parity *p)
{
    weft_cosmos_control c;
    weft_value hint[WEFT_COSMOS_MAX_HINTS], loss = WEFT_NONE;
    weft_ports in;
    int64_t size[3];
    WEFT_TRY(read_branch(p, &c));
    WEFT_TRY(weft_parity_open_graph(p));
    add_inputs(p, "in.latents", &in);
    WEFT_TRY(weft_graph_check(p->graph));
    weft_nn_count_tokens(p->graph, in.at[WEFT_PORT_LATENTS], c.net.patch, size);
    WEFT_TRY(weft_graph_check(p->graph));
    weft_cosmos_control_build(p->graph, &c, &in, size, hint);
    WEFT_TRY(weft_graph_check(p->graph));
    for (int64_t i = 0; i < c.blocks; i++) {
        char name[64];
        snprintf(name, sizeof name, "in.target_control_block_samples.%" PRId64, i);
        const weft_value error = error_of(p, hint[i], name);
        loss = i ? weft_add(p->graph, loss, error) : error;
        snprintf(name, sizeof name, "control_block_samples.%" PRId64, i);
        weft_output(p->graph, name, hint[i]);
    }
    return run(p, loss);
}

const weft_parity_kind weft_parity_branch = {"control branch", is_branch, compare_branch};
