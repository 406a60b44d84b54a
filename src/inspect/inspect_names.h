/* weft inspect model --tensors. */
#ifndef WEFT_INSPECT_INSPECT_NAMES_H
#define WEFT_INSPECT_INSPECT_NAMES_H

#include "model/model.h"

/* Prints one line per parameter, sorted: name, type and sizes. `path`: the model's folder; types
 * come from its weights, if it has any. */
weft_status weft_inspect_names(const weft_model *model, const char *path);

#endif
