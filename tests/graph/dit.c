#include "dit.h"

#include "../model_of.h"
#include "diffusion/flow.h"
#include "graph/builder_helpers.h"

#include <stdio.h>

weft_graph *dit_build(void *user)
{
    const dit_setup *s = user;
    char text_of[400];
    snprintf(text_of, sizeof text_of,
             "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":%" PRId64 ","
             "\"attention_head_dim\":6,\"in_channels\":2,\"text_dim\":5,\"freq_dim\":4,"
             "\"ffn_dim\":10,\"num_layers\":2,\"eps\":1e-5,\"rope_max_seq_len\":32}",
             s->heads);
    const weft_model config = model_of(text_of);
    const weft_flow_config flow = {.logit_std = 1, .shift = 2};
    weft_graph *g = weft_graph_create();
    const weft_shape shape = WEFT_SHAPE(s->batch, s->frames, s->height, s->width, 2);
    const weft_value data = weft_input(g, "batch.latents", WEFT_F32, shape);
    const weft_value text = weft_input(g, "batch.text", WEFT_F32, WEFT_SHAPE(s->batch, 3, 5));
    const weft_value key = weft_input(g, "batch.key", WEFT_I64, WEFT_SHAPE(s->batch));
    const weft_value noise = weft_random_like(g, WEFT_OP_RANDOM_NORMAL, key, WEFT_RNG_NOISE, shape);
    const weft_value sigma = weft_flow_sigma(g, &flow, key);
    const weft_value mixed = weft_flow_mix(g, data, noise, sigma);
    const weft_value prediction = denoise(g, &config, mixed, weft_affine(g, sigma, 1000, 0), text);
    weft_output(g, "prediction", prediction);
    const weft_value error = weft_sub(g, prediction, weft_sub(g, noise, data));
    weft_output(g, s->loss ? s->loss : "loss",
                weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, error)));
    return g;
}

weft_recipe dit_recipe(const weft_mesh *mesh)
{
    const weft_model model = model_of("{\"_class_name\":\"WanTransformer3DModel\"}");
    weft_recipe recipe;
    if (weft_recipe_compose(model.family->recipe, model.family->recipes, mesh, &recipe) !=
        WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_message());
        abort();
    }
    return recipe;
}

double dit_fill(void *user, const char *name, weft_dtype dtype, int64_t index)
{
    (void)user;
    uint64_t seed = 5;
    for (const char *c = name; *c; c++)
        seed = weft_seed_mix(seed, (uint64_t)*c);
    if (!weft_dtype_is_float(dtype))
        return (double)(100 + index);
    return 0.5 * (double)weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)index);
}
