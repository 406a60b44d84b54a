#include "prompt/text_connectors.h"

#include "graph/builder_helpers.h"

weft_port weft_text_connectors_port(const weft_text_encoder_row *row, int stream)
{
    return stream ? row->audio_text : row->text;
}

int64_t weft_text_connectors_width(const weft_text_encoder *encoder, int stream)
{
    const weft_model_size one = {1, 1, 1, 1, 1};
    return weft_model_shape(&encoder->connectors, &one,
                            weft_text_connectors_port(encoder->row, stream))
        .dim[2];
}

weft_status weft_text_connectors_check(const weft_model *denoiser, const weft_text_encoder *encoder,
                                       const char *where)
{
    const weft_model *between = &encoder->connectors;
    const weft_text_shape text = weft_model_text(&encoder->model);
    const weft_model_size one = {1, 1, 1, 1, 1};
    if (!between->family)
        return weft_error(WEFT_MSG_TEXT_ENCODER_MISMATCH, WEFT_AT(.file = where),
                          "%s needs the model of the folder %s between the text encoder and itself",
                          weft_model_class(denoiser), encoder->row->connectors);
    const weft_shape in = weft_model_shape(between, &one, WEFT_PORT_TEXT_LAYERS);
    if (text.layers != in.dim[0] || text.width != in.dim[3])
        return weft_error(WEFT_MSG_TEXT_ENCODER_MISMATCH,
                          WEFT_AT(.file = where, .value = weft_model_class(&encoder->model)),
                          "%s has %" PRId64 " hidden states of width %" PRId64 "; %s takes %" PRId64
                          " of width %" PRId64,
                          weft_model_class(&encoder->model), text.layers, text.width,
                          weft_model_class(between), in.dim[0], in.dim[3]);
    for (int i = 0; i < WEFT_TEXT_STREAMS; i++) {
        const weft_port port = weft_text_connectors_port(encoder->row, i);
        const int64_t width = weft_text_connectors_width(encoder, i),
                      takes = weft_model_shape(denoiser, &one, port).dim[2];
        if (width != takes)
            return weft_error(
                WEFT_MSG_TEXT_ENCODER_MISMATCH, WEFT_AT(.file = where, WEFT_NUMBER(width)),
                "the width of %s from %s is %" PRId64 "; the transformer takes %" PRId64,
                weft_port_name(port), weft_model_class(between), width, takes);
    }
    return WEFT_OK;
}

void weft_text_connectors_call(weft_graph *g, const weft_text_encoder *encoder,
                               weft_value states_nbld, weft_value real_bl, bool stays,
                               weft_ports *ports)
{
    weft_ports p = weft_ports_none();
    p.at[WEFT_PORT_TEXT_LAYERS] = states_nbld;
    p.at[WEFT_PORT_TEXT_MASK] = real_bl;
    weft_graph_push(g, "%s", encoder->row->connectors);
    weft_model_call(g, &encoder->connectors, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE},
                    false, &p);
    weft_graph_pop(g);
    for (int i = 0; i < WEFT_TEXT_STREAMS; i++) {
        const weft_port port = weft_text_connectors_port(encoder->row, i);
        ports->at[port] = stays ? weft_unary(g, WEFT_OP_STOP, p.at[port]) : p.at[port];
    }
}
