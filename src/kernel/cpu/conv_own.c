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

/* ---- weight gradient ------------------------------------------------------------------------- */

typedef struct dw_plan {
    int64_t rows, blocks_per_frame, blocks, parts;
    int64_t outputs, window; /* padded sizes */
    int64_t x_width, x_rows; /* packed sizes, with padding */
    int64_t part_floats, x_floats, dy_floats;
} dw_plan;

static dw_plan plan_dw(const conv_dims *c)
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
    p.dy_floats = p.rows * X * p.outputs;
    p.parts = least(least(MAX_PARTS, p.blocks), PART_BYTES / (kt * p.part_floats * 4));
    p.parts = p.parts < 1 ? 1 : p.parts;
    return p;
}

int64_t conv_own_dw_workspace(const conv_dims *c)
{
    const dw_plan p = plan_dw(c);
    return p.parts * c->w.dim[2] * (p.part_floats + p.x_floats + p.dy_floats) * 4;
}

/* Packs input rows [y0, y0 + count) and columns [x0, x0 + width) of a frame. Positions outside the
 * frame are zeros. */
static void pack_input(const float *frame, int64_t H, int64_t W, int64_t I, int64_t y0,
                       int64_t count, int64_t x0, int64_t width, float *to)
{
    const int64_t before = x0 < 0 ? least(-x0, width) : 0, from = x0 + before;
    const int64_t real = from < W ? least(width - before, W - from) : 0;
    for (int64_t r = 0; r < count; r++, to += width * I) {
        const int64_t y = y0 + r;
        if (y < 0 || y >= H) {
            memset(to, 0, (size_t)(width * I) * sizeof *to);
            continue;
        }
        memset(to, 0, (size_t)(before * I) * sizeof *to);
        memcpy(to + before * I, frame + (y * W + from) * I, (size_t)(real * I) * sizeof *to);
        memset(to + (before + real) * I, 0, (size_t)((width - before - real) * I) * sizeof *to);
    }
}

static void dw_block(const conv_dims *c, const dw_plan *p, const cpu_isa *isa, const float *x,
                     const float *dy, int64_t block, int64_t kt, float *part, float *packed_x,
                     float *packed_dy)
{
    const weft_attr_conv *a = c->attr;
    const int64_t O = c->w.dim[0], I = c->w.dim[1], kh = c->w.dim[3], Y = c->y.dim[2],
                  X = c->y.dim[3];
    const int64_t frame = block / p->blocks_per_frame, y0 = block % p->blocks_per_frame * p->rows;
    const int64_t b = frame / c->y.dim[1],
                  t = frame % c->y.dim[1] * a->stride[0] + kt - a->before[0];
    if (t < 0 || t >= c->x.dim[1])
        return;
    const cpu_conv_block job = {
        .rows = least(p->rows, Y - y0),
        .width = X,
        .outputs = p->outputs,
        .window = p->window,
        .x_row = a->stride[1] * p->x_width * I,
        .x_step = a->stride[2] * I,
    };
    pack_input(x + (b * c->x.dim[1] + t) * c->x.dim[2] * c->x.dim[3] * I, c->x.dim[2], c->x.dim[3],
               I, y0 * a->stride[1] - a->before[1], (job.rows - 1) * a->stride[1] + kh,
               -a->before[2], p->x_width, packed_x);
    const float *from = dy + (frame * Y + y0) * X * O;
    for (int64_t i = 0; i < job.rows * X; i++) {
        memcpy(packed_dy + i * p->outputs, from + i * O, (size_t)O * sizeof *from);
        memset(packed_dy + i * p->outputs + O, 0, (size_t)(p->outputs - O) * sizeof *from);
    }
    for (int64_t ky = 0; ky < kh; ky++)
        isa->conv_dw(&job, packed_dy, packed_x + ky * p->x_width * I,
                     part + ky * p->outputs * p->window);
}

