#ifndef WEFT_KERNEL_CPU_ISA_H
#define WEFT_KERNEL_CPU_ISA_H

#include "kernel/cpu/simd.h"

/* Returns the instruction set named by WEFT_CPU_ISA ("base", "avx2", "avx512", "avx512_bf16") if
 * the processor has it. Otherwise returns the widest that the processor has. The first call of the
 * process reads the environment. */
const cpu_isa *cpu_isa_get(void);
/* Uses the set of this name instead, or the widest that the processor has: for tests. NULL: the one
 * of the environment. No kernel may run. */
void cpu_isa_use(const char *name);
/* Returns true if the processor multiplies tiles of bf16 (AMX), which oneDNN uses. */
bool cpu_has_tiles(void);
/* Converts n elements of bf16, f16, f8 or f32 to f32, or back. Threaded. */
void cpu_widen(weft_dtype dtype, const void *from, float *to, int64_t n);
void cpu_widen_run(weft_dtype dtype, const void *from, float *to, int64_t n); /* one thread */
void cpu_narrow(weft_dtype dtype, const float *from, void *to, int64_t n);
void cpu_narrow_run(weft_dtype dtype, const float *from, void *to, int64_t n); /* one thread */
/* Rounds n elements of f32 to bf16, f16 or f8 and back, on one thread. */
void cpu_round_run(weft_dtype dtype, float *y, int64_t n);

/* Bytes of narrow operands that table.c has converted around kernels since the start, in all and by
 * op. Thread-safe. */
int64_t cpu_converted_bytes(void);
int64_t cpu_converted_bytes_of(weft_op op);
void cpu_count_converted(weft_op op, int64_t bytes);

#endif
