/* The emulated cuBLASLt (tests/emu/cublaslt), called as its documentation describes. Programs of
 * weft are compared with the library elsewhere. */
#include "base/rng.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/device.h"
#include "kernel/device_graphs.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { M = 24, N = 16, K = 40, FLOATS = 4096, F32 = 0, COMPUTE = 68 };
enum { INVALID = 7, NOT_SUPPORTED = 15 };

static const weft_device *const device = &weft_device_cuda;

typedef struct algo_result {
    uint64_t algo[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} algo_result;

/* Functions of the library, with descriptors as addresses. */
static struct {
    int (*create)(void **);
    int (*layout)(void **, int, uint64_t, uint64_t, int64_t);
    int (*set_layout)(void *, int, const void *, size_t);
    int (*desc)(void **, int, int);
    int (*set_desc)(void *, int, const void *, size_t);
    int (*preference)(void **);
    int (*set_preference)(void *, int, const void *, size_t);
    int (*heuristic)(void *, void *, void *, void *, void *, void *, void *, int, algo_result *,
                     int *);
    int (*matmul)(void *, void *, const void *, const void *, void *, const void *, void *,
                  const void *, const void *, void *, void *, void *, const void *, void *, size_t,
                  void *);
    void (*count)(int *, int *);
} lt;

static const struct {
    const char *name;
    void *to;
} functions[] = {{"cublasLtCreate", &lt.create},
                 {"cublasLtMatrixLayoutCreate", &lt.layout},
                 {"cublasLtMatrixLayoutSetAttribute", &lt.set_layout},
                 {"cublasLtMatmulDescCreate", &lt.desc},
                 {"cublasLtMatmulDescSetAttribute", &lt.set_desc},
                 {"cublasLtMatmulPreferenceCreate", &lt.preference},
                 {"cublasLtMatmulPreferenceSetAttribute", &lt.set_preference},
                 {"cublasLtMatmulAlgoGetHeuristic", &lt.heuristic},
                 {"cublasLtMatmul", &lt.matmul},
                 {"weft_emulated_cublaslt", &lt.count}};

static void open_library(void)
{
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    void *library = dlopen(WEFT_EMU_CUBLASLT, RTLD_NOW);
    cr_assert_not_null(library, "%s", dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = dlsym(library, functions[i].name);
        cr_assert_not_null(found, "%s", functions[i].name);
        memcpy(functions[i].to, &found, sizeof found);
    }
}

TestSuite(emu_cublaslt, .init = open_library);

/* One product of f32: its stream, descriptors and memory. */
typedef struct product {
    weft_device_stream *stream;
    void *handle, *desc, *preference, *a_of, *b_of, *d_of;
    float *a, *b, *d, *bias, *space; /* of the GPU */
    float *host;                     /* pinned: a, b, d, bias in sequence */
    algo_result found[2];
    int count;
} product;
enum { AT_A = 0, AT_B = FLOATS, AT_D = 2 * FLOATS, AT_BIAS = 3 * FLOATS };

static void copy_in(product *p)
{
    weft_rng rng = weft_rng_make(7, WEFT_RNG_TEST);
    p->host = weft_device_alloc_host(device, (int64_t)FLOATS * 4 * 4);
    for (int i = 0; i < 4 * FLOATS; i++)
        p->host[i] = (float)weft_rng_normal(&rng);
    p->a = device->alloc(device, (int64_t)FLOATS * 4 * 4);
    p->b = p->a + AT_B;
    p->d = p->a + AT_D;
    p->bias = p->a + AT_BIAS;
    p->space = device->alloc(device, 1 << 20);
    device->host_copy(p->stream, p->a, p->host, (int64_t)FLOATS * 4 * 4);
    cr_assert_eq(device->wait(p->stream), WEFT_OK);
}

/* D = op(A) op(B), whose layouts have `rows` in row order and a padding of `pad` elements. */
static product open_product(bool transpose_a, bool rows, int64_t pad)
{
    product p = {0};
    const int32_t one = 1, order = rows;
    const uint64_t workspace = 1 << 20;
    const uint64_t a_rows = transpose_a ? K : M, a_cols = transpose_a ? M : K;
    cr_assert_eq(device->open(device, NULL, &p.stream), WEFT_OK, "%s", weft_error_message());
    copy_in(&p);
    cr_assert_eq(lt.create(&p.handle), 0);
    cr_assert_eq(lt.desc(&p.desc, COMPUTE, F32), 0);
    cr_assert_eq(lt.set_desc(p.desc, 3, &(int32_t){transpose_a ? one : 0}, 4), 0);
    lt.layout(&p.a_of, F32, a_rows, a_cols, (int64_t)(rows ? a_cols : a_rows) + pad);
    lt.layout(&p.b_of, F32, K, N, (rows ? N : K) + pad);
    lt.layout(&p.d_of, F32, M, N, (rows ? N : M) + pad);
    void *const layouts[] = {p.a_of, p.b_of, p.d_of};
    for (int i = 0; i < 3; i++)
        cr_assert_eq(lt.set_layout(layouts[i], 1, &order, sizeof order), 0);
    cr_assert_eq(lt.preference(&p.preference), 0);
    cr_assert_eq(lt.set_preference(p.preference, 1, &workspace, sizeof workspace), 0);
    return p;
}

static int find(product *p)
{
    return lt.heuristic(p->handle, p->desc, p->a_of, p->b_of, p->d_of, p->d_of, p->preference, 2,
                        p->found, &p->count);
}

static int multiply(product *p, const algo_result *algo, const float *a, size_t space,
                    weft_device_stream *stream)
{
    const float alpha = 0.5f, beta = 0;
    return lt.matmul(p->handle, p->desc, &alpha, a, p->a_of, p->b, p->b_of, &beta, p->d, p->d_of,
                     p->d, p->d_of, algo->algo, p->space, space, weft_cuda_stream_handle(stream));
}

static double element(const float *x, bool rows, int64_t ld, int i, int j)
{
    return (double)(rows ? x[i * ld + j] : x[j * ld + i]);
}

/* Every element of D is near 0.5 A B + bias, applied to columns. The order of the sum differs. */
static void expect_product(product *p, bool transpose_a, bool rows, int64_t pad, bool bias)
{
    const float *a = p->host + AT_A, *b = p->host + AT_B, *d = p->host + AT_D;
    device->host_copy(p->stream, p->host + AT_D, p->d, FLOATS * 4);
    cr_assert_eq(device->wait(p->stream), WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += (transpose_a ? element(a, rows, (rows ? M : K) + pad, k, i)
                                    : element(a, rows, (rows ? K : M) + pad, i, k)) *
                       element(b, rows, (rows ? N : K) + pad, k, j);
            sum = 0.5 * sum + (bias ? (double)p->host[AT_BIAS + i] : 0);
            const double got = element(d, rows, (rows ? N : M) + pad, i, j);
            cr_assert(fabs(got - sum) < 1e-4, "(%d, %d): %g, not %g", i, j, got, sum);
        }
}

Test(emu_cublaslt, products_of_orders_transposes_and_algorithms)
{
    for (int kind = 0; kind < 8; kind++) {
        const bool transpose = kind & 1, rows = kind & 2;
        const int64_t pad = kind & 4 ? 3 : 0;
        product p = open_product(transpose, rows, pad);
        cr_assert_eq(find(&p), 0);
        cr_expect_eq(p.count, pad ? 1 : 2, "the wide algorithm needs rows of 16 bytes");
        for (int i = 0; i < p.count; i++) {
            cr_assert_eq(multiply(&p, &p.found[i], p.a, p.found[i].workspace, p.stream), 0);
            expect_product(&p, transpose, rows, pad, false);
        }
    }
}

Test(emu_cublaslt, bias_is_added_to_columns_only)
{
    product p = open_product(false, false, 0), q = open_product(false, true, 0);
    const uint32_t epilogue = 4;
    for (int i = 0; i < 2; i++) {
        product *each = i ? &q : &p;
        cr_assert_eq(lt.set_desc(each->desc, 7, &epilogue, sizeof epilogue), 0);
        cr_assert_eq(lt.set_desc(each->desc, 8, &each->bias, sizeof each->bias), 0);
    }
    cr_expect_eq(find(&q), NOT_SUPPORTED);
    cr_assert_eq(find(&p), 0);
    cr_assert_eq(multiply(&p, &p.found[0], p.a, p.found[0].workspace, p.stream), 0);
    expect_product(&p, false, false, 0, true);
}

Test(emu_cublaslt, refuses_calls_that_the_documentation_forbids)
{
    product p = open_product(false, false, 0);
    int products, refusals;
    cr_assert_eq(find(&p), 0);
    const algo_result *wide = &p.found[0];
    cr_expect_eq(multiply(&p, wide, p.a, wide->workspace - 1, p.stream), INVALID);
    cr_expect_eq(multiply(&p, wide, p.a + 1, wide->workspace, p.stream), INVALID);
    p.space++;
    cr_expect_eq(multiply(&p, wide, p.a, wide->workspace, p.stream), INVALID);
    p.space--;
    cr_expect_eq(lt.set_desc(p.desc, 7, &(uint64_t){4}, 8), INVALID, "an epilogue has 4 bytes");
    cr_expect_eq(lt.set_desc(p.desc, 7, &(uint32_t){2}, 4), 0);
    cr_expect_eq(multiply(&p, wide, p.a, wide->workspace, p.stream), INVALID,
                 "the algorithm is of another epilogue");
    lt.count(&products, &refusals);
    cr_expect_eq(products, 0);
    cr_expect_eq(refusals, 4);
}

Test(emu_cublaslt, graphs_repeat_products)
{
    const weft_device_graphs *graphs = device->graphs;
    weft_device_graph *graph;
    product p = open_product(false, false, 0);
    cr_assert_eq(find(&p), 0);
    cr_assert_eq(graphs->begin(p.stream), WEFT_OK);
    cr_assert_eq(multiply(&p, &p.found[0], p.a, p.found[0].workspace, p.stream), 0);
    cr_assert_eq(graphs->end(p.stream, &graph), WEFT_OK);
    for (int i = 0; i < FLOATS; i++)
        p.host[AT_A + i] *= -2;
    device->host_copy(p.stream, p.a, p.host + AT_A, FLOATS * 4);
    graphs->launch(p.stream, graph);
    expect_product(&p, false, false, 0, false);
}

Test(emu_cublaslt, an_operand_of_another_stream_needs_an_event, .signal = SIGABRT)
{
    weft_device_stream *other;
    product p = open_product(false, false, 0);
    cr_assert_eq(device->open(device, NULL, &other), WEFT_OK);
    cr_assert_eq(find(&p), 0);
    device->fill(other, p.a, 0, 64);
    multiply(&p, &p.found[0], p.a, p.found[0].workspace, p.stream);
    (void)device->wait(other);
    (void)device->wait(p.stream);
}

Test(emu_cublaslt, an_operand_of_the_host_is_refused, .signal = SIGABRT)
{
    product p = open_product(false, false, 0);
    cr_assert_eq(find(&p), 0);
    float *host = aligned_alloc(64, (size_t)M * K * sizeof *host);
    multiply(&p, &p.found[0], host, p.found[0].workspace, p.stream);
}
