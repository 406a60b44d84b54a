#include "curate/operators/onnx_scorer.h"

#include "base/memory.h"
#include "curate/operators/onnx_model.h"
#include "video/image.h"

#include <math.h>
#include <string.h>

struct weft_onnx_scorer {
    const weft_operator_config *config;
    weft_onnx_model *model;
    float *input; /* [3, height, width] of one frame; owned */
    int64_t capacity;
    uint8_t *scaled; /* owned; [height, width, 3] */
};

/* Converts a frame to the model's input: the largest centre of the model's aspect, scaled. */
static weft_status make_input(weft_onnx_scorer *s, const uint8_t *rgb, int64_t fw, int64_t fh,
                              int64_t w, int64_t h)
{
    const double *mean = s->config->mean.item, *std = s->config->std.item;
    const int64_t cw = fw * h > fh * w ? fh * w / h : fw, ch = fw * h > fh * w ? fh : fw * h / w;
    if (!s->input || s->capacity < w * h) {
        weft_free(s->input);
        weft_free(s->scaled);
        s->scaled = NULL;
        WEFT_TRY(WEFT_NEW(s->input, 3 * w * h, "the input of a model"));
        WEFT_TRY(WEFT_NEW(s->scaled, 3 * w * h, "the input of a model"));
        s->capacity = w * h;
    }
    uint8_t *centre;
    WEFT_TRY(WEFT_NEW(centre, cw * ch * 3, "a frame"));
    for (int64_t y = 0; y < ch; y++)
        memcpy(centre + y * cw * 3, rgb + (((fh - ch) / 2 + y) * fw + (fw - cw) / 2) * 3,
               (size_t)(cw * 3));
    weft_image_resize(centre, cw, ch, 3, s->scaled, w, h);
    weft_free(centre);
    for (int c = 0; c < 3; c++)
        for (int64_t i = 0; i < w * h; i++)
            s->input[c * w * h + i] = (float)((s->scaled[3 * i + c] / 255.0 - mean[c]) / std[c]);
    return WEFT_OK;
}

weft_status weft_onnx_scorer_open(const weft_operator_config *config, weft_onnx_scorer **scorer)
{
    weft_onnx_scorer *s;
    WEFT_TRY(WEFT_NEW(s, 1, "a model"));
    s->config = config;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_onnx_model_open(config->onnx, &s->model));
    *scorer = s;
out:
    if (status != WEFT_OK)
        weft_onnx_scorer_close(s);
    return status;
}

void weft_onnx_scorer_close(weft_onnx_scorer *s)
{
    if (!s)
        return;
    weft_onnx_model_close(s->model);
    weft_free(s->input);
    weft_free(s->scaled);
    weft_free(s);
}

static weft_status score_frame(weft_onnx_scorer *s, int64_t w, int64_t h, double *value)
{
    const float *output;
    int64_t count;
    WEFT_TRY(weft_onnx_model_run(s->model, s->input, w, h, &output, &count));
    if (s->config->output >= count)
        return weft_error(
            WEFT_MSG_ONNX_MODEL, WEFT_AT(.file = s->config->onnx, WEFT_NUMBER(s->config->output)),
            "the first output has %" PRId64 " elements, and element %" PRId64 " is needed (output)",
            count, s->config->output);
    *value = output[s->config->output];
    return WEFT_OK;
}

weft_status weft_onnx_scorer_score(weft_onnx_scorer *s, const weft_shot_frames *f, double *score)
{
    int64_t w, h;
    double sum = 0, value = 0;
    weft_onnx_model_size(s->model, &w, &h);
    w = w ? w : f->width;
    h = h ? h : f->height;
    for (int64_t i = 0; i < f->count; i++) {
        WEFT_TRY(make_input(s, f->rgb + i * f->width * f->height * 3, f->width, f->height, w, h));
        WEFT_TRY(score_frame(s, w, h, &value));
        sum += value / (double)f->count;
    }
    *score = sum;
    return isfinite(sum) ? WEFT_OK
                         : weft_error(WEFT_MSG_SCORER_FAILED, WEFT_AT(.key = s->config->name),
                                      "the model's output is not a finite number");
}
