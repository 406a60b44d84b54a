#include "training_graph.h"

#include "../model_of.h"
#include "graph/builder_helpers.h"

#include <stdio.h>

static weft_value model(weft_graph *g, int layers, int64_t size)
{
    char text_of[400];
    snprintf(text_of, sizeof text_of,
             "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":2,"
             "\"attention_head_dim\":12,\"in_channels\":4,\"text_dim\":10,\"freq_dim\":16,"
             "\"ffn_dim\":40,\"num_layers\":%d,\"rope_max_seq_len\":64}",
             layers);
    const weft_model config = model_of(text_of);
    const weft_value latents =
        weft_input(g, "batch.latents", WEFT_F32, WEFT_SHAPE(2, 2, size, size, 4));
    const weft_value time = weft_input(g, "batch.timestep", WEFT_F32, WEFT_SHAPE(2));
    const weft_value text = weft_input(g, "batch.text", WEFT_F32, WEFT_SHAPE(2, 3, 10));
    return denoise(g, &config, latents, time, text);
}

weft_graph *forward_graph(int layers)
{
    weft_graph *g = weft_graph_create();
    weft_output(g, "prediction", model(g, layers, 4));
    return g;
}

weft_graph *loss_graph(int layers, int size)
{
    weft_graph *g = weft_graph_create();
    const weft_value y = model(g, layers, size);
    const weft_value target =
        weft_input(g, "batch.target", WEFT_F32, WEFT_SHAPE(2, 2, size, size, 4));
    const weft_value error = weft_sub(g, y, target);
    weft_output(g, "objective", weft_mean_all(g, weft_mul(g, error, error)));
    return g;
}

void add_step(weft_graph *g)
{
    weft_optimizer_build(g, weft_graph_find(g, "objective"),
                         &(weft_optimizer_config){.beta1 = 0.9,
                                                  .beta2 = 0.99,
                                                  .eps = 1e-8,
                                                  .weight_decay = 0.01,
                                                  .clip_norm = 1,
                                                  .ema_decay = 0.9});
}

weft_graph *training_graph(int layers, int size)
{
    weft_graph *g = loss_graph(layers, size);
    add_step(g);
    return g;
}
