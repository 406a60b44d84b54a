/* Modules and launches: the PTX says which kernels exist, and their limits; gcc's code runs. */
#include "emu_compile.h"
#include "emu_driver.h"

#include "../fibres.h"
#include "kernel/cuda/kernels/kernel_args.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct emu_module {
    emu_function *functions;
};

/* ---- PTX ------------------------------------------------------------------------------------- */

static const char *after_word(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    return at ? at + strlen(word) : NULL;
}

/* Bytes of a declaration: ".align 8 .b8 name[40]" or ".u64 name", up to ',' ')' or ';'. */
static uint32_t declared_bytes(const char *text)
{
    const char *end = text + strcspn(text, ",);"),
               *bracket = memchr(text, '[', (size_t)(end - text));
    uint32_t each = 1;
    for (const char *dot = text; dot && dot < end; dot = strchr(dot + 1, '.'))
        if (dot[0] == '.' && strchr("bufs", dot[1]) && isdigit((unsigned char)dot[2]))
            each = (uint32_t)strtoul(dot + 2, NULL, 10) / 8;
    return bracket ? each * (uint32_t)strtoul(bracket + 1, NULL, 10) : each;
}

/* True if the text from `begin` to `end` has the name. */
static bool has_name(const char *begin, const char *end, const char *name, size_t length)
{
    for (const char *at = begin; (at = memmem(at, (size_t)(end - at), name, length)); at += length)
        if (!isalnum((unsigned char)at[length]) && at[length] != '_')
            return true;
    return false;
}

/* Bytes of the static arrays in shared memory that a kernel's body names. */
static uint32_t shared_bytes(const char *image, const char *body)
{
    uint32_t bytes = 0;
    const char *next = strstr(body, ".entry "), *end = next ? next : body + strlen(body);
    for (const char *at = image; (at = after_word(at, ".shared .align"));) {
        const char *name = after_word(at, ".b8 ");
        const size_t length = name ? strcspn(name, "[;") : 0;
        if (length && name[length] == '[' && has_name(body, end, name, length))
            bytes += declared_bytes(at);
    }
    return bytes;
}

static CUresult read_entry(const char *image, const char *at, emu_function *f)
{
    const size_t length = strcspn(at, "( \n\t");
    const char *open = strchr(at, '('), *close = open ? strchr(open, ')') : NULL,
               *body = close ? strchr(close, '{') : NULL;
    if (!body || length >= sizeof f->name)
        return CUDA_ERROR_INVALID_PTX;
    memcpy(f->name, at, length);
    for (const char *p = open; (p = after_word(p, ".param")) && p < close;)
        f->parameter += declared_bytes(p);
    f->shared = shared_bytes(image, body);
    const char *most = after_word(close, ".maxntid");
    if (!most || most > body)
        return CUDA_SUCCESS;
    f->threads = 1;
    for (char *next = (char *)(uintptr_t)most;;) {
        f->threads *= (uint32_t)strtoul(next, &next, 10);
        if (*next != ',')
            return CUDA_SUCCESS;
        next++;
    }
}

