#include "parity/parity_images.h"

#include "base/json.h"

#include <stdio.h>

static int64_t tokens_of(const int64_t size[3])
{
    return size[0] * size[1] * size[2];
}

static weft_status refuse(const weft_parity *p)
{
    return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = p->file, .key = "img_shapes"),
                      "frames, rows and columns of 1 to %d images are needed, all positive",
                      WEFT_PARITY_IMAGES);
}

static weft_status check(const weft_parity *p, const weft_parity_images *images)
{
    for (int64_t i = 0; i < images->count; i++)
        for (int d = 0; d < 3; d++)
            if (images->size[i][d] < 1 || images->size[i][d] > 1 << 16)
                return refuse(p);
    return WEFT_OK;
}

static weft_status read_json(const weft_parity *p, const json_t *list, weft_parity_images *images)
{
    images->count = (int64_t)json_array_size(list);
    if (images->count < 1 || images->count > WEFT_PARITY_IMAGES)
        return refuse(p);
    for (int64_t i = 0; i < images->count; i++)
        for (int d = 0; d < 3; d++)
            images->size[i][d] =
                json_integer_value(json_array_get(json_array_get(list, (size_t)i), (size_t)d));
    return check(p, images);
}

weft_status weft_parity_read_images(const weft_parity *p, weft_parity_images *images)
{
    float values[3 * WEFT_PARITY_IMAGES];
    const weft_stored_tensor *t = weft_tensors_find(p->golden, "in.img_shapes");
    const json_t *list = json_object_get(p->json, "img_shapes");
    *images = (weft_parity_images){0};
    if (list)
        return read_json(p, list, images);
    if (!t)
        return WEFT_OK;
    if (t->rank != 2 || t->dim[1] != 3 || t->count < 3 || t->count > 3 * WEFT_PARITY_IMAGES)
        return refuse(p);
    weft_tensor_to_f32(t, values);
    images->count = t->dim[0];
    for (int64_t i = 0; i < t->count; i++)
        images->size[i / 3][i % 3] = (int64_t)values[i];
    return check(p, images);
}

void weft_parity_size_video(const weft_stored_tensor *video, weft_video_form form,
                            weft_model_size *size)
{
    const bool channels_last = form == WEFT_VIDEO_BTYXC;
    const int frames_at = channels_last || form == WEFT_VIDEO_BTCYX ? 1 : 2;
    size->frames = video->rank == 4 ? 1 : video->dim[frames_at];
    size->height = video->dim[video->rank - 2 - channels_last];
    size->width = video->dim[video->rank - 1 - channels_last];
}

void weft_parity_size_images(const weft_parity_images *images, int64_t side, weft_model_size *size)
{
    int64_t tokens = 0;
    for (int64_t i = 0; i < images->count; i++)
        tokens += tokens_of(images->size[i]);
    const bool one = images->count == 1;
    size->frames = one ? images->size[0][0] : 1;
    size->height = side * (one ? images->size[0][1] : 1);
    size->width = side * (one ? images->size[0][2] : tokens);
    if (one)
        return;
    size->present_ports |= (uint64_t)1 << WEFT_PORT_POSITIONS;
    size->times = tokens;
}

/* Sets the positions at[3][all] of one image from token `first` on, counted from its centre. */
static void place_image(const int64_t size[3], int64_t frame, int64_t first, int64_t all, float *at)
{
    for (int64_t s = 0; s < tokens_of(size); s++) {
        const int64_t row = s / size[2] % size[1], column = s % size[2];
        at[first + s] = (float)(frame + (frame < 0 ? 0 : s / (size[1] * size[2])));
        at[all + first + s] = (float)(row - (size[1] - size[1] / 2));
        at[2 * all + first + s] = (float)(column - (size[2] - size[2] / 2));
    }
}

/* Image k begins at frame k. With "use_layer3d_rope" the last image has the frame -1, and the text
 * begins after the number of the others at the earliest. */
static void fill_positions(const weft_parity *p, const weft_parity_images *images, weft_tensor *to)
{
    const json_t *nested = json_object_get(p->json, "config");
    const bool layered =
        json_is_true(json_object_get(nested ? nested : p->json, "use_layer3d_rope"));
    const int64_t all = to->shape.dim[2], last = images->count - 1;
    int64_t first = 0, after = layered ? last : 0;
    float *at = to->data;
    for (int64_t i = 0; i <= last; i++) {
        const int64_t *size = images->size[i];
        place_image(size, layered && i == last ? -1 : i, first, all, at);
        first += tokens_of(size);
        for (int d = 1; d < 3; d++)
            after = size[d] / 2 > after ? size[d] / 2 : after;
    }
    for (int64_t d = 0; d < 3; d++)
        for (int64_t s = first; s < all; s++)
            at[d * all + s] = (float)(after + s - first);
    for (int64_t i = 3 * all; i < weft_shape_count(&to->shape); i++)
        at[i] = at[i - 3 * all];
}

static weft_status fill_times(const weft_parity *p, const weft_parity_images *images,
                              const weft_stored_tensor *from, double unit, weft_tensor *to)
{
    const int64_t tokens = to->shape.dim[1], own = tokens_of(images->size[0]);
    float *time;
    WEFT_TRY(WEFT_NEW(time, from->count + 1, "%s", p->file));
    weft_tensor_to_f32(from, time);
    for (int64_t i = 0; i < weft_shape_count(&to->shape); i++)
        ((float *)to->data)[i] =
            i % tokens < own ? time[i / tokens % from->count] * (unit != 0 ? (float)unit : 1) : 0;
    weft_free(time);
    return WEFT_OK;
}

weft_status weft_parity_fill_images(const weft_parity *p, const weft_port_row *row, weft_tensor *to,
                                    bool *filled)
{
    char golden[160];
    weft_parity_images images;
    snprintf(golden, sizeof golden, "in.%s", row->reference);
    const weft_stored_tensor *t = weft_tensors_find(p->golden, golden);
    WEFT_TRY(weft_parity_read_images(p, &images));
    *filled = images.count && row->port == WEFT_PORT_POSITIONS;
    if (*filled)
        fill_positions(p, &images, to);
    if (!t || row->port != WEFT_PORT_TIMESTEP || to->shape.rank != 2 || images.count < 2)
        return WEFT_OK;
    *filled = true;
    return fill_times(p, &images, t, row->unit, to);
}
