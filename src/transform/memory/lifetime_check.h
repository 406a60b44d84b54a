#ifndef WEFT_TRANSFORM_MEMORY_LIFETIME_CHECK_H
#define WEFT_TRANSFORM_MEMORY_LIFETIME_CHECK_H

#include "graph/op.h"
#include "transform/memory/lifetime.h"

/* Verifies a memory plan independently of weft_pass_lifetime. Simulates the nodes with their byte
 * ranges, and checks that each node reads bytes that no other write has changed. */
weft_status weft_memory_plan_check(const weft_graph *g, const weft_lifetime_options *options,
                                   const weft_memory_plan *plan);

#endif
