/* The checks of a product, the heuristic, and the submission of products to streams. */
#include "emu_cublaslt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HANDLE_MAGIC = 0x4854, WIDE_BYTES = 16, WIDE_SPACE = 1 << 20, SPACE_ALIGNMENT = 256 };

static int accepted, refused; /* calls of cublasLtMatmul */

/* The calls of the process, for tests. */
API void weft_emulated_cublaslt(int *products, int *refusals)
{
    *products = __atomic_load_n(&accepted, __ATOMIC_RELAXED);
    *refusals = __atomic_load_n(&refused, __ATOMIC_RELAXED);
}

/* One call: the layouts of A, B, C and D, and its sizes. */
enum { A, B, C, D };
typedef struct problem {
    const lt_matmul *op;
    const lt_layout *layout[4];
    int64_t m, n, k, batch;
} problem;

/* ---- checks ------------------------------------------------------------------------------------ */

static cublasStatus_t check_layout(const lt_layout *l, char name, bool may_repeat)
{
    if (!l)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "the layout of %c is missing", name);
    if (l->magic != LAYOUT_MAGIC)
        lt_stop("the layout of %c is not a layout", name);
    if (l->order != ORDER_COL && l->order != ORDER_ROW)
        return lt_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "%c has order %d", name, l->order);
    const uint64_t least = l->order == ORDER_COL ? l->rows : l->cols;
    if (!l->rows || !l->cols || l->batch < 1)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "%c has no elements", name);
    if (l->rows > INT32_MAX || l->cols > INT32_MAX || l->plane || l->mode)
        return lt_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "%c has a size or mode of others", name);
    if (l->ld < 0 || ((uint64_t)l->ld < least && !(may_repeat && l->ld == 0)))
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "the leading dimension of %c is %lld of %llu",
                         name, (long long)l->ld, (unsigned long long)least);
    return CUBLAS_STATUS_SUCCESS;
}

