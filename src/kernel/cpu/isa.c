#include "kernel/cpu/isa.h"

#include "kernel/cpu/simd.h"

#include "base/log.h"
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"

#include <stdatomic.h>
#include <stdlib.h>

static bool runs(const cpu_isa *isa)
{
#if defined(__x86_64__)
    if (isa == &cpu_isa_avx512_bf16)
        return runs(&cpu_isa_avx512) && __builtin_cpu_supports("avx512bf16") &&
               __builtin_cpu_supports("avx512vnni");
    if (isa == &cpu_isa_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512cd");
    if (isa == &cpu_isa_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("bmi2");
#endif
    return isa == &cpu_isa_base;
}

/* All sets of this processor family, widest first; NULL ends the list. */
static const cpu_isa *const widest_first[] = {
#if defined(__x86_64__)
    &cpu_isa_avx512_bf16, &cpu_isa_avx512, &cpu_isa_avx2,
#endif
    &cpu_isa_base, NULL};

static bool is_isa(const char *name)
{
    static const char *const known[] = {"base", "avx2", "avx512", "avx512_bf16"};
    size_t i = 0;
    while (i < sizeof known / sizeof *known && strcmp(known[i], name) != 0)
        i++;
    return i < sizeof known / sizeof *known;
}

/* The set of this name, or the widest of the processor. */
static const cpu_isa *find(const char *wanted)
{
    const cpu_isa *best = NULL;
    for (const cpu_isa *const *isa = widest_first; *isa; isa++)
        if (runs(*isa)) {
            if (wanted && strcmp(wanted, (*isa)->name) == 0)
                return *isa;
            if (!best)
                best = *isa;
        }
    return best;
}

static const cpu_isa *of_environment(void)
{
    static atomic_bool warned;
    const char *wanted = getenv("WEFT_CPU_ISA");
    if (wanted && !is_isa(wanted) && !atomic_exchange(&warned, true))
        weft_warning(WEFT_MSG_ENVIRONMENT_IGNORED, WEFT_AT(.key = "WEFT_CPU_ISA", .value = wanted),
                     "\"%s\" is not base, avx2, avx512 or avx512_bf16; the widest that the "
                     "processor supports is used",
                     wanted);
    return find(wanted);
}

static _Atomic(const cpu_isa *) chosen;

const cpu_isa *cpu_isa_get(void)
{
    const cpu_isa *isa = atomic_load_explicit(&chosen, memory_order_acquire);
    if (!isa) {
        isa = of_environment();
        atomic_store_explicit(&chosen, isa, memory_order_release);
    }
    return isa;
}

void cpu_isa_use(const char *name)
{
    atomic_store(&chosen, name ? find(name) : NULL);
}

bool cpu_has_tiles(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("amx-bf16");
#else
    return false;
#endif
}

void cpu_widen_run(weft_dtype dtype, const void *from, float *to, int64_t n)
{
    if (dtype == WEFT_BF16) {
        cpu_isa_get()->widen_bf16(from, to, n);
        return;
    }
    if (dtype == WEFT_F32) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
    const weft_view view = {.data = (void *)(uintptr_t)from, .dtype = dtype};
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)view_get(&view, i);
}

void cpu_widen(weft_dtype dtype, const void *from, float *to, int64_t n)
{
    enum { RUN = 4096 };
    const int64_t bytes = weft_dtype_bytes(dtype);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(n))
    for (int64_t i = 0; i < n; i += RUN)
        cpu_widen_run(dtype, (const char *)from + i * bytes, to + i, n - i < RUN ? n - i : RUN);
}

void cpu_narrow_run(weft_dtype dtype, const float *from, void *to, int64_t n)
{
    if (dtype == WEFT_BF16) {
        cpu_isa_get()->narrow_bf16(from, to, n);
        return;
    }
    const weft_view view = {.data = to, .dtype = dtype};
    for (int64_t i = 0; i < n; i++)
        view_set(&view, i, from[i]);
}

void cpu_narrow(weft_dtype dtype, const float *from, void *to, int64_t n)
{
    enum { RUN = 4096 };
    const int64_t bytes = weft_dtype_bytes(dtype);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(n))
    for (int64_t i = 0; i < n; i += RUN)
        cpu_narrow_run(dtype, from + i, (char *)to + i * bytes, n - i < RUN ? n - i : RUN);
}

void cpu_round_run(weft_dtype dtype, float *y, int64_t n)
{
    enum { RUN = 256 };
    uint16_t rounded[RUN];
    for (int64_t i = 0; i < n; i += RUN) {
        const int64_t count = n - i < RUN ? n - i : RUN;
        cpu_narrow_run(dtype, y + i, rounded, count);
        cpu_widen_run(dtype, rounded, y + i, count);
    }
}

static _Atomic int64_t converted[WEFT_OP_COUNT];

void cpu_count_converted(weft_op op, int64_t bytes)
{
    atomic_fetch_add_explicit(&converted[op], bytes, memory_order_relaxed);
}

int64_t cpu_converted_bytes_of(weft_op op)
{
    return atomic_load_explicit(&converted[op], memory_order_relaxed);
}

int64_t cpu_converted_bytes(void)
{
    int64_t sum = 0;
    for (int op = 0; op < WEFT_OP_COUNT; op++)
        sum += cpu_converted_bytes_of((weft_op)op);
    return sum;
}
