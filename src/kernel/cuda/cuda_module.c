#include "kernel/cuda/cuda_module.h"

#include "base/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { SLOTS = 4 * WEFT_CUDA_MODULES_ADDED, LOG_BYTES = 2048 };
/* Shared memory of a launch that needs no permission. */
static const int64_t usual_shared = 48 << 10;

typedef struct known_kernel {
    char *name;
    cuda_function function;
    uint32_t shared; /* dynamic bytes that launches may have */
} known_kernel;

typedef struct loaded_image {
    const weft_cuda_image *image;
    cuda_module module;
    struct loaded_image *next;
} loaded_image;

typedef struct added_image {
    weft_cuda_image image;
    struct added_image *next;
} added_image;

static struct {
    pthread_mutex_t mutex;
    known_kernel slot[SLOTS]; /* a hash table */
    int count;
    loaded_image *loaded;
    added_image *added; /* at run time */
    int added_count;
} modules = {.mutex = PTHREAD_MUTEX_INITIALIZER};

weft_status weft_cuda_module_check(void)
{
    if (weft_cuda_images[0].name)
        return WEFT_OK;
    return weft_error(WEFT_MSG_GPU_KERNELS, WEFT_AT(.key = "clang-14"),
                      "this weft has no kernels for GPUs, because clang-14 was not found when it "
                      "was built. Install clang-14 and build weft again.");
}

/* ---- images --------------------------------------------------------------------------------- */

static bool has_entry(const weft_cuda_image *image, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = (const char *)image->text; (at = strstr(at, ".entry "));) {
        at += strlen(".entry ");
        if (!strncmp(at, name, length) && (at[length] == '(' || at[length] == ' '))
            return true;
    }
    return false;
}

weft_status weft_cuda_module_add(const char *name, char *code)
{
    added_image *added;
    WEFT_TRY(WEFT_NEW(added, 1, "a module of kernels"));
    added->image = (weft_cuda_image){name, (unsigned char *)code};
    pthread_mutex_lock(&modules.mutex);
    const bool is_full = modules.added_count == WEFT_CUDA_MODULES_ADDED;
    if (!is_full) {
        modules.added_count++;
        added->next = modules.added;
        modules.added = added;
    }
    pthread_mutex_unlock(&modules.mutex);
    if (!is_full)
        return WEFT_OK;
    weft_free(added);
    return weft_error(WEFT_MSG_KERNEL_UNSUPPORTED, WEFT_AT(.value = name),
                      "the process has %d compiled kernels and adds no more",
                      (int)WEFT_CUDA_MODULES_ADDED);
}

/* The image that has the kernel; NULL: none. Requires the lock. */
static const weft_cuda_image *image_of(const char *name)
{
    for (const added_image *a = modules.added; a; a = a->next)
        if (!strcmp(a->image.name, name))
            return &a->image;
    for (const weft_cuda_image *image = weft_cuda_images; image->name; image++)
        if (has_entry(image, name))
            return image;
    return NULL;
}

/* Whether the driver cannot use the text of an image. */
static bool rejects_image(cuda_result result)
{
    switch (result) {
    case CUDA_INVALID_IMAGE:
    case CUDA_NO_BINARY:
    case CUDA_INVALID_PTX:
    case CUDA_NO_JIT_COMPILER:
    case CUDA_UNSUPPORTED_PTX:
    case CUDA_JIT_DISABLED: return true;
    default: return false;
    }
}

static weft_status load(const weft_cuda_gpu *gpu, const weft_cuda_image *image, cuda_module *module)
{
    char log[LOG_BYTES] = "";
    int option[] = {CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_BYTES};
    void *value[] = {log, (void *)(uintptr_t)sizeof log};
    const cuda_result result = gpu->driver->module_load(module, image->text, 2, option, value);
    const char *error = NULL;
    if (result == CUDA_OK)
        return WEFT_OK;
    if (!rejects_image(result)) /* also the error of earlier work, such as a lost GPU */
        return weft_cuda_gpu_error(gpu, result, "load the kernels");
    log[LOG_BYTES - 1] = 0;
    gpu->driver->error_name(result, &error);
    return weft_error(WEFT_MSG_GPU_KERNELS, WEFT_AT(.value = image->name, WEFT_NUMBER(result)),
                      "the driver rejects the kernels %s: %s (%d) %s. Update the NVIDIA driver to "
                      "CUDA 11.7 or later.",
                      image->name, error ? error : "an error without a name", result, log);
}

