#include "serve/byte_range.h"

#include <ctype.h>
#include <string.h>

/* Reads digits; values above 2^62 stay at that. Returns the first character that is not a digit. */
static const char *read_digits(const char *at, int64_t *value)
{
    *value = 0;
    for (; isdigit((unsigned char)*at); at++)
        *value = *value < INT64_MAX / 20 ? *value * 10 + (*at - '0') : INT64_MAX / 2;
    return at;
}

weft_range_kind weft_byte_range(const char *header, int64_t bytes, int64_t *first, int64_t *count)
{
    static const char unit[] = "bytes=";
    int64_t a, b;
    *first = 0;
    *count = bytes;
    if (!header || strncmp(header, unit, sizeof unit - 1) != 0)
        return WEFT_RANGE_WHOLE;
    const char *begin = header + sizeof unit - 1, *dash = read_digits(begin, &a);
    if (*dash != '-')
        return WEFT_RANGE_WHOLE;
    const char *end = read_digits(dash + 1, &b);
    const bool has_a = dash != begin, has_b = end != dash + 1;
    if (*end || !(has_a || has_b) || (has_a && has_b && b < a))
        return WEFT_RANGE_WHOLE;
    if (!has_a) { /* the last b bytes */
        a = b < bytes ? bytes - b : 0;
        b = b ? bytes - 1 : -1;
    } else if (!has_b || b >= bytes) {
        b = bytes - 1;
    }
    if (a >= bytes || b < a)
        return WEFT_RANGE_OUTSIDE;
    *first = a;
    *count = b - a + 1;
    return WEFT_RANGE_PART;
}
