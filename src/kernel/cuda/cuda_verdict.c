#include "kernel/cuda/cuda_verdict.h"

#include "base/fs.h"
#include "base/id_hash.h"
#include "base/kept_error.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernel/cuda/cuda_module.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static struct {
    uint8_t verdict[WEFT_PRODUCTS_COUNT][WEFT_CUDA_IMPLS][WEFT_OP_COUNT];
} state;

static struct {
    pthread_once_t once;
    uint64_t hash;
} kernels = {.once = PTHREAD_ONCE_INIT};

static const char *const precisions[WEFT_PRODUCTS_COUNT] = {"f32", "bf16", "tf32"};
static const char *const words[] = {"none", "passed", "failed", "stopped"};

/* ---- the table ------------------------------------------------------------------------------- */

void weft_cuda_verdicts_forget(void)
{
    memset(&state, 0, sizeof state);
}

void weft_cuda_verdict_set(weft_products products, int impl, weft_op op, weft_verdict verdict)
{
    state.verdict[products][impl][op] = (uint8_t)verdict;
}

weft_verdict weft_cuda_verdict_get(weft_products products, int impl, weft_op op)
{
    return (weft_verdict)state.verdict[products][impl][op];
}

const char *weft_verdict_name(weft_verdict verdict)
{
    return words[verdict];
}

static bool has_verdicts(weft_products products)
{
    const uint8_t *v = state.verdict[products][0];
    for (size_t i = 0; i < sizeof state.verdict[products]; i++)
        if (v[i])
            return true;
    return false;
}

weft_products weft_cuda_verdicts_precision(weft_products products)
{
    if (has_verdicts(products))
        return products;
    for (int p = 0; p < WEFT_PRODUCTS_COUNT; p++)
        if (has_verdicts((weft_products)p))
            return (weft_products)p;
    return products;
}

const char *weft_cuda_precision_name(weft_products products)
{
    return precisions[products];
}

/* ---- the file -------------------------------------------------------------------------------- */

static void hash_kernels(void)
{
    kernels.hash = WEFT_ID_BEGIN;
    for (const weft_cuda_image *image = weft_cuda_images; image->name; image++)
        kernels.hash = weft_id_mix(kernels.hash, image->text, strlen((const char *)image->text));
}

/* A hash of the embedded kernels. Computed once: they are 2 MB of text, and every use of the
 * files needs the hash. */
static uint64_t kernels_hash(void)
{
    pthread_once(&kernels.once, hash_kernels);
    return kernels.hash;
}

/* Versions of the libraries by implementation. NULL: out of memory. */
static json_t *versions_json(void)
{
    json_t *versions = json_object();
    for (int i = 0; versions && i < weft_cuda_impl_own(); i++) {
        const weft_cuda_impl *impl = weft_cuda_impl_get(i);
        const int64_t version = impl->version();
        if (version > 0)
            json_object_set_new(versions, impl->name, json_integer((json_int_t)version));
    }
    return versions;
}

weft_status weft_cuda_verdicts_key(json_t **key)
{
    const weft_cuda_gpu *gpu;
    char hash[20];
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    snprintf(hash, sizeof hash, "%016" PRIx64, kernels_hash());
    *key = json_pack("{s:s, s:i, s:i, s:i, s:s, s:s, s:o}", "gpu", gpu->name, "major", gpu->major,
                     "minor", gpu->minor, "cuda", gpu->version, "weft", WEFT_VERSION, "kernels",
                     hash, "libraries", versions_json());
    return WEFT_ALLOCATED(*key, "the verdicts of kernels");
}

static weft_status folder_of(weft_buf *path)
{
    const char *named = getenv("WEFT_GPU_VERDICTS"), *base = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (named && *named)
        weft_buf_printf(path, "%s", named);
    else if (base && *base)
        weft_buf_printf(path, "%s/weft/gpu", base);
    else
        weft_buf_printf(path, "%s/.cache/weft/gpu", home ? home : "");
    return weft_buf_check(path);
}

