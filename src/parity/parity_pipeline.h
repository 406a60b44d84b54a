#ifndef WEFT_PARITY_PARITY_PIPELINE_H
#define WEFT_PARITY_PARITY_PIPELINE_H

#include "parity/parity.h"

/* A pipeline in a folder that diffusers publishes: weft generate from the reference's noise. */
extern const weft_parity_kind weft_parity_pipeline;

#endif
