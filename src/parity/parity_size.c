/* Size of the inputs in a golden file. */
#include "parity/parity_size.h"

#include "parity/parity_images.h"

#include <stdio.h>

int64_t weft_parity_token_side(const weft_parity *p)
{
    const weft_grid grid = weft_model_grid(&p->model);
    return grid.factor[1] > 1 ? grid.factor[1] : 1;
}

/* Returns the golden tensor of a port if the model has the port. */
static const weft_stored_tensor *golden_input(const weft_parity *p, weft_port port)
{
    const weft_family *f = p->model.family;
    for (int i = 0; i < f->ports; i++)
        if (f->port[i].port == port && !f->port[i].output) {
            char name[160];
            snprintf(name, sizeof name, "in.%s", f->port[i].reference);
            return weft_tensors_find(p->golden, name);
        }
    return NULL;
}

/* Computes the rows and columns of an image's tokens from positions (S,3) or (S,4): frame 0, row,
 * column, and a text position of 0. */
static weft_status find_image_size(const weft_parity *p, const weft_stored_tensor *t,
                                   int64_t tokens, weft_model_size *size)
{
    const int64_t side = weft_parity_token_side(p);
    float *positions;
    WEFT_TRY(WEFT_NEW(positions, t->count + 1, "%s", p->file));
    weft_tensor_to_f32(t, positions);
    const int64_t axes = tokens > 0 && t->count == 4 * tokens ? 4 : 3;
    const int64_t columns = t->count >= axes ? (int64_t)positions[t->count - axes + 2] + 1 : 0;
    bool regular = t->count == axes * tokens && columns > 0 && tokens % columns == 0;
    for (int64_t i = 0; regular && i < tokens; i++)
        regular = positions[axes * i] == 0 && positions[axes * i + 1] == (float)(i / columns) &&
                  positions[axes * i + 2] == (float)(i % columns) &&
                  (axes < 4 || positions[axes * i + 3] == 0);
    weft_free(positions);
    if (!regular)
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = p->file, .key = t->name),
                          "the positions are not the rows and columns of one image of %" PRId64
                          " tokens",
                          tokens);
    size->frames = 1;
    size->height = tokens / columns * side;
    size->width = columns * side;
    return WEFT_OK;
}

/* Returns an integer stored next to the input tensors; 0: none. */
static int64_t golden_number(const weft_parity *p, const char *name)
{
    char full[160];
    float value;
    snprintf(full, sizeof full, "in.%s", name);
    const weft_stored_tensor *t = weft_tensors_find(p->golden, full);
    if (!t || t->count != 1)
        return 0;
    weft_tensor_to_f32(t, &value);
    return (int64_t)value;
}

static weft_status find_video_size(const weft_parity *p, const weft_port_row *row,
                                   const weft_stored_tensor *t, weft_model_size *size)
{
    size->batch = t->dim[0];
    weft_parity_images images;
    WEFT_TRY(weft_parity_read_images(p, &images));
    if (row->form == WEFT_VIDEO_PACKED && images.count) {
        weft_parity_size_images(&images, weft_parity_token_side(p), size);
        return WEFT_OK;
    }
    const weft_stored_tensor *ids = weft_tensors_find(p->golden, "in.img_ids");
    if (row->form == WEFT_VIDEO_PACKED && ids)
        return find_image_size(p, ids, t->rank == 3 ? t->dim[1] : 0, size);
    if (row->form == WEFT_VIDEO_PACKED) { /* unknown number of frames has no effect here */
        size->frames = golden_number(p, "num_frames");
        size->height = golden_number(p, "height");
        size->width = golden_number(p, "width");
        if (size->frames && size->height && size->width)
            return WEFT_OK;
        size->frames = t->rank == 3 ? t->dim[1] : 0;
        size->height = size->width = 1;
        return WEFT_OK;
    }
    if (t->rank != 4 && t->rank != 5)
        return weft_error(WEFT_MSG_TENSOR_SHAPE,
                          WEFT_AT(.file = p->file, .key = t->name, WEFT_NUMBER(t->rank)),
                          "the tensor has %d dimensions, not 4 or 5", t->rank);
    weft_parity_size_video(t, row->form, size);
    return WEFT_OK;
}

void weft_parity_size_history(const weft_stored_tensor *t, weft_port port, weft_model_size *size)
{
    if (port < WEFT_PORT_HISTORY || port > WEFT_PORT_HISTORY_4X)
        return;
    size->history[port - WEFT_PORT_HISTORY] = t->rank == 5 ? t->dim[2] : 0;
    for (int d = 0; d < 2; d++)
        size->history_area[d] = t->rank == 5 ? t->dim[3 + d] : 0;
}

weft_status weft_parity_find_size(weft_parity *p)
{
    weft_model_size *size = &p->size;
    const weft_family *f = p->model.family;
    *size = (weft_model_size){.frames = 1};
    for (int i = 0; i < f->ports; i++) {
        const weft_port_row *row = &f->port[i];
        const weft_stored_tensor *t = row->output ? NULL : golden_input(p, row->port);
        if (!t)
            continue;
        if (t->rank < 1)
            return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = t->name),
                              "the tensor is a scalar; at least 1 dimension is needed");
        if (row->optional)
            size->present_ports |= (uint64_t)1 << row->port;
        if (row->port == WEFT_PORT_LATENTS || row->port == WEFT_PORT_VIDEO) {
            WEFT_TRY(find_video_size(p, row, t, size));
        } else if (row->port == WEFT_PORT_TEXT || row->port == WEFT_PORT_TOKENS) {
            if (t->rank < 2)
                return weft_error(WEFT_MSG_TENSOR_SHAPE,
                                  WEFT_AT(.file = p->file, .key = t->name, WEFT_NUMBER(t->rank)),
                                  "the tensor has %d dimension; at least 2 are needed", t->rank);
            size->batch = t->dim[0];
            size->text = t->dim[row->port == WEFT_PORT_TOKENS ? 1 : t->rank - 2];
        } else if (row->port == WEFT_PORT_TEXT2) {
            size->text2 = t->rank == 3 ? t->dim[1] : 0;
        } else if (row->port == WEFT_PORT_TIMESTEP && size->times < 2) {
            size->times = t->rank > 1 ? t->count / t->dim[0] : 1;
        } else if (row->port == WEFT_PORT_AUDIO) {
            size->audio = t->rank == 3 ? t->dim[1] : 0;
        } else if (row->port == WEFT_PORT_AUDIO_TIMESTEP) {
            size->audio_times = t->count / t->dim[0];
        } else if (row->port == WEFT_PORT_TEXT_LAYERS) {
            size->layers = t->dim[0];
            size->batch = t->rank == 4 ? t->dim[1] : size->batch;
            size->text = t->rank == 4 && !size->text ? t->dim[2] : size->text;
            size->text2 = t->rank == 4 ? t->dim[2] : 0;
        } else if (row->port == WEFT_PORT_SPECTROGRAM && t->rank == 4) {
            size->batch = t->dim[0];
            size->height = t->dim[2];
            size->width = t->dim[3];
        } else if (row->port == WEFT_PORT_EDITED) {
            const int64_t one = size->height * size->width;
            size->edited = t->rank == 3 && one > 0 ? t->dim[1] / one : 0;
        } else if (row->port == WEFT_PORT_IMAGE) {
            size->image = t->rank == 3 ? t->dim[1] : 0;
        }
        weft_parity_size_history(t, row->port, size);
    }
    return size->batch ? WEFT_OK
                       : weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = p->file),
                                    "the file has no input of a %s", weft_model_class(&p->model));
}