weft_status weft_cuda_verdicts_path(const char *end, char **out)
{
    json_t *key;
    weft_buf path = {0};
    WEFT_TRY(weft_cuda_verdicts_key(&key));
    char *line = weft_json_line(key);
    json_decref(key);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(line, "the verdicts of kernels"));
    WEFT_GO(folder_of(&path));
    WEFT_GO(weft_make_dirs(path.data));
    weft_buf_printf(&path, "/%016" PRIx64 "%s", weft_id_mix(WEFT_ID_BEGIN, line, strlen(line)),
                    end);
    WEFT_GO(weft_buf_check(&path));
    *out = path.data;
    path = (weft_buf){0};
out:
    weft_buf_free(&path);
    weft_free(line);
    return status;
}

weft_status weft_cuda_files_lock(int *lock)
{
    char *path;
    *lock = -1; /* also if no file is opened: callers close it in every case */
    WEFT_TRY(weft_cuda_verdicts_path(".lock", &path));
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    weft_status_code status = WEFT_OK;
    if (*lock < 0)
        status = weft_error_errno(WEFT_AT(.file = path), "the lock of the verdicts of kernels");
    else if (flock(*lock, LOCK_EX) != 0)
        weft_debug("%s cannot be locked", path); /* a file system without locks */
    weft_free(path);
    return status;
}

void weft_cuda_files_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}

static void read_ops(const json_t *file, weft_products products, bool *found)
{
    const json_t *ops = json_object_get(json_object_get(file, "ops"), precisions[products]);
    *found = json_object_size(ops) > 0;
    for (int op = 0; op < WEFT_OP_COUNT; op++) {
        const json_t *by_impl = json_object_get(ops, weft_op_get((weft_op)op)->name);
        for (int i = 0; i < weft_cuda_impl_count(); i++) {
            const char *word =
                json_string_value(json_object_get(by_impl, weft_cuda_impl_get(i)->name));
            for (int v = 0; v < (int)(sizeof words / sizeof words[0]); v++)
                if (word && !strcmp(word, words[v]))
                    state.verdict[products][i][op] = (uint8_t)v;
        }
    }
}

static json_t *ops_json(weft_products products)
{
    json_t *ops = json_object();
    for (int op = 0; op < WEFT_OP_COUNT && ops; op++) {
        json_t *by_impl = json_object();
        for (int i = 0; i < weft_cuda_impl_count(); i++)
            if (state.verdict[products][i][op])
                json_object_set_new(by_impl, weft_cuda_impl_get(i)->name,
                                    json_string(words[state.verdict[products][i][op]]));
        if (json_object_size(by_impl) > 0)
            json_object_set(ops, weft_op_get((weft_op)op)->name, by_impl);
        json_decref(by_impl);
    }
    return ops;
}

weft_status weft_cuda_verdicts_save(void)
{
    char *path;
    json_t *key;
    WEFT_TRY(weft_cuda_verdicts_path(".json", &path));
    weft_status_code status = WEFT_OK;
    json_t *file = NULL;
    WEFT_GO(weft_cuda_verdicts_key(&key));
    file = json_pack("{s:o, s:{s:o, s:o, s:o}}", "of", key, "ops", precisions[0],
                     ops_json(WEFT_PRODUCTS_F32), precisions[1], ops_json(WEFT_PRODUCTS_BF16),
                     precisions[2], ops_json(WEFT_PRODUCTS_TF32));
    WEFT_GO(WEFT_ALLOCATED(file, "the verdicts of kernels"));
    WEFT_GO(weft_json_save(path, file));
out:
    json_decref(file);
    weft_free(path);
    return status;
}

/* ---- trials ---------------------------------------------------------------------------------- */

