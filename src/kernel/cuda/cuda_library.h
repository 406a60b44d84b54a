/* Libraries of NVIDIA that are loaded at run time. */
#ifndef WEFT_KERNEL_CUDA_CUDA_LIBRARY_H
#define WEFT_KERNEL_CUDA_CUDA_LIBRARY_H

#include <stddef.h>

typedef struct weft_library_function {
    const char *name;
    void **to;
} weft_library_function;

/* Sets *to of each entry. Returns the name of the first function that the library lacks; NULL: it
 * has all. */
const char *weft_library_find(void *library, const weft_library_function *list, size_t count);
/* Opens the first of names[count], which call the GPU's driver. NULL: there is none, or
 * `mode_variable` of the environment is "off". `path_variable` replaces the names.
 * WEFT_CUDA_LIBRARY replaces the driver, which NVIDIA's libraries would not call: then only
 * `path_variable` counts. */
void *weft_library_open(const char *mode_variable, const char *path_variable,
                        const char *const *names, size_t count);

#endif
