#ifndef WEFT_PARITY_PARITY_LOSSES_H
#define WEFT_PARITY_PARITY_LOSSES_H

#include "parity/parity.h"

extern const weft_parity_kind weft_parity_lpips, weft_parity_patchgan, weft_parity_vaegan;

#endif
