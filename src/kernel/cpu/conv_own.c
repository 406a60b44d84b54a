/* Blocks and tasks of the kernels in conv.inc. Tasks depend on the shapes only. Partial weight
 * gradients are summed in task order, so results do not depend on the number of threads. */
#include "kernel/cpu/conv_own.h"

#include "kernel/cpu/gemm.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"

enum {
    POSITIONS = 256, /* positions per block, enough to amortise loading and storing dW */
    MAX_PARTS = 16,
    PART_BYTES = 48 << 20, /* maximum bytes of all partial gradients */
};

static int64_t round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Copies n elements of f32 or bf16 to f32. */
static void to_f32(weft_dtype dtype, const void *from, float *to, int64_t n)
{
    if (dtype == WEFT_F32)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        cpu_widen_run(dtype, from, to, n);
}

/* ---- weight gradient ------------------------------------------------------------------------- */

typedef struct dw_plan {
    int64_t rows, blocks_per_frame, blocks, parts;
    int64_t outputs, window; /* padded sizes */
    int64_t x_width, x_rows; /* packed sizes, with padding */
    int64_t part_floats, x_floats, dy_floats, row_floats;
} dw_plan;

/* `pairs`: see dw_task. */
static dw_plan plan_dw(const conv_dims *c, bool pairs)
{
    const int64_t O = c->w.dim[0], I = c->w.dim[1], kt = c->w.dim[2], kh = c->w.dim[3],
                  kw = c->w.dim[4];
    const int64_t Y = c->y.dim[2], X = c->y.dim[3];
    dw_plan p = {.rows = least(Y, (POSITIONS + X - 1) / X)};
    p.blocks_per_frame = (Y + p.rows - 1) / p.rows;
    p.blocks = c->y.dim[0] * c->y.dim[1] * p.blocks_per_frame;
    p.outputs = O <= 4 ? 4 : round_up(O, 8);
    p.window = round_up(kw * I, 16);
    p.x_width = (X - 1) * c->attr->stride[2] + kw;
    p.x_rows = (p.rows - 1) * c->attr->stride[1] + kh;
    p.part_floats = kh * p.outputs * p.window; /* floats of one kt */
    p.x_floats = round_up(p.x_rows * p.x_width * I + 6 * 16 + p.window, 16);
    p.dy_floats = p.rows * (pairs ? (X + 1) / 2 : X) * p.outputs;
    if (pairs)
        p.row_floats = round_up((p.x_width + c->attr->stride[2]) * I + O, 32) / 2;
    p.parts = least(least(MAX_PARTS, p.blocks), PART_BYTES / (kt * p.part_floats * 4));
    p.parts = p.parts < 1 ? 1 : p.parts;
    return p;
}

/* Floats of a task: its gradient, packed x and dy, and an input row in bf16 followed by O zeros. */
static int64_t dw_task_floats(const dw_plan *p)
{
    return p->part_floats + p->x_floats + p->dy_floats + p->row_floats;
}

/* Whether the kernels multiply pairs of bf16 of operands with types a and b. */
static bool has_pairs(weft_dtype a, weft_dtype b)
{
    return cpu_isa_get()->bf16_units && a == WEFT_BF16 && b == WEFT_BF16;
}

int64_t conv_own_dw_workspace(const conv_dims *c, weft_dtype x, weft_dtype dy)
{
    const dw_plan p = plan_dw(c, has_pairs(x, dy));
    return p.parts * c->w.dim[2] * dw_task_floats(&p) * 4;
}

/* Operands of a task, and its packed blocks. With `pairs`, an element of a packed block is a pair
 * of bf16, of this position and the next output's. Products of pairs then need half the
 * positions. */
typedef struct dw_task {
    const conv_dims *c;
    const dw_plan *p;
    const cpu_isa *isa;
    const weft_view *x, *dy;
    bool pairs;
    float *part, *packed_x, *packed_dy;
    uint16_t *row;
} dw_task;

/* The columns of a packed row that are inside the frame: `before` columns of padding, then `real`
 * columns from column `from` on. */
