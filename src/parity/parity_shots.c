/* weft parity of the shot detector: logits of the first window, probabilities of every frame, and
 * the resulting shots. */
#include "parity/parity_shots.h"

#include "parity/parity.h"

#include "curate/shots/transnet.h"

#include <stdio.h>
#include <string.h>

enum { KINDS = 2 };
static const double tolerance = 1e-4; /* absolute for probabilities, relative for logits */
static const double threshold = 0.5;

/* Probabilities of one kind of transition, and the resulting shots. */
typedef struct detected_shots {
    float *probability; /* [frames] */
    weft_transnet_run run;
    int64_t (*shot)[2], shots, capacity, begin;
} detected_shots;

typedef struct detection {
    weft_transnet *network;
    detected_shots of[KINDS];                 /* single, many */
    float first[KINDS][WEFT_TRANSNET_WINDOW]; /* logits of the first window */
    int64_t frames;
} detection;

static const char *const out_names[KINDS] = {"out.single_frame", "out.many_hot"},
                         *const logit_names[KINDS] = {"out.window0_single_logits",
                                                      "out.window0_many_logits"},
                         *const scene_names[KINDS] = {"scenes", "scenes_many_hot"};

static weft_status add_shot(detected_shots *h, int64_t first, int64_t last)
{
    WEFT_TRY(weft_grow((void **)&h->shot, h->shots, &h->capacity, sizeof *h->shot));
    h->shot[h->shots][0] = first;
    h->shot[h->shots++][1] = last;
    return WEFT_OK;
}

static weft_status add_probability(detected_shots *h, int64_t frame, float probability)
{
    const bool was = h->run.on, ends = weft_transnet_run_add(&h->run, frame, probability);
    h->probability[frame] = probability;
    if (!was && h->run.on && frame > 0)
        WEFT_TRY(add_shot(h, h->begin, frame));
    if (ends)
        h->begin = frame;
    return WEFT_OK;
}

static weft_status listen(void *user, const weft_transnet_said *result)
{
    detection *d = user;
    for (int k = 0; k < KINDS && result->frame == 0; k++)
        memcpy(d->first[k], weft_transnet_logits(d->network, k == 1), sizeof d->first[k]);
    WEFT_TRY(add_probability(&d->of[0], result->frame, result->single));
    return add_probability(&d->of[1], result->frame, result->many);
}

static weft_status detect(weft_parity *p, const weft_tensors *weights, const char *prefix,
                          const weft_stored_tensor *frames, detection *d)
{
    WEFT_TRY(weft_transnet_create(weights, prefix, p->backend, 0, listen, d, &d->network));
    const uint8_t *rgb = frames->data;
    for (int64_t i = 0; i < d->frames; i++)
        WEFT_TRY(weft_transnet_push(d->network, rgb + i * WEFT_TRANSNET_BYTES));
    WEFT_TRY(weft_transnet_finish(d->network));
    for (int k = 0; k < KINDS; k++)
        if (!d->of[k].run.on || !d->of[k].shots)
            WEFT_TRY(add_shot(&d->of[k], d->of[k].run.on ? 0 : d->of[k].begin, d->frames - 1));
    return WEFT_OK;
}

static weft_status compare_numbers(weft_parity *p, const char *name, const float *actual,
                                   int64_t count, bool relative, double *worst)
{
    const weft_stored_tensor *t;
    WEFT_TRY(weft_parity_need(p, name, &t));
    if (t->count != count)
        return weft_error(WEFT_MSG_TENSOR_SHAPE,
                          WEFT_AT(.file = p->file, .key = name, WEFT_NUMBER(t->count)),
                          "the tensor has %" PRId64 " elements, not %" PRId64, t->count, count);
    float *expected;
    WEFT_TRY(WEFT_NEW(expected, count + 1, "%s", p->file));
    weft_tensor_to_f32(t, expected);
    weft_parity_judge(p, "output", name + 4, actual, expected, count,
                      relative ? weft_parity_norm(expected, count) : 1, tolerance, worst);
    weft_free(expected);
    return WEFT_OK;
}

