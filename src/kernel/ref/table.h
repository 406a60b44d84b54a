#ifndef WEFT_KERNEL_REF_TABLE_H
#define WEFT_KERNEL_REF_TABLE_H

#include "kernel/kernel.h"

/* The reference backend. Every float of a graph is stored and computed as f64, one loop nest per
 * op. */
extern const weft_backend weft_backend_ref;

#endif
