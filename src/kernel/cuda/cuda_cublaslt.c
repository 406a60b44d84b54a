#include "kernel/cuda/cuda_cublaslt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_once_t once;
    weft_cublaslt functions; /* version 0: not usable */
} cublaslt = {.once = PTHREAD_ONCE_INIT};

static bool find_functions(void *library, size_t (**version)(void))
{
    weft_cublaslt *f = &cublaslt.functions;
    const struct {
        const char *name;
        void **to;
    } names[] = {
#define CUBLASLT_FUNCTION(member, symbol, parameters) {#symbol, (void **)&f->member},
#include "kernel/cuda/cuda_cublaslt.def"
#undef CUBLASLT_FUNCTION
        {"cublasLtGetVersion", (void **)version},
        {"cublasLtGetStatusString", (void **)&f->error_text},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!(*names[i].to = dlsym(library, names[i].name)))
            return false;
    return true;
}

static void *open_library(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    const char *own = getenv("WEFT_CUBLASLT_LIBRARY");
    void *library = NULL;
    if (own && own[0])
        return dlopen(own, RTLD_NOW | RTLD_LOCAL);
    if (getenv("WEFT_CUDA_LIBRARY"))
        return NULL; /* NVIDIA's library would call another driver */
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static void load(void)
{
    const char *mode = getenv("WEFT_CUBLASLT");
    size_t (*version)(void);
    if (mode && !strcmp(mode, "off"))
        return;
    void *library = open_library();
    if (library && find_functions(library, &version) && version() >= WEFT_CUBLASLT_LEAST)
        cublaslt.functions.version = (int64_t)version();
}

const weft_cublaslt *weft_cublaslt_get(void)
{
    pthread_once(&cublaslt.once, load);
    return cublaslt.functions.version ? &cublaslt.functions : NULL;
}

weft_status_code weft_cublaslt_error(const weft_cublaslt *library, int status, const char *what)
{
    return weft_error(WEFT_MSG_KERNEL_UNSUPPORTED, WEFT_AT(.value = what, WEFT_NUMBER(status)),
                      "%s: cuBLASLt returns %d, %s. Another implementation is used.", what, status,
                      library->error_text(status));
}
