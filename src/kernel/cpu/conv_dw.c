#include "kernel/cpu/conv_dw.h"

#include "base/memory.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"
#include "kernel/host.h"
#include "kernel/view.h"

#include <omp.h>

enum { DW_FLOATS = 1 << 16 }; /* floats of a run's dy; at least one frame */

/* Frames that tap kt of the kernel sees, in `segments` ranges. The whole batch is one range if the
 * tap sees every frame. */
typedef struct dw_tap {
    int64_t segments, frames; /* output frames of each segment */
    int64_t x_first, y_first; /* first frames; `x_step`, `y_step` from one segment to the next */
    int64_t x_step, y_step;
} dw_tap;

/* A run of `frames` by `outputs`. `adds`: adds to the sum of earlier runs. */
typedef struct dw_kind {
    int64_t frames, outputs;
    bool adds;
} dw_kind;

struct conv_dw_cache {
    int threads, kinds;
    bool several;                   /* some sum has several runs */
    int64_t packed, w_bytes, space; /* bytes per thread: dy of a run, its gradient, all scratch */
    dw_kind *kind;
    conv_cache **c; /* [thread][kind] */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static dw_tap dw_tap_of(const conv_shape *s, int64_t kt)
{
    const int64_t B = s->d.x.dim[0], T = s->d.x.dim[1], out = s->d.y.dim[1];
    const int64_t stride = s->d.attr->stride[0], offset = s->d.attr->before[0] - kt,
                  first = offset > 0 ? (offset + stride - 1) / stride : 0,
                  seen = T - 1 + offset < 0 ? 0 : least(out, (T - 1 + offset) / stride + 1);
    dw_tap tap = {B, seen > first ? seen - first : 0, first * stride - offset, first, T, out};
    if (stride == 1 && tap.frames == T && T == out) {
        tap.frames *= B;
        tap.segments = 1;
    }
    return tap;
}

/* Returns the outputs of a task. More outputs read x less often, but leave threads without work if
 * outputs are few. */
static int64_t dw_outputs(const conv_shape *s)
{
    return s->d.w.dim[0] * s->taps >= 12 * 64 ? 64 : 32;
}

/* Returns the frames of a run. */
static int64_t dw_run_frames(const conv_shape *s)
{
    const int64_t frames = DW_FLOATS / dw_outputs(s) / shape_span(&s->d.y, 2, 4);
    return frames < 1 ? 1 : frames;
}

/* Returns the convolution of one run. */
static conv_shape dw_shape(const conv_shape *whole, const dw_kind *kind, weft_attr_conv *attr)
{
    conv_shape s = *whole;
    *attr = *whole->d.attr;
    attr->before[0] = attr->after[0] = 0;
    s.adds = kind->adds;
    s.d.attr = attr;
    s.d.w.dim[0] = s.d.y.dim[4] = kind->outputs;
    s.d.w.dim[2] = 1;
    s.d.x.dim[0] = s.d.y.dim[0] = 1;
    s.d.x.dim[1] = (kind->frames - 1) * attr->stride[0] + 1;
    s.d.y.dim[1] = kind->frames;
    return s;
}

static int dw_find(const conv_dw_cache *c, const dw_kind *kind)
{
    int i = 0;
    while (i < c->kinds && (c->kind[i].frames != kind->frames ||
                            c->kind[i].outputs != kind->outputs || c->kind[i].adds != kind->adds))
        i++;
    return i;
}

/* Lists the kinds of all runs, each once: runs of full length, then the last, shorter run of a
 * tap. */
static void dw_kinds(const conv_shape *s, conv_dw_cache *c)
{
    const int64_t O = s->d.w.dim[0], run = dw_run_frames(s), step = dw_outputs(s);
    for (int64_t kt = 0; kt < s->taps; kt++) {
        const dw_tap tap = dw_tap_of(s, kt);
        const int64_t frames = tap.frames;
        c->several |= tap.segments > 1 || frames > run;
        for (int64_t o = 0; o < O; o += step) {
            const int64_t outputs = least(step, O - o);
            const dw_kind both[] = {{run, outputs, false}, {frames % run, outputs, frames >= run}};
            for (int i = frames < run; i < 2; i++)
                if (both[i].frames > 0 && dw_find(c, &both[i]) == c->kinds)
                    c->kind[c->kinds++] = both[i];
        }
    }
}

void conv_dw_release(void *cache)
{
    conv_dw_cache *c = cache;
    for (int i = 0; c && c->c && i < c->threads * c->kinds; i++)
        conv_release(c->c[i]);
    if (c)
        weft_free(c->c);
    if (c)
        weft_free(c->kind);
    weft_free(c);
}

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) & ~(int64_t)63;
}

