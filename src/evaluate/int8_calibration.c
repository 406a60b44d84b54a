#include "evaluate/int8_calibration.h"

#include "base/log.h"
#include "base/memory.h"
#include "evaluate/image_metrics.h"
#include "evaluate/int8_smoothing.h"
#include "evaluate/video_set.h"
#include "generate/generator/int8_layers.h"
#include "kernel/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A layer that may be int8. */
typedef struct int8_candidate {
    const char *name; /* arena */
    double flops;
    bool scores;
    double *error; /* [prompts] mean squared error of a video; arena */
    double rate;   /* error of all videos per FLOP */
} int8_candidate;

/* The choice where all else computes in one precision. */
typedef struct int8_choice {
    bool bf16;
    double *plain, *all, *error; /* [prompts] errors without int8, of all layers, of the choice */
    json_t *layers;              /* kept and smoothed layers (int8_layers.h), owned */
} int8_choice;

typedef struct calibration {
    const weft_saving_eval_options *o;
    weft_video_request request;
    double goal; /* dB */
    weft_arena *arena;
    weft_video_set plain, other; /* in f32; of the last setting */
    int64_t layers;
    int8_candidate *layer;          /* arena */
    bool ranked;                    /* `layer` has errors and is sorted by rate */
    int8_choice choice[2];          /* in f32, in bf16 */
    weft_int8_smoothing *smoothing; /* owned */
    json_t *smoothed;               /* all smoothed layers, owned */
    weft_progress progress;
    int64_t runs; /* settings generated */
} calibration;

/* ---- errors of settings --------------------------------------------------------------------- */

/* Lists the layers of a generator with all layers in int8. CFG branches use a layer twice. */
static weft_status_code list_layers(void *user, const weft_generator *p)
{
    calibration *c = user;
    const int64_t count = weft_generator_int8_layers(p, NULL);
    weft_int8_layer *list;
    WEFT_TRY(WEFT_ARENA_NEW(c->arena, list, count + 1, "layers"));
    WEFT_TRY(WEFT_ARENA_NEW(c->arena, c->layer, count + 1, "layers"));
    weft_generator_int8_layers(p, list);
    c->layers = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        while (at < c->layers && strcmp(c->layer[at].name, list[i].name) != 0)
            at++;
        int8_candidate *to = &c->layer[at];
        to->flops += list[i].flops;
        if (at < c->layers)
            continue;
        to->name = weft_arena_strdup(c->arena, list[i].name);
        to->scores = list[i].scores;
        WEFT_TRY(WEFT_ARENA_NEW(c->arena, to->error, c->request.count, "layers"));
        WEFT_TRY(WEFT_ALLOCATED(to->name, "layers"));
        c->layers++;
    }
    return WEFT_OK;
}

/* Sets error[prompts] to the mean squared errors of the videos of a setting, against f32. Without
 * int8 (`layers` NULL), the smoothing is measured. */
static weft_status measure(calibration *c, const json_t *layers, bool bf16,
                           weft_video_set_fn *opened, double *error)
{
    weft_generator_options options = c->o->plain;
    options.weights = layers ? WEFT_WEIGHTS_INT8 : WEFT_WEIGHTS_AS_STORED;
    options.int8_layers = layers;
    options.bf16 = bf16;
    options.observe = layers ? NULL : weft_int8_smoothing_measure;
    options.observe_user = c->smoothing;
    WEFT_TRY(weft_video_set_generate(&c->request, &options, opened, c, &c->other));
    for (int64_t i = 0; i < c->request.count; i++)
        error[i] = 255.0 * 255.0 * pow(10, -weft_video_set_psnr(&c->plain, &c->other, i) / 10);
    weft_progress_update(&c->progress, ++c->runs, NULL);
    return WEFT_OK;
}

static double psnr_of(double error)
{
    return 10 * log10(255.0 * 255.0 / error);
}

/* Mean PSNR of the videos, and the least one. Identical videos count as 99 dB. */
static double mean_psnr(const double *error, int64_t count, double *least)
{
    double sum = 0;
    *least = INFINITY;
    for (int64_t i = 0; i < count; i++) {
        const double psnr = fmin(psnr_of(error[i]), 99);
        sum += psnr / (double)count;
        *least = fmin(*least, psnr);
    }
    return sum;
}

/* ---- errors of layers ----------------------------------------------------------------------- */

/* Measures a layer alone. Linear layers: in a model that else computes in f32, whose error does not
 * hide the layer's. Scores are int8 in bf16 only; the error of bf16 is subtracted. */