/* The combinations of the documentation's table that are computed in f32. */
static cublasStatus_t check_types(const problem *p)
{
    const uint32_t a = p->layout[A]->type, d = p->layout[D]->type;
    const int32_t compute = p->op->compute;
    const bool same = a == p->layout[B]->type && d == p->layout[C]->type,
               plain = compute == COMPUTE_32F || compute == COMPUTE_32F_PEDANTIC,
               fast = compute == COMPUTE_32F_FAST_16F || compute == COMPUTE_32F_FAST_16BF ||
                      compute == COMPUTE_32F_FAST_TF32;
    const bool narrow = a == CUDA_R_16F || a == CUDA_R_16BF,
               wide = a == CUDA_R_32F && d == CUDA_R_32F;
    if (p->op->scale != CUDA_R_32F || !same ||
        !((plain && (wide || (narrow && (d == a || d == CUDA_R_32F)))) || (fast && wide)))
        return lt_refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                         "types A %u, B %u, C %u, D %u, compute %d, scale %d", a,
                         p->layout[B]->type, p->layout[C]->type, d, compute, p->op->scale);
    for (int i = 0; i < 8; i++)
        if (p->op->scales[i])
            return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "scales are for types of 8 bits");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_sizes(problem *p)
{
    const lt_layout *a = p->layout[A], *b = p->layout[B], *c = p->layout[C], *d = p->layout[D];
    const bool at = p->op->op_a != OP_N, bt = p->op->op_b != OP_N;
    const uint64_t m = at ? a->cols : a->rows, k = at ? a->rows : a->cols,
                   depth = bt ? b->cols : b->rows, n = bt ? b->rows : b->cols;
    if (m != d->rows || n != d->cols || k != depth || c->rows != d->rows || c->cols != d->cols)
        return lt_refuse(
            CUBLAS_STATUS_INVALID_VALUE, "op(A) is %llu x %llu, op(B) %llu x %llu, D %llu x %llu",
            (unsigned long long)m, (unsigned long long)k, (unsigned long long)depth,
            (unsigned long long)n, (unsigned long long)d->rows, (unsigned long long)d->cols);
    if (a->batch != d->batch || b->batch != d->batch || c->batch != d->batch)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "the matrices have different batches");
    if (c->order != d->order)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "C and D have different orders");
    const int64_t span = d->ld * (int64_t)(d->order == ORDER_COL ? d->cols - 1 : d->rows - 1) +
                         (int64_t)(d->order == ORDER_COL ? d->rows : d->cols);
    if (d->batch > 1 && d->stride < span)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "matrices of the batch of D overlap");
    p->m = (int64_t)m;
    p->n = (int64_t)n;
    p->k = (int64_t)k;
    p->batch = d->batch;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_epilogue(const problem *p)
{
    static const uint32_t known[] = {
        EPILOGUE_DEFAULT,
        EPILOGUE_RELU,
        EPILOGUE_RELU | EPILOGUE_AUX,
        EPILOGUE_BIAS,
        EPILOGUE_RELU | EPILOGUE_BIAS,
        EPILOGUE_RELU | EPILOGUE_AUX | EPILOGUE_BIAS,
        EPILOGUE_DRELU | EPILOGUE_AUX,
        EPILOGUE_DRELU | EPILOGUE_AUX | EPILOGUE_BGRAD,
        EPILOGUE_GELU,
        EPILOGUE_GELU | EPILOGUE_AUX,
        EPILOGUE_GELU | EPILOGUE_BIAS,
        EPILOGUE_GELU | EPILOGUE_AUX | EPILOGUE_BIAS,
        EPILOGUE_DGELU | EPILOGUE_AUX,
        EPILOGUE_DGELU | EPILOGUE_AUX | EPILOGUE_BGRAD,
        EPILOGUE_BGRADA,
        EPILOGUE_BGRADB,
    };
    const lt_matmul *op = p->op;
    const int32_t type = (int32_t)p->layout[D]->type;
    bool is = false;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        is = is || known[i] == op->epilogue;
    if (!is)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "epilogue %u", op->epilogue);
    if (op->epilogue != EPILOGUE_DEFAULT && p->layout[D]->order != ORDER_COL)
        return lt_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "epilogues need columns of D");
    if ((op->bias_type != -1 && op->bias_type != type) ||
        (op->aux_type != -1 && op->aux_type != type))
        return lt_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "vectors of another type than D");
    if (!(op->epilogue & EPILOGUE_AUX))
        return CUBLAS_STATUS_SUCCESS;
    const int64_t unit = op->epilogue & (EPILOGUE_RELU | EPILOGUE_DRELU) ? 128 : 8;
    if (op->aux_ld % unit || op->aux_ld < p->m || op->aux_stride % unit ||
        (p->batch > 1 && op->aux_stride < op->aux_ld * p->n))
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "the auxiliary matrix has ld %lld for %lld",
                         (long long)op->aux_ld, (long long)p->m);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_op(const lt_matmul *op)
{
    if (!op)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "the descriptor is missing");
    if (op->magic != MATMUL_MAGIC)
        lt_stop("the descriptor of a product is not one");
    if (op->op_a < OP_N || op->op_a > OP_C || op->op_b < OP_N || op->op_b > OP_C)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "operations %d and %d", op->op_a, op->op_b);
    if (op->op_c != OP_N || op->fill != 2 || op->pointer_mode < POINTER_HOST ||
        op->pointer_mode > POINTER_DEVICE)
        return lt_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "operation of C, fill or pointer mode");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_problem(const lt_handle *handle, problem *p)
{
    if (!handle || handle->magic != HANDLE_MAGIC)
        return lt_refuse(CUBLAS_STATUS_NOT_INITIALIZED, "the handle was not created");
    cublasStatus_t status = check_op(p->op);
    for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++)
        status = check_layout(p->layout[i], "ABCD"[i], i != D);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_types(p);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_sizes(p);
    return status == CUBLAS_STATUS_SUCCESS ? check_epilogue(p) : status;
}

/* ---- algorithms -------------------------------------------------------------------------------- */

static uint64_t signature_of(const problem *p)
{
    uint64_t hash = 1469598103934665603u;
    const int64_t parts[] = {p->op->compute,     p->op->op_a != OP_N, p->op->op_b != OP_N,
                             p->op->epilogue,    p->op->pointer_mode, p->layout[A]->type,
                             p->layout[D]->type, p->layout[A]->order, p->layout[B]->order,
                             p->layout[D]->order};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        hash = (hash ^ (uint64_t)parts[i]) * 1099511628211u;
    return hash;
}

