/* The optimizer's step: one pass over p, g, m, v (28 bytes per element) in fixed pieces. Results do
 * not depend on the number of threads. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/operands.h"
#include "kernel/cpu/simd.h"
#include "kernel/cpu/table.h"

#include <math.h>

enum { SUM_PIECE = 65536, PIECE = 2048 };

/* clang-format off */
#define EACH_PIECE(count)                                                          \
    _Pragma("omp parallel for schedule(static) num_threads(cpu_threads(count))")   \
    for (int64_t at = 0; at < (count); at += PIECE)
/* clang-format on */
#define PIECE_LEN(count) ((count)-at < PIECE ? (count)-at : PIECE)

static int64_t pieces_of(int64_t count)
{
    return (count + SUM_PIECE - 1) / SUM_PIECE;
}

static int64_t sum_squares_workspace(const weft_kernel_args *args)
{
    return pieces_of(view_count(&args->in[0])) * 8;
}

CPU_KERNEL_WITH(sum_squares, .workspace = sum_squares_workspace, .narrow = CPU_ALL)
{
    const int64_t count = view_count(&args->in[0]), pieces = pieces_of(count);
    const cpu_operands operands = cpu_operands_of(args, 1, false);
    double *part = args->workspace, sum = 0;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count))
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t at = i * SUM_PIECE;
        part[i] = cpu_total(&operands, &args->in[0], at,
                            count - at < SUM_PIECE ? count - at : SUM_PIECE, true);
    }
    for (int64_t i = 0; i < pieces; i++)
        sum += part[i];
    *(float *)args->out[0].data = (float)sum;
    return WEFT_OK;
}

CPU_KERNEL_WITH(clip_scale, .narrow = CPU_ALL)
{
    const double norm = sqrt(view_get(&args->in[0], 0)), loss = view_get(&args->in[1], 0);
    const double max_norm = view_get(&args->in[2], 0);
    const double loss_limit = view_get(&args->in[3], 0), norm_limit = view_get(&args->in[4], 0);
    const bool healthy =
        isfinite(norm) && isfinite(loss) && norm <= norm_limit && loss <= loss_limit;
    view_set(&args->out[0], 0, healthy ? fmin(1, max_norm / (norm + 1e-6)) : NAN);
    view_set(&args->out[1], 0, norm);
    return WEFT_OK;
}

static void copy_unchanged(const weft_view *from, const weft_view *to)
{
    if (from->data != to->data)
        memcpy(to->data, from->data, (size_t)(view_count(from) * weft_dtype_bytes(from->dtype)));
}

/* Decoupled weight decay (Loshchilov & Hutter, Algorithm 2). With a NaN scale, nothing changes. */
CPU_KERNEL_WITH(adamw, .narrow = CPU_ALL)
{
    const weft_attr_adamw *a = args->attr;
    const double lr = view_get(&args->in[4], 0), step = view_get(&args->in[5], 0);
    const double scale = view_get(&args->in[6], 0);
    if (isnan(scale)) {
        copy_unchanged(&args->in[0], &args->out[0]);
        copy_unchanged(&args->in[2], &args->out[1]);
        copy_unchanged(&args->in[3], &args->out[2]);
        return WEFT_OK;
    }
    const float c[8] = {(float)a->beta1,
                        (float)((1 - a->beta1) * scale),
                        (float)a->beta2,
                        (float)((1 - a->beta2) * scale * scale),
                        (float)(lr / (1 - pow(a->beta1, step))),
                        (float)(1 / sqrt(1 - pow(a->beta2, step))),
                        (float)a->eps,
                        (float)(lr * a->weight_decay)};
    const int64_t count = view_count(&args->in[0]);
    const cpu_operands o = cpu_operands_of(args, 15 | CPU_OUTPUT, true);
    EACH_PIECE(count)
    {
        float space[7][PIECE], *y[3];
        const float *x[4];
        const int64_t n = PIECE_LEN(count);
        for (int i = 0; i < 4; i++)
            x[i] = cpu_read_f32(&o, &args->in[i], at, n, space[i]);
        for (int i = 0; i < 3; i++)
            y[i] = cpu_write(&o, &args->out[i], at, space[4 + i]);
        o.isa->adamw(x[0], x[1], x[2], x[3], y[0], y[1], y[2], n, c);
        for (int i = 0; i < 3; i++)
            cpu_written(&o, &args->out[i], at, n, y[i]);
    }
    return WEFT_OK;
}

CPU_KERNEL_WITH(ema, .narrow = CPU_ALL)
{
    const double decay = view_get(&args->in[2], 0), scale = view_get(&args->in[3], 0);
    const int64_t count = view_count(&args->in[0]);
    if (isnan(scale)) {
        copy_unchanged(&args->in[0], &args->out[0]);
        return WEFT_OK;
    }
    const cpu_operands o = cpu_operands_of(args, 3 | CPU_OUTPUT, true);
    EACH_PIECE(count)
    {
        float space[3][PIECE];
        const int64_t n = PIECE_LEN(count);
        const float *e = cpu_read_f32(&o, &args->in[0], at, n, space[0]),
                    *p = cpu_read_f32(&o, &args->in[1], at, n, space[1]);
        float *out = cpu_write(&o, &args->out[0], at, space[2]);
        o.isa->ema(e, p, out, n, (float)(1 - decay));
        cpu_written(&o, &args->out[0], at, n, out);
    }
    return WEFT_OK;
}