weft_status_code conv_dw_open(const conv_shape *s, int threads, conv_dw_cache **cache)
{
    weft_status_code status = WEFT_OK;
    int64_t scratch = 0, frames = 0;
    *cache = NULL;
    conv_dw_cache *c;
    WEFT_TRY(WEFT_NEW(c, 1, "the primitives of conv3d_dw"));
    const int before = weft_host_set_threads(1); /* primitives are created for one thread */
    c->kind = weft_calloc((s->taps + 1) * 4, sizeof *c->kind);
    WEFT_GO(WEFT_ALLOCATED(c->kind, "the primitives of conv3d_dw"));
    dw_kinds(s, c);
    c->c = weft_alloc(threads * c->kinds * (int64_t)sizeof *c->c + 1);
    WEFT_GO(WEFT_ALLOCATED(c->c, "the primitives of conv3d_dw"));
    c->threads = threads;
    for (int i = 0; i < threads * c->kinds; i++) {
        weft_attr_conv attr;
        const dw_kind *kind = &c->kind[i % c->kinds];
        const conv_shape part = dw_shape(s, kind, &attr);
        WEFT_GO(conv_open(&part, &c->c[i]));
        c->w_bytes = c->w_bytes > c->c[i]->w_bytes ? c->w_bytes : c->c[i]->w_bytes;
        scratch = scratch > c->c[i]->scratch_bytes ? scratch : c->c[i]->scratch_bytes;
        frames = frames > kind->frames ? frames : kind->frames;
    }
    c->packed =
        round_up(frames * shape_span(&s->d.y, 2, 4) * dw_outputs(s) * weft_dtype_bytes(s->type));
    c->space = c->packed + (c->several ? 2 : 1) * c->w_bytes + round_up(scratch);
    *cache = c;
    c = NULL;
out:
    weft_host_set_threads(before);
    conv_dw_release(c);
    return status;
}

int64_t conv_dw_workspace(const conv_shape *s, int threads)
{
    conv_dw_cache *c;
    if (conv_dw_open(s, 1, &c) != WEFT_OK)
        return 0;
    const int64_t bytes = threads * c->space;
    conv_dw_release(c);
    return bytes;
}

int64_t conv_dw_opened_bytes(const conv_shape *s)
{
    conv_dw_cache c = {.kind = weft_calloc((s->taps + 1) * 4, sizeof *c.kind)};
    if (c.kind)
        dw_kinds(s, &c);
    weft_free(c.kind);
    return c.kinds * conv_opened_bytes(CONV_WEIGHTS, s->type);
}

/* Packs channels [o, o + outputs) of `positions` densely. `element`: bytes of an element. */
static void dw_pack(const char *dy, int64_t O, int64_t o, int64_t outputs, int64_t positions,
                    int64_t element, char *to)
{
    for (int64_t i = 0; i < positions; i++)
        memcpy(to + i * outputs * element, dy + (i * O + o) * element, (size_t)(outputs * element));
}

/* One task: outputs of tap kt, from `o` on. */
typedef struct dw_task {
    const conv_shape *s;
    const conv_dw_cache *c;
    char *x, *dy; /* of type s->type */
    float *dw;
    int64_t kt, o;
    int thread;
    char *space;
} dw_task;

