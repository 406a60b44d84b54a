#include "kernel/cuda/cuda_cudnn.h"

#include "kernel/cuda/cuda_library.h"

#include <pthread.h>

static struct {
    pthread_once_t once;
    weft_cudnn functions; /* version 0: not usable */
} cudnn = {.once = PTHREAD_ONCE_INIT};

static bool find_functions(void *library, size_t (**version)(void))
{
    weft_cudnn *f = &cudnn.functions;
    const weft_library_function list[] = {
#define CUDNN_FUNCTION(member, symbol, parameters) {#symbol, (void **)&f->member},
#include "kernel/cuda/cuda_cudnn.def"
#undef CUDNN_FUNCTION
        {"cudnnGetVersion", (void **)version},
        {"cudnnGetErrorString", (void **)&f->error_text},
        {"cudnnGetLastErrorString", (void **)&f->last_error},
    };
    return !weft_library_find(library, list, sizeof list / sizeof list[0]);
}

static void load(void)
{
    static const char *const name = "libcudnn.so.9";
    size_t (*version)(void);
    void *library = weft_library_open("WEFT_CUDNN", "WEFT_CUDNN_LIBRARY", &name, 1);
    if (library && find_functions(library, &version) && version() >= WEFT_CUDNN_LEAST)
        cudnn.functions.version = (int64_t)version();
}

const weft_cudnn *weft_cudnn_get(void)
{
    pthread_once(&cudnn.once, load);
    return cudnn.functions.version ? &cudnn.functions : NULL;
}

weft_status_code weft_cudnn_error(const weft_cudnn *library, int status, const char *what)
{
    char reason[256] = "";
    const char *text = library->error_text(status);
    library->last_error(reason, sizeof reason);
    reason[sizeof reason - 1] = 0;
    for (char *c = reason; *c; c++)
        if (*c == '\n')
            *c = ' ';
    return weft_error(WEFT_MSG_KERNEL_UNSUPPORTED, WEFT_AT(.value = what, WEFT_NUMBER(status)),
                      "%s: cuDNN returns %d, %s: %s. Another implementation is used. "
                      "CUDNN_LOGLEVEL_DBG=2 prints more.",
                      what, status, text, reason);
}
