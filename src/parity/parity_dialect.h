#ifndef WEFT_PARITY_PARITY_DIALECT_H
#define WEFT_PARITY_PARITY_DIALECT_H

#include "parity/parity.h"

extern const weft_parity_kind weft_parity_dialect, weft_parity_blocks;

#endif
