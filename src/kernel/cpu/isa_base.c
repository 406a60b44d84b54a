/* Vector code for the baseline of the architecture. */
#define ISA base
#define VL  4
#include "kernel/cpu/isa.inc"
