#include "prompt/pooled_encoder.h"

#include "base/memory.h"
#include "exec/execute.h"
#include "exec/store/weights.h"
#include "model/key_mapping.h"
#include "model/registry.h"
#include "text/tokenizer.h"

#include <string.h>

struct weft_pooled_encoder {
    weft_model model;
    weft_graph *graph;
    weft_store *store;
    weft_program *program;
    weft_tokenizer *tokenizer; /* NULL: images */
    weft_dtype dtype;          /* of the weights */
    int64_t side, tokens, width;
    int64_t image[2]; /* height and width of the next images */
};

static weft_status open_model(weft_pooled_encoder *e, const char *folder, weft_role role)
{
    WEFT_TRY(weft_model_open_as(folder, role, &e->model));
    if (role == WEFT_ROLE_TEXT_ENCODER)
        e->tokens = weft_model_text(&e->model).length;
    const weft_model_size one = {.batch = 1, .frames = 1, .height = 1, .width = 1, .image = 1};
    e->side = role == WEFT_ROLE_TEXT_ENCODER
                  ? 0
                  : weft_model_shape(&e->model, &one, WEFT_PORT_VIDEO).dim[2];
    e->image[0] = e->image[1] = e->side;
    e->store = weft_store_create();
    WEFT_TRY(WEFT_ALLOCATED(e->store, "the encoder"));
    return weft_weights_dtype(folder, &e->dtype);
}

/* Compiles the encoder for images of e->image, or for texts. */
static weft_status build(weft_pooled_encoder *e, const char *folder)
{
    const weft_port port = e->side ? WEFT_PORT_VIDEO : WEFT_PORT_TOKENS;
    weft_ports ports = weft_ports_none();
    const weft_model_size size = {
        .batch = 1, .frames = 1, .height = 1, .width = 1, .image = 1, .text = e->tokens};
    weft_shape shape = weft_model_shape(&e->model, &size, port);
    for (int i = 0; e->side && i < 2; i++)
        shape.dim[2 + i] = e->image[i];
    e->graph = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(e->graph, "the encoder"));
    weft_graph_store_weights_as(e->graph, e->dtype);
    ports.at[port] = weft_input(e->graph, "in", weft_port_dtype(port), shape);
    weft_model_call(e->graph, &e->model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false,
                    &ports);
    if (!weft_value_ok(ports.at[WEFT_PORT_POOLED]))
        return weft_error(WEFT_MSG_MODEL_UNKNOWN,
                          WEFT_AT(.file = folder, .value = weft_model_class(&e->model)),
                          "a %s has no vector of a whole %s", weft_model_class(&e->model),
                          port == WEFT_PORT_VIDEO ? "image" : "text");
    weft_output(e->graph, "out", ports.at[WEFT_PORT_POOLED]);
    WEFT_TRY(weft_graph_check(e->graph));
    e->width = weft_value_get(e->graph, ports.at[WEFT_PORT_POOLED])->shape.dim[1];
    return weft_program_compile(e->graph, &(weft_program_options){0}, &e->program);
}

static void free_program(weft_pooled_encoder *e)
{
    weft_program_free(e->program);
    weft_graph_free(e->graph);
    e->program = NULL;
    e->graph = NULL;
}

static weft_status bind_weights(weft_pooled_encoder *e, const char *folder)
{
    weft_tensors *file;
    WEFT_TRY(weft_weights_prepare(e->store, e->graph));
    WEFT_TRY(weft_key_mapping_open(e->model.family, e->graph, "", folder, &file));
    WEFT_TRY(weft_weights_load(e->store, e->graph, "", file, true));
    return weft_programs_bind(&e->program, 1, e->store, NULL);
}

weft_status weft_pooled_encoder_open(const char *folder, weft_role role,
                                     weft_pooled_encoder **encoder)
{
    weft_pooled_encoder *e;
    WEFT_TRY(WEFT_NEW(e, 1, "the encoder"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(open_model(e, folder, role));
    WEFT_GO(build(e, folder));
    if (role == WEFT_ROLE_TEXT_ENCODER)
        WEFT_GO(weft_tokenizer_open(folder, &e->tokenizer));
    WEFT_GO(bind_weights(e, folder));
    *encoder = e;
out:
    if (status != WEFT_OK)
        weft_pooled_encoder_close(e);
    return status;
}

void weft_pooled_encoder_close(weft_pooled_encoder *e)
{
    if (!e)
        return;
    free_program(e);
    weft_store_free(e->store);
    weft_tokenizer_close(e->tokenizer);
    weft_free(e);
}

int64_t weft_pooled_encoder_side(const weft_pooled_encoder *e)
{
    return e->side;
}

weft_status weft_pooled_encoder_resize(weft_pooled_encoder *e, int64_t height, int64_t width)
{
    if (e->image[0] == height && e->image[1] == width)
        return WEFT_OK;
    if (strcmp(weft_model_class(&e->model), "ViTModel"))
        return weft_error(WEFT_MSG_MODEL_UNKNOWN, WEFT_AT(.value = weft_model_class(&e->model)),
                          "a %s has no images of %" PRId64 " x %" PRId64
                          " pixels; a ViTModel such as DINO is needed",
                          weft_model_class(&e->model), width, height);
    e->image[0] = height;
    e->image[1] = width;
    free_program(e);
    WEFT_TRY(build(e, ""));
    return weft_programs_bind(&e->program, 1, e->store, NULL);
}

static weft_status run(weft_pooled_encoder *e, const float **vector, int64_t *width)
{
    WEFT_TRY(weft_program_run(e->program));
    *vector = weft_program_output(e->program, "out")->data;
    *width = e->width;
    return WEFT_OK;
}

weft_status weft_pooled_encoder_image(weft_pooled_encoder *e, const float *image,
                                      const float **vector, int64_t *width)
{
    memcpy(weft_program_input(e->program, "in")->data, image,
           (size_t)(e->image[0] * e->image[1] * 3) * sizeof *image);
    return run(e, vector, width);
}

weft_status weft_pooled_encoder_text(weft_pooled_encoder *e, const char *text, const float **vector,
                                     int64_t *width, int64_t *cut)
{
    int32_t *id, *to = weft_program_input(e->program, "in")->data;
    int64_t count;
    WEFT_TRY(weft_tokenizer_encode(e->tokenizer, text, (int64_t)strlen(text), e->tokens, &id,
                                   &count, cut));
    for (int64_t i = 0; i < e->tokens; i++)
        to[i] = i < count ? id[i] : weft_tokenizer_padding(e->tokenizer);
    weft_free(id);
    return run(e, vector, width);
}
