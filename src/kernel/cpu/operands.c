#include "kernel/cpu/operands.h"

#include "kernel/cpu/isa.h"

static bool all_cells(const weft_kernel_args *args, uint32_t large, weft_dtype dtype)
{
    bool all = !(large & CPU_OUTPUT) || cpu_is_cells(&args->out[0], dtype);
    for (int i = 0; i < args->in_count; i++)
        all &= !weft_mask_has(large, i) || cpu_is_cells(&args->in[i], dtype);
    return all;
}

cpu_operands cpu_operands_of(const weft_kernel_args *args, uint32_t large, bool f32)
{
    const cpu_isa *isa = cpu_isa_get();
    const bool bf16 = !f32 && all_cells(args, large, WEFT_BF16);
    return (cpu_operands){.isa = isa,
                          .run = bf16 ? isa->bf16 : isa->f32,
                          .direct = bf16 || all_cells(args, large, WEFT_F32)};
}

const float *cpu_read_f32(const cpu_operands *o, const weft_view *v, int64_t at, int64_t n,
                          float *space)
{
    if (cpu_is_cells(v, WEFT_F32))
        return cpu_element(v, at);
    if (v->dtype == WEFT_BF16)
        o->isa->widen_bf16(cpu_element(v, at), space, n);
    else
        cpu_widen_run(v->dtype, cpu_element(v, at), space, n);
    return space;
}

void cpu_written(const cpu_operands *o, const weft_view *v, int64_t at, int64_t n,
                 const float *space)
{
    if (cpu_is_cells(v, o->run->dtype))
        return;
    if (v->dtype == WEFT_BF16)
        o->isa->narrow_bf16(space, cpu_element(v, at), n);
    else
        cpu_narrow_run(v->dtype, space, cpu_element(v, at), n);
}

double cpu_total(const cpu_operands *o, const weft_view *v, int64_t at, int64_t n, bool squares)
{
    enum { RUN = 4096 }; /* the runs of cpu_cells.total */
    double (*const total)(const void *, int64_t) = squares ? o->run->sum_squares : o->run->total;
    if (o->direct)
        return total(cpu_element(v, at), n);
    float space[RUN];
    double sum = 0;
    for (int64_t i = 0; i < n; i += RUN) {
        const int64_t count = n - i < RUN ? n - i : RUN;
        sum += total(cpu_read(o, v, at + i, count, space), count);
    }
    return sum;
}
