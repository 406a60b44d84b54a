#include "base/location.h"

#include <string.h>
#include <strings.h>

bool weft_location_is_remote(const char *text)
{
    const size_t scheme =
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");
    return (scheme > 0 && !strncmp(text + scheme, "://", 3)) || !strncasecmp(text, "s3:", 3);
}

bool weft_location_is_bucket(const char *text)
{
    return !strncmp(text, "s3://", 5);
}

weft_status weft_location_check_local(const char *text, const char *key)
{
    if (!weft_location_is_remote(text))
        return WEFT_OK;
    return weft_error(WEFT_MSG_STORAGE_LOCATION, WEFT_AT(.key = key, .value = text),
                      "%s is not a path of this machine, and weft needs one here. Copy the files "
                      "with `aws s3 sync`, or mount the bucket.",
                      text);
}
