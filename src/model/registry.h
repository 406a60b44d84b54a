#ifndef WEFT_MODEL_REGISTRY_H
#define WEFT_MODEL_REGISTRY_H

#include "model/family.h"

/* The list of families, in model/registry.c; NULL-terminated. */
extern const weft_family *const weft_families[];

#endif
