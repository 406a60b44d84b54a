/* Locations that are not paths: s3://BUCKET/PREFIX, https://HOST/PATH. */
#ifndef WEFT_BASE_LOCATION_H
#define WEFT_BASE_LOCATION_H

#include "base/status.h"

/* Whether the text begins with a scheme, known or not. */
bool weft_location_is_remote(const char *text);
/* Whether the text is s3://..., whose files can be listed. */
bool weft_location_is_bucket(const char *text);
/* WEFT_E_UNSUPPORTED for such a location, where only a path of this machine is possible. `key`: the
 * option or config key; NULL: none. */
weft_status weft_location_check_local(const char *text, const char *key);

#endif
