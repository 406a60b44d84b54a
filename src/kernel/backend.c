#include "kernel/kernel.h"

#include <string.h>

const weft_backend *weft_backend_find(const char *name)
{
    const weft_backend *const all[] = {&weft_backend_ref, &weft_backend_cpu};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}