/* The module of an image, loaded once. Requires the lock. */
static weft_status module_of(const weft_cuda_gpu *gpu, const weft_cuda_image *image,
                             cuda_module *module)
{
    loaded_image *l = modules.loaded;
    while (l && l->image != image)
        l = l->next;
    if (!l) {
        cuda_module own;
        WEFT_TRY(load(gpu, image, &own));
        WEFT_TRY(WEFT_NEW(l, 1, "a module of kernels"));
        *l = (loaded_image){image, own, modules.loaded};
        modules.loaded = l;
    }
    *module = l->module;
    return WEFT_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static known_kernel *slot_of(const char *name)
{
    uint64_t hash = 1469598103934665603u;
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    size_t i = hash % SLOTS;
    while (modules.slot[i].name && strcmp(modules.slot[i].name, name))
        i = (i + 1) % SLOTS;
    return &modules.slot[i];
}

static weft_status_code call_error(const weft_cuda_gpu *gpu, cuda_result result, const char *what,
                                   const char *kernel)
{
    char text[160];
    snprintf(text, sizeof text, "%s of kernel %.80s", what, kernel);
    return weft_cuda_gpu_error(gpu, result, text);
}

/* Requires the lock. */
static weft_status find(const weft_cuda_gpu *gpu, const char *name, known_kernel **kernel)
{
    known_kernel *k = slot_of(name);
    cuda_module module;
    *kernel = k;
    if (k->name)
        return WEFT_OK;
    const weft_cuda_image *image = image_of(name);
    if (!image || modules.count == SLOTS / 2)
        return weft_error(WEFT_MSG_GPU_KERNELS, WEFT_AT(.value = name),
                          "no embedded module has the kernel %s. This is a bug in weft.", name);
    WEFT_TRY(module_of(gpu, image, &module));
    const cuda_result result = gpu->driver->module_function(&k->function, module, name);
    if (result != CUDA_OK)
        return call_error(gpu, result, "the code", name);
    k->name = weft_strdup(name);
    k->shared = (uint32_t)usual_shared;
    modules.count++;
    return WEFT_ALLOCATED(k->name, "a kernel");
}

/* Asks for more shared memory than usual, once per kernel and size. Requires the lock. */
static weft_status allow_shared(const weft_cuda_gpu *gpu, known_kernel *k, uint32_t shared)
{
    int constant;
    if (shared <= k->shared)
        return WEFT_OK;
    cuda_result result =
        gpu->driver->function_get(&constant, CUDA_FUNCTION_STATIC_SHARED, k->function);
    if (result == CUDA_OK && (int64_t)shared + constant > gpu->shared)
        return weft_error(
            WEFT_MSG_KERNEL_UNSUPPORTED, WEFT_AT(.value = k->name, WEFT_NUMBER(shared)),
            "the kernel %s needs %" PRId64 " bytes of shared memory, and a block of %s "
            "has %d. Use a smaller size or backend cpu.",
            k->name, (int64_t)shared + constant, gpu->name, gpu->shared);
    if (result == CUDA_OK)
        result = gpu->driver->function_set(k->function, CUDA_FUNCTION_DYNAMIC_SHARED, (int)shared);
    if (result != CUDA_OK)
        return call_error(gpu, result, "the shared memory", k->name);
    k->shared = shared;
    return WEFT_OK;
}

weft_status weft_cuda_module_launch(const weft_cuda_gpu *gpu, cuda_stream stream,
                                    const weft_cuda_launch *l)
{
    known_kernel *k;
    void *parameter[] = {(void *)(uintptr_t)l->args};
    if (!l->grid[0] || !l->grid[1] || !l->grid[2])
        return WEFT_OK;
    pthread_mutex_lock(&modules.mutex);
    weft_status_code status = find(gpu, l->kernel, &k);
    if (status == WEFT_OK)
        status = allow_shared(gpu, k, l->shared);
    const cuda_function function = k->function;
    pthread_mutex_unlock(&modules.mutex);
    WEFT_TRY(status);
    const cuda_result result =
        gpu->driver->launch(function, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1],
                            l->block[2], l->shared, stream, parameter, NULL);
    if (result == CUDA_OK)
        return WEFT_OK;
    char what[160];
    snprintf(what, sizeof what, "launch of %.80s, %u blocks of %u threads", l->kernel,
             l->grid[0] * l->grid[1] * l->grid[2], l->block[0] * l->block[1] * l->block[2]);
    return weft_cuda_gpu_error(gpu, result, what);
}
