#include "kernel/cuda/cuda_cublaslt.h"

#include "kernel/cuda/cuda_library.h"

#include <pthread.h>

static struct {
    pthread_once_t once;
    weft_cublaslt functions; /* version 0: not usable */
} cublaslt = {.once = PTHREAD_ONCE_INIT};

static bool find_functions(void *library, size_t (**version)(void))
{
    weft_cublaslt *f = &cublaslt.functions;
    const weft_library_function list[] = {
#define CUBLASLT_FUNCTION(member, symbol, parameters) {#symbol, (void **)&f->member},
#include "kernel/cuda/cuda_cublaslt.def"
#undef CUBLASLT_FUNCTION
        {"cublasLtGetVersion", (void **)version},
        {"cublasLtGetStatusString", (void **)&f->error_text},
    };
    return !weft_library_find(library, list, sizeof list / sizeof list[0]);
}

static void load(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    size_t (*version)(void);
    void *library = weft_library_open("WEFT_CUBLASLT", "WEFT_CUBLASLT_LIBRARY", names, 2);
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
