#include "doctor/gpu_shapes.h"

#include "base/id_hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "doctor/gpu_case.h"
#include "doctor/gpu_check.h"
#include "kernel/cuda/cuda_choice.h"
#include "kernel/cuda/cuda_choice_file.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/view.h"

#include <pthread.h>
#include <string.h>

/* The result of a node's case, by a hash of the node at its own sizes: programs repeat nodes. */
typedef struct known {
    uint64_t node;
    bool failed[WEFT_CUDA_IMPLS];
    struct known *next;
} known;

static struct {
    pthread_mutex_t mutex;
    known *first;
    int64_t compared;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- nodes ----------------------------------------------------------------------------------- */

static uint64_t mix_views(uint64_t hash, const weft_view *view, int count)
{
    for (int i = 0; i < count; i++) {
        const int rank = view[i].shape.rank;
        hash = weft_id_mix(hash, &rank, sizeof rank);
        hash = weft_id_mix(hash, &view[i].dtype, sizeof view[i].dtype);
        hash = weft_id_mix(hash, view[i].shape.dim,
                           (size_t)(rank > 0 ? rank : 0) * sizeof *view[i].shape.dim);
    }
    return hash;
}

static uint64_t hash_of(const weft_kernel_args *args, weft_products products)
{
    uint64_t hash = weft_id_mix(WEFT_ID_BEGIN, &args->op, sizeof args->op);
    hash = weft_id_mix(hash, &products, sizeof products);
    if (args->attr)
        hash = weft_id_mix(hash, args->attr, (size_t)weft_op_get(args->op)->attr_bytes);
    return mix_views(mix_views(hash, args->in, args->in_count), args->out, args->out_count);
}

/* ---- stored results -------------------------------------------------------------------------- */

static bool read_stored(const json_t *stored, bool failed[WEFT_CUDA_IMPLS])
{
    const json_t *list = json_object_get(stored, "differs");
    for (size_t k = 0; k < json_array_size(list); k++) {
        const char *name = json_string_value(json_array_get(list, k));
        for (int i = 0; name && i < weft_cuda_impl_count(); i++)
            failed[i] = failed[i] || !strcmp(name, weft_cuda_impl_get(i)->name);
    }
    return stored != NULL;
}

static weft_status store(const char *key, const bool failed[WEFT_CUDA_IMPLS])
{
    json_t *list = json_array();
    for (int i = 0; list && i < weft_cuda_impl_count(); i++)
        if (failed[i])
            json_array_append_new(list, json_string(weft_cuda_impl_get(i)->name));
    json_t *line = json_pack("{s:s, s:o}", "key", key, "differs", list);
    WEFT_TRY(WEFT_ALLOCATED(line, "the comparison of a node"));
    return weft_cuda_choice_file_add(line);
}

/* ---- comparison ------------------------------------------------------------------------------ */

static void report(const weft_op_check *c, int impl, weft_op op, const char *key)
{
    const char *name = weft_cuda_impl_get(impl)->name;
    weft_warning(
        WEFT_MSG_KERNEL_REPLACED,
        WEFT_AT(.key = weft_op_get(op)->name, .value = name, WEFT_DETAILS(WEFT_WORD("shape", key))),
        "%s of %s differs from the reference by %.2g (tolerance %.2g), and is not used for "
        "this shape: %s",
        weft_op_get(op)->name, name, c->error, c->tolerance, key);
}

/* Requires the lock of the files. */
static weft_status compare(const weft_graph *g, weft_op of, weft_products products, const char *key,
                           bool failed[WEFT_CUDA_IMPLS])
{
    weft_op_check *op;
    const int own = weft_cuda_impl_own();
    WEFT_TRY(WEFT_NEW(op, WEFT_GPU_RESULTS, "the comparison of a node"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_gpu_check_graph(g, products, op));
    state.compared++;
    for (int i = 0; i <= own; i++) {
        const weft_op_check *c = i == own ? &op[of] : &op[WEFT_GPU_RESULT(i, of)];
        failed[i] = c->failed > 0;
        if (failed[i])
            report(c, i, of, key);
    }
    status = store(key, failed);
out:
    weft_free(op);
    return status;
}

/* Reads the stored result of the case, or compares it. */
static weft_status settle_case(const weft_graph *g, weft_op op, weft_products products,
                               bool failed[WEFT_CUDA_IMPLS])
{
    int lock = -1;
    weft_buf key = {0};
    const json_t *stored;
    weft_status_code status = WEFT_OK;
    weft_buf_printf(&key, "case %s ", weft_cuda_precision_name(products));
    weft_gpu_case_text(g, &key);
    WEFT_GO(weft_buf_check(&key));
    WEFT_GO(weft_cuda_files_lock(&lock));
    WEFT_GO(weft_cuda_choice_file_find(key.data, &stored));
    if (!read_stored(stored, failed))
        status = compare(g, op, products, key.data, failed);
out:
    weft_cuda_files_unlock(lock);
    weft_buf_free(&key);
    return status;
}

/* A case that the GPU has no memory for is not compared: the error of the program says more. */
static weft_status settle_node(const weft_kernel_args *args, weft_products products,
                               bool failed[WEFT_CUDA_IMPLS])
{
    weft_graph *g;
    WEFT_TRY(weft_gpu_case_build(args, &g));
    if (!g) {
        weft_debug("%s is not compared: it has no small case", weft_op_get(args->op)->name);
        return WEFT_OK;
    }
    weft_status_code status = settle_case(g, args->op, products, failed);
    weft_graph_free(g);
    if (status == WEFT_E_MEMORY) {
        weft_debug("%s is not compared: %s", weft_op_get(args->op)->name, weft_error_text());
        weft_error_clear();
        status = WEFT_OK;
    }
    return status;
}

/* Requires the mutex: the cases of programs are compared one at a time. */
static weft_status find(const weft_kernel_args *args, weft_products products,
                        bool failed[WEFT_CUDA_IMPLS])
{
    const uint64_t node = hash_of(args, products);
    known *k = state.first;
    while (k && k->node != node)
        k = k->next;
    if (!k) {
        WEFT_TRY(WEFT_NEW(k, 1, "the comparison of a node"));
        k->node = node;
        const weft_status_code status = settle_node(args, products, k->failed);
        if (status != WEFT_OK) {
            weft_free(k);
            return status;
        }
        k->next = state.first;
        state.first = k;
    }
    memcpy(failed, k->failed, sizeof k->failed);
    return WEFT_OK;
}

static weft_status_code compare_node(const weft_kernel_args *args, weft_products products,
                                     bool failed[WEFT_CUDA_IMPLS])
{
    pthread_mutex_lock(&state.mutex);
    const weft_status_code status = find(args, products, failed);
    pthread_mutex_unlock(&state.mutex);
    return status;
}

void weft_gpu_shapes_begin(void)
{
    weft_cuda_choice_compare(compare_node);
}

int64_t weft_gpu_shapes_compared(void)
{
    return state.compared;
}

void weft_gpu_shapes_forget(void)
{
    while (state.first) {
        known *next = state.first->next;
        weft_free(state.first);
        state.first = next;
    }
}