/* Whether rows and batches of a matrix begin at multiples of 16 bytes. */
static bool is_wide(const lt_layout *l)
{
    const int64_t bytes = (int64_t)lt_bytes(l->type);
    return l->ld * bytes % WIDE_BYTES == 0 &&
           (l->batch == 1 || l->stride * bytes % WIDE_BYTES == 0);
}

static size_t space_of(const problem *p, uint32_t id)
{
    const int64_t bytes = p->m * p->n * 4;
    return !id ? 0 : bytes < WIDE_SPACE ? (size_t)((bytes + 255) / 256 * 256) : WIDE_SPACE;
}

/* The alignment of a vector in bytes, at most 16; NULL counts as aligned. */
static uint32_t alignment_of(const void *data)
{
    const uintptr_t at = (uintptr_t)data;
    return at % 16 == 0 ? 16 : (uint32_t)(at & -at);
}

static lt_algo algorithm(const problem *p, uint32_t id)
{
    const uint32_t bias = alignment_of(p->op->bias), aux = alignment_of(p->op->aux);
    return (lt_algo){.magic = ALGO_MAGIC,
                     .id = id,
                     .signature = signature_of(p),
                     .vector_bytes = bias < aux ? bias : aux};
}

API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(const lt_handle *handle, const lt_matmul *op,
                                                  const lt_layout *a, const lt_layout *b,
                                                  const lt_layout *c, const lt_layout *d,
                                                  const lt_preference *wish, int wanted,
                                                  lt_result *result, int *count)
{
    problem p = {.op = op, .layout = {a, b, c ? c : d, d}};
    if (wanted <= 0 || !result || !count || !wish)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "a heuristic needs results and a preference");
    *count = 0;
    if (wish->magic != PREFERENCE_MAGIC)
        lt_stop("the preference of a heuristic is not one");
    const cublasStatus_t status = check_problem(handle, &p);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (emu_library_fault("cublaslt-heuristic"))
        return lt_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "a planted fault");
    for (uint32_t id = 2; id-- > 0 && *count < wanted;) {
        bool fits = space_of(&p, id) <= wish->workspace && wish->search == 0;
        for (int i = 0; i < 4; i++)
            fits = fits && (id ? wish->alignment[i] >= WIDE_BYTES && is_wide(p.layout[i])
                               : wish->alignment[i] >= lt_bytes(p.layout[i]->type));
        if (fits)
            result[(*count)++] = (lt_result){.algo = algorithm(&p, id),
                                             .workspace = space_of(&p, id),
                                             .state = CUBLAS_STATUS_SUCCESS,
                                             .waves = 1};
    }
    return *count ? CUBLAS_STATUS_SUCCESS
                  : lt_refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm fits the preference");
}

static cublasStatus_t check_algorithm(const problem *p, const lt_algo *algo)
{
    if (algo->magic != ALGO_MAGIC)
        lt_stop("the algorithm of a product is not one");
    if (algo->signature != signature_of(p))
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "the algorithm is of another operation");
    for (int i = 0; i < 4; i++)
        if (algo->id && !is_wide(p->layout[i]))
            return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "rows of %c are not aligned", "ABCD"[i]);
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatmulAlgoCheck(const lt_handle *handle, const lt_matmul *op,
                                           const lt_layout *a, const lt_layout *b,
                                           const lt_layout *c, const lt_layout *d,
                                           const lt_algo *algo, lt_result *result)
{
    problem p = {.op = op, .layout = {a, b, c ? c : d, d}};
    if (!algo || !result)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublasStatus_t status = check_problem(handle, &p);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_algorithm(&p, algo);
    if (status == CUBLAS_STATUS_SUCCESS) {
        result->workspace = space_of(&p, algo->id);
        result->state = CUBLAS_STATUS_SUCCESS;
        result->waves = 1;
    }
    return status;
}

/* ---- products ---------------------------------------------------------------------------------- */

typedef struct call {
    problem problem;
    const void *alpha, *beta, *matrix[4];
    void *space;
    size_t space_bytes;
} call;