weft_status weft_cuda_trial_begin(weft_products products, int impl, weft_op op)
{
    char *path;
    weft_status_code status = WEFT_OK;
    if (impl == weft_cuda_impl_own())
        return WEFT_OK;
    WEFT_TRY(weft_cuda_verdicts_path("-trial", &path));
    FILE *file = fopen(path, "w"); /* not flushed to the disk: only the process may end */
    const bool written = file && fprintf(file, "%s %s %s\n", precisions[products],
                                         weft_cuda_impl_get(impl)->name, weft_op_get(op)->name) > 0;
    if ((file && fclose(file) != 0) || !written) /* a full disk is seen by fclose() */
        status = weft_error_errno(WEFT_AT(.file = path), "the note of a trial");
    weft_free(path);
    return status;
}

weft_status weft_cuda_trial_end(int impl)
{
    char *path;
    if (impl == weft_cuda_impl_own())
        return WEFT_OK;
    WEFT_TRY(weft_cuda_verdicts_path("-trial", &path));
    unlink(path);
    weft_free(path);
    return WEFT_OK;
}

/* Whether the error may be the implementation's fault. */
static bool is_suspect(int impl)
{
    if (impl == weft_cuda_impl_own())
        return false;
    switch (weft_error_class()) {
    case WEFT_MSG_GPU_LOST:
    case WEFT_MSG_GPU_HANG:
    case WEFT_MSG_GPU_FAILED: return true;
    default: return false;
    }
}

weft_status_code weft_cuda_trial_stop(int impl, weft_op op, weft_status_code status)
{
    const bool suspect = is_suspect(impl);
    weft_error_copy *error = weft_error_save();
    if (!suspect && weft_cuda_trial_end(impl) != WEFT_OK)
        weft_debug("the note of a trial stays");
    return weft_error_add(weft_kept_error_return(error, status), "%s of %s was tried%s",
                          weft_op_get(op)->name, weft_cuda_impl_get(impl)->name,
                          suspect ? "; the next run does not use it" : "");
}

static int position_of(const char *text, const char *const *list, int count)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(text, list[i]))
            return i;
    return -1;
}

static void set_stopped(const char *precision, const char *impl_name, const char *op_name)
{
    const int p = position_of(precision, precisions, WEFT_PRODUCTS_COUNT);
    for (int i = 0; p >= 0 && i < weft_cuda_impl_count(); i++)
        for (int op = 0; op < WEFT_OP_COUNT; op++)
            if (!strcmp(impl_name, weft_cuda_impl_get(i)->name) &&
                !strcmp(op_name, weft_op_get((weft_op)op)->name))
                state.verdict[p][i][op] = WEFT_VERDICT_STOPPED;
}

/* Turns the note of a trial that did not end into a verdict. */
static weft_status take_note(void)
{
    char *path, precision[8], impl[32], op[40];
    WEFT_TRY(weft_cuda_verdicts_path("-trial", &path));
    FILE *file = fopen(path, "r");
    weft_status_code status = WEFT_OK;
    if (!file)
        goto out;
    if (fscanf(file, "%7s %31s %39s", precision, impl, op) == 3)
        set_stopped(precision, impl, op);
    fclose(file);
    WEFT_GO(weft_cuda_verdicts_save());
    unlink(path);
out:
    weft_free(path);
    return status;
}

/* ---- loading --------------------------------------------------------------------------------- */

static weft_status read_file(const char *path, weft_products products, bool *found)
{
    json_t *file = NULL, *key;
    bool has[WEFT_PRODUCTS_COUNT] = {false};
    WEFT_TRY(weft_cuda_verdicts_key(&key));
    const bool usable = weft_path_exists(path) && weft_json_load(path, &file) == WEFT_OK &&
                        json_equal(json_object_get(file, "of"), key);
    for (int p = 0; p < WEFT_PRODUCTS_COUNT && usable; p++)
        read_ops(file, (weft_products)p, &has[p]);
    *found = has[products];
    json_decref(file);
    json_decref(key);
    return WEFT_OK;
}

weft_status weft_cuda_verdicts_load(weft_products products, bool *found)
{
    char *path;
    *found = false;
    weft_cuda_verdicts_forget();
    WEFT_TRY(weft_cuda_verdicts_path(".json", &path));
    const weft_status_code status = read_file(path, products, found);
    weft_free(path);
    WEFT_TRY(status);
    return take_note();
}
