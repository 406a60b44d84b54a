/* Products of bf16 by oneDNN's matmul, which uses the processor's units for bf16: pairs of bf16 are
 * multiplied, and sums are f32. A product reads operands as they are stored, and writes C in its
 * type.
 *
 * oneDNN compiles a primitive per shape: 0.6 ms, and 70 KiB, once per process, because oneDNN keeps
 * the last 1024. A thread keeps the handles of its last shapes, because finding a primitive takes 4
 * us. All are created for one thread, so that sums have the same order on any number of threads. */
#include "kernel/cpu/gemm_bf16.h"

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm_parts.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ---- primitives ----------------------------------------------------------------------------- */

/* The properties that a primitive is compiled for. Compared as bytes. */
typedef struct shape_key {
    int64_t M, N, K, lda, ldb, ldc;
    int32_t trans_a, trans_b, c_dtype, bias_dtype; /* bias_dtype: -1 without bias */
} shape_key;

enum { OPERAND_A, OPERAND_B, OPERAND_C, OPERAND_BIAS, OPERANDS };

typedef struct bf16_primitive {
    shape_key key;
    dnnl_primitive_t primitive; /* NULL: unused slot */
    dnnl_memory_t operand[OPERANDS];
} bf16_primitive;

/* Primitives of a thread. A shape has one slot; shapes of the same slot replace each other. */
enum { SLOTS = 128 };
typedef struct thread_primitives {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    bf16_primitive slot[SLOTS];
} thread_primitives;

static pthread_key_t of_thread;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_key;

static void release(bf16_primitive *p)
{
    if (p->primitive)
        dnnl_primitive_destroy(p->primitive);
    for (int i = 0; i < OPERANDS; i++)
        if (p->operand[i])
            dnnl_memory_destroy(p->operand[i]);
    memset(p, 0, sizeof *p);
}

static void release_thread(void *thread)
{
    thread_primitives *t = thread;
    for (int i = 0; i < SLOTS; i++)
        release(&t->slot[i]);
    if (t->stream)
        dnnl_stream_destroy(t->stream);
    if (t->engine)
        dnnl_engine_destroy(t->engine);
    free(t);
}

static void create_key(void)
{
    has_key = pthread_key_create(&of_thread, release_thread) == 0;
}

/* Returns the primitives of this thread; NULL: out of memory. They are the library's memory and not
 * weft_alloc()'s, whose source may be replaced while no graph exists. */
static thread_primitives *thread_primitives_get(void)
{
    pthread_once(&once, create_key);
    thread_primitives *t = has_key ? pthread_getspecific(of_thread) : NULL;
    if (t || !has_key)
        return t;
    t = calloc(1, sizeof *t);
    if (t && dnnl_engine_create(&t->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&t->stream, t->engine, dnnl_stream_default_flags) == dnnl_success &&
        pthread_setspecific(of_thread, t) == 0)
        return t;
    if (t)
        release_thread(t);
    return NULL;
}

static dnnl_data_type_t library_type(int32_t dtype)
{
    return dtype == WEFT_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* Sets the descriptors of A, B, C and bias. Strides describe transposed operands. */
static dnnl_status_t describe(const shape_key *k, dnnl_memory_desc_t desc[OPERANDS])
{
    const struct {
        dnnl_dims_t dims, strides;
        dnnl_data_type_t type;
    } of[OPERANDS] = {
        {{k->M, k->K}, {k->trans_a ? 1 : k->lda, k->trans_a ? k->lda : 1}, dnnl_bf16},
        {{k->K, k->N}, {k->trans_b ? 1 : k->ldb, k->trans_b ? k->ldb : 1}, dnnl_bf16},
        {{k->M, k->N}, {k->ldc, 1}, library_type(k->c_dtype)},
        {{1, k->N}, {k->N, 1}, library_type(k->bias_dtype)},
    };
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < OPERANDS && status == dnnl_success; i++)
        status =
            dnnl_memory_desc_init_by_strides(&desc[i], 2, of[i].dims, of[i].type, of[i].strides);
    return status;
}

static dnnl_status_t describe_matmul(const shape_key *k, dnnl_engine_t engine,
                                     dnnl_memory_desc_t desc[OPERANDS], dnnl_primitive_desc_t *out)
{
    dnnl_matmul_desc_t matmul;
    dnnl_status_t status = describe(k, desc);
    if (status == dnnl_success)
        status =
            dnnl_matmul_desc_init(&matmul, &desc[OPERAND_A], &desc[OPERAND_B],
                                  k->bias_dtype < 0 ? NULL : &desc[OPERAND_BIAS], &desc[OPERAND_C]);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &matmul, NULL, engine, NULL)
                                  : status;
}

static dnnl_status_t create(const shape_key *k, dnnl_engine_t engine, bf16_primitive *p)
{
    dnnl_memory_desc_t desc[OPERANDS];
    dnnl_primitive_desc_t matmul = NULL;
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1); /* a primitive's order of sums depends on the threads at creation */
    dnnl_status_t status = describe_matmul(k, engine, desc, &matmul);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&p->primitive, matmul);
    omp_set_num_threads(threads);
    if (matmul)
        dnnl_primitive_desc_destroy(matmul);
    for (int i = 0; i < OPERANDS && status == dnnl_success; i++)
        status = dnnl_memory_create(&p->operand[i], &desc[i], engine, DNNL_MEMORY_NONE);
    p->key = *k;
    if (status != dnnl_success)
        release(p);
    return status;
}

