#include "kernel/cuda/compiled_code.h"

#include "base/fs.h"
#include "base/id_hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/cuda_nvrtc.h"
#include "kernel/cuda/cuda_verdict.h"

#include <stdio.h>
#include <string.h>

enum { CODE_MOST = 16 << 20, SEAL = 20 };

static uint64_t hash_of(const char *source, const weft_nvrtc_target *target)
{
    const int64_t version = weft_nvrtc_version(), arch = target->arch, machine = target->machine;
    uint64_t hash = weft_id_mix(WEFT_ID_BEGIN, source, strlen(source));
    for (const weft_cuda_image *h = weft_cuda_headers; h->name; h++)
        hash = weft_id_mix(hash, h->text, strlen((const char *)h->text));
    hash = weft_id_mix(hash, &version, sizeof version);
    hash = weft_id_mix(hash, &arch, sizeof arch);
    return weft_id_mix(hash, &machine, sizeof machine);
}

/* The last line of stored code, in PTX a comment: "// 0123456789abcdef". It is of the bytes before
 * and of the kernel's name. */
static void seal_of(const char *name, const char *code, int64_t bytes, char seal[SEAL + 1])
{
    const uint64_t hash = weft_id_mix(WEFT_ID_BEGIN, name, strlen(name));
    snprintf(seal, SEAL + 1, "// %016" PRIx64 "\n", weft_id_mix(hash, code, (size_t)bytes));
}

static bool is_whole(const char *name, const char *code, int64_t bytes)
{
    char seal[SEAL + 1];
    if (bytes < SEAL)
        return false;
    seal_of(name, code, bytes - SEAL, seal);
    return !memcmp(code + bytes - SEAL, seal, SEAL);
}

/* A file with damage, which the driver would reject in every run, is compiled and written again. */
static bool read_stored(const char *path, const char *name, char **code)
{
    int64_t bytes;
    if (!weft_path_exists(path) || weft_file_read(path, CODE_MOST, code, &bytes) != WEFT_OK)
        return false;
    if (is_whole(name, *code, bytes))
        return true;
    weft_debug("%s is damaged", path);
    weft_free(*code);
    *code = NULL;
    return false;
}

static weft_status write_stored(const char *path, const char *name, const char *code, int64_t bytes)
{
    char seal[SEAL + 1];
    weft_buf text = {0};
    seal_of(name, code, bytes, seal);
    weft_buf_append(&text, code, bytes);
    weft_buf_append(&text, seal, SEAL);
    return weft_file_write_buf(path, &text);
}

weft_status weft_compiled_code(const char *kind, const char *name, const char *source, char **code)
{
    const weft_cuda_gpu *gpu;
    char end[64], *path = NULL;
    int64_t bytes;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    const weft_nvrtc_target target =
        weft_nvrtc_target_of(10 * gpu->major + gpu->minor, gpu->version);
    snprintf(end, sizeof end, "%s%016" PRIx64 ".code", kind, hash_of(source, &target));
    WEFT_GO(weft_cuda_verdicts_path(end, &path));
    if (read_stored(path, name, code))
        goto out;
    WEFT_GO(weft_nvrtc_compile(name, source, &target, code, &bytes));
    if (write_stored(path, name, *code, bytes) != WEFT_OK)
        weft_debug("%s is not stored: %s", path, weft_error_text());
out:
    weft_free(path);
    return status;
}
