/* Vector code for AVX2 with FMA. */
#if defined(__x86_64__)
#pragma GCC target("arch=x86-64-v3")
#define ISA avx2
#define VL  8
#include "kernel/cpu/isa.inc"
#else
typedef int isa_avx2_is_for_x86; /* an empty file is not C */
#endif
