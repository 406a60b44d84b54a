#include "kernel/cuda/cuda_library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

const char *weft_library_find(void *library, const weft_library_function *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(*list[i].to = dlsym(library, list[i].name)))
            return list[i].name;
    return NULL;
}

void *weft_library_open(const char *mode_variable, const char *path_variable,
                        const char *const *names, size_t count)
{
    const char *mode = getenv(mode_variable), *own = getenv(path_variable);
    void *library = NULL;
    if (mode && !strcmp(mode, "off"))
        return NULL;
    if (own && own[0])
        return dlopen(own, RTLD_NOW | RTLD_LOCAL);
    if (getenv("WEFT_CUDA_LIBRARY"))
        return NULL;
    for (size_t i = 0; i < count && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}
