#include "curate/embeddings/clip_embedder.h"

#include "base/memory.h"
#include "exec/execute.h"
#include "exec/store/weights.h"
#include "model/key_mapping.h"
#include "model/registry.h"

#include <string.h>

struct weft_clip_embedder {
    weft_model model;
    weft_graph *graph;
    weft_store *store;
    weft_program *program;
    int64_t side, width;
};

static weft_status build(weft_clip_embedder *e, const char *folder)
{
    const weft_model_size size = {.batch = 1, .frames = 1, .height = 1, .width = 1, .image = 1};
    weft_ports ports = weft_ports_none();
    weft_dtype dtype;
    WEFT_TRY(weft_model_open_as(folder, WEFT_ROLE_IMAGE_ENCODER, &e->model));
    const weft_shape pixels = weft_model_shape(&e->model, &size, WEFT_PORT_VIDEO);
    e->side = pixels.dim[2];
    e->graph = weft_graph_create();
    e->store = weft_store_create();
    WEFT_TRY(WEFT_ALLOCATED(e->graph && e->store, "the image encoder"));
    WEFT_TRY(weft_weights_dtype(folder, &dtype));
    weft_graph_store_weights_as(e->graph, dtype);
    ports.at[WEFT_PORT_VIDEO] = weft_input(e->graph, "in", WEFT_F32, pixels);
    weft_model_call(e->graph, &e->model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false,
                    &ports);
    weft_output(e->graph, "out", ports.at[WEFT_PORT_POOLED]);
    WEFT_TRY(weft_graph_check(e->graph));
    e->width = weft_value_get(e->graph, ports.at[WEFT_PORT_POOLED])->shape.dim[1];
    return weft_program_compile(e->graph, &(weft_program_options){0}, &e->program);
}

static weft_status bind_weights(weft_clip_embedder *e, const char *folder)
{
    weft_tensors *file;
    WEFT_TRY(weft_store_init(e->store, e->graph, 0));
    WEFT_TRY(weft_key_mapping_open(e->model.family, e->graph, "", folder, &file));
    WEFT_TRY(weft_weights_load(e->store, e->graph, "", file, true));
    return weft_programs_bind(&e->program, 1, e->store, NULL);
}

weft_status weft_clip_embedder_open(const char *folder, weft_clip_embedder **embedder)
{
    weft_clip_embedder *e;
    WEFT_TRY(WEFT_NEW(e, 1, "the image encoder"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(build(e, folder));
    WEFT_GO(bind_weights(e, folder));
    *embedder = e;
out:
    if (status != WEFT_OK)
        weft_clip_embedder_close(e);
    return status;
}

void weft_clip_embedder_close(weft_clip_embedder *e)
{
    if (!e)
        return;
    weft_program_free(e->program);
    weft_graph_free(e->graph);
    weft_store_free(e->store);
    weft_free(e);
}

int64_t weft_clip_embedder_side(const weft_clip_embedder *e)
{
    return e->side;
}

weft_status weft_clip_embedder_run(weft_clip_embedder *e, const float *image, const float **output,
                                   int64_t *width)
{
    memcpy(weft_program_input(e->program, "in")->data, image,
           (size_t)(e->side * e->side * 3) * sizeof *image);
    WEFT_TRY(weft_program_run(e->program));
    *output = weft_program_output(e->program, "out")->data;
    *width = e->width;
    return WEFT_OK;
}
