/* Names of options or keys, with whether each was given. */
#ifndef WEFT_BASE_GIVEN_H
#define WEFT_BASE_GIVEN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct weft_given {
    const char *name;
    bool given;
} weft_given;

/* The name of the first entry that was given; NULL: none. */
static inline const char *weft_first_given(const weft_given *list, int count)
{
    for (int i = 0; i < count; i++)
        if (list[i].given)
            return list[i].name;
    return NULL;
}

#endif