/* Bytes from the first element of a matrix to the end of its last. */
static size_t span_of(const lt_layout *l)
{
    const bool columns = l->order == ORDER_COL;
    const int64_t lines = (int64_t)(columns ? l->cols : l->rows),
                  line = (int64_t)(columns ? l->rows : l->cols);
    return (size_t)(((l->batch - 1) * l->stride + (lines - 1) * l->ld + line) *
                    (int64_t)lt_bytes(l->type));
}

static lt_matrix matrix_of(const lt_layout *l, bool transposed)
{
    const bool by_ld = (l->order == ORDER_COL) == transposed; /* whether rows are ld apart */
    return (lt_matrix){NULL, l->type, l->stride, by_ld ? l->ld : 1, by_ld ? 1 : l->ld};
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return (const char *)a < (const char *)b + b_bytes &&
           (const char *)b < (const char *)a + a_bytes;
}

static cublasStatus_t check_memory(const call *c, const lt_algo *algo, size_t space)
{
    const problem *p = &c->problem;
    const size_t least = algo->id ? WIDE_BYTES : 1, d_bytes = span_of(p->layout[D]);
    const bool in_place = c->matrix[C] == c->matrix[D];
    for (int i = 0; i < 4; i++) {
        const size_t unit = lt_bytes(p->layout[i]->type), unit_least = unit > least ? unit : least;
        if ((uintptr_t)c->matrix[i] % unit_least || (!c->matrix[i] && i != C))
            return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "%c at %p is not at a multiple of %zu",
                             "ABCD"[i], c -> matrix[i], unit_least);
        if (i < D && !(i == C && in_place) && c->matrix[i] &&
            overlap(c->matrix[i], span_of(p->layout[i]), c->matrix[D], d_bytes))
            lt_stop("%c overlaps D", "ABCD"[i]);
    }
    if (in_place && memcmp(p->layout[C], p->layout[D], sizeof(lt_layout)) != 0)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "C is D and has another layout");
    if (c->space_bytes < space || (space && !c->space))
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "the workspace has %zu of %zu bytes",
                         c->space_bytes, space);
    if ((uintptr_t)c->space % SPACE_ALIGNMENT)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "the workspace is not at a multiple of 256");
    if (space && overlap(c->space, space, c->matrix[D], d_bytes))
        lt_stop("the workspace overlaps D");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_vectors(const problem *p, const lt_algo *algo)
{
    const uint32_t e = p->op->epilogue;
    if ((e & (EPILOGUE_BIAS | EPILOGUE_BGRAD | EPILOGUE_BGRADA | EPILOGUE_BGRADB)) &&
        (!p->op->bias || (uintptr_t)p->op->bias % algo->vector_bytes))
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "the bias at %p is not at a multiple of %u",
                         p->op->bias, algo->vector_bytes);
    if ((e & EPILOGUE_AUX) && (!p->op->aux || (uintptr_t)p->op->aux % 16))
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "the auxiliary matrix is at %p", p->op->aux);
    return CUBLAS_STATUS_SUCCESS;
}

static void add_range(lt_product *w, int operand, const void *data, size_t bytes, bool writes)
{
    w->place[operand] = w->ranges;
    w->range[w->ranges++] = (weft_emulated_range){data, bytes, writes, NULL};
}

static void add_vectors(lt_product *w, const problem *p)
{
    const lt_matmul *op = p->op;
    const size_t unit = lt_bytes(p->layout[D]->type);
    const uint32_t e = op->epilogue;
    const int64_t length = e & EPILOGUE_BGRADB ? p->n : p->m;
    if (e & (EPILOGUE_BIAS | EPILOGUE_BGRAD | EPILOGUE_BGRADA | EPILOGUE_BGRADB))
        add_range(w, RANGE_BIAS, op->bias,
                  (size_t)((p->batch - 1) * op->bias_stride + length) * unit, !(e & EPILOGUE_BIAS));
    if (!(e & EPILOGUE_AUX))
        return;
    const size_t elements =
        (size_t)((p->batch - 1) * op->aux_stride + (p->n - 1) * op->aux_ld + p->m);
    add_range(w, RANGE_AUX, op->aux,
              e & (EPILOGUE_RELU | EPILOGUE_DRELU) ? (elements + 7) / 8 : elements * unit,
              e & (EPILOGUE_RELU | EPILOGUE_GELU));
}

