#include "api/sized.h"

#include <string.h>

static weft_status check_size(size_t size, const char *type)
{
    if (size < sizeof(size_t))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = type, WEFT_NUMBER(size)),
                          "size is %zu; initialise the struct with WEFT_INIT", size);
    return WEFT_OK;
}

weft_status weft_sized_read(void *to, size_t known, const void *from, const char *type)
{
    size_t size = known;
    if (from) {
        memcpy(&size, from, sizeof size);
        WEFT_TRY(check_size(size, type));
        const unsigned char *byte = from;
        for (size_t i = known; i < size; i++)
            if (byte[i])
                return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.key = type),
                                  "the struct has %zu bytes and this library knows %zu; byte %zu "
                                  "is set. Use a newer weft",
                                  size, known, i);
    }
    memset(to, 0, known);
    if (from)
        memcpy(to, from, size < known ? size : known);
    memcpy(to, &known, sizeof known);
    return WEFT_OK;
}

weft_status weft_sized_write(void *to, const void *from, size_t known, const char *type)
{
    size_t size;
    memcpy(&size, to, sizeof size);
    WEFT_TRY(check_size(size, type));
    if (size > known)
        memset((char *)to + known, 0, size - known);
    memcpy(to, from, size < known ? size : known);
    memcpy(to, &size, sizeof size);
    return WEFT_OK;
}
