/* The optimizer's step: one pass over p, g, m, v (28 bytes per element) in fixed pieces. Results do
 * not depend on the number of threads. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"
#include "kernel/cpu/table.h"

#include <math.h>

enum { PIECE = 65536 };

static int64_t pieces_of(int64_t count)
{
    return (count + PIECE - 1) / PIECE;
}

static int64_t piece_len(int64_t count, int64_t at)
{
    return count - at < PIECE ? count - at : PIECE;
}

static int64_t sum_squares_workspace(const weft_kernel_args *args)
{
    return pieces_of(view_count(&args->in[0])) * 8;
}

CPU_KERNEL_WITH(sum_squares, .workspace = sum_squares_workspace)
{
    const int64_t count = view_count(&args->in[0]), pieces = pieces_of(count);
    const float *x = args->in[0].data;
    double *part = args->workspace, sum = 0;
    const cpu_isa *isa = cpu_isa_get();
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count))
    for (int64_t i = 0; i < pieces; i++)
        part[i] = isa->sum_squares(x + i * PIECE, piece_len(count, i * PIECE));
    for (int64_t i = 0; i < pieces; i++)
        sum += part[i];
    *(float *)args->out[0].data = (float)sum;
    return WEFT_OK;
}

CPU_KERNEL(clip_scale)
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
        memcpy(to->data, from->data, (size_t)view_count(from) * 4);
}

/* Decoupled weight decay (Loshchilov & Hutter, Algorithm 2). With a NaN scale, nothing changes. */
CPU_KERNEL(adamw)
{
    const weft_attr_adamw *a = args->attr;
    const float *p = args->in[0].data, *g = args->in[1].data, *m = args->in[2].data,
                *v = args->in[3].data;
    float *p2 = args->out[0].data, *m2 = args->out[1].data, *v2 = args->out[2].data;
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
    const int64_t count = view_count(&args->in[0]), pieces = pieces_of(count);
    const cpu_isa *isa = cpu_isa_get();
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count))
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t at = i * PIECE;
        isa->adamw(p + at, g + at, m + at, v + at, p2 + at, m2 + at, v2 + at, piece_len(count, at),
                   c);
    }
    return WEFT_OK;
}

CPU_KERNEL(ema)
{
    const float *e = args->in[0].data, *p = args->in[1].data;
    float *out = args->out[0].data;
    const double decay = view_get(&args->in[2], 0), scale = view_get(&args->in[3], 0);
    const int64_t count = view_count(&args->in[0]), pieces = pieces_of(count);
    if (isnan(scale)) {
        copy_unchanged(&args->in[0], &args->out[0]);
        return WEFT_OK;
    }
    const cpu_isa *isa = cpu_isa_get();
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count))
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t at = i * PIECE;
        isa->ema(e + at, p + at, out + at, piece_len(count, at), (float)(1 - decay));
    }
    return WEFT_OK;
}
