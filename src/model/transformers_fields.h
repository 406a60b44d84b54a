#ifndef WEFT_MODEL_TRANSFORMERS_FIELDS_H
#define WEFT_MODEL_TRANSFORMERS_FIELDS_H

#include "model/family.h"

/* The fields of every config of the transformers library; ends with a key of NULL. */
extern const weft_unused_field weft_transformers_unused[];

#endif
