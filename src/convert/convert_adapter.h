#ifndef WEFT_CONVERT_CONVERT_ADAPTER_H
#define WEFT_CONVERT_CONVERT_ADAPTER_H

#include "model/adapter_write.h"
#include "model/model.h"

/* Reads the adapter `in` of `model` in any format and writes it to the folder `out`. */
weft_status weft_convert_adapter(const weft_model *model, const char *in, const char *out,
                                 weft_adapter_format format, weft_dtype dtype);
/* Warns that weights with the merged adapter lack its settings of generation, if it has some.
 * weight 0: the adapter has no effect. */
weft_status weft_convert_warn_settings(const char *adapter, double weight);

#endif
