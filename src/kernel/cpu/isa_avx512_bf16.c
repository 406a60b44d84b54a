/* Vector code for AVX-512 with products of bf16 (vdpbf16ps) and of bytes (vpdpbusd): Zen 4, Cooper
 * Lake, Sapphire Rapids and later. */
#if defined(__x86_64__)
#pragma GCC target("arch=x86-64-v4,avx512bf16,avx512vnni")
#define ISA        avx512_bf16
#define VL         16
#define BF16_UNITS 1
#include "kernel/cpu/isa.inc"
#else
typedef int isa_avx512_bf16_is_for_x86; /* an empty file is not C */
#endif
