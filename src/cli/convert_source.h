#ifndef WEFT_CLI_CONVERT_SOURCE_H
#define WEFT_CLI_CONVERT_SOURCE_H

#include "model/model.h"

/* Finds the model of the weights `in` from `config` (--config; NULL: not given), a config next to
 * the weights, or the published size with the same tensors. */
weft_status weft_convert_find_model(const char *config, const char *in, weft_model *model);

#endif