static void compare_shots(weft_parity *p, const char *name, const detected_shots *h)
{
    const json_t *list = json_object_get(p->json, name), *shot;
    size_t i;
    if (!list)
        return;
    bool same = (int64_t)json_array_size(list) == h->shots;
    json_array_foreach(list, i, shot) for (size_t k = 0; same && k < 2; k++) same =
        json_integer_value(json_array_get(shot, k)) == h->shot[i][k];
    weft_parity_count(p, name, !same);
    if (!same || p->verbose)
        weft_parity_say(p, "  shots    %-60s %" PRId64 ", %s", name, h->shots,
                        same ? "the same" : "not the reference's  FAIL");
}

/* Compares the sizes in the file with the sizes of the weights. */
static weft_status compare_sizes(const weft_parity *p, const weft_transnet_config *c)
{
    const struct {
        const char *key;
        int64_t actual;
    } size[] = {{"F", c->filters},
                {"L", c->stacks},
                {"S", c->blocks},
                {"D", c->dense},
                {"lookup_window", c->lookup},
                {"similarity_dim", c->similarity},
                {"output_dim", c->output}};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        const json_t *said = json_object_get(p->json, size[i].key);
        if (said && json_integer_value(said) != size[i].actual)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                              WEFT_AT(.file = p->config_file, .key = size[i].key,
                                      WEFT_NUMBER(json_integer_value(said))),
                              "%" JSON_INTEGER_FORMAT
                              " does not match the weights, which have %" PRId64,
                              json_integer_value(said), size[i].actual);
    }
    return WEFT_OK;
}

static weft_status compare_with(weft_parity *p, const weft_tensors *weights, const char *prefix)
{
    detection d = {0};
    double worst = 0;
    const weft_stored_tensor *frames;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_parity_need(p, "in.frames", &frames));
    d.frames = frames->count / WEFT_TRANSNET_BYTES;
    if (frames->dtype != WEFT_U8 || frames->count % WEFT_TRANSNET_BYTES || d.frames < 1)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = "in.frames"),
                          "the tensor does not hold u8 images of %d x %d pixels",
                          WEFT_TRANSNET_WIDTH, WEFT_TRANSNET_HEIGHT);
    for (int k = 0; k < KINDS; k++) {
        d.of[k].probability = weft_calloc(d.frames, sizeof(float));
        d.of[k].run.threshold = threshold;
        WEFT_GO(WEFT_ALLOCATED(d.of[k].probability, "%s", p->file));
    }
    WEFT_GO(detect(p, weights, prefix, frames, &d));
    WEFT_GO(compare_sizes(p, weft_transnet_sizes(d.network)));
    for (int k = 0; k < KINDS; k++) {
        if (weft_tensors_find(p->golden, logit_names[k]))
            WEFT_GO(
                compare_numbers(p, logit_names[k], d.first[k], WEFT_TRANSNET_WINDOW, true, &worst));
        WEFT_GO(compare_numbers(p, out_names[k], d.of[k].probability, d.frames, false, &worst));
        compare_shots(p, scene_names[k], &d.of[k]);
    }
    weft_parity_measured(p, "logits and probabilities", worst, tolerance);
out:
    weft_transnet_free(d.network);
    for (int k = 0; k < KINDS; k++) {
        weft_free(d.of[k].probability);
        weft_free(d.of[k].shot);
    }
    return status;
}

static bool is_shots(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    return name && !strcmp(name, "TransNetV2");
}

static weft_status compare(weft_parity *p)
{
    weft_tensors *weights;
    if (!p->weights_file && weft_tensors_find(p->golden, "param.fc1.weight"))
        return compare_with(p, p->golden, "param.");
    if (!p->weights_file) {
        const json_t *said = json_object_get(p->json, "weights");
        p->record.needs = "--weights";
        const char *get = json_string_value(json_object_get(said, "get"));
        return weft_error(
            WEFT_MSG_FILE_NOT_FOUND, WEFT_AT(.file = p->config_file, .key = "weights"),
            "the weights are not in the reference file; give them with --weights FILE%s%s",
            get ? ". To get them: " : "", get ? get : "");
    }
    WEFT_TRY(weft_tensors_open(p->weights_file, &weights));
    const weft_status_code status = compare_with(p, weights, "");
    weft_tensors_close(weights);
    return status;
}

const weft_parity_kind weft_parity_shots = {"shots", is_shots, compare};