typedef struct row_span {
    int64_t width, before, from, real;
} row_span;

static row_span span_of(int64_t W, int64_t x0, int64_t width)
{
    row_span s = {.width = width, .before = x0 < 0 ? least(-x0, width) : 0};
    s.from = x0 + s.before;
    s.real = s.from < W ? least(width - s.before, W - s.from) : 0;
    return s;
}

/* Packs a row of the frame (columns, I) with zeros outside the frame. NULL: the row is outside. */
static void pack_row(const dw_task *t, const char *row, const row_span *s, float *to)
{
    const int64_t I = t->c->w.dim[1], element = weft_dtype_bytes(t->x->dtype),
                  step = t->c->attr->stride[2] * I;
    if (!row) {
        memset(to, 0, (size_t)(s->width * I) * sizeof *to);
        return;
    }
    if (t->pairs) {
        memcpy(t->row + s->before * I, row + s->from * I * element,
               (size_t)(s->real * I * element));
        t->isa->conv_pairs(t->row, t->row + step, s->width * I, (uint32_t *)(void *)to);
        return;
    }
    memset(to, 0, (size_t)(s->before * I) * sizeof *to);
    to_f32(t->x->dtype, row + s->from * I * element, to + s->before * I, s->real * I);
    memset(to + (s->before + s->real) * I, 0,
           (size_t)((s->width - s->before - s->real) * I) * sizeof *to);
}

/* Packs `count` input rows from y0 on. */
static void pack_input(const dw_task *t, const char *frame, int64_t y0, int64_t count)
{
    const conv_dims *c = t->c;
    const int64_t H = c->x.dim[2], W = c->x.dim[3], I = c->x.dim[4],
                  bytes = W * I * weft_dtype_bytes(t->x->dtype);
    const row_span s = span_of(W, -c->attr->before[2], t->p->x_width);
    for (int64_t r = 0; r < count; r++) {
        const int64_t y = y0 + r;
        pack_row(t, y < 0 || y >= H ? NULL : frame + y * bytes, &s, t->packed_x + r * s.width * I);
    }
}

/* Packs the gradients of `rows` output rows, with zeros for padded outputs. */
static void pack_gradient(const dw_task *t, const char *from, int64_t rows)
{
    const int64_t O = t->c->w.dim[0], X = t->c->y.dim[3], outputs = t->p->outputs,
                  element = weft_dtype_bytes(t->dy->dtype);
    const uint16_t *zeros = t->row + 2 * t->p->row_floats - O;
    float *to = t->packed_dy;
    if (!t->pairs && outputs == O) {
        to_f32(t->dy->dtype, from, to, rows * X * O);
        return;
    }
    for (int64_t r = 0; r < rows; r++, from += X * O * element)
        for (int64_t w = 0; w < X; w += t->pairs ? 2 : 1, to += outputs) {
            const char *at = from + w * O * element;
            if (t->pairs)
                t->isa->conv_pairs((const uint16_t *)(const void *)at,
                                   w + 1 < X ? (const uint16_t *)(const void *)at + O : zeros, O,
                                   (uint32_t *)(void *)to);
            else if (t->dy->dtype == WEFT_F32)
                memcpy(to, at, (size_t)O * sizeof *to);
            else /* without a call: few outputs are padded */
                for (int64_t o = 0; o < O; o++)
                    to[o] = weft_bf16_to_f32(((const uint16_t *)(const void *)at)[o]);
            memset(to + O, 0, (size_t)(outputs - O) * sizeof *to);
        }
}

