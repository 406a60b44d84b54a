/* Videos made with fewer or cheaper steps beside those made with all of them. */
#include "base/log.h"
#include "generate/evaluate.h"
#include "generate/quality.h"
#include "model/lpips.h"
#include "runtime/runtime.h"
#include "video/image.h"

#include <math.h>
#include <string.h>

/* LPIPS of one frame. */
typedef struct judge {
    weft_graph *graph;
    weft_program *program;
    weft_store *store;
} judge;

typedef struct saving_eval {
    const weft_saving_eval_options *o;
    int64_t frames, height, width, bytes; /* of a video */
    uint8_t *plain, *other;               /* [count] videos */
    uint64_t *seed;
    judge judge;
    /* the run that goes on */
    uint8_t *to;
    double began, seconds;
    json_t *each;
} saving_eval;

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "out of memory for videos to compare");
}

/* ---- LPIPS ----------------------------------------------------------------------------------- */

/* Heads have their own file. Types and shapes were held against both. */
static weft_status load_judge(judge *j, const weft_tensors *trunk, const weft_tensors *heads)
{
    for (int64_t i = 0; i < weft_store_count(j->store); i++) {
        weft_tensor *t = weft_store_at(j->store, i);
        const weft_tensors *file = strncmp(t->name, "lin", 3) ? trunk : heads;
        const weft_stored_tensor *from = weft_tensors_find(file, t->name);
        if (!from || from->count != weft_shape_count(&t->shape))
            return weft_fail(WEFT_E_FORMAT, "%s: \"%s\" has another shape", weft_tensors_path(file),
                             t->name);
        WEFT_TRY(weft_stored_check_finite(from));
        weft_tensor_to_f32(from, t->data);
    }
    return WEFT_OK;
}

static weft_status open_judge(saving_eval *e)
{
    const weft_saving_eval_options *o = e->o;
    judge *j = &e->judge;
    weft_tensors *trunk = NULL, *heads = NULL;
    weft_lpips lpips;
    weft_status_code status = WEFT_OK;
    if (!o->lpips_trunk)
        return WEFT_OK;
    WEFT_GO(weft_tensors_open(o->lpips_trunk, &trunk));
    WEFT_GO(weft_lpips_read(trunk, "", &lpips));
    WEFT_GO(weft_tensors_open(o->lpips_heads, &heads));
    WEFT_GO(weft_lpips_check_heads(&lpips, heads, ""));
    if (e->height < weft_lpips_least(&lpips) || e->width < weft_lpips_least(&lpips))
        WEFT_GO(weft_fail(WEFT_E_ARG, "LPIPS needs frames of at least %lldx%lld pixels",
                          (long long)weft_lpips_least(&lpips),
                          (long long)weft_lpips_least(&lpips)));
    j->graph = weft_graph_create();
    j->store = weft_store_create();
    if (!j->graph || !j->store)
        WEFT_GO(no_memory());
    const weft_shape shape = WEFT_SHAPE(1, 1, e->height, e->width, 3);
    const weft_value x = weft_input(j->graph, "x", WEFT_F32, shape),
                     y = weft_input(j->graph, "y", WEFT_F32, shape);
    weft_lpips_distance far;
    weft_lpips_build(j->graph, &lpips, x, y, &far);
    weft_output(j->graph, "far", far.all);
    WEFT_GO(weft_graph_check(j->graph));
    WEFT_GO(weft_store_init(j->store, j->graph, 0));
    WEFT_GO(load_judge(j, trunk, heads));
    WEFT_GO(weft_program_compile(j->graph, &(weft_program_options){0}, &j->program));
    WEFT_GO(weft_program_bind(j->program, j->store, NULL));
out:
    weft_tensors_close(trunk);
    weft_tensors_close(heads);
    return status;
}

static weft_status perceive(saving_eval *e, const uint8_t *a, const uint8_t *b, double *far)
{
    const int64_t pixels = e->height * e->width * 3;
    float *x = weft_program_input(e->judge.program, "x")->data,
          *y = weft_program_input(e->judge.program, "y")->data;
    *far = 0;
    for (int64_t f = 0; f < e->frames; f++, a += pixels, b += pixels) {
        for (int64_t i = 0; i < pixels; i++) {
            x[i] = (float)a[i] / 127.5f - 1;
            y[i] = (float)b[i] / 127.5f - 1;
        }
        WEFT_TRY(weft_program_run(e->judge.program));
        *far += (double)*(float *)weft_program_output(e->judge.program, "far")->data /
                (double)e->frames;
    }
    return WEFT_OK;
}

/* ---- videos ---------------------------------------------------------------------------------- */

/* From the first prompt, or from the end of the video before, until it is denoised. */
static weft_status_code on_latents(void *user, int64_t prompt, const int64_t dim[4], const float *x)
{
    saving_eval *e = user;
    (void)prompt, (void)dim, (void)x;
    e->seconds += weft_now() - e->began;
    return WEFT_OK;
}

