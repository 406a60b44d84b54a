#include "kernel/cuda/cuda_nvrtc.h"

#include "base/memory.h"
#include "kernel/cuda/cuda_library.h"
#include "kernel/cuda/cuda_module.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { NVRTC_OK = 0, HEADERS = 32, ARCHS = 64, LOG_SHOWN = 600, EMBEDDED_ARCH = 80 };
typedef struct nvrtc_program_opaque *nvrtc_program;

/* Types are written from the public documentation of NVRTC. */
static struct {
    pthread_once_t once;
    int64_t number;
    int (*version)(int *major, int *minor);
    int (*create)(nvrtc_program *program, const char *source, const char *name, int headers,
                  const char *const *header, const char *const *include_name);
    int (*compile)(nvrtc_program program, int options, const char *const *option);
    int (*ptx_bytes)(nvrtc_program program, size_t *bytes);
    int (*ptx)(nvrtc_program program, char *ptx);
    int (*machine_bytes)(nvrtc_program program, size_t *bytes);
    int (*machine)(nvrtc_program program, char *code);
    int (*arch_count)(int *count);
    int (*archs)(int *list);
    int (*log_bytes)(nvrtc_program program, size_t *bytes);
    int (*log)(nvrtc_program program, char *log);
    int (*destroy)(nvrtc_program *program);
    const char *(*error_text)(int result);
} nvrtc = {.once = PTHREAD_ONCE_INIT};

static void load(void)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"};
    const weft_library_function list[] = {
        {"nvrtcVersion", (void **)&nvrtc.version},
        {"nvrtcCreateProgram", (void **)&nvrtc.create},
        {"nvrtcCompileProgram", (void **)&nvrtc.compile},
        {"nvrtcGetPTXSize", (void **)&nvrtc.ptx_bytes},
        {"nvrtcGetPTX", (void **)&nvrtc.ptx},
        {"nvrtcGetCUBINSize", (void **)&nvrtc.machine_bytes},
        {"nvrtcGetCUBIN", (void **)&nvrtc.machine},
        {"nvrtcGetNumSupportedArchs", (void **)&nvrtc.arch_count},
        {"nvrtcGetSupportedArchs", (void **)&nvrtc.archs},
        {"nvrtcGetProgramLogSize", (void **)&nvrtc.log_bytes},
        {"nvrtcGetProgramLog", (void **)&nvrtc.log},
        {"nvrtcDestroyProgram", (void **)&nvrtc.destroy},
        {"nvrtcGetErrorString", (void **)&nvrtc.error_text},
    };
    int major, minor;
    void *library = weft_library_open("WEFT_NVRTC", "WEFT_NVRTC_LIBRARY", names,
                                      sizeof names / sizeof names[0]);
    if (library && !weft_library_find(library, list, sizeof list / sizeof list[0]) &&
        nvrtc.version(&major, &minor) == NVRTC_OK)
        nvrtc.number = 1000 * (int64_t)major + 10 * (int64_t)minor;
}

int64_t weft_nvrtc_version(void)
{
    pthread_once(&nvrtc.once, load);
    return nvrtc.number;
}

/* The newest architecture of NVRTC up to `arch`; 0: none. */
static int newest_arch(int arch)
{
    int list[ARCHS], count, newest = 0;
    if (nvrtc.arch_count(&count) != NVRTC_OK || count > ARCHS || nvrtc.archs(list) != NVRTC_OK)
        return 0;
    for (int i = 0; i < count; i++)
        if (list[i] <= arch && list[i] > newest)
            newest = list[i];
    return newest;
}

weft_nvrtc_target weft_nvrtc_target_of(int arch, int driver)
{
    const weft_nvrtc_target portable = {.arch = EMBEDDED_ARCH, .portable = true};
    const int newest = weft_nvrtc_version() > 0 ? newest_arch(arch) : 0;
    if (newest < EMBEDDED_ARCH || driver / 1000 < nvrtc.number / 1000)
        return portable;
    return (weft_nvrtc_target){.arch = newest, .machine = newest == arch};
}

/* An error with the beginning of the compiler's log. */
static weft_status failed(nvrtc_program program, int result, const char *name)
{
    size_t bytes = 0;
    char *log = NULL;
    if (program && nvrtc.log_bytes(program, &bytes) == NVRTC_OK && bytes > 1)
        log = weft_calloc((int64_t)bytes + 1, 1);
    if (log && nvrtc.log(program, log) != NVRTC_OK)
        log[0] = 0;
    const weft_status_code status =
        weft_error(WEFT_MSG_KERNEL_UNSUPPORTED, WEFT_AT(.value = name, WEFT_NUMBER(result)),
                   "NVRTC does not compile %s: %s (%d). %.*s", name, nvrtc.error_text(result),
                   result, (int)LOG_SHOWN, log ? log : "");
    weft_free(log);
    return status;
}

static int compile(const char *name, const char *source, const weft_nvrtc_target *target,
                   nvrtc_program *program)
{
    const char *text[HEADERS], *include_name[HEADERS];
    char arch[48];
    /* the precision of the kernels that clang compiles */
    const char *option[] = {arch,          "--fmad=false", "--prec-div=true", "--prec-sqrt=true",
                            "--ftz=false", "--std=c++14"};
    int headers = 0;
    snprintf(arch, sizeof arch, "--gpu-architecture=%s_%d", target->machine ? "sm" : "compute",
             target->arch);
    for (const weft_cuda_image *h = weft_cuda_headers; h->name && headers < HEADERS; h++) {
        text[headers] = (const char *)h->text;
        include_name[headers++] = h->name;
    }
    const int result = nvrtc.create(program, source, name, headers, text, include_name);
    return result == NVRTC_OK
               ? nvrtc.compile(*program, (int)(sizeof option / sizeof option[0]), option)
               : result;
}

/* NVRTC writes the version of its toolkit, which an older driver rejects. The version of the
 * embedded kernels (cmake/kernels.cmake) has every feature of the code. */
static void set_version(char *ptx)
{
    static const char key[] = ".version ", version[] = "7.5";
    char *at = strstr(ptx, key);
    const size_t digits = at ? strspn(at + strlen(key), "0123456789.") : 0;
    if (digits < strlen(version))
        return;
    memset(at + strlen(key), ' ', digits);
    memcpy(at + strlen(key), version, strlen(version));
}

/* Reads the code of a compiled program. */
static weft_status read_code(nvrtc_program program, const char *name, bool machine, char **code,
                             int64_t *bytes)
{
    size_t size;
    int result = (machine ? nvrtc.machine_bytes : nvrtc.ptx_bytes)(program, &size);
    if (result != NVRTC_OK)
        return failed(program, result, name);
    char *text = weft_calloc((int64_t)size + 1, 1);
    WEFT_TRY(WEFT_ALLOCATED(text, "a compiled kernel"));
    result = (machine ? nvrtc.machine : nvrtc.ptx)(program, text);
    if (result != NVRTC_OK) {
        weft_free(text);
        return failed(program, result, name);
    }
    *code = text;
    *bytes = machine ? (int64_t)size : (int64_t)strlen(text);
    return WEFT_OK;
}

weft_status weft_nvrtc_compile(const char *name, const char *source,
                               const weft_nvrtc_target *target, char **code, int64_t *bytes)
{
    nvrtc_program program = NULL;
    const int result = compile(name, source, target, &program);
    const weft_status_code status = result == NVRTC_OK
                                        ? read_code(program, name, target->machine, code, bytes)
                                        : failed(program, result, name);
    if (program)
        nvrtc.destroy(&program);
    if (status == WEFT_OK && target->portable)
        set_version(*code);
    return status;
}