static void dw_block(const dw_task *t, int64_t block, int64_t kt)
{
    const conv_dims *c = t->c;
    const dw_plan *p = t->p;
    const weft_attr_conv *a = c->attr;
    const int64_t O = c->w.dim[0], I = c->w.dim[1], kh = c->w.dim[3], Y = c->y.dim[2],
                  X = c->y.dim[3];
    const int64_t frame = block / p->blocks_per_frame, y0 = block % p->blocks_per_frame * p->rows;
    const int64_t b = frame / c->y.dim[1],
                  at = frame % c->y.dim[1] * a->stride[0] + kt - a->before[0],
                  step = t->pairs ? 2 : 1;
    if (at < 0 || at >= c->x.dim[1])
        return;
    const cpu_conv_block job = {
        .rows = least(p->rows, Y - y0),
        .width = (X + step - 1) / step,
        .outputs = p->outputs,
        .window = p->window,
        .x_row = a->stride[1] * p->x_width * I,
        .x_step = a->stride[2] * I * step,
    };
    pack_input(t,
               (const char *)t->x->data +
                   (b * c->x.dim[1] + at) * shape_span(&c->x, 2, 5) * weft_dtype_bytes(t->x->dtype),
               y0 * a->stride[1] - a->before[1], (job.rows - 1) * a->stride[1] + kh);
    pack_gradient(
        t, (const char *)t->dy->data + (frame * Y + y0) * X * O * weft_dtype_bytes(t->dy->dtype),
        job.rows);
    for (int64_t ky = 0; ky < kh; ky++)
        (t->pairs ? t->isa->conv_dw_pairs : t->isa->conv_dw)(&job, t->packed_dy,
                                                             t->packed_x + ky * p->x_width * I,
                                                             t->part + ky * p->outputs * p->window);
}

void conv_own_dw(const conv_dims *c, const weft_view *x, const weft_view *dy, float *dw,
                 void *workspace)
{
    const bool pairs = has_pairs(x->dtype, dy->dtype);
    const dw_plan p = plan_dw(c, pairs);
    const cpu_isa *isa = cpu_isa_get();
    const int64_t O = c->w.dim[0], I = c->w.dim[1], kt = c->w.dim[2], kh = c->w.dim[3],
                  kw = c->w.dim[4];
    const int64_t each = dw_task_floats(&p);
    float *space = workspace;
#pragma omp parallel for schedule(dynamic) num_threads(cpu_threads(1 << 20))
    for (int64_t task = 0; task < p.parts * kt; task++) {
        const int64_t n = task / kt, k = task % kt;
        float *part = space + task * each, *packed_dy = part + p.part_floats + p.x_floats;
        const dw_task t = {c,         &p,
                           isa,       x,
                           dy,        pairs,
                           part,      part + p.part_floats,
                           packed_dy, (uint16_t *)(void *)(packed_dy + p.dy_floats)};
        memset(part, 0, (size_t)(p.part_floats + p.x_floats) * sizeof *part);
        memset(t.row, 0, (size_t)p.row_floats * sizeof *part);
        for (int64_t block = p.blocks * n / p.parts; block < p.blocks * (n + 1) / p.parts; block++)
            dw_block(&t, block, k);
    }
    /* part[kt][ky][o][kx * I + i] to dw[o][i][kt][ky][kx] */
#pragma omp parallel for schedule(static) num_threads(cpu_threads(p.parts *kt *p.part_floats))
    for (int64_t o = 0; o < O; o++)
        for (int64_t k = 0; k < kt; k++)
            for (int64_t ky = 0; ky < kh; ky++)
                for (int64_t kx = 0; kx < kw; kx++)
                    for (int64_t i = 0; i < I; i++) {
                        float sum = 0;
                        for (int64_t n = 0; n < p.parts; n++)
                            sum += space[(n * kt + k) * each + (ky * p.outputs + o) * p.window +
                                         kx * I + i];
                        dw[(((o * I + i) * kt + k) * kh + ky) * kw + kx] = sum;
                    }
}

/* ---- forward with few outputs ---------------------------------------------------------------- */

enum { FEW_ROWS = 8, FEW_WORKERS = 16 };

bool conv_own_few_fits(const conv_dims *c)
{
    return c->w.dim[0] <= 4 && c->w.dim[1] >= 8 && c->attr->stride[2] == 1;
}

