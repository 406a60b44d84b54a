/* Writes a LoRA adapter with the tensor names of another program. */
#include "convert/convert_adapter.h"

#include "base/log.h"
#include "graph/graph.h"
#include "model/adapter.h"

#include <stdio.h>

/* Builds a graph with the model's names as scope, as in adapter files. */
static weft_status scoped_graph(const weft_model *model, weft_graph **graph)
{
    const weft_model_size smallest = weft_model_smallest(model);
    *graph = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(*graph, "a graph"));
    weft_model_build(*graph, model, &smallest, true);
    return weft_graph_check(*graph);
}

weft_status weft_convert_adapter(const weft_model *model, const char *in, const char *out,
                                 weft_adapter_format format, weft_dtype dtype)
{
    char prefix[100];
    weft_graph *g = NULL;
    weft_adapter *adapter = NULL;
    weft_adapter_pair *pair = NULL;
    int64_t pairs = 0;
    weft_status_code status = WEFT_OK;
    snprintf(prefix, sizeof prefix, "%s.", model->family->scope);
    WEFT_GO(scoped_graph(model, &g));
    WEFT_GO(weft_adapter_open(model->family, g, prefix, in, &adapter));
    WEFT_GO(weft_adapter_pairs(adapter, prefix, &pair, &pairs));
    weft_adapter_settings settings;
    WEFT_GO(weft_adapter_settings_read(in, &settings));
    const weft_adapter_file file = {.family = model->family,
                                    .graph = g,
                                    .scope = model->family->scope,
                                    .format = format,
                                    .dtype = dtype,
                                    .folder = out,
                                    .settings = settings};
    status = weft_adapter_write(&file, pair, pairs);
out:
    weft_adapter_pairs_free(pair, pairs);
    weft_adapter_close(adapter);
    weft_graph_free(g);
    return status;
}

weft_status weft_convert_warn_settings(const char *adapter, double weight)
{
    weft_adapter_settings settings;
    char text[WEFT_ADAPTER_SETTINGS_TEXT];
    WEFT_TRY(weft_adapter_settings_read(adapter, &settings));
    if (!settings.steps || weight == 0)
        return WEFT_OK;
    weft_adapter_settings_print(&settings, text);
    weft_warning(
        WEFT_MSG_OWN_SETTINGS, WEFT_AT(.file = adapter, WEFT_NUMBER(settings.steps)),
        "the merged weights do not have the settings of this distilled adapter: %s. Give "
        "these options, or write \"steps\" and \"guidance_scale\" into the weft.json of the "
        "model's folder.",
        text);
    return WEFT_OK;
}