static lt_product product_of(const call *c, size_t space)
{
    const problem *p = &c->problem;
    lt_product w = {.a = matrix_of(p->layout[A], p->op->op_a != OP_N),
                    .b = matrix_of(p->layout[B], p->op->op_b != OP_N),
                    .c = matrix_of(p->layout[C], false),
                    .d = matrix_of(p->layout[D], false),
                    .m = p->m,
                    .n = p->n,
                    .k = p->k,
                    .batch = p->batch,
                    .compute = p->op->compute,
                    .epilogue = p->op->epilogue,
                    .reads_c = true,
                    .bias_stride = p->op->bias_stride,
                    .aux_ld = p->op->aux_ld,
                    .aux_stride = p->op->aux_stride};
    for (int i = 0; i < RANGE_COUNT; i++)
        w.place[i] = -1;
    if (p->op->pointer_mode == POINTER_HOST) {
        w.alpha = *(const float *)c->alpha;
        w.beta = *(const float *)c->beta;
        w.reads_c = w.beta != 0.f;
    } else {
        add_range(&w, RANGE_ALPHA, c->alpha, 4, false);
        add_range(&w, RANGE_BETA, c->beta, 4, false);
    }
    add_range(&w, RANGE_A, c->matrix[A], span_of(p->layout[A]), false);
    add_range(&w, RANGE_B, c->matrix[B], span_of(p->layout[B]), false);
    if (w.reads_c && c->matrix[C] != c->matrix[D])
        add_range(&w, RANGE_C, c->matrix[C], span_of(p->layout[C]), false);
    add_range(&w, RANGE_D, c->matrix[D], span_of(p->layout[D]), true);
    add_vectors(&w, p);
    if (space)
        add_range(&w, RANGE_SPACE, c->space, space, true);
    return w;
}

static cublasStatus_t submit(const lt_handle *handle, const call *c, size_t space, void *stream)
{
    const emu_library_driver *driver = emu_library_driver_get();
    if (!driver || driver->device() != handle->device)
        lt_stop("the handle of GPU %d is used for GPU %d", handle->device,
                driver ? driver->device() : -1);
    lt_product w = product_of(c, space);
    if (w.reads_c && !c->matrix[C])
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "beta is not 0 and C is missing");
    return driver->add_work(stream, w.range, w.ranges, lt_product_run, &w, sizeof w)
               ? lt_refuse(CUBLAS_STATUS_EXECUTION_FAILED, "the stream accepts no work")
               : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t multiply(const lt_handle *handle, call *c, const lt_algo *algo, void *stream)
{
    problem *p = &c->problem;
    lt_algo own;
    if (!c->alpha || !c->beta)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "alpha or beta is missing");
    cublasStatus_t status = check_problem(handle, p);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (!algo) { /* the library chooses */
        own = algorithm(p, 0);
        algo = &own;
    }
    const size_t space = space_of(p, algo->id);
    status = check_algorithm(p, algo);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_memory(c, algo, space);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_vectors(p, algo);
    if (status == CUBLAS_STATUS_SUCCESS && emu_library_fault("cublaslt-status"))
        status = lt_refuse(CUBLAS_STATUS_EXECUTION_FAILED, "a planted fault");
    return status == CUBLAS_STATUS_SUCCESS ? submit(handle, c, space, stream) : status;
}

API cublasStatus_t cublasLtMatmul(const lt_handle *handle, const lt_matmul *op, const void *alpha,
                                  const void *a, const lt_layout *of_a, const void *b,
                                  const lt_layout *of_b, const void *beta, const void *c,
                                  const lt_layout *of_c, void *d, const lt_layout *of_d,
                                  const lt_algo *algo, void *space, size_t space_bytes,
                                  void *stream)
{
    call own = {.problem = {.op = op, .layout = {of_a, of_b, of_c ? of_c : of_d, of_d}},
                .alpha = alpha,
                .beta = beta,
                .matrix = {a, b, of_c ? c : d, d},
                .space = space,
                .space_bytes = space_bytes};
    const cublasStatus_t status = multiply(handle, &own, algo, stream);
    __atomic_add_fetch(status ? &refused : &accepted, 1, __ATOMIC_RELAXED);
    return status;
}
