#ifndef WEFT_PARITY_PARITY_TILED_H
#define WEFT_PARITY_PARITY_TILED_H

#include "parity/parity.h"

extern const weft_parity_kind weft_parity_tiled;

#endif
