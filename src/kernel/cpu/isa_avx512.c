/* Vector code for AVX-512 (F, BW, DQ, VL). */
#if defined(__x86_64__)
#pragma GCC target("arch=x86-64-v4")
#define ISA avx512
#define VL  16
#include "kernel/cpu/isa.inc"
#else
typedef int isa_avx512_is_for_x86; /* an empty file is not C */
#endif