/* Planes have pairs of adjacent channels in bf16 if `pairs` is set. */
typedef struct few_plan {
    bool pairs;
    int64_t planes; /* per input row */
    int64_t plane, rows, tasks, per_frame, workers;
    int64_t planes_floats, out_floats, weight_floats;
    int64_t row_floats; /* of an input row in f32; 0: not needed */
} few_plan;

static few_plan plan_few(const conv_dims *c, weft_dtype x, weft_dtype w)
{
    few_plan p = {.pairs = has_pairs(x, w) && c->w.dim[1] % 2 == 0,
                  .plane = round_up(c->y.dim[3], 24) + 64 + round_up(c->w.dim[4], 16)};
    p.planes = p.pairs ? c->w.dim[1] / 2 : c->w.dim[1];
    if (p.plane < c->attr->before[2] + c->x.dim[3])
        p.plane = round_up(c->attr->before[2] + c->x.dim[3], 16);
    p.rows = least(FEW_ROWS, c->y.dim[2]);
    p.per_frame = (c->y.dim[2] + p.rows - 1) / p.rows;
    p.tasks = c->y.dim[0] * c->y.dim[1] * p.per_frame;
    p.workers = least(p.tasks, FEW_WORKERS);
    p.planes_floats = ((p.rows - 1) * c->attr->stride[1] + c->w.dim[3]) * p.planes * p.plane;
    p.out_floats = p.rows * c->w.dim[0] * p.plane;
    p.weight_floats = round_up(shape_span(&c->w, 2, 5) * c->w.dim[0] * p.planes, 16);
    p.row_floats = p.pairs || x == WEFT_F32 ? 0 : round_up(shape_span(&c->x, 3, 5), 16);
    return p;
}

int64_t conv_own_few_workspace(const conv_dims *c, weft_dtype x, weft_dtype w)
{
    const few_plan p = plan_few(c, x, w);
    return (p.workers * (p.planes_floats + p.out_floats + p.row_floats) + p.weight_floats) * 4;
}

/* Operands of a worker and its scratch. */
typedef struct few_work {
    const conv_dims *c;
    const few_plan *p;
    const cpu_isa *isa;
    const weft_view *x;
    weft_view *y;
    const float *weights, *bias; /* [o][kt ky][plane][kx]; [4] */
    float *planes, *out, *row;
} few_work;

/* Transposes an input row to planes. NULL: the row is outside the frame. */
static void few_planes(const few_work *f, const char *row, float *to)
{
    const int64_t W = f->c->x.dim[3], before = f->c->attr->before[2];
    const float *from = (const float *)(const void *)row;
    if (!row) {
        memset(to, 0, (size_t)(f->p->planes * f->p->plane) * sizeof *to);
        return;
    }
    if (f->p->row_floats) {
        to_f32(f->x->dtype, row, f->row, W * f->c->x.dim[4]);
        from = f->row;
    }
    f->isa->conv_planes(from, W, f->p->planes, before, f->p->plane, to);
}

/* Adds the bias to `rows` rows of output planes, and stores the rows. */
static void few_store(const few_work *f, int64_t first, int64_t rows)
{
    enum { RUN = 64, MAX_OUTPUTS = 4 };
    const int64_t O = f->c->w.dim[0], X = f->c->y.dim[3];
    const bool narrow = f->y->dtype == WEFT_BF16;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t from = 0; from < X; from += RUN) {
            const int64_t count = least(RUN, X - from), at = ((first + r) * X + from) * O;
            float values[RUN * MAX_OUTPUTS], *to = narrow ? values : (float *)f->y->data + at;
            for (int64_t w = 0; w < count; w++)
                for (int64_t o = 0; o < O; o++)
                    to[w * O + o] = f->out[(r * O + o) * f->p->plane + from + w] + f->bias[o];
            if (narrow)
                f->isa->narrow_bf16(values, (uint16_t *)f->y->data + at, count * O);
        }
}

