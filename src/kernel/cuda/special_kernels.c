#include "kernel/cuda/special_kernels.h"

#include "kernel/cuda/compiled_code.h"
#include "kernel/cuda/cuda_module.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct special {
    uint64_t hash;
    char name[WEFT_SPECIAL_NAME];
    struct special *next;
} special;

static struct {
    pthread_mutex_t mutex;
    special *first;
} list = {.mutex = PTHREAD_MUTEX_INITIALIZER};

weft_status weft_special_source(const weft_special_kernel *kernel, const void *args,
                                char name[WEFT_SPECIAL_NAME], weft_buf *source)
{
    snprintf(name, WEFT_SPECIAL_NAME, "%s_%016" PRIx64, kernel->name,
             weft_special_hash(kernel, args));
    weft_buf_printf(source,
                    "#define WEFT_CHOSEN_NAME %s\n"
                    "#define WEFT_CHOOSE_%s ~, WEFT_CHOSEN_KERNEL\n"
                    "#define WEFT_CONSTANTS ",
                    name, kernel->name);
    weft_special_put_constants(kernel, args, source);
    weft_buf_printf(source, "\n#include \"kernel/cuda/kernels/%s.cu\"\n", kernel->file);
    return weft_buf_check(source);
}

/* Requires the lock. */
static special *find(uint64_t hash)
{
    special *s = list.first;
    while (s && s->hash != hash)
        s = s->next;
    return s;
}

/* The module keeps the code. */
static weft_status add(const weft_special_kernel *kernel, const void *args, special *s)
{
    weft_buf source = {0};
    char *code = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_special_source(kernel, args, s->name, &source));
    WEFT_GO(weft_compiled_code("-special-", s->name, source.data, &code));
    WEFT_GO(weft_cuda_module_add(s->name, code));
    code = NULL;
    s->next = list.first;
    list.first = s;
out:
    weft_free(code);
    weft_buf_free(&source);
    return status;
}

const char *weft_special_find(const weft_cuda_launch *launch)
{
    const weft_special_kernel *kernel = weft_special_kernel_of(launch);
    if (!kernel)
        return NULL;
    const uint64_t hash = weft_special_hash(kernel, launch->args);
    pthread_mutex_lock(&list.mutex);
    const special *s = find(hash);
    pthread_mutex_unlock(&list.mutex);
    return s ? s->name : NULL;
}

weft_status weft_special_get(const weft_cuda_launch *launch, const char **name)
{
    const weft_special_kernel *kernel = weft_special_kernel_of(launch);
    weft_status_code status = WEFT_OK;
    *name = NULL;
    if (!kernel)
        return WEFT_OK;
    const uint64_t hash = weft_special_hash(kernel, launch->args);
    pthread_mutex_lock(&list.mutex);
    special *s = find(hash);
    if (!s) {
        WEFT_GO(WEFT_NEW(s, 1, "a kernel for a shape"));
        s->hash = hash;
        status = add(kernel, launch->args, s);
        if (status != WEFT_OK) {
            weft_free(s);
            s = NULL;
        }
    }
    *name = s ? s->name : NULL;
out:
    pthread_mutex_unlock(&list.mutex);
    return status;
}
