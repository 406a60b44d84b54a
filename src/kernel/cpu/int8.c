/* Linear layers with weights of int8, read as they are stored.
 *
 *   x f32 or bf16 ──round each block of a row──> q int8, units ──┐
 *   w int8 in blocks ──pack a panel of columns──────────────────> tiles of y ──bias, act──> y
 *
 * All rows of x are rounded first. Then threads take panels of columns: a panel is packed once and
 * read from the second-level cache for all rows. */
#include "kernel/cpu/int8.h"

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm_parts.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"

#include <omp.h>

enum { TILE_ROWS = 48, MOST_COLUMNS = 32 };

static int64_t align(int64_t bytes)
{
    return (bytes + 63) & ~(int64_t)63;
}

/* Sizes of a layer, and the bytes of its workspace: rounded x, then one part per thread. */
typedef struct int8_layer {
    int64_t M, N, K, blocks, elements;
    int64_t q_bytes, unit_bytes;    /* of all rows */
    int64_t panel_bytes, row_bytes; /* of a thread: a panel, and a row of x in f32 */
} int8_layer;

static int8_layer layer_of(const weft_kernel_args *args)
{
    const weft_view *x = &args->in[0], *w = &args->in[1];
    const cpu_isa *isa = cpu_isa_get();
    int8_layer l = {.N = w->shape.dim[0],
                    .K = view_last(x),
                    .blocks = w->shape.dim[1],
                    .elements = weft_int8_elements(w->dtype, &w->shape)};
    l.M = shape_span(&x->shape, 0, x->shape.rank - 1);
    l.q_bytes = align(l.M * l.K * isa->int8_bytes);
    l.unit_bytes = align(l.M * l.blocks * 4);
    l.panel_bytes = align(isa->int8_columns * (l.K * isa->int8_bytes + l.blocks * 4));
    l.row_bytes = x->dtype == WEFT_F32 ? 0 : align(l.K * 4);
    return l;
}

int64_t cpu_linear_int8_workspace(const weft_kernel_args *args)
{
    const int8_layer l = layer_of(args);
    return l.q_bytes + 2 * l.unit_bytes + args->threads * (l.panel_bytes + l.row_bytes);
}

static void round_rows(const weft_view *x, const int8_layer *l, const cpu_int8_rows *to,
                       char *space)
{
    const cpu_isa *isa = cpu_isa_get();
    const int64_t bytes = weft_dtype_bytes(x->dtype);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(l->M * l->K))
    for (int64_t m = 0; m < l->M; m++) {
        const char *row = (const char *)x->data + m * l->K * bytes;
        if (x->dtype != WEFT_F32) {
            float *wide = (float *)(space + omp_get_thread_num() * (l->panel_bytes + l->row_bytes) +
                                    l->panel_bytes);
            if (x->dtype == WEFT_BF16)
                isa->widen_bf16((const uint16_t *)(const void *)row, wide, l->K);
            else
                cpu_widen_run(x->dtype, row, wide, l->K);
            row = (const char *)wide;
        }
        isa->int8_round((const float *)row, to, m);
    }
}

/* Computes the columns of panel `p`. */
static void run_panel(const weft_kernel_args *args, const int8_layer *l, const cpu_int8_rows *x,
                      int64_t p, void *panel)
{
    const cpu_isa *isa = cpu_isa_get();
    const weft_view *w = &args->in[1], *b = &args->in[2], *out = &args->out[0];
    const weft_attr_linear *attr = args->attr;
    const bool biased = args->in_count > 2 && view_present(b);
    const int64_t width = isa->int8_columns, from = p * width,
                  columns = l->N - from < width ? l->N - from : width,
                  row = l->blocks * (2 + l->elements);
    float tile[TILE_ROWS * MOST_COLUMNS], bias[MOST_COLUMNS];
    if (biased)
        cpu_widen_run(b->dtype, (const char *)b->data + from * weft_dtype_bytes(b->dtype), bias,
                      columns);
    isa->int8_pack((const unsigned char *)w->data + from * row, row, columns, l->blocks,
                   l->elements, panel);
    for (int64_t m = 0; m < l->M; m += TILE_ROWS) {
        const int64_t rows = l->M - m < TILE_ROWS ? l->M - m : TILE_ROWS;
        const cpu_product written = {.M = rows,
                                     .N = columns,
                                     .ldc = l->N,
                                     .C = (char *)out->data +
                                          (m * l->N + from) * weft_dtype_bytes(out->dtype),
                                     .c_dtype = out->dtype,
                                     .act = attr->act,
                                     .round = attr->round};
        isa->int8_panel(x, m, rows, panel, tile);
        gemm_write(&written, biased ? bias : NULL, tile, width);
    }
}

weft_status_code cpu_linear_int8(const weft_kernel_args *args)
{
    const int8_layer l = layer_of(args);
    char *space = args->workspace;
    const bool smooths = args->in_count > 3 && view_present(&args->in[3]);
    const cpu_int8_rows x = {.blocks = l.blocks,
                             .elements = l.elements,
                             .factor = smooths ? args->in[3].data : NULL,
                             .q = space,
                             .unit = (float *)(space + l.q_bytes),
                             .sum = (int32_t *)(space + l.q_bytes + l.unit_bytes)};
    const int64_t columns = cpu_isa_get()->int8_columns, panels = (l.N + columns - 1) / columns;
    const int threads = omp_in_parallel() ? 1 : args->threads;
    space += l.q_bytes + 2 * l.unit_bytes;
    round_rows(&args->in[0], &l, &x, space);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t p = 0; p < panels; p++)
        run_panel(args, &l, &x, p, space + omp_get_thread_num() * (l.panel_bytes + l.row_bytes));
    return WEFT_OK;
}
