#include "train/graph/denoiser_call.h"

#include "graph/builder_helpers.h"

#include <string.h>

/* x's first latent frame, followed by frames of `fill`. */
static weft_value first_frame(weft_graph *g, weft_value x, double fill)
{
    weft_shape rest = weft_value_get(g, x)->shape;
    rest.dim[1]--;
    const weft_value part[] = {weft_slice(g, x, 1, 0, 1), weft_fill(g, WEFT_F32, rest, fill)};
    return rest.dim[1] ? weft_concat(g, part, 2, 1) : x;
}

/* (B,T,Y,X,channels): 1 in the first frame, 0 in the others. */
static weft_value mark(weft_graph *g, weft_value x, int64_t channels)
{
    weft_shape shape = weft_value_get(g, x)->shape;
    shape.dim[4] = channels;
    return first_frame(g, weft_fill(g, WEFT_F32, shape, 1), 0);
}

/* The noisy `input` with x's first latent frame. */
static weft_value with_first_frame(weft_graph *g, weft_value x, weft_value input)
{
    const weft_value part[] = {weft_slice(g, x, 1, 0, 1), weft_denoiser_call_rest(g, input)};
    return weft_concat(g, part, 2, 1);
}

/* Sets the denoiser's inputs for conditioning on the first frame of the data. */
static void give_first_frame(weft_graph *g, const weft_denoiser_call *c, weft_ports *p)
{
    const weft_run_models *m = c->models;
    const weft_value x = c->data, input = c->input, time = c->time;
    const weft_frame_condition how = weft_model_takes_port(&m->denoiser);
    const weft_shape shape = weft_value_get(g, x)->shape;
    p->at[WEFT_PORT_TIMESTEP] = time;
    if (how.form == WEFT_FRAME_CONDITION_CHANNELS) {
        weft_value part[4] = {input};
        int parts = 1;
        if (how.in_place)
            part[0] = with_first_frame(g, x, input);
        if (how.marks)
            part[parts++] = mark(g, x, m->grid.factor[0]);
        part[parts++] = m->grey_rest   ? c->given
                        : how.in_place ? weft_fill(g, WEFT_F32, shape, 0)
                                       : first_frame(g, x, 0);
        if (how.mark_after)
            part[parts++] = mark(g, x, 1);
        p->at[WEFT_PORT_LATENTS] = weft_concat(g, part, parts, 4);
        return;
    }
    p->at[WEFT_PORT_LATENTS] = with_first_frame(g, x, input);
    if (how.form == WEFT_FRAME_CONDITION_IMPLICIT)
        return;
    if (how.form == WEFT_FRAME_CONDITION_TIMES) {
        const int64_t *patch = m->patch.factor,
                      tokens = how.frame_levels
                                   ? 1
                                   : shape.dim[2] / patch[1] * (shape.dim[3] / patch[2]),
                      frames = shape.dim[1] / patch[0], batch = shape.dim[0];
        const weft_value column = weft_reshape(g, time, WEFT_SHAPE(batch, 1));
        const weft_value times[] = {
            weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, tokens), 0),
            weft_broadcast(g, column, WEFT_SHAPE(batch, (frames - 1) * tokens))};
        p->at[WEFT_PORT_TIMESTEP] = weft_concat(g, times, 2, 1);
    } else {
        const weft_shape first = WEFT_SHAPE(shape.dim[0], 1),
                         noised = WEFT_SHAPE(shape.dim[0], shape.dim[1] - 1);
        const weft_value frames[] = {weft_fill(g, WEFT_F32, first, 0),
                                     weft_fill(g, WEFT_F32, noised, 1)};
        p->at[WEFT_PORT_FRAME_MASK] = weft_cast(g, weft_concat(g, frames, 2, 1), WEFT_I32);
    }
}

/* Noisy latents, followed by zeros in the channels of an image. */
static weft_value without_image(weft_graph *g, const weft_model *model, weft_value input)
{
    weft_shape rest = weft_value_get(g, input)->shape;
    rest.dim[4] = weft_model_grid(model).channels - rest.dim[4];
    return weft_concat(g, (weft_value[]){input, weft_fill(g, WEFT_F32, rest, 0)}, 2, 4);
}

/* Sets the denoiser's input with a control video. Its latents are channels after the noisy latents,
 * unless they have their own port. `control` of a moved character: all channels after the noisy
 * latents. */
static void give_control(weft_graph *g, const weft_model *model, weft_value control, weft_ports *p)
{
    const weft_value part[] = {p->at[WEFT_PORT_LATENTS], control};
    if (!weft_model_takes(model, WEFT_PORT_CONTROL) ||
        weft_model_takes_port(model).form == WEFT_FRAME_CONDITION_CHARACTER)
        p->at[WEFT_PORT_LATENTS] = weft_concat(g, part, 2, 4);
}

bool weft_denoiser_call_gives_frame(const weft_run *run, const weft_run_models *models)
{
    const weft_frame_condition how = weft_model_takes_port(&models->denoiser);
    return run->condition == WEFT_CONDITION_FIRST_FRAME &&
           (how.form != WEFT_FRAME_CONDITION_CHANNELS || how.in_place);
}

weft_value weft_denoiser_call_rest(weft_graph *g, weft_value x)
{
    return weft_slice(g, x, 1, 1, weft_dim(g, x, 1) - 1);
}

/* The times of flow matching are from 0 to 1000, and this model takes them from 0 to 1. */
static bool has_unit_times(const weft_denoiser_call *c, const weft_model *model)
{
    return weft_model_has_unit_times(model) && !strcmp(weft_run_process(c->run)->name, "flow");
}

weft_value weft_denoiser_call_build(weft_graph *g, const weft_denoiser_call *c, weft_ports *p)
{
    const weft_model *model = c->model ? c->model : &c->models->denoiser;
    const weft_frame_condition how = weft_model_takes_port(model);
    p->at[WEFT_PORT_TIMESTEP] =
        has_unit_times(c, model) ? weft_affine(g, c->time, 1e-3, 0) : c->time;
    p->at[WEFT_PORT_LATENTS] = c->input;
    if (weft_model_takes(model, WEFT_PORT_GUIDANCE))
        p->at[WEFT_PORT_GUIDANCE] = weft_affine(g, c->time, 0, 1000 * c->run->guidance);
    if (c->run->condition == WEFT_CONDITION_FIRST_FRAME)
        give_first_frame(g, c, p);
    else if (c->run->condition == WEFT_CONDITION_CONTROL)
        give_control(g, model, c->given, p);
    else if (c->run->condition == WEFT_CONDITION_CLEAN_BLOCKS)
        p->at[WEFT_PORT_CLEAN] = c->data;
    else if (how.form == WEFT_FRAME_CONDITION_CHANNELS && how.also_none)
        p->at[WEFT_PORT_LATENTS] = without_image(g, model, c->input);
    weft_graph_push(g, "%s", c->scope ? c->scope : model->family->scope);
    weft_model_call(g, model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, p);
    weft_graph_pop(g);
    return weft_model_answer(g, model, p);
}
