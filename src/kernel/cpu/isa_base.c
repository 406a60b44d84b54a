/* Vector code for what every processor of this architecture has. */
#define ISA base
#define VL  4
#include "kernel/cpu/isa.inc"
