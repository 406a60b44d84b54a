#ifndef WEFT_PARITY_PARITY_SAMPLER_H
#define WEFT_PARITY_PARITY_SAMPLER_H

#include "parity/parity.h"

extern const weft_parity_kind weft_parity_sampler;

#endif
