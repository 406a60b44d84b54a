#include "generate/conditioning/image_encoder.h"

#include "base/fs.h"
#include "exec/execute.h"
#include "exec/store/weights.h"
#include "generate/conditioning/clip_preprocess.h"
#include "graph/builder_helpers.h"
#include "model/key_mapping.h"

/* The folder of the encoder in a model's folder. */
static const char *folder_of(const weft_frame_condition *how)
{
    return how->image_encoder ? how->image_encoder : "image_encoder";
}

bool weft_image_encoder_there(const weft_visual_condition_setup *setup)
{
    const weft_frame_condition how = weft_model_takes_port(setup->denoiser);
    char *folder = weft_path_join(setup->folder, folder_of(&how));
    const bool there = !folder || !how.also_none ||
                       (how.image_encoder ? weft_model_has_part(folder, WEFT_ROLE_IMAGE_ENCODER)
                                          : weft_path_is_dir(folder));
    weft_free(folder);
    return there;
}

weft_status weft_image_encoder_compile(const weft_backend *backend, weft_shape pixels,
                                       weft_image_encoder *s, weft_shape *made)
{
    s->graph = weft_graph_create();
    s->store = weft_store_create_for(backend);
    WEFT_TRY(WEFT_ALLOCATED(s->graph && s->store, "the image encoder"));
    weft_dtype dtype;
    WEFT_TRY(weft_weights_dtype(s->folder, &dtype));
    weft_graph_store_weights_as(s->graph, dtype);
    weft_ports ports = weft_ports_none();
    ports.at[WEFT_PORT_VIDEO] = weft_input(s->graph, "in", WEFT_F32, pixels);
    weft_model_call(s->graph, &s->model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false,
                    &ports);
    WEFT_TRY(weft_graph_check(s->graph));
    weft_value out = ports.at[s->embeds ? WEFT_PORT_POOLED : WEFT_PORT_IMAGE];
    if (s->embeds)
        out =
            weft_reshape(s->graph, out,
                         WEFT_SHAPE(pixels.dim[0], 1, weft_value_get(s->graph, out)->shape.dim[1]));
    weft_output(s->graph, "out", out);
    WEFT_TRY(weft_graph_check(s->graph));
    *made = weft_value_get(s->graph, out)->shape;
    return weft_program_compile(s->graph, &(weft_program_options){.backend = backend}, &s->program);
}

weft_status weft_image_encoder_open(const weft_visual_condition_setup *setup, int images,
                                    weft_visual_condition *visual, weft_image_encoder *s)
{
    const weft_frame_condition how = weft_model_takes_port(setup->denoiser);
    const char *class_name = weft_model_class(setup->denoiser);
    s->folder = weft_path_join(setup->folder, folder_of(&how));
    WEFT_TRY(WEFT_ALLOCATED(s->folder, "a path"));
    const weft_status_code found =
        weft_model_open_as(s->folder, WEFT_ROLE_IMAGE_ENCODER, &s->model);
    if (found != WEFT_OK)
        return weft_error_add(found, "This %s takes images from the encoder in the folder %s.",
                              class_name, folder_of(&how));
    weft_model_size size = {.batch = images, .frames = 1, .height = 1, .width = 1, .image = 1};
    const weft_shape pixels = weft_model_shape(&s->model, &size, WEFT_PORT_VIDEO);
    s->side = pixels.dim[2];
    s->images = images;
    WEFT_TRY(weft_clip_picture_processor(setup->folder, s->side, &s->processor));
    s->processor.unrounded = how.unrounded;
    weft_shape made;
    WEFT_TRY(weft_image_encoder_compile(setup->backend, pixels, s, &made));
    size.image = made.dim[1];
    const weft_shape wanted = weft_model_shape(setup->denoiser, &size, WEFT_PORT_IMAGE);
    visual->image_tokens = images * made.dim[1];
    visual->image_width = made.dim[2];
    return wanted.dim[2] == made.dim[2] && wanted.dim[1] == visual->image_tokens
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = s->folder),
                            "the image encoder returns %" PRId64 " tokens of width %" PRId64
                            " for %d image%s; "
                            "this %s takes %" PRId64 " of width %" PRId64,
                            visual->image_tokens, made.dim[2], images, images > 1 ? "s" : "",
                            class_name, wanted.dim[1], wanted.dim[2]);
}

int64_t weft_image_encoder_bytes(const weft_image_encoder *s)
{
    return weft_program_bytes(s->program) + weft_program_plan(s->program)->source_bytes +
           weft_clip_picture_bytes(&s->processor);
}

weft_status weft_image_encoder_bind(weft_image_encoder *s)
{
    weft_tensors *file;
    if (s->bound)
        return WEFT_OK;
    WEFT_TRY(weft_weights_prepare(s->store, s->graph));
    WEFT_TRY(weft_key_mapping_open(s->model.family, s->graph, "", s->folder, &file));
    WEFT_TRY(weft_weights_load(s->store, s->graph, "", file, true));
    WEFT_TRY(weft_programs_bind(&s->program, 1, s->store, NULL));
    s->bound = true;
    return WEFT_OK;
}

void weft_image_encoder_free(weft_image_encoder *s)
{
    weft_program_free(s->program);
    weft_graph_free(s->graph);
    weft_store_free(s->store);
    weft_free(s->folder);
    *s = (weft_image_encoder){0};
}
