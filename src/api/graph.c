/* The functions of weft/graph.h that src/graph, src/nn and src/model do not have. */
#include "weft/graph.h"

#include "api/sized.h"
#include "base/json.h"
#include "graph/autodiff.h"
#include "graph/builder_helpers.h"
#include "graph/dump.h"
#include "graph/graph.h"
#include "graph/rewrite.h"
#include "model/model.h"
#include "nn/nn.h"
#include "train/graph/optimizer.h"
#include "transform/passes.h"

#include <string.h>

/* ---- ops and layers -------------------------------------------------------------------------- */

weft_value weft_map(weft_graph *g, weft_map_kind kind, weft_value x)
{
    static const weft_op op[] = {
        [WEFT_MAP_NEG] = WEFT_OP_NEG,        [WEFT_MAP_EXP] = WEFT_OP_EXP,
        [WEFT_MAP_LOG] = WEFT_OP_LOG,        [WEFT_MAP_SQRT] = WEFT_OP_SQRT,
        [WEFT_MAP_RSQRT] = WEFT_OP_RSQRT,    [WEFT_MAP_SQUARE] = WEFT_OP_SQUARE,
        [WEFT_MAP_SIN] = WEFT_OP_SIN,        [WEFT_MAP_COS] = WEFT_OP_COS,
        [WEFT_MAP_TANH] = WEFT_OP_TANH,      [WEFT_MAP_SIGMOID] = WEFT_OP_SIGMOID,
        [WEFT_MAP_SILU] = WEFT_OP_SILU,      [WEFT_MAP_GELU] = WEFT_OP_GELU,
        [WEFT_MAP_GELU_TANH] = WEFT_OP_GELU, [WEFT_MAP_SOFTMAX] = WEFT_OP_SOFTMAX,
        [WEFT_MAP_STOP] = WEFT_OP_STOP,
    };
    if ((unsigned)kind >= sizeof op / sizeof *op)
        return weft_graph_fail(g, WEFT_MSG_ARGUMENT_INVALID, "weft_map has no kind %d", (int)kind);
    const weft_attr_gelu gelu = {.exact = kind == WEFT_MAP_GELU};
    return weft_emit(g, op[kind], &x, 1, op[kind] == WEFT_OP_GELU ? &gelu : NULL);
}

weft_value weft_layer_conv(weft_graph *g, const char *name, weft_value x, int64_t out,
                           const weft_conv_options *options)
{
    weft_conv_options own;
    weft_conv_shape shape = {0};
    if (WEFT_SIZED_READ(own, options) != WEFT_OK)
        return weft_graph_fail(g, weft_error_class(), "%s", weft_error_text());
    for (int i = 0; i < 3; i++) {
        shape.kernel[i] = own.kernel[i] ? own.kernel[i] : 1;
        shape.stride[i] = own.stride[i] ? own.stride[i] : 1;
        shape.before[i] = own.before[i];
        shape.after[i] = own.after[i];
    }
    return weft_nn_conv(g, name, x, out, shape, false);
}

weft_value weft_layer_norm(weft_graph *g, const char *name, weft_value x,
                           const weft_norm_options *options)
{
    weft_norm_options own;
    if (WEFT_SIZED_READ(own, options) != WEFT_OK)
        return weft_graph_fail(g, weft_error_class(), "%s", weft_error_text());
    const double eps = own.eps != 0 ? own.eps : 1e-6;
    const int64_t groups = own.groups ? own.groups : 32;
    switch (own.kind) {
    case WEFT_NORM_LAYER: return weft_nn_layer_norm(g, name, x, eps);
    case WEFT_NORM_RMS: return weft_nn_rms_norm(g, name, x, eps);
    case WEFT_NORM_PLAIN: return weft_nn_plain_norm(g, x, eps);
    case WEFT_NORM_GROUP: return weft_nn_group_norm(g, name, x, groups, eps);
    case WEFT_NORM_FRAME: return weft_nn_frame_norm(g, name, x, groups, eps);
    }
    return weft_graph_fail(g, WEFT_MSG_ARGUMENT_INVALID, "weft_layer_norm has no kind %d",
                           (int)own.kind);
}

weft_value weft_layer_attention(weft_graph *g, weft_value q, weft_value k, weft_value v,
                                const weft_attention_options *options)
{
    weft_attention_options own;
    if (WEFT_SIZED_READ(own, options) != WEFT_OK)
        return weft_graph_fail(g, weft_error_class(), "%s", weft_error_text());
    const weft_value bias = own.has_bias ? own.bias : WEFT_NONE;
    return own.causal ? weft_nn_attend_back(g, q, k, v, bias) : weft_nn_attend(g, q, k, v, bias);
}

/* ---- reading --------------------------------------------------------------------------------- */

weft_status_code weft_value_describe(const weft_graph *g, weft_value value,
                                     weft_value_description *description)
{
    if (value.id < 0 || value.id >= weft_graph_value_count(g))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = "value", WEFT_NUMBER(value.id)),
                          "the graph has no value %d", (int)value.id);
    const weft_value_info *info = weft_value_get(g, value);
    const weft_value_description filled = {.shape = info->shape, .dtype = info->dtype};
    return WEFT_SIZED_WRITE(description, filled);
}

weft_status_code weft_graph_describe(const weft_graph *g, weft_graph_description *description)
{
    const weft_graph_description filled = {.nodes = weft_graph_node_count(g),
                                           .parameters = weft_graph_param_count(g),
                                           .flops = (double)weft_graph_cost(g).flops,
                                           .bytes = weft_graph_bytes(g),
                                           .hash = weft_graph_hash(g)};
    return WEFT_SIZED_WRITE(description, filled);
}