static weft_status measure_layer(calibration *c, int64_t index)
{
    int8_candidate *l = &c->layer[index];
    json_t *others = json_copy(c->smoothed);
    double sum = 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(others, "layers"));
    for (int64_t i = 0; i < c->layers; i++)
        if (strcmp(c->layer[i].name, l->name) != 0)
            WEFT_GO(WEFT_ALLOCATED(json_object_set_new(others, c->layer[i].name, json_true()) == 0,
                                   "layers"));
    WEFT_GO(measure(c, others, l->scores, NULL, l->error));
    for (int64_t i = 0; i < c->request.count; i++) {
        if (l->scores)
            l->error[i] = fmax(0, l->error[i] - c->choice[1].plain[i]);
        sum += l->error[i];
    }
    l->rate = sum / l->flops;
out:
    json_decref(others);
    return status;
}

static int by_rate(const void *a, const void *b)
{
    const int8_candidate *x = a, *y = b;
    return x->rate != y->rate ? (x->rate < y->rate ? 1 : -1) : strcmp(x->name, y->name);
}

/* Measures each layer, and sorts by the error per FLOP. */
static weft_status rank_layers(calibration *c)
{
    if (c->ranked)
        return WEFT_OK;
    for (int64_t i = 0; i < c->layers; i++)
        WEFT_TRY(measure_layer(c, i));
    qsort(c->layer, (size_t)c->layers, sizeof *c->layer, by_rate);
    c->ranked = true;
    return WEFT_OK;
}

/* ---- the choice ----------------------------------------------------------------------------- */

/* Decibels by which errors exceed the goal. The mean must meet the goal; the least may be 3 dB
 * less, and need not be higher than without int8. */
static double margin_of(const calibration *c, const int8_choice *choice, const double *error)
{
    enum { SPREAD = 3 };
    double least, best;
    const double mean = mean_psnr(error, c->request.count, &least);
    mean_psnr(choice->plain, c->request.count, &best);
    return fmin(mean - c->goal, least - fmin(c->goal - SPREAD, best - 1));
}

/* Predicted margin if the first `kept` layers are kept. */
static double predict(const calibration *c, const int8_choice *choice, int64_t kept)
{
    for (int64_t p = 0; p < c->request.count; p++) {
        choice->error[p] = choice->plain[p];
        for (int64_t i = kept; i < c->layers; i++)
            choice->error[p] += c->layer[i].error[p];
    }
    return margin_of(c, choice, choice->error);
}

static weft_status keep_first(const calibration *c, int64_t count, json_t *layers)
{
    for (int64_t i = 0; i < count; i++)
        WEFT_TRY(WEFT_ALLOCATED(json_object_set_new(layers, c->layer[i].name, json_true()) == 0,
                                "layers"));
    return WEFT_OK;
}

/* Keeps layers until the measured PSNR meets the goal, or all. Each round corrects the prediction
 * by the error of the last one. */
static weft_status choose(calibration *c, int8_choice *choice)
{
    double wanted = 0, margin = margin_of(c, choice, choice->all);
    int64_t count = 0;
    memcpy(choice->error, choice->all, (size_t)c->request.count * sizeof *choice->error);
    if (margin < 0)
        WEFT_TRY(rank_layers(c));
    while (margin < 0 && count < c->layers) {
        for (count++; count < c->layers && predict(c, choice, count) < wanted;)
            count++;
        WEFT_TRY(keep_first(c, count, choice->layers));
        WEFT_TRY(measure(c, choice->layers, choice->bf16, NULL, choice->error));
        margin = margin_of(c, choice, choice->error);
        wanted += fmax(0.25, -margin);
    }
    return WEFT_OK;
}

/* Measures the ends of a choice: no layer, and all layers in int8. The choice in bf16 is the first,
 * and its videos without int8 measure the smoothing. */
static weft_status begin_choice(calibration *c, bool bf16)
{
    int8_choice *choice = &c->choice[bf16];
    choice->bf16 = bf16;
    WEFT_TRY(WEFT_ARENA_NEW(c->arena, choice->plain, c->request.count, "errors"));
    WEFT_TRY(WEFT_ARENA_NEW(c->arena, choice->all, c->request.count, "errors"));
    WEFT_TRY(WEFT_ARENA_NEW(c->arena, choice->error, c->request.count, "errors"));
    if (bf16) {
        WEFT_TRY(measure(c, NULL, true, NULL, choice->plain));
        WEFT_TRY(weft_int8_smoothing_choose(c->smoothing, &c->smoothed));
    }
    choice->layers = json_copy(c->smoothed);
    WEFT_TRY(WEFT_ALLOCATED(choice->layers, "the choice of layers"));
    return measure(c, choice->layers, bf16, bf16 ? list_layers : NULL, choice->all);
}

