#include "curate/operators/text_scorer.h"

#include "base/memory.h"
#include "curate/operators/onnx_model.h"
#include "curate/operators/text_boxes.h"
#include "video/image.h"

#include <math.h>

enum { MULTIPLE = 32 }; /* the network halves its input five times */

struct weft_text_scorer {
    const weft_operator_config *config;
    weft_onnx_model *model;
    float *input; /* [3, height, width] of one frame; owned */
    int64_t capacity;
};

weft_status weft_text_scorer_open(const weft_operator_config *config, weft_text_scorer **scorer)
{
    weft_text_scorer *s;
    WEFT_TRY(WEFT_NEW(s, 1, "a model"));
    s->config = config;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_onnx_model_open(config->text, &s->model));
    *scorer = s;
out:
    if (status != WEFT_OK)
        weft_text_scorer_close(s);
    return status;
}

void weft_text_scorer_close(weft_text_scorer *s)
{
    if (!s)
        return;
    weft_onnx_model_close(s->model);
    weft_free(s->input);
    weft_free(s);
}

static int64_t round_side(int64_t side)
{
    const int64_t rounded = (side + MULTIPLE / 2) / MULTIPLE * MULTIPLE;
    return rounded < MULTIPLE ? MULTIPLE : rounded;
}

/* The network's input: blue, green, red in [-1, 1]. */
static weft_status make_input(weft_text_scorer *s, const uint8_t *rgb, const weft_shot_frames *f,
                              const int64_t size[2])
{
    const int64_t area = size[0] * size[1];
    if (s->capacity < area) {
        weft_free(s->input);
        WEFT_TRY(WEFT_NEW(s->input, 3 * area, "the input of a model"));
        s->capacity = area;
    }
    uint8_t *scaled;
    WEFT_TRY(WEFT_NEW(scaled, 3 * area, "the input of a model"));
    weft_image_resize(rgb, f->width, f->height, 3, scaled, size[0], size[1]);
    for (int64_t i = 0; i < 3 * area; i++)
        s->input[(2 - i % 3) * area + i / 3] = (float)(scaled[i] / 127.5 - 1);
    weft_free(scaled);
    return WEFT_OK;
}

static void add_boxes(const weft_text_box *box, int64_t count, int64_t frame, const int64_t size[2],
                      json_t *to)
{
    for (int64_t i = 0; i < count; i++) {
        json_t *row = json_pack("[I]", (json_int_t)frame);
        for (int k = 0; k < 4; k++) {
            const double x = fmin(fmax(box[i].x[k] / (double)size[0], 0), 1),
                         y = fmin(fmax(box[i].y[k] / (double)size[1], 0), 1);
            json_array_append_new(row, json_real(x));
            json_array_append_new(row, json_real(y));
        }
        json_array_append_new(to, row);
    }
}

/* Boxes of the frames of a shot. */
typedef struct frame_boxes {
    weft_text_box *box[WEFT_COUNT(((weft_shot_frames *)0)->index)]; /* owned */
    int64_t count[WEFT_COUNT(((weft_shot_frames *)0)->index)];
} frame_boxes;

static weft_status find_boxes(weft_text_scorer *s, const weft_shot_frames *f, int64_t i,
                              const int64_t size[2], frame_boxes *found)
{
    const float *map;
    int64_t count;
    WEFT_TRY(make_input(s, f->rgb + i * f->width * f->height * 3, f, size));
    WEFT_TRY(weft_onnx_model_run(s->model, s->input, size[0], size[1], &map, &count));
    if (count != size[0] * size[1])
        return weft_error(WEFT_MSG_ONNX_MODEL, WEFT_AT(.file = s->config->text, WEFT_NUMBER(count)),
                          "the output has %" PRId64 " elements; a text detector returns one for "
                          "each of the %" PRId64 " pixels",
                          count, size[0] * size[1]);
    return weft_text_boxes_find(map, size[0], size[1], &found->box[i], &found->count[i]);
}

/* The rows that remain, and the share of text there: all frames have the same crop. */
static weft_status judge(const weft_text_scorer *s, const weft_shot_frames *f,
                         const int64_t size[2], const frame_boxes *found, weft_text_found *to)
{
    int64_t rows[2] = {0, size[1]};
    for (int64_t i = 0; i < f->count && s->config->crop > 0; i++)
        weft_text_boxes_narrow(found->box[i], found->count[i], size[1], s->config->crop, rows);
    for (int64_t i = 0; i < f->count; i++) {
        double share;
        WEFT_TRY(weft_text_boxes_area(found->box[i], found->count[i], size[0], rows, &share));
        to->share += share / (double)f->count;
        add_boxes(found->box[i], found->count[i], f->index[i], size, to->boxes);
    }
    for (int k = 0; k < 2; k++)
        to->rows[k] = (double)rows[k] / (double)size[1];
    return WEFT_OK;
}

weft_status weft_text_scorer_score(weft_text_scorer *s, const weft_shot_frames *f,
                                   weft_text_found *to)
{
    const int64_t size[2] = {round_side(f->width), round_side(f->height)};
    frame_boxes found = {0};
    *to = (weft_text_found){.boxes = json_array()};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(to->boxes, "text boxes"));
    for (int64_t i = 0; i < f->count; i++)
        WEFT_GO(find_boxes(s, f, i, size, &found));
    WEFT_GO(judge(s, f, size, &found, to));
out:
    for (int64_t i = 0; i < f->count; i++)
        weft_free(found.box[i]);
    if (status != WEFT_OK) {
        json_decref(to->boxes);
        to->boxes = NULL;
    }
    return status;
}
