#ifndef WEFT_BASE_CONFIG_SCHEMA_H
#define WEFT_BASE_CONFIG_SCHEMA_H

#include "base/config.h"

#include <jansson.h>

/* The JSON Schema (draft 7) of the files that weft_config_load reads with `root`: keys with type,
 * range, choices, default and help. Further names of a key are properties, too; earlier names are
 * deprecated. The caller owns *schema. */
weft_status weft_config_schema(const weft_section *root, json_t **schema);

#endif