static CUresult check_target(const char *image, char *log, size_t log_bytes)
{
    const char *version = after_word(image, ".version"), *target = after_word(image, ".target sm_");
    if (!version || !target) {
        snprintf(log, log_bytes, "no .version or .target");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    const long arch = strtol(target, NULL, 10), own = 10 * EMU_MAJOR + EMU_MINOR;
    const bool is_machine = !strncmp(image, EMU_MACHINE_MARK, strlen(EMU_MACHINE_MARK));
    if (arch > own || (is_machine && arch != own)) {
        snprintf(log, log_bytes, "the code is for sm_%ld", arch);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    return CUDA_SUCCESS;
}

/* Code that was compiled here has the limits of its source. */
static void take_limits(const char *image, emu_function *f)
{
    if (f->kernel && emu_compile_has_source(image)) {
        f->parameter = (uint32_t)f->kernel->args_bytes;
        f->threads = f->kernel->threads;
    }
}

CUresult emu_module_load(const char *image, char *log, size_t log_bytes, emu_module **out)
{
    CUresult result = check_target(image, log, log_bytes);
    if (result == CUDA_SUCCESS && emu_compile_image(image, log, log_bytes))
        result = CUDA_ERROR_INVALID_PTX;
    emu_module *module = result ? NULL : calloc(1, sizeof *module);
    if (!module)
        return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
    for (const char *at = image; result == CUDA_SUCCESS && (at = after_word(at, ".entry "));) {
        emu_function *f = calloc(1, sizeof *f);
        if (!f)
            emu_stop("out of memory");
        f->next = module->functions;
        f->dynamic = EMU_SHARED;
        module->functions = f;
        result = read_entry(image, at, f);
        f->kernel = emu_kernel_find(f->name);
        take_limits(image, f);
        if (f->kernel && f->kernel->args_bytes != f->parameter)
            emu_stop("the parameter of %s has %u bytes in the PTX and %zu bytes on the host",
                     f->name, f->parameter, f->kernel->args_bytes);
    }
    if (result == CUDA_SUCCESS) {
        *out = module;
        return result;
    }
    snprintf(log, log_bytes, "the PTX has an entry without a body");
    emu_module_unload(module);
    return result;
}

void emu_module_unload(emu_module *module)
{
    for (emu_function *f = module->functions; f;) {
        emu_function *next = f->next;
        free(f);
        f = next;
    }
    free(module);
}

emu_function *emu_module_find(emu_module *module, const char *name)
{
    for (emu_function *f = module->functions; f; f = f->next)
        if (!strcmp(f->name, name) && f->kernel)
            return f;
    return NULL;
}

/* ---- launches ------------------------------------------------------------------------------ */

typedef struct launch {
    emu_work work;
    const emu_function *function;
    uint32_t grid[3], block[3], shared;
    CUresult fault;
    bool hangs;
    char name[256];
    _Alignas(16) char parameter[]; /* with addresses of values */
} launch;

/* The n-th launch of the process has the effect that WEFT_EMU_FAULT names. */
static void plant_fault(launch *l)
{
    static int launches;
    static const struct {
        const char *name;
        CUresult result;
    } faults[] = {{"lost@", CUDA_ERROR_UNKNOWN},
                  {"ecc@", CUDA_ERROR_ECC_UNCORRECTABLE},
                  {"illegal@", CUDA_ERROR_ILLEGAL_ADDRESS}};
    const char *text = getenv("WEFT_EMU_FAULT");
    const int n = __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
    if (!text)
        return;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        if (!strncmp(text, faults[i].name, strlen(faults[i].name)) &&
            n == atoi(text + strlen(faults[i].name)))
            l->fault = faults[i].result;
    l->hangs = !strncmp(text, "hang@", 5) && n == atoi(text + 5);
}

static bool is_product(const char *kernel)
{
    return !strncmp(kernel, "weft_gemm_", 10);
}

/* remainder@N: products with N columns more than whole tiles of 128 have a wrong element. */
static void plant_remainder(const launch *l, const char *fault)
{
    if (!fault || strncmp(fault, "remainder@", 10) || !is_product(l->function->name))
        return;
    const gemm_args *a = (const void *)l->parameter;
    const size_t bytes = a->c.type == 0 ? 4 : 2; /* f32, else 16 bits */
    if (a->columns % 128 == atoi(fault + 10))
        memset((char *)a->c.data + (size_t)(a->columns - 1) * bytes, 0x44, bytes);
}

/* A wrong result after a launch: fragment exchanges two elements of each product on tensor cores, as a
 * wrong layout of fragments does; lse adds to the first lse of an attention. */
static void plant_result(const launch *l)
{
    const char *fault = getenv("WEFT_EMU_FAULT"), *kernel = l->function->name;
    if (fault && !strcmp(fault, "fragment") &&
        (!strcmp(kernel, "weft_gemm_bf16") || !strcmp(kernel, "weft_gemm_tf32"))) {
        const tensor_ref c = ((const gemm_args *)(const void *)l->parameter)->c;
        const size_t bytes = c.type == 0 ? 4 : 2; /* f32, else 16 bits */
        char first[4];
        memcpy(first, c.data, bytes);
        memcpy(c.data, (char *)c.data + bytes, bytes);
        memcpy((char *)c.data + bytes, first, bytes);
    }
    plant_remainder(l, fault);
    const attention_args *a = (const void *)l->parameter;
    if (fault && !strcmp(fault, "lse") && l->function->parameter == sizeof *a && !a->dout.data &&
        a->lse)
        a->lse[0] += 0.1f;
}

/* NAME:FILE: the fault strikes the first launch that begins when FILE exists, also of a graph. */
static void plant_later(launch *l)
{
    static bool has_struck;
    static const struct {
        const char *name;
        CUresult result; /* CUDA_SUCCESS: the launch hangs */
    } faults[] = {{"lost:", CUDA_ERROR_UNKNOWN},
                  {"ecc:", CUDA_ERROR_ECC_UNCORRECTABLE},
                  {"hang:", CUDA_SUCCESS}};
    const char *text = getenv("WEFT_EMU_FAULT"), *file = text ? strchr(text, ':') : NULL;
    if (!file || access(file + 1, F_OK) != 0 ||
        __atomic_exchange_n(&has_struck, true, __ATOMIC_RELAXED))
        return;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        if (!strncmp(text, faults[i].name, strlen(faults[i].name))) {
            l->fault = faults[i].result;
            l->hangs = !l->fault;
        }
}

static void run(emu_work *work, emu_stream *s)
{
    launch *l = (launch *)work;
    emu_memory_name(l->name);
    plant_later(l);
    if (l->hangs)
        emu_stream_hang(s);
    if (l->fault)
        emu_stream_fail(s, l->fault);
    if (l->fault || l->hangs)
        return;
    emu_launch(l->function->kernel, l->grid, l->block, l->shared, l->parameter,
               emu_stream_random(s) | 1);
    plant_result(l);
}

static CUresult check_limits(const emu_function *f, const uint32_t grid[3], const uint32_t block[3],
                             uint32_t shared)
{
    const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (!grid[0] || !grid[1] || !grid[2] || !threads || grid[0] > 0x7fffffff ||
        grid[1] > EMU_GRID_YZ || grid[2] > EMU_GRID_YZ || block[2] > 64 ||
        threads > EMU_BLOCK_THREADS)
        return CUDA_ERROR_INVALID_VALUE;
    if (f->threads && threads > f->threads)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    return shared > f->dynamic || f->shared > EMU_SHARED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Replaces addresses of GPUs and of pinned memory in the parameter, and refuses freed memory. Other
 * words may be anything: numbers, and bytes between members. */
static void place_pointers(launch *l, uint32_t bytes)
{
    for (uint32_t i = 0; i + sizeof(void *) <= bytes; i += sizeof(void *)) {
        void *data;
        char *inside;
        memcpy(&data, l->parameter + i, sizeof data);
        if (emu_memory_find(data, 0, &inside) != EMU_UNKNOWN)
            memcpy(l->parameter + i, &inside, sizeof inside);
        else if (emu_memory_is_freed(data))
            emu_stop("%s uses memory at %p that was freed; byte %u of its parameter", l->name, data,
                     i);
    }
}

CUresult emu_function_launch(emu_function *f, const uint32_t grid[3], const uint32_t block[3],
                             uint32_t shared, emu_stream *stream, const void *parameter)
{
    const emu_access *access;
    const int accesses = emu_stream_declared(stream, &access);
    const CUresult result = check_limits(f, grid, block, shared);
    if (result != CUDA_SUCCESS)
        return result;
    if (f->parameter > EMU_PARAMETER_BYTES)
        emu_stop("the parameter of %s has %u bytes", f->name, f->parameter);
    launch *l = calloc(1, sizeof *l + f->parameter + sizeof(void *));
    if (!l)
        emu_stop("out of memory");
    l->work.run = run;
    l->function = f;
    l->shared = shared;
    memcpy(l->grid, grid, sizeof l->grid);
    memcpy(l->block, block, sizeof l->block);
    memcpy(l->parameter, parameter, f->parameter);
    snprintf(l->name, sizeof l->name, "kernel %s of %s", f->name, emu_stream_node(stream));
    place_pointers(l, f->parameter);
    plant_fault(l);
    emu_stream_submit(stream, &l->work, access, accesses);
    return CUDA_SUCCESS;
}
