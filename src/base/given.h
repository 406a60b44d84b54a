/* Options and keys, with whether each was given. */
#ifndef WEFT_BASE_GIVEN_H
#define WEFT_BASE_GIVEN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct weft_given {
    const char *name;
    bool given;
} weft_given;

/* A number, 0 if it was not given. */
typedef struct weft_given_number {
    double value;
    bool given;
} weft_given_number;

static inline double weft_given_or(weft_given_number number, double other)
{
    return number.given ? number.value : other;
}

/* The name of the first entry that was given; NULL: none. */
static inline const char *weft_first_given(const weft_given *list, int count)
{
    for (int i = 0; i < count; i++)
        if (list[i].given)
            return list[i].name;
    return NULL;
}

#endif