void conv_own_dw(const conv_dims *c, const float *x, const float *dy, float *dw, void *workspace)
{
    const dw_plan p = plan_dw(c);
    const cpu_isa *isa = cpu_isa_get();
    const int64_t O = c->w.dim[0], I = c->w.dim[1], kt = c->w.dim[2], kh = c->w.dim[3],
                  kw = c->w.dim[4];
    const int64_t each = p.part_floats + p.x_floats + p.dy_floats;
    float *space = workspace;
#pragma omp parallel for schedule(dynamic) num_threads(cpu_threads(1 << 20))
    for (int64_t task = 0; task < p.parts * kt; task++) {
        const int64_t n = task / kt, k = task % kt;
        float *part = space + task * each, *packed_x = part + p.part_floats,
              *packed_dy = packed_x + p.x_floats;
        memset(part, 0, (size_t)(p.part_floats + p.x_floats) * sizeof *part);
        for (int64_t block = p.blocks * n / p.parts; block < p.blocks * (n + 1) / p.parts; block++)
            dw_block(c, &p, isa, x, dy, block, k, part, packed_x, packed_dy);
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

typedef struct few_plan {
    int64_t plane, rows, tasks, per_frame, workers;
    int64_t planes_floats, out_floats, weight_floats;
} few_plan;

static few_plan plan_few(const conv_dims *c)
{
    few_plan p = {.plane = round_up(c->y.dim[3], 24) + 64 + round_up(c->w.dim[4], 16)};
    if (p.plane < c->attr->before[2] + c->x.dim[3])
        p.plane = round_up(c->attr->before[2] + c->x.dim[3], 16);
    p.rows = least(FEW_ROWS, c->y.dim[2]);
    p.per_frame = (c->y.dim[2] + p.rows - 1) / p.rows;
    p.tasks = c->y.dim[0] * c->y.dim[1] * p.per_frame;
    p.workers = least(p.tasks, FEW_WORKERS);
    p.planes_floats = ((p.rows - 1) * c->attr->stride[1] + c->w.dim[3]) * c->w.dim[1] * p.plane;
    p.out_floats = p.rows * c->w.dim[0] * p.plane;
    p.weight_floats = round_up(shape_span(&c->w, 0, 5), 16);
    return p;
}

int64_t conv_own_few_workspace(const conv_dims *c)
{
    const few_plan p = plan_few(c);
    return (p.workers * (p.planes_floats + p.out_floats) + p.weight_floats) * 4;
}

static void few_task(const conv_dims *c, const few_plan *p, const cpu_isa *isa, const float *x,
                     const float *weights, const float *bias, float *y, int64_t task, float *planes,
                     float *out)
{
    const weft_attr_conv *a = c->attr;
    const int64_t O = c->w.dim[0], I = c->w.dim[1], kt = c->w.dim[2], kh = c->w.dim[3],
                  kw = c->w.dim[4];
    const int64_t Y = c->y.dim[2], X = c->y.dim[3], H = c->x.dim[2], W = c->x.dim[3];
    const int64_t frame = task / p->per_frame, y0 = task % p->per_frame * p->rows,
                  rows = least(p->rows, Y - y0);
    const int64_t b = frame / c->y.dim[1], input_rows = (rows - 1) * a->stride[1] + kh;
    memset(out, 0, (size_t)p->out_floats * sizeof *out);
    for (int64_t k = 0; k < kt; k++) {
        const int64_t t = frame % c->y.dim[1] * a->stride[0] + k - a->before[0];
        if (t < 0 || t >= c->x.dim[1])
            continue;
        for (int64_t r = 0; r < input_rows; r++) {
            const int64_t row = y0 * a->stride[1] - a->before[1] + r;
            float *to = planes + r * I * p->plane;
            if (row < 0 || row >= H)
                memset(to, 0, (size_t)(I * p->plane) * sizeof *to);
            else
                isa->conv_planes(x + ((b * c->x.dim[1] + t) * H + row) * W * I, W, I, a->before[2],
                                 p->plane, to);
        }
        const cpu_conv_few job = {.outputs = O,
                                  .I = I,
                                  .kh = kh,
                                  .kw = kw,
                                  .width = X,
                                  .plane = p->plane,
                                  .weights = weights + k * kh * I * kw,
                                  .w_step = kt * kh * I * kw};
        for (int64_t r = 0; r < rows; r++)
            isa->conv_few(&job, planes + r * a->stride[1] * I * p->plane, out + r * O * p->plane);
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t w = 0; w < X; w++)
            for (int64_t o = 0; o < O; o++)
                y[((frame * Y + y0 + r) * X + w) * O + o] =
                    out[(r * O + o) * p->plane + w] + (bias ? bias[o] : 0);
}

void conv_own_few(const conv_dims *c, const float *x, const float *w, const float *bias, float *y,
                  void *workspace)
{
    const few_plan p = plan_few(c);
    const cpu_isa *isa = cpu_isa_get();
    const int64_t I = c->w.dim[1], taps = c->w.dim[2] * c->w.dim[3], kw = c->w.dim[4];
    float *weights = workspace, *space = weights + p.weight_floats;
    for (int64_t o = 0; o < c->w.dim[0]; o++) /* [o][i][kt ky][kx] to [o][kt ky][i][kx] */
        for (int64_t i = 0; i < I; i++)
            for (int64_t tap = 0; tap < taps; tap++)
                memcpy(weights + ((o * taps + tap) * I + i) * kw,
                       w + ((o * I + i) * taps + tap) * kw, (size_t)kw * sizeof *w);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(1 << 20))
    for (int64_t worker = 0; worker < p.workers; worker++) {
        float *planes = space + worker * (p.planes_floats + p.out_floats);
        for (int64_t task = worker; task < p.tasks; task += p.workers)
            few_task(c, &p, isa, x, weights, bias, y, task, planes, planes + p.planes_floats);
    }
}