weft_status_code weft_graph_text(const weft_graph *g, char **text)
{
    weft_buf buf = {0};
    weft_graph_print(g, &buf);
    weft_buf_append(&buf, "", 0); /* an empty text has its NUL, too */
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&buf));
    if (!buf.data)
        WEFT_GO(WEFT_ALLOCATED(buf.data = weft_strdup(""), "a text"));
    *text = buf.data;
out:
    if (status != WEFT_OK)
        weft_buf_free(&buf);
    return status;
}

void weft_graph_adamw(weft_graph *g, weft_value loss, const weft_adamw_options *options)
{
    weft_adamw_options own;
    if (WEFT_SIZED_READ(own, options) != WEFT_OK) {
        weft_graph_fail(g, weft_error_class(), "%s", weft_error_text());
        return;
    }
    const weft_optimizer_config config = {
        .beta1 = own.beta1 != 0 ? own.beta1 : 0.9,
        .beta2 = own.beta2 != 0 ? own.beta2 : 0.999,
        .eps = own.eps != 0 ? own.eps : 1e-8,
        .weight_decay = own.weight_decay,
        .clip_norm = own.clip_norm,
        .ema_decay = own.ema_decay,
    };
    weft_optimizer_build(g, loss, &config);
}

/* ---- models ---------------------------------------------------------------------------------- */

weft_status_code weft_model_load(const char *path, weft_model **model)
{
    weft_model *made;
    WEFT_TRY(WEFT_NEW(made, 1, "a model"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_model_open(path, made));
    *model = made;
out:
    if (status != WEFT_OK)
        weft_free(made);
    return status;
}

weft_status_code weft_model_parse(const char *json, weft_model **model)
{
    json_t *config = NULL;
    weft_model *made = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_json_parse(json, (int64_t)strlen(json), "the config", &config));
    WEFT_GO(WEFT_NEW(made, 1, "a model"));
    WEFT_GO(weft_model_read(config, "the config", made));
    *model = made;
    made = NULL;
out:
    json_decref(config);
    weft_free(made);
    return status;
}

void weft_model_free(weft_model *model)
{
    weft_free(model);
}

weft_status_code weft_model_add(weft_graph *g, const weft_model *model,
                                const weft_model_extent *extent)
{
    weft_model_extent own;
    WEFT_TRY(WEFT_SIZED_READ(own, extent));
    weft_model_size size = weft_model_smallest(model);
    size.batch = own.batch ? own.batch : 1;
    size.frames = own.frames ? own.frames : size.frames;
    size.height = own.height ? own.height : size.height;
    size.width = own.width ? own.width : size.width;
    size.text = own.text ? own.text : size.text;
    weft_model_build(g, model, &size, false);
    return weft_graph_check(g);
}

/* ---- layouts and passes ---------------------------------------------------------------------- */

/* A pass leaves its input as it is, and some have nothing to do: the result is a copy then. */
static weft_status copy_graph(const weft_graph *g, weft_graph **out)
{
    weft_rewrite copy;
    WEFT_TRY(weft_rewrite_begin(g, &copy));
    for (int32_t i = 0; i < weft_graph_node_count(g); i++)
        weft_rewrite_node(&copy, i, NULL);
    return weft_rewrite_finish(&copy, "copy", out);
}

static weft_status set_passes(const weft_pass_options *own, weft_pass_switches *switches)
{
    *switches = weft_pass_defaults;
    for (int64_t i = 0; i < own->setting_count; i++)
        WEFT_TRY(weft_pass_switch(switches, own->setting[i]));
    return WEFT_OK;
}

static weft_status run_passes(weft_pass_phase phase, const weft_graph *g,
                              const weft_pass_options *options, weft_graph **out)
{
    weft_pass_options own;
    weft_pass_switches switches;
    weft_mesh mesh = {0};
    weft_recipe recipe = {0};
    /* keep_input: the passes do not change it */
    weft_graph *made = (weft_graph *)g;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_SIZED_READ(own, options));
    WEFT_TRY(weft_graph_check(g));
    WEFT_TRY(set_passes(&own, &switches));
    WEFT_TRY(weft_mesh_parse(own.mesh ? own.mesh : "", &mesh));
    if (own.rank < 0 || own.rank >= weft_mesh_ranks(&mesh))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = "rank", WEFT_NUMBER(own.rank)),
                          "rank %d is not in the mesh, which has %d ranks", own.rank,
                          weft_mesh_ranks(&mesh));
    if (weft_mesh_ranks(&mesh) > 1)
        WEFT_TRY(weft_recipe_compose(own.model ? own.model->family->recipe : NULL,
                                     own.model ? own.model->family->recipes : 0, &mesh, &recipe));
    const weft_pass_setup setup = {.switches = &switches,
                                   .mesh = &mesh,
                                   .rank = own.rank,
                                   .recipe = &recipe,
                                   .bf16_compute = own.bf16,
                                   .recompute = own.recompute,
                                   .recompute_count = (int)own.recompute_count};
    WEFT_GO(weft_passes_run(phase, &setup, true, &made, NULL));
    if (made == g)
        WEFT_GO(copy_graph(g, &made));
    *out = made;
out:
    if (weft_mesh_ranks(&mesh) > 1)
        weft_recipe_free(&recipe);
    if (status != WEFT_OK && made != g)
        weft_graph_free(made);
    return status;
}

weft_status_code weft_graph_shard(const weft_graph *g, const weft_pass_options *options,
                                  weft_graph **out)
{
    return run_passes(WEFT_PASS_WHOLE, g, options, out);
}

weft_status_code weft_graph_optimize(const weft_graph *g, const weft_pass_options *options,
                                     weft_graph **out)
{
    return run_passes(WEFT_PASS_RANK, g, options, out);
}
