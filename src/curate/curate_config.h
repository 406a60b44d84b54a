#ifndef WEFT_CURATE_CURATE_CONFIG_H
#define WEFT_CURATE_CURATE_CONFIG_H

#include "base/config.h"

extern const weft_section weft_curate_section;

#endif
