#include "kernel/cuda/chain_kernels.h"

#include "base/fs.h"
#include "base/id_hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernel/cuda/chain_class.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/cuda_nvrtc.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/cuda/op_launch.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { PTX_MOST = 16 << 20, SEAL = 20 };

static struct {
    pthread_mutex_t mutex;
    weft_chain_kernel *first; /* with code */
    weft_chain_kernel *named; /* names only */
} chains = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void weft_chain_lock(void)
{
    pthread_mutex_lock(&chains.mutex);
}

void weft_chain_unlock(void)
{
    pthread_mutex_unlock(&chains.mutex);
}

/* ---- the code -------------------------------------------------------------------------------- */

static uint64_t hash_of(const char *source)
{
    const int64_t version = weft_nvrtc_version();
    uint64_t hash = weft_id_mix(WEFT_ID_BEGIN, source, strlen(source));
    for (const weft_cuda_image *h = weft_cuda_headers; h->name; h++)
        hash = weft_id_mix(hash, h->text, strlen((const char *)h->text));
    return weft_id_mix(hash, &version, sizeof version);
}

/* The last line of stored PTX, a comment: "// 0123456789abcdef". */
static void seal_of(const char *ptx, int64_t bytes, char seal[SEAL + 1])
{
    snprintf(seal, SEAL + 1, "// %016" PRIx64 "\n", weft_id_mix(WEFT_ID_BEGIN, ptx, (size_t)bytes));
}

static bool is_whole(const char *ptx, int64_t bytes)
{
    char seal[SEAL + 1];
    if (bytes < SEAL)
        return false;
    seal_of(ptx, bytes - SEAL, seal);
    return !memcmp(ptx + bytes - SEAL, seal, SEAL);
}

/* A file with damage, which the driver would reject in every run, is compiled and written again. */
static bool read_stored(const char *path, const char *name, char **ptx)
{
    int64_t bytes;
    if (!weft_path_exists(path) || weft_file_read(path, PTX_MOST, ptx, &bytes) != WEFT_OK)
        return false;
    if (is_whole(*ptx, bytes) && strstr(*ptx, name))
        return true;
    weft_debug("%s is damaged", path);
    weft_free(*ptx);
    *ptx = NULL;
    return false;
}

static weft_status write_stored(const char *path, const char *ptx)
{
    const int64_t bytes = (int64_t)strlen(ptx);
    char seal[SEAL + 1];
    weft_buf text = {0};
    seal_of(ptx, bytes, seal);
    weft_buf_printf(&text, "%s%s", ptx, seal);
    return weft_file_write_buf(path, &text);
}

static weft_status compile(const char *name, const char *source, char **ptx)
{
    char end[48], *path;
    snprintf(end, sizeof end, "-chain-%016" PRIx64 ".ptx", hash_of(source));
    WEFT_TRY(weft_cuda_verdicts_path(end, &path));
    weft_status_code status = WEFT_OK;
    if (read_stored(path, name, ptx))
        goto out;
    WEFT_GO(weft_nvrtc_compile(name, source, ptx));
    if (write_stored(path, *ptx) != WEFT_OK)
        weft_debug("%s is not stored: %s", path, weft_error_text());
out:
    weft_free(path);
    return status;
}

/* The module keeps the text. */
static weft_status add_kernel(weft_chain_kernel *k, const char *source)
{
    char *ptx = NULL;
    WEFT_TRY(compile(k->name, source, &ptx));
    const weft_status_code status = weft_cuda_module_add(k->name, ptx);
    if (status != WEFT_OK) {
        weft_free(ptx);
        return status;
    }
    k->next = chains.first;
    chains.first = k;
    return WEFT_OK;
}

weft_status weft_chain_kernel_get(const weft_kernel_args *args, weft_chain_kernel **out)
{
    weft_buf source = {0};
    char name[WEFT_CHAIN_NAME];
    weft_chain_kernel *k = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_chain_source(args, name, &source));
    for (k = chains.first; k && strcmp(k->name, name);)
        k = k->next;
    if (!k) {
        WEFT_GO(WEFT_NEW(k, 1, "a generated kernel"));
        memcpy(k->name, name, sizeof k->name);
        status = add_kernel(k, source.data);
        if (status != WEFT_OK)
            weft_free(k);
    }
    *out = k;
out:
    weft_buf_free(&source);
    return status;
}

const char *weft_chain_name(const weft_kernel_args *args)
{
    weft_buf source = {0};
    char name[WEFT_CHAIN_NAME];
    weft_chain_kernel *k = NULL;
    if (weft_chain_source(args, name, &source) == WEFT_OK) {
        weft_chain_lock();
        for (k = chains.named; k && strcmp(k->name, name);)
            k = k->next;
        if (!k && (k = weft_calloc(1, sizeof *k))) {
            memcpy(k->name, name, sizeof k->name);
            k->next = chains.named;
            chains.named = k;
        }
        weft_chain_unlock();
    }
    weft_buf_free(&source);
    return k ? k->name : NULL;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* The two numbers of a step, as for the kernel of the op. */
static void set_numbers(const weft_pointwise_step *step, float *a, float *b)
{
    if (step->op == WEFT_OP_AFFINE) {
        *a = (float)step->attr.affine.scale;
        *b = (float)step->attr.affine.offset;
    } else if (step->op == WEFT_OP_CLAMP || step->op == WEFT_OP_CLAMP_GRAD) {
        *a = (float)step->attr.clamp.lo;
        *b = (float)step->attr.clamp.hi;
    }
}

weft_status_code weft_chain_launch(const weft_kernel_args *args, const char *name,
                                   weft_cuda_queue *queue)
{
    const weft_attr_pointwise *attr = args->attr;
    weft_cuda_loop loop;
    chain_args a = {0};
    weft_chain_loop(args, &loop);
    for (int i = 0; i < args->in_count; i++) {
        a.in[i] = args->in[i].data;
        a.same[i] = loop.rank > 0 && loop.stride[i][loop.rank - 1] == 0;
    }
    for (int o = 0; o < args->out_count; o++)
        a.out[o] = args->out[o].data;
    for (int s = 0; s < attr->count; s++)
        set_numbers(&attr->step[s], &a.a[s], &a.b[s]);
    a.vector = weft_cuda_loop_widen(&loop, args, args->in_count);
    a.items = weft_cuda_loop_items(&loop);
    WEFT_TRY(weft_cuda_loop_shape(&loop, &a.shape));
    for (int i = 0; i < args->in_count; i++)
        weft_cuda_loop_strides(&loop, i, a.stride[i]);
    return weft_cuda_add(queue, name, weft_cuda_blocks(a.items, POINTWISE_THREADS),
                         POINTWISE_THREADS, &a, sizeof a);
}
