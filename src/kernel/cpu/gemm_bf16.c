/* Products of bf16 by oneDNN's matmul, which uses the processor's units for bf16: pairs of bf16 are
 * multiplied, and sums are f32. A product reads operands as they are stored, and writes C in its
 * type.
 *
 * oneDNN compiles a primitive per shape: 0.6 ms, and 60 to 400 KiB, once per process, because it
 * keeps the last 1024. A thread keeps the handles of its last shapes, because finding a primitive
 * takes 4 us. All are created for one thread, so that sums have the same order on any number of
 * threads. */
#include "kernel/cpu/gemm_bf16.h"

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm_parts.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"

#include "base/memory.h"

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

static shape_key key_of(const cpu_product *p)
{
    return (shape_key){.M = p->M,
                       .N = p->N,
                       .K = p->K,
                       .lda = p->lda,
                       .ldb = p->ldb,
                       .ldc = p->ldc,
                       .trans_a = p->trans_a,
                       .trans_b = p->trans_b,
                       .c_dtype = (int32_t)p->c_dtype,
                       .bias_dtype = p->bias ? (int32_t)p->bias_dtype : -1};
}
_Static_assert(sizeof(shape_key) == 6 * 8 + 4 * 4, "keys have no padding");

/* Computes C = A B + bias of a part. */
static dnnl_status_t multiply(const cpu_product *p)
{
    const shape_key key = key_of(p);
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
    return p->c_dtype == WEFT_F32 || gemm_rounds_first(p);
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

/* Returns the product that oneDNN computes for a part. `space`: f32 for a part that is not
 * direct. */
static cpu_product made_of(const cpu_product *p, const gemm_box *box, float *space)
{
    cpu_product made = gemm_box_of(p, box);
    if (!is_direct(p)) {
        made.C = space;
        made.c_dtype = WEFT_F32;
        made.ldc = made.N;
    }
    return made;
}

static dnnl_status_t bf16_part(const cpu_product *p, const gemm_box *box, const void *space,
                               int thread)
{
    float *own = is_direct(p) ? NULL : (float *)(uintptr_t)space + thread * part_floats(p);
    const cpu_product part = gemm_box_of(p, box), made = made_of(p, box, own);
    const dnnl_status_t status = multiply(&made);
    if (status != dnnl_success)
        return status;
    if (made.c_dtype == WEFT_F32)
        gemm_finish(&made, NULL, made.C, made.ldc);
    else
        gemm_act_bf16(&part);
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

/* ---- bytes of primitives --------------------------------------------------------------------- */

/* Shapes whose bytes are known. They depend on the shape: 57 KiB for few columns and sums, 413 KiB
 * for long sums of a transposed operand. So each shape is compiled once, which is when its code is
 * needed anyway: oneDNN keeps it for the run. */
typedef struct known_shape {
    shape_key key;
    int64_t bytes;
} known_shape;

static struct {
    pthread_mutex_t lock;
    known_shape *shape;
    int64_t count, capacity;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t measure(const shape_key *key)
{
    thread_primitives *t = thread_primitives_get();
    bf16_primitive made = {.primitive = NULL};
    const int64_t before = weft_memory_library_use();
    if (!t || create(key, t->engine, &made) != dnnl_success)
        return 0;
    const int64_t bytes = weft_memory_library_use() - before;
    release(&made);
    return bytes > 0 ? bytes : 0;
}

/* Returns the bytes of a shape. Requires the lock. */
static int64_t bytes_of(const shape_key *key)
{
    int64_t i = 0;
    while (i < known.count && memcmp(&known.shape[i].key, key, sizeof *key) != 0)
        i++;
    if (i < known.count)
        return known.shape[i].bytes;
    const known_shape made = {.key = *key, .bytes = measure(key)};
    if (known.count == known.capacity) {
        const int64_t more = known.capacity ? 2 * known.capacity : 64;
        known_shape *grown = realloc(known.shape, (size_t)more * sizeof *grown);
        if (!grown)
            return made.bytes;
        known.shape = grown;
        known.capacity = more;
    }
    known.shape[known.count++] = made;
    return made.bytes;
}

/* The shapes of a product's parts; parts that are cut alike count once. */
typedef struct shape_count {
    shape_key seen[4];
    int count;
    int64_t bytes;
} shape_count;

static dnnl_status_t count_part(const cpu_product *p, const gemm_box *box, const void *user,
                                int thread)
{
    shape_count *all = (shape_count *)(uintptr_t)user;
    const cpu_product made = made_of(p, box, NULL);
    const shape_key key = key_of(&made);
    (void)thread;
    for (int i = 0; i < all->count; i++)
        if (!memcmp(&all->seen[i], &key, sizeof key))
            return dnnl_success;
    if (all->count < (int)(sizeof all->seen / sizeof *all->seen))
        all->seen[all->count++] = key;
    all->bytes += bytes_of(&key);
    return dnnl_success;
}

int64_t gemm_bf16_prepared(const cpu_product *p)
{
    static const char somewhere = 0; /* parts compute addresses, which nothing reads */
    cpu_product whole = *p;
    shape_count all = {.count = 0};
    whole.threads = 1;
    whole.A = whole.B = &somewhere;
    whole.C = (void *)(uintptr_t)&somewhere;
    if (widens_bias(p))
        whole.bias_dtype = WEFT_F32;
    pthread_mutex_lock(&known.lock);
    gemm_run(&whole, parts_of(p), count_part, &all);
    pthread_mutex_unlock(&known.lock);
    return all.bytes;
}