static weft_status_code on_frames(void *user, int64_t prompt, int64_t first_frame, int64_t count,
                                  const float *frames)
{
    saving_eval *e = user;
    weft_clip_to_u8(frames, count, e->height, e->width, false,
                    e->to + prompt * e->bytes + first_frame * e->height * e->width * 3);
    e->began = weft_now();
    return WEFT_OK;
}

static weft_status reserve(saving_eval *e, const weft_generator *p)
{
    const weft_generator_options *s = weft_generator_settings(p);
    const int64_t count = e->o->count;
    if (e->plain)
        return WEFT_OK;
    e->frames = s->frames;
    e->height = s->height;
    e->width = s->width;
    e->bytes = s->frames * s->height * s->width * 3;
    e->plain = weft_alloc(count * e->bytes);
    e->other = weft_alloc(count * e->bytes);
    e->seed = weft_alloc(count * (int64_t)sizeof *e->seed);
    if (!e->plain || !e->other || !e->seed)
        return no_memory();
    for (int64_t i = 0; i < count; i++)
        e->seed[i] = (uint64_t)(e->o->seed + i);
    return open_judge(e);
}

/* All prompts; *seconds of denoising a video. */
static weft_status make_videos(saving_eval *e, const weft_generator_options *options, bool plain,
                               double *seconds, weft_generator_saved *saved)
{
    weft_generator *p = NULL;
    const weft_generator_sink sink = {.latents = on_latents, .frames = on_frames, .user = e};
    weft_status_code status = weft_generator_open(e->o->model, options, NULL, &p);
    if (status == WEFT_OK)
        status = weft_generator_bind(p);
    if (status == WEFT_OK)
        status = reserve(e, p);
    if (status == WEFT_OK) {
        e->to = plain ? e->plain : e->other;
        e->seconds = 0;
        e->began = weft_now();
        status = weft_generator_run(p, e->o->prompt, e->seed, e->o->count, &sink);
        *seconds = e->seconds / (double)e->o->count;
        *saved = weft_generator_cache(p);
    }
    weft_generator_free(p);
    return status;
}

static weft_status compare(saving_eval *e, const char *name, double seconds, double plain,
                           const weft_generator_saved *saved)
{
    double least = INFINITY, ssim = 0, lpips = 0;
    weft_psnr_mean psnr = {0};
    const double n = (double)e->o->count;
    for (int64_t i = 0; i < e->o->count; i++) {
        const uint8_t *a = e->plain + i * e->bytes, *b = e->other + i * e->bytes;
        double one;
        const double p = weft_psnr(a, b, e->frames, e->height, e->width);
        weft_psnr_add(&psnr, p);
        least = p < least ? p : least;
        WEFT_TRY(weft_ssim(a, b, e->frames, e->height, e->width, &one));
        ssim += one / n;
        if (!e->judge.program)
            continue;
        WEFT_TRY(perceive(e, a, b, &one));
        lpips += one / n;
    }
    json_t *row = json_pack(
        "{s:s, s:f, s:f, s:o, s:o, s:I, s:f}", "name", name, "seconds", seconds, "speedup",
        plain / seconds, "psnr", weft_psnr_json(weft_psnr_mean_of(&psnr)), "psnr_least",
        weft_psnr_json(least), "identical", (json_int_t)psnr.identical, "ssim", ssim);
    if (saved->runs) {
        json_object_set_new(row, "reused", json_real((double)saved->reused / (double)saved->runs));
        json_object_set_new(row, "predicted", json_real(saved->predicted));
    }
    if (e->judge.program)
        json_object_set_new(row, "lpips", json_real(lpips));
    return json_array_append_new(e->each, row) ? no_memory() : WEFT_OK;
}

/* By turns with the plain one, the least of each. */
static weft_status judge_saving(saving_eval *e, int i, double *plain)
{
    double least[2] = {INFINITY, INFINITY}, seconds;
    const weft_saving *s = &e->o->saving[i];
    weft_generator_saved saved, none;
    for (int64_t k = 0; k < (e->o->least > 1 ? e->o->least : 1); k++) {
        if (k > 0 || i == 0) {
            WEFT_TRY(make_videos(e, &e->o->plain, true, &seconds, &none));
            *plain = seconds < *plain ? seconds : *plain;
        }
        WEFT_TRY(make_videos(e, &s->options, false, &least[1], &saved));
        least[0] = least[1] < least[0] ? least[1] : least[0];
    }
    weft_info("%s: %.3f s", s->name, least[0]);
    return compare(e, s->name, least[0], *plain, &saved);
}

weft_status weft_evaluate_savings(const weft_saving_eval_options *options, json_t **result)
{
    saving_eval e = {.o = options, .each = json_array()};
    double plain = INFINITY;
    weft_status_code status = e.each ? WEFT_OK : no_memory();
    for (int i = 0; i < options->savings && status == WEFT_OK; i++)
        status = judge_saving(&e, i, &plain);
    if (status == WEFT_OK)
        *result = json_pack("{s:f, s:O}", "seconds", plain, "each", e.each);
    json_decref(e.each);
    weft_program_free(e.judge.program);
    weft_store_free(e.judge.store);
    weft_graph_free(e.judge.graph);
    weft_free(e.plain);
    weft_free(e.other);
    weft_free(e.seed);
    return status;
}