static json_t *describe(const calibration *c, const int8_choice *choice)
{
    double flops[2] = {0}, least, ignored;
    const int64_t n = c->request.count;
    const double psnr = mean_psnr(choice->error, n, &least);
    json_t *kept = json_array();
    for (int64_t i = 0; i < c->layers; i++) {
        const bool keeps = json_is_true(json_object_get(choice->layers, c->layer[i].name));
        flops[keeps] += c->layer[i].flops;
        if (keeps)
            json_array_append_new(kept, json_string(c->layer[i].name));
    }
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:o}", "psnr", psnr, "psnr_least", least,
                     "psnr_none", mean_psnr(choice->plain, n, &ignored), "psnr_all",
                     mean_psnr(choice->all, n, &ignored), "flops",
                     flops[0] / fmax(flops[0] + flops[1], 1), "kept", kept);
}

/* The smoothed layers that may be int8. */
static json_t *describe_smoothed(const calibration *c)
{
    json_t *smoothed = json_object();
    for (int64_t i = 0; i < c->layers; i++) {
        json_t *steps = json_object_get(c->smoothed, c->layer[i].name);
        if (steps)
            json_object_set(smoothed, c->layer[i].name, steps);
    }
    return smoothed;
}

static weft_status report(const calibration *c, json_t **result)
{
    json_t *each[2] = {describe(c, &c->choice[0]), describe(c, &c->choice[1])};
    *result =
        json_pack("{s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "goal", c->goal, "prompts",
                  (json_int_t)c->request.count, "layers", (json_int_t)c->layers, "frames",
                  (json_int_t)c->plain.frames, "height", (json_int_t)c->plain.height, "width",
                  (json_int_t)c->plain.width, "steps", (json_int_t)c->o->plain.steps, "smoothed",
                  describe_smoothed(c), "f32", each[0], "bf16", each[1]);
    WEFT_TRY(WEFT_ALLOCATED(*result, "the choice of layers"));
    return weft_int8_choice_save(c->o->model, *result);
}

static weft_status calibrate(calibration *c, json_t **result)
{
    weft_generator_options options = c->o->plain;
    options.observe = weft_int8_smoothing_record;
    options.observe_user = c->smoothing;
    WEFT_TRY(weft_video_set_generate(&c->request, &options, NULL, NULL, &c->plain));
    WEFT_TRY(begin_choice(c, true));
    WEFT_TRY(begin_choice(c, false));
    c->progress.total = c->runs + c->layers;
    WEFT_TRY(choose(c, &c->choice[0]));
    WEFT_TRY(choose(c, &c->choice[1]));
    weft_progress_end(&c->progress, c->progress.total, NULL);
    return report(c, result);
}

/* Observers of the smoothing read operands, and a device that is apart has no kernels for int8. */
static weft_status check_backend(const weft_backend *backend)
{
    return weft_device_is_apart(weft_backend_device(backend))
               ? weft_error(WEFT_MSG_KERNEL_UNSUPPORTED,
                            WEFT_AT(.key = "--backend", .value = backend->name),
                            "weft eval int8 does not support backend %s; use --backend cpu",
                            backend->name)
               : WEFT_OK;
}

weft_status weft_calibrate_int8(const weft_saving_eval_options *options, double goal,
                                json_t **result)
{
    calibration c = {.o = options,
                     .goal = goal,
                     .request = {options->model, options->prompt, options->count, options->seed},
                     .arena = weft_arena_create()};
    weft_status_code status;
    WEFT_GO(WEFT_ALLOCATED(c.arena, "the choice of layers"));
    WEFT_GO(check_backend(options->plain.backend));
    WEFT_GO(weft_int8_smoothing_create(&c.smoothing));
    weft_progress_begin_late(&c.progress, "eval int8", 0);
    WEFT_GO(calibrate(&c, result));
out:
    weft_video_set_free(&c.plain);
    weft_video_set_free(&c.other);
    for (int i = 0; i < 2; i++)
        json_decref(c.choice[i].layers);
    json_decref(c.smoothed);
    weft_int8_smoothing_free(c.smoothing);
    weft_arena_free(c.arena);
    return status;
}