/* Adds all runs of one kind. The first run starts at frame `from` of each segment. */
static weft_status_code dw_runs(const dw_task *t, const dw_tap *tap, const dw_kind *kind,
                                int64_t from, int64_t to)
{
    const conv_dw_cache *all = t->c;
    const conv_cache *c = all->c[t->thread * all->kinds + dw_find(all, kind)];
    const int64_t O = t->s->d.w.dim[0], I = t->s->d.w.dim[1],
                  element = weft_dtype_bytes(t->s->type),
                  x_frame = shape_span(&t->s->d.x, 2, 5) * element,
                  y_frame = shape_span(&t->s->d.y, 2, 5);
    char *packed = t->space;
    float *sum = (float *)(packed + all->packed),
          *next = all->several ? sum + all->w_bytes / 4 : sum, *scratch = next + all->w_bytes / 4;
    bool first = true;
    for (int64_t b = 0; b < tap->segments; b++)
        for (int64_t f = from; f < to; f += kind->frames, first = false) {
            const int64_t x_at = b * tap->x_step + tap->x_first + f * t->s->d.attr->stride[0],
                          y_at = b * tap->y_step + tap->y_first + f;
            dw_pack(t->dy + y_at * y_frame * element, O, t->o, kind->outputs,
                    kind->frames * y_frame / O, element, packed);
            WEFT_TRY(conv_multiply(c, CONV_WEIGHTS, t->x + x_at * x_frame, first ? sum : next,
                                   packed, NULL, scratch));
            if (!first)
                cpu_isa_get()->f32->column_sums(next, 1, c->w_bytes / 4, sum);
        }
    const int64_t tap_floats = shape_span(&t->s->d.w, 3, 5);
    dnnl_memory_set_data_handle(c->w, sum);
    dnnl_memory_set_data_handle(c->plain, t->dw + (t->o * I * t->s->taps + t->kt) * tap_floats);
    WEFT_TRY(conv_reorder_weights(c, c->w, c->plain));
    return conv_wait(c);
}

static weft_status_code dw_run_task(const dw_task *t)
{
    const dw_tap tap = dw_tap_of(t->s, t->kt);
    const int64_t run = dw_run_frames(t->s), whole = tap.frames / run * run,
                  outputs = least(dw_outputs(t->s), t->s->d.w.dim[0] - t->o);
    if (tap.frames == 0) { /* only padding */
        const int64_t I = t->s->d.w.dim[1], tap_floats = shape_span(&t->s->d.w, 3, 5);
        for (int64_t i = t->o * I; i < (t->o + outputs) * I; i++)
            memset(t->dw + (i * t->s->taps + t->kt) * tap_floats, 0,
                   (size_t)tap_floats * sizeof *t->dw);
    }
    if (whole > 0)
        WEFT_TRY(dw_runs(t, &tap, &(dw_kind){run, outputs, false}, 0, whole));
    if (tap.frames > whole)
        WEFT_TRY(dw_runs(t, &tap, &(dw_kind){tap.frames - whole, outputs, whole > 0}, whole,
                         tap.frames));
    return WEFT_OK;
}

weft_status_code conv_dw_execute(const weft_kernel_args *args, const conv_shape *s)
{
    const conv_dw_cache *c = args->cache;
    const int64_t outputs = dw_outputs(s), blocks = (s->d.w.dim[0] + outputs - 1) / outputs;
    const int threads = omp_in_parallel() ? 1 : c->threads;
    int failed = WEFT_OK;
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(max : failed)
    for (int64_t i = 0; i < blocks * s->taps; i++) {
        const int thread = omp_get_thread_num();
        const int status = dw_run_task(&(dw_task){
            .s = s,
            .c = c,
            .x = args->in[0].data,
            .dy = args->in[1].data,
            .dw = args->out[0].data,
            .kt = s->taps - 1 - i / blocks, /* long tasks first: the last tap sees most frames */
            .o = i % blocks * outputs,
            .thread = thread,
            .space = (char *)args->workspace + thread * c->space,
        });
        failed = status > failed ? status : failed;
    }
    return (weft_status_code)failed;
}
