#include "kernel/cuda/cuda_driver.h"

#include "kernel/cuda/cuda_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
    pthread_once_t once;
    weft_cuda_driver functions;
    const char *library;
    char lacking[320]; /* "": the driver is usable */
} driver = {.once = PTHREAD_ONCE_INIT};

static bool find_functions(void *library)
{
    weft_cuda_driver *f = &driver.functions;
    const weft_library_function list[] = {
#define CUDA_FUNCTION(member, symbol, parameters) {#symbol, (void **)&f->member},
#include "kernel/cuda/cuda_driver.def"
#undef CUDA_FUNCTION
    };
    const char *lacking = weft_library_find(library, list, sizeof list / sizeof list[0]);
    if (lacking) {
        snprintf(driver.lacking, sizeof driver.lacking, "it has no function %s", lacking);
        return false;
    }
    *(void **)&f->emulated_node = dlsym(library, "weft_emulated_node");
    *(void **)&f->emulated_access = dlsym(library, "weft_emulated_access");
    return true;
}

static void load(void)
{
    const char *own = getenv("WEFT_CUDA_LIBRARY"), *name = "unknown error";
    driver.library = own && own[0] ? own : "libcuda.so.1";
    void *library = dlopen(driver.library, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        snprintf(driver.lacking, sizeof driver.lacking, "%.300s", reason ? reason : "not found");
        return;
    }
    if (!find_functions(library))
        return;
    const cuda_result result = driver.functions.init(0);
    if (result == CUDA_OK)
        return;
    driver.functions.error_name(result, &name);
    snprintf(driver.lacking, sizeof driver.lacking, "cuInit returns %s (%d)", name, result);
}

weft_status weft_cuda_driver_load(const weft_cuda_driver **out)
{
    pthread_once(&driver.once, load);
    if (driver.lacking[0])
        return weft_error(WEFT_MSG_GPU_DRIVER, WEFT_AT(.file = driver.library),
                          "no NVIDIA driver (libcuda.so.1): %s. Install the NVIDIA driver, or use "
                          "backend cpu.",
                          driver.lacking);
    *out = &driver.functions;
    return WEFT_OK;
}

static weft_message_class class_of(cuda_result result)
{
    switch (result) {
    case CUDA_OUT_OF_MEMORY: return WEFT_MSG_GPU_MEMORY;
    case CUDA_ECC_UNCORRECTABLE:
    case CUDA_NVLINK_UNCORRECTABLE: return WEFT_MSG_GPU_ECC;
    case CUDA_DEVICE_UNAVAILABLE:
    case CUDA_NO_DEVICE:
    case CUDA_UNKNOWN: return WEFT_MSG_GPU_LOST;
    default: return WEFT_MSG_GPU_FAILED;
    }
}

weft_status_code weft_cuda_error(const weft_cuda_driver *f, cuda_result result, const char *what)
{
    const char *name = NULL, *text = NULL;
    const weft_message_class kind = class_of(result);
    f->error_name(result, &name);
    f->error_text(result, &text);
    return weft_error(kind, WEFT_AT(.value = name, WEFT_NUMBER(result)), "%s: %s (%d), %s. %s",
                      what, name ? name : "an error without a name", result,
                      text ? text : "no text", weft_message_remedy(kind));
}
