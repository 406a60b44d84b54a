#ifndef WEFT_PARITY_PARITY_HINTS_H
#define WEFT_PARITY_PARITY_HINTS_H

#include "parity/parity.h"

/* Cosmos Transfer 2.5: the transformer with hints as inputs, and the control branch alone. */
extern const weft_parity_kind weft_parity_hints, weft_parity_branch;

#endif
