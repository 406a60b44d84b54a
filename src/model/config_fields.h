#ifndef WEFT_MODEL_CONFIG_FIELDS_H
#define WEFT_MODEL_CONFIG_FIELDS_H

#include "base/json.h"
#include "model/family.h"

/* Error fields for the config field `name` with the number `x`. */
#define WEFT_AT_FIELD(places, name, x)                                                             \
    WEFT_AT(.file = weft_config_locations_of(places, name), .key = (name), WEFT_NUMBER(x))

/* Bytes of the longest name of a field. */
enum { WEFT_FIELD_NAME = 128 };
/* Formats and returns the name of a field, "object.key" if it belongs to an object. */
const char *weft_field_name(const weft_field *field, char name[WEFT_FIELD_NAME]);
int64_t weft_three(const void *config); /* returns 3, as `length` of frames, rows, columns */
const char *weft_config_locations_of(const weft_config_locations *locations, const char *key);
/* Checks the RoPE widths of frames, rows and columns: even numbers that add up to the head
 * width. */
weft_status weft_check_axes(const weft_config_locations *locations, const char *key,
                            const int64_t axes[3], int64_t head_dim);
/* Checks "block_out_channels" of an autoencoder: at least `least` levels, each a multiple of
 * `groups`, the groups of its norms. */
weft_status weft_check_levels(const weft_config_locations *locations, const int64_t *width,
                              int64_t levels, int64_t least, int64_t groups);
/* Checks "cross_attention_dim", for models that project texts to their width. */
weft_status weft_check_cross(const weft_config_locations *locations, int64_t cross, int64_t width);
/* Checks "num_key_value_heads" and "head_dim" of grouped attention with rotary embedding. */
weft_status weft_check_grouped_heads(const weft_config_locations *locations, int64_t heads,
                                     int64_t key_heads, int64_t head_dim);
/* Reads and checks a config by the family's table. */
weft_status weft_fields_read(const weft_family *family, const json_t *json,
                             const weft_config_locations *locations, void *config);
json_t *weft_fields_write(const weft_family *family, const void *config); /* NULL: out of memory */

#endif