static void few_task(const few_work *f, int64_t task)
{
    const conv_dims *c = f->c;
    const few_plan *p = f->p;
    const weft_attr_conv *a = c->attr;
    const int64_t O = c->w.dim[0], kt = c->w.dim[2], kh = c->w.dim[3], kw = c->w.dim[4];
    const int64_t Y = c->y.dim[2], H = c->x.dim[2],
                  row_bytes = shape_span(&c->x, 3, 5) * weft_dtype_bytes(f->x->dtype);
    const int64_t frame = task / p->per_frame, y0 = task % p->per_frame * p->rows,
                  rows = least(p->rows, Y - y0), step = p->planes * p->plane;
    const int64_t b = frame / c->y.dim[1], input_rows = (rows - 1) * a->stride[1] + kh;
    memset(f->out, 0, (size_t)p->out_floats * sizeof *f->out);
    for (int64_t k = 0; k < kt; k++) {
        const int64_t t = frame % c->y.dim[1] * a->stride[0] + k - a->before[0];
        if (t < 0 || t >= c->x.dim[1])
            continue;
        for (int64_t r = 0; r < input_rows; r++) {
            const int64_t row = y0 * a->stride[1] - a->before[1] + r;
            few_planes(f,
                       row < 0 || row >= H ? NULL
                                           : (const char *)f->x->data +
                                                 ((b * c->x.dim[1] + t) * H + row) * row_bytes,
                       f->planes + r * step);
        }
        const cpu_conv_few job = {.outputs = O,
                                  .I = p->planes,
                                  .kh = kh,
                                  .kw = kw,
                                  .width = c->y.dim[3],
                                  .plane = p->plane,
                                  .weights = f->weights + k * kh * p->planes * kw,
                                  .w_step = kt * kh * p->planes * kw};
        for (int64_t r = 0; r < rows; r++)
            (p->pairs ? f->isa->conv_few_pairs : f->isa->conv_few)(
                &job, f->planes + r * a->stride[1] * step, f->out + r * O * p->plane);
    }
    few_store(f, frame * Y + y0, rows);
}

/* Orders the weights [o][i][kt ky][kx] as [o][kt ky][plane][kx]. */
static void few_weights(const conv_dims *c, const few_plan *p, const weft_view *w, float *to)
{
    const int64_t I = c->w.dim[1], taps = c->w.dim[2] * c->w.dim[3], kw = c->w.dim[4];
    const uint16_t *half = w->data;
    uint32_t *pair = (uint32_t *)(void *)to;
    for (int64_t o = 0; o < c->w.dim[0]; o++)
        for (int64_t i = 0; i < p->planes; i++)
            for (int64_t tap = 0; tap < taps; tap++)
                for (int64_t kx = 0; kx < kw; kx++) {
                    const int64_t at = ((o * taps + tap) * p->planes + i) * kw + kx,
                                  channel = p->pairs ? 2 * i : i,
                                  from = ((o * I + channel) * taps + tap) * kw + kx;
                    if (p->pairs)
                        pair[at] = half[from] | (uint32_t)half[from + taps * kw] << 16;
                    else
                        to[at] = w->dtype == WEFT_BF16 ? weft_bf16_to_f32(half[from])
                                                       : ((const float *)w->data)[from];
                }
}

void conv_own_few(const conv_dims *c, const weft_view *x, const weft_view *w, const weft_view *bias,
                  weft_view *y, void *workspace)
{
    const few_plan p = plan_few(c, x->dtype, w->dtype);
    const int64_t each = p.planes_floats + p.out_floats + p.row_floats;
    float *weights = workspace, *space = weights + p.weight_floats, biases[4] = {0};
    few_weights(c, &p, w, weights);
    if (bias)
        to_f32(bias->dtype, bias->data, biases, c->w.dim[0]);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(1 << 20))
    for (int64_t worker = 0; worker < p.workers; worker++) {
        float *planes = space + worker * each, *out = planes + p.planes_floats;
        const few_work f = {c,       &p,     cpu_isa_get(), x,   y,
                            weights, biases, planes,        out, out + p.out_floats};
        for (int64_t task = worker; task < p.tasks; task += p.workers)
            few_task(&f, task);
    }
}