static size_t slot_of(const shape_key *k)
{
    uint64_t words[sizeof *k / 8], hash = 0;
    memcpy(words, k, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
    return (size_t)(hash >> 57);
}

/* Computes C = A B + bias of a part. */
static dnnl_status_t multiply(const cpu_product *p)
{
    shape_key key;
    memset(&key, 0, sizeof key);
    key = (shape_key){p->M,
                      p->N,
                      p->K,
                      p->lda,
                      p->ldb,
                      p->ldc,
                      p->trans_a,
                      p->trans_b,
                      (int32_t)p->c_dtype,
                      p->bias ? (int32_t)p->bias_dtype : -1};
    thread_primitives *t = thread_primitives_get();
    if (!t)
        return dnnl_out_of_memory;
    bf16_primitive *own = &t->slot[slot_of(&key)];
    if (!own->primitive || memcmp(&own->key, &key, sizeof key) != 0) {
        release(own);
        const dnnl_status_t status = create(&key, t->engine, own);
        if (status != dnnl_success)
            return status;
    }
    const void *data[OPERANDS] = {p->A, p->B, p->C, p->bias};
    static const int place[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                        DNNL_ARG_BIAS};
    dnnl_exec_arg_t args[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        dnnl_memory_set_data_handle(own->operand[i], (void *)(uintptr_t)data[i]);
        args[i] = (dnnl_exec_arg_t){place[i], own->operand[i]};
    }
    return dnnl_primitive_execute(own->primitive, t->stream, p->bias ? OPERANDS : OPERANDS - 1,
                                  args);
}

/* ---- products ------------------------------------------------------------------------------- */

/* Returns true if oneDNN has generated code for bf16. Its environment variables can disable it. */
static bool library_has_units(void)
{
    static atomic_int known; /* 0: unknown, 1: yes, 2: no */
    if (atomic_load(&known))
        return atomic_load(&known) == 1;
    const shape_key key = {64, 64, 64, 64, 64, 64, 0, 0, WEFT_BF16, -1};
    dnnl_memory_desc_t desc[OPERANDS];
    dnnl_engine_t engine = NULL;
    dnnl_primitive_desc_t matmul = NULL;
    const char *name = "";
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
        describe_matmul(&key, engine, desc, &matmul) == dnnl_success)
        dnnl_primitive_desc_query(matmul, dnnl_query_impl_info_str, 0, &name);
    atomic_store(&known, strstr(name, "bf16") ? 1 : 2);
    if (matmul)
        dnnl_primitive_desc_destroy(matmul);
    if (engine)
        dnnl_engine_destroy(engine);
    return atomic_load(&known) == 1;
}

bool gemm_bf16_units(void)
{
    return cpu_isa_get()->bf16_units && library_has_units();
}

static gemm_parts parts_of(const cpu_product *p)
{
    return gemm_cut(p->M, p->N, p->K, 2);
}

/* Returns true if oneDNN can write C. Otherwise a part is computed in f32 and then rounded: C has
 * another type, or the activation's operand must not be rounded to bf16. */
static bool is_direct(const cpu_product *p)
{
    return p->c_dtype == WEFT_F32 ||
           (p->c_dtype == WEFT_BF16 && (p->act == WEFT_ACT_NONE || p->round == WEFT_BF16));
}

static bool widens_bias(const cpu_product *p)
{
    return p->bias_dtype != WEFT_F32 && p->bias_dtype != WEFT_BF16;
}

static int64_t bias_floats(const cpu_product *p)
{
    return widens_bias(p) ? (p->N + 15) & ~(int64_t)15 : 0;
}

static int64_t part_floats(const cpu_product *p)
{
    const gemm_parts parts = parts_of(p);
    return is_direct(p) ? 0
                        : gemm_part_size(p->M, parts.rows) * gemm_part_size(p->N, parts.columns);
}

int64_t gemm_bf16_workspace(const cpu_product *p)
{
    return 4 * (bias_floats(p) + gemm_threads(p, parts_of(p)) * part_floats(p));
}

/* Applies the activation to rows of bf16, which are rounded already, as the op of the activation
 * does. */
static void finish_bf16(const cpu_product *p)
{
    const enum cpu_unary act = p->act == WEFT_ACT_SILU ? CPU_SILU : CPU_GELU;
    const cpu_isa *isa = cpu_isa_get();
    for (int64_t m = 0; m < p->M; m++) {
        uint16_t *y = (uint16_t *)p->C + m * p->ldc;
        isa->bf16->unary[act](y, y, p->N);
    }
}

static dnnl_status_t bf16_part(const cpu_product *p, const gemm_box *box, const void *space,
                               int thread)
{
    const cpu_product part = gemm_box_of(p, box);
    cpu_product made = part;
    if (!is_direct(p)) {
        made.C = (float *)(uintptr_t)space + thread * part_floats(p);
        made.c_dtype = WEFT_F32;
        made.ldc = part.N;
    }
    const dnnl_status_t status = multiply(&made);
    if (status != dnnl_success)
        return status;
    if (made.c_dtype == WEFT_F32)
        gemm_finish(&made, NULL, made.C, made.ldc);
    else if (part.act != WEFT_ACT_NONE)
        finish_bf16(&part);
    if (!is_direct(p))
        gemm_narrow(&part, made.C, made.ldc);
    return dnnl_success;
}

dnnl_status_t gemm_bf16(const cpu_product *p)
{
    cpu_product whole = *p;
    if (widens_bias(p)) {
        cpu_widen_run(p->bias_dtype, p->bias, p->space, p->N);
        whole.bias = p->space;
        whole.bias_dtype = WEFT_F32;
    }
    const float *space = p->space;
    return gemm_run(&whole, parts_of(p), bf16_part, space ? space + bias_floats(p) : NULL);
}
