/* The device of backend `cuda` on the emulated driver (tests/emu/driver): every call, the mistakes
 * that the emulation detects, planted faults of a GPU, and the choice of a GPU. */
#include "base/convert.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/device.h"
#include "kernel/host.h"
#include "kernel/sums.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1000, BYTES = COUNT * 4 };

static const weft_device *const device = &weft_device_cuda;

static void use_emulation(void)
{
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
}

TestSuite(cuda_driver, .init = use_emulation);

/* A build without clang has no kernels, and their tests are skipped. */
static weft_device_stream *open_stream_of_kernels(void)
{
    weft_device_stream *s;
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
    cr_assert_eq(device->open(device, &weft_backend_cuda, &s), WEFT_OK, "%s", weft_error_message());
    return s;
}

static weft_device_stream *open_stream(void)
{
    weft_device_stream *s;
    cr_assert_eq(device->open(device, &weft_backend_cuda, &s), WEFT_OK, "%s", weft_error_message());
    return s;
}

static void *alloc(int64_t bytes)
{
    void *data = device->alloc(device, bytes);
    cr_assert_not_null(data);
    return data;
}

static void finish(weft_device_stream *s)
{
    cr_assert_eq(device->wait(s), WEFT_OK, "%s", weft_error_message());
}

/* Pairs of numbers in parameters of kernels are not taken for addresses of emulated GPUs: the low
 * half of each address is an integer of at least 2^30. */
Test(cuda_driver, no_pair_of_numbers_is_an_emulated_address)
{
    for (int i = 0; i < 12; i++) {
        void *data = alloc((int64_t)64 << 20);
        cr_assert_geq((uintptr_t)data & 0xffffffff, 1 << 30, "%p", data);
        cr_assert_lt((uintptr_t)data & 0xffffffff, 0x7f000000 - (64 << 20), "%p", data);
        device->free(device, data);
    }
}

/* ---- copies, conversions, sums --------------------------------------------------------------- */

/* A device allocation with the bytes of `from`. */
static void *put(weft_device_stream *s, const void *from, int64_t bytes)
{
    void *data = alloc(bytes), *pinned = weft_device_alloc_host(device, bytes);
    memcpy(pinned, from, (size_t)bytes);
    device->host_copy(s, data, pinned, bytes);
    finish(s);
    weft_device_free_host(device, pinned);
    return data;
}

/* Whether the device's bytes are equal to `want`. */
static bool holds(weft_device_stream *s, const void *data, const void *want, int64_t bytes)
{
    void *pinned = weft_device_alloc_host(device, bytes);
    device->host_copy(s, pinned, data, bytes);
    finish(s);
    const bool same = !memcmp(pinned, want, (size_t)bytes);
    weft_device_free_host(device, pinned);
    return same;
}

static void random_bytes(void *to, int64_t bytes, uint64_t seed)
{
    weft_rng rng = weft_rng_make(seed, WEFT_RNG_TEST);
    for (int64_t i = 0; i < bytes; i++)
        ((unsigned char *)to)[i] = (unsigned char)weft_rng_below(&rng, 256);
}

static void random_values(void *to, weft_dtype dtype, int64_t count, uint64_t seed)
{
    float values[COUNT];
    weft_rng rng = weft_rng_make(seed, WEFT_RNG_TEST);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)weft_rng_normal(&rng);
    if (weft_dtype_is_float(dtype))
        weft_convert(to, dtype, values, WEFT_F32, count);
    else
        random_bytes(to, count * weft_dtype_bytes(dtype), seed);
    for (int64_t i = 0; i < count && dtype == WEFT_I64; i++) /* conversions keep 32 bits */
        ((int64_t *)to)[i] = (int32_t)((int64_t *)to)[i];
}

Test(cuda_driver, strided_copies_and_fills)
{
    static const weft_rows rows[] = {{1, 100, 0, 0},  {10, 20, 20, 30}, {10, 20, 30, 20},
                                     {7, 12, 16, 24}, {8, 16, 16, 0},   {0}};
    weft_device_stream *s = open_stream();
    char from[1024], to[1024], want[1024];
    random_bytes(from, sizeof from, 1);
    random_bytes(to, sizeof to, 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *a = put(s, from, sizeof from), *b = put(s, to, sizeof to);
        memcpy(want, to, sizeof to);
        weft_device_host.copy(NULL, want + 8, from + 8, rows[i]);
        memset(want + 1000, 7, 9);
        device->copy(s, b + 8, a + 8, rows[i]);
        device->fill(s, b + 1000, 7, 9);
        cr_expect(holds(s, b, want, sizeof want), "rows %zu", i);
        device->free(device, a);
        device->free(device, b);
    }
    device->close(s);
}

Test(cuda_driver, conversions_equal_those_of_the_host)
{
    static const weft_dtype types[][2] = {
        {WEFT_F32, WEFT_BF16}, {WEFT_BF16, WEFT_F32},   {WEFT_F32, WEFT_F16},
        {WEFT_F16, WEFT_F32},  {WEFT_F32, WEFT_F8E4M3}, {WEFT_F8E4M3, WEFT_BF16},
        {WEFT_F32, WEFT_F32},  {WEFT_F64, WEFT_F32},    {WEFT_BF16, WEFT_F64},
        {WEFT_I64, WEFT_I32},  {WEFT_U8, WEFT_I64}};
    weft_device_stream *s = open_stream_of_kernels();
    double from[COUNT], want[COUNT];
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const weft_dtype in = types[i][0], out = types[i][1];
        random_values(from, in, COUNT, i + 1);
        weft_convert(want, out, from, in, COUNT);
        char *a = put(s, from, COUNT * weft_dtype_bytes(in)),
             *b = alloc(COUNT * weft_dtype_bytes(out));
        device->convert(s, b, out, a, in, COUNT);
        cr_expect(holds(s, b, want, COUNT * weft_dtype_bytes(out)), "%s to %s", weft_dtype_name(in),
                  weft_dtype_name(out));
        device->free(device, a);
        device->free(device, b);
    }
    device->close(s);
}

/* Sums of k terms in the order of the host's tree, bit by bit. */
static void check_sum(weft_device_stream *s, weft_dtype dtype, int k)
{
    enum { MOST = 33, N = 300 };
    char *term[MOST], *slot[MOST], *temp = weft_alloc_aligned(weft_sum_temp_bytes(dtype, k)),
                                   *want = weft_alloc_aligned(N * 8);
    void *there[MOST], *out = alloc(N * 8);
    const int64_t bytes = N * weft_dtype_bytes(dtype);
    for (int i = 0; i < k; i++) {
        term[i] = weft_alloc_aligned(bytes);
        slot[i] = weft_alloc_aligned(bytes);
        random_values(term[i], dtype, N, (uint64_t)i + 1);
        there[i] = put(s, term[i], bytes);
    }
    weft_sum_terms(dtype, k, (const void *const *)term, (void *const *)slot, temp, want, N);
    device->sum(s, dtype, k, (const void *const *)there, there, NULL, out, N);
    cr_expect(holds(s, out, want, bytes), "%d terms of %s", k, weft_dtype_name(dtype));
    for (int i = 0; i < k; i++) {
        weft_free(term[i]);
        weft_free(slot[i]);
        device->free(device, there[i]);
    }
    weft_free(temp);
    weft_free(want);
    device->free(device, out);
}

Test(cuda_driver, sums_equal_those_of_the_host)
{
    static const weft_dtype types[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16, WEFT_I32, WEFT_I64};
    static const int counts[] = {2, 3, 6, 8, 33};
    weft_device_stream *s = open_stream_of_kernels();
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
            check_sum(s, types[t], counts[i]);
    device->close(s);
}

Test(cuda_driver, add_may_be_in_place)
{
    weft_device_stream *s = open_stream_of_kernels();
    float a[COUNT], b[COUNT], want[COUNT];
    random_values(a, WEFT_F32, COUNT, 1);
    random_values(b, WEFT_F32, COUNT, 2);
    weft_sum_two(WEFT_F32, want, a, b, COUNT);
    float *x = put(s, a, BYTES), *y = put(s, b, BYTES);
    device->add(s, WEFT_F32, x, x, y, COUNT);
    cr_expect(holds(s, x, want, BYTES));
    device->free(device, x);
    device->free(device, y);
    device->close(s);
}

Test(cuda_driver, staging_works_in_several_threads)
{
    weft_staging *staging;
    float values[COUNT], back[COUNT];
    random_values(values, WEFT_F32, COUNT, 3);
    cr_assert_eq(weft_staging_create(device, &staging), WEFT_OK, "%s", weft_error_message());
#pragma omp parallel for num_threads(3)
    for (int i = 0; i < 6; i++) {
        float own[COUNT];
        void *data = device->alloc(device, BYTES);
        weft_status_code status =
            weft_staging_write(staging, data, WEFT_BF16, values, WEFT_F32, COUNT);
        if (status == WEFT_OK)
            status = weft_staging_read(staging, own, WEFT_F32, data, WEFT_BF16, COUNT);
        cr_expect_eq(status, WEFT_OK);
        cr_expect(fabsf(own[i] - values[i]) <= 0.01f * fabsf(values[i]));
        device->free(device, data);
        if (i == 5)
            memcpy(back, own, sizeof back);
    }
    cr_expect(fabsf(back[7] - values[7]) <= 0.01f * fabsf(values[7]));
    weft_staging_free(staging);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* One stream writes, the other copies what was written, by events. */
static void pass_on(void)
{
    weft_event written = {0}, read = {0};
    weft_device_stream *a = open_stream(), *b = open_stream();
    char *data = alloc(BYTES), *host = weft_device_alloc_host(device, 8 * BYTES);
    for (int i = 0; i < 8; i++) {
        device->after(a, &read);
        device->fill(a, data, i, BYTES);
        cr_assert_eq(device->record(a, &written), WEFT_OK);
        device->after(b, &written);
        device->host_copy(b, host + i * BYTES, data, BYTES);
        cr_assert_eq(device->record(b, &read), WEFT_OK);
    }
    cr_assert_eq(device->await(b, &read), WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < 8; i++)
        cr_expect(host[i * BYTES] == i && host[(i + 1) * BYTES - 1] == i);
    cr_assert_eq(device->await(a, &written), WEFT_OK);
    cr_expect(written.seconds <= read.seconds + 1e-5, "events have times of one clock");
    device->forget(device, &written);
    device->forget(device, &read);
    device->close(a);
    device->close(b);
    device->free(device, data);
    weft_device_free_host(device, host);
}

Test(cuda_driver, events_order_streams)
{
    static const char *const seeds[] = {"1", "2", "3"};
    for (int i = 0; i < 3; i++) {
        setenv("WEFT_EMU_SEED", seeds[i], 1);
        pass_on();
    }
}

Test(cuda_driver, fresh_memory_is_nan)
{
    weft_device_stream *s = open_stream();
    float *data = alloc(BYTES), *host = weft_device_alloc_host(device, BYTES);
    device->host_copy(s, host, data, BYTES);
    finish(s);
    cr_expect(isnan(host[0]) && isnan(host[COUNT - 1]));
}

Test(cuda_driver, host_read_of_gpu_memory_is_detected, .signal = SIGABRT)
{
    open_stream();
    volatile const float *data = alloc(BYTES);
    cr_assert(data[0] == 0); /* does not return */
}

Test(cuda_driver, host_read_before_a_wait_is_detected, .signal = SIGABRT)
{
    weft_device_stream *s = open_stream();
    float *data = alloc(BYTES);
    volatile float *host = weft_device_alloc_host(device, BYTES);
    device->host_copy(s, (void *)(uintptr_t)host, data, BYTES);
    cr_assert(host[5] == 0);
}

Test(cuda_driver, host_write_before_a_wait_is_detected, .signal = SIGABRT)
{
    weft_device_stream *s = open_stream();
    float *data = alloc(BYTES);
    volatile float *host = weft_device_alloc_host(device, BYTES);
    host[5] = 1;
    device->host_copy(s, data, (void *)(uintptr_t)host, BYTES);
    host[5] = 2;
}

/* Only the bytes of a copy are protected: others of their page stay accessible. */
Test(cuda_driver, other_pinned_bytes_stay_accessible)
{
    weft_device_stream *s = open_stream();
    float *data = alloc(BYTES), *host = weft_device_alloc_host(device, 2 * BYTES);
    device->host_copy(s, host, data, BYTES);
    host[COUNT + 5] = 3;
    finish(s);
    cr_expect(host[COUNT + 5] == 3 && isnan(host[5]));
}

/* The system maps whole pages downwards, each pinned allocation twice. One of twice the size fills
 * the gap of a freed one, and begins where another allocation ends. */
Test(cuda_driver, copies_of_adjacent_pinned_memory)
{
    enum { PAGES = 1 << 17 };
    weft_device_stream *s = open_stream();
    char *data = alloc(2 * PAGES), *above = weft_device_alloc_host(device, PAGES),
         *middle = weft_device_alloc_host(device, PAGES),
         *below = weft_device_alloc_host(device, PAGES);
    weft_device_free_host(device, middle);
    middle = weft_device_alloc_host(device, 2 * PAGES);
    weft_device_free_host(device, above);
    device->host_copy(s, data, middle, 2 * PAGES);
    finish(s);
    weft_device_free_host(device, middle);
    weft_device_free_host(device, below);
    device->free(device, data);
    device->close(s);
}

Test(cuda_driver, copy_of_memory_that_is_not_pinned_is_detected, .signal = SIGABRT)
{
    weft_device_stream *s = open_stream();
    float host[COUNT];
    device->host_copy(s, host, alloc(BYTES), BYTES);
}

Test(cuda_driver, two_streams_without_an_event_are_detected, .signal = SIGABRT)
{
    weft_device_stream *a = open_stream(), *b = open_stream();
    float *data = alloc(BYTES);
    device->fill(a, data, 0, BYTES);
    device->fill(b, data, 1, BYTES);
    finish(a); /* the host waited after both were added, so the conflict remains */
    finish(b);
}

/* Another thread fills memory and then opens a gate, turn after turn. */
typedef struct opening {
    weft_device_stream *stream;
    char *data;
    uint32_t *gate, turn;
    bool by_host; /* without work of the stream, as for a failed message */
} opening;

static void *open_gate(void *user)
{
    const opening *o = user;
    if (o->by_host) {
        device->force(device, o->gate, o->turn);
        return NULL;
    }
    device->fill(o->stream, o->data, (int)o->turn, BYTES);
    device->lift(o->stream, o->gate, o->turn);
    (void)device->wait(o->stream); /* issues the work */
    return NULL;
}

Test(cuda_driver, gates_order_work_that_is_added_later)
{
    weft_device_stream *a = open_stream(), *b = open_stream();
    char *data = alloc(BYTES), *host = weft_device_alloc_host(device, BYTES);
    uint32_t *gate = weft_device_alloc_host(device, sizeof *gate);
    *gate = 0;
    for (uint32_t turn = 1; turn <= 4; turn++) {
        pthread_t thread;
        opening o = {b, data, gate, turn, turn == 4};
        cr_assert_eq(pthread_create(&thread, NULL, open_gate, &o), 0);
        device->hold(a, gate, turn);
        device->host_copy(a, host, data, BYTES);
        finish(a);
        pthread_join(thread, NULL);
        const char last = (char)(turn < 4 ? turn : 3);
        cr_expect(host[0] == last && host[BYTES - 1] == last);
    }
    device->close(a);
    device->close(b);
    device->free(device, data);
    weft_device_free_host(device, gate);
    weft_device_free_host(device, host);
}

/* An opened gate orders nothing without a stream that holds. Both streams have their work before the
 * host waits, since a wait in between would order the work. */
Test(cuda_driver, work_that_needs_a_gate_is_detected_without, .signal = SIGABRT)
{
    weft_device_stream *a = open_stream(), *b = open_stream();
    char *data = alloc(BYTES), *host = weft_device_alloc_host(device, BYTES);
    uint32_t *gate = weft_device_alloc_host(device, sizeof *gate);
    *gate = 0;
    device->fill(b, data, 1, BYTES);
    device->lift(b, gate, 1);
    device->host_copy(a, host, data, BYTES);
    finish(a);
    finish(b);
}

Test(cuda_driver, freeing_memory_in_use_is_detected, .signal = SIGABRT)
{
    weft_device_stream *s = open_stream();
    float *data = alloc(BYTES);
    device->fill(s, data, 0, BYTES);
    device->free(device, data);
}

Test(cuda_driver, use_after_free_is_detected, .signal = SIGABRT)
{
    weft_device_stream *s = open_stream();
    float *data = alloc(BYTES);
    device->free(device, data);
    device->fill(s, data, 0, BYTES);
}

#if WEFT_CUDA_KERNELS /* a test that expects a signal cannot be skipped */
Test(cuda_driver, kernel_outside_its_memory_is_detected, .signal = SIGABRT)
{
    const weft_cuda_gpu *gpu;
    weft_device_stream *s = open_stream_of_kernels();
    char *data = alloc(4096);
    const struct {
        void *to;
        const void *from;
        int64_t count;
        int32_t to_type, from_type;
    } args = {data, data, 1 << 20, WEFT_F32, WEFT_BF16};
    const weft_cuda_launch launch = {"weft_convert", {4096, 1, 1}, {256, 1, 1}, 0,
                                     &args,          sizeof args};
    cr_assert_eq(weft_cuda_gpu_get(&gpu), WEFT_OK);
    cr_assert_eq(weft_cuda_stream_queue(s)->add(weft_cuda_stream_queue(s), &launch), WEFT_OK);
    device->wait(s);
}
#endif

/* ---- modules --------------------------------------------------------------------------------- */

/* Every kernel that clang compiled is found, and has a parameter of the size that gcc sees, which
 * the emulation checks. */
Test(cuda_driver, every_embedded_kernel_is_found)
{
    const weft_cuda_gpu *gpu;
    int kernels = 0;
    open_stream_of_kernels();
    cr_assert_eq(weft_cuda_gpu_get(&gpu), WEFT_OK, "%s", weft_error_message());
    for (const weft_cuda_image *image = weft_cuda_images; image->name; image++) {
        cuda_module module;
        cr_assert_eq(gpu->driver->module_load(&module, image->text, 0, NULL, NULL), CUDA_OK);
        for (const char *at = (const char *)image->text; (at = strstr(at, ".entry "));) {
            char name[96];
            cuda_function function;
            at += strlen(".entry ");
            snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "( "), at);
            cr_expect_eq(gpu->driver->module_function(&function, module, name), CUDA_OK, "%s",
                         name);
            kernels++;
        }
        cr_expect_eq(gpu->driver->module_unload(module), CUDA_OK);
    }
    cr_expect(kernels >= 2);
}

/* A kernel reports an id outside its table; the host learns it from the next wait, once. */
Test(cuda_driver, ids_outside_a_table_are_errors)
{
    weft_device_stream *s = open_stream_of_kernels();
    enum { ROWS = 4, WIDTH = 8, IDS = 3 };
    void *table = alloc(ROWS * WIDTH * 4), *ids = alloc(IDS * 4), *out = alloc(IDS * WIDTH * 4);
    int32_t *host = device->alloc_host(device, IDS * 4);
    weft_view in[] = {{.data = table, .dtype = WEFT_F32, .shape = {2, {ROWS, WIDTH}}},
                      {.data = ids, .dtype = WEFT_I32, .shape = {1, {IDS}}}};
    weft_view result = {.data = out, .dtype = WEFT_F32, .shape = {2, {IDS, WIDTH}}};
    const weft_kernel_args args = {
        .op = WEFT_OP_EMBED, .in = in, .in_count = 2, .out = &result, .out_count = 1, .stream = s};
    const weft_kernel *kernel = weft_backend_cuda.kernel[WEFT_OP_EMBED];
    device->fill(s, table, 0, ROWS * WIDTH * 4);
    for (int bad = 0; bad < 2; bad++) {
        host[0] = 3, host[1] = bad ? -7 : 0, host[2] = 1;
        device->host_copy(s, ids, host, IDS * 4);
        cr_assert_eq(kernel->run(&args), WEFT_OK, "%s", weft_error_message());
        if (bad) {
            cr_assert_eq(device->wait(s), WEFT_E_ARG);
            cr_assert_not_null(strstr(weft_error_message(), "embed: id -7 "), "%s",
                               weft_error_message());
        }
        finish(s);
    }
    device->close(s);
}

Test(cuda_driver, unknown_kernels_and_large_launches_are_errors)
{
    weft_device_stream *s = open_stream_of_kernels();
    weft_cuda_queue *queue = weft_cuda_stream_queue(s);
    const char args[4096] = {0};
    weft_cuda_launch launch = {"weft_unknown", {1, 1, 1}, {32, 1, 1}, 0, args, sizeof args};
    cr_expect_eq(queue->add(queue, &launch), WEFT_E_UNSUPPORTED);
    cr_expect_eq(weft_error_class(), WEFT_MSG_GPU_KERNELS);
    launch.kernel = "weft_sum";
    launch.shared = 200 << 10;
    cr_expect_eq(queue->add(queue, &launch), WEFT_E_UNSUPPORTED);
    cr_expect_eq(weft_error_class(), WEFT_MSG_KERNEL_UNSUPPORTED);
    launch.shared = 0;
    launch.block[0] = 512;
    cr_expect_eq(queue->add(queue, &launch), WEFT_E_INTERNAL);
    cr_expect_eq(weft_error_class(), WEFT_MSG_GPU_FAILED);
    launch.block[0] = 256;
    launch.shared = 60 << 10;
    cr_expect_eq(queue->add(queue, &launch), WEFT_OK, "%s", weft_error_message());
    finish(s);
}

/* ---- faults of a GPU ------------------------------------------------------------------------- */

/* Two nodes, of which the second is the n-th launch; the wait returns the error with the nodes. */
static void check_fault(const char *fault, weft_message_class kind, const char *nodes)
{
    setenv("WEFT_EMU_FAULT", fault, 1);
    weft_device_stream *s = open_stream_of_kernels();
    float *data = alloc(BYTES);
    if (kind == WEFT_MSG_GPU_HANG) /* the kernel never ends, so that any deadline passes */
        setenv("WEFT_CUDA_DEADLINE", "0.05", 1);
    device->mark(s, 3, "add", "blocks.0");
    device->fill(s, data, 0, BYTES);
    device->add(s, WEFT_F32, data, data, data, COUNT);
    device->mark(s, 4, "mul", "");
    device->add(s, WEFT_F32, data, data, data, COUNT);
    cr_expect_neq(device->wait(s), WEFT_OK);
    cr_expect_eq(weft_error_class(), kind, "%s: %s", fault, weft_error_message());
    cr_expect_str_eq(weft_error_fields()->key, nodes);
    device->add(s, WEFT_F32, data, data, data, COUNT);
    cr_expect_neq(device->wait(s), WEFT_OK, "%s: the GPU stays unusable", fault);
    device->close(s);
    device->free(device, data);
}

static const char *const both = "node 3, add of blocks.0 to node 4, mul";

Test(cuda_driver, lost_gpu)
{
    check_fault("lost@2", WEFT_MSG_GPU_LOST, both);
}

Test(cuda_driver, ecc_error)
{
    check_fault("ecc@1", WEFT_MSG_GPU_ECC, both);
}

Test(cuda_driver, illegal_address)
{
    check_fault("illegal@2", WEFT_MSG_GPU_FAILED, both);
}

Test(cuda_driver, hanging_kernel)
{
    check_fault("hang@1", WEFT_MSG_GPU_HANG, both);
}

Test(cuda_driver, out_of_memory)
{
    setenv("WEFT_EMU_FAULT", "memory@2", 1);
    setenv("WEFT_EMU_MEMORY", "100000", 1);
    void *first = alloc(BYTES);
    cr_expect_eq(device->available(device), 100000 - BYTES);
    cr_expect_null(device->alloc(device, BYTES), "the second allocation fails");
    cr_expect_null(device->alloc(device, 100000), "more than the GPU has");
    cr_expect_eq(weft_device_check_memory(device, 100000, "weights"), WEFT_E_MEMORY);
    cr_expect_eq(weft_error_class(), WEFT_MSG_MEMORY_NEEDED);
    device->free(device, first);
    cr_expect_eq(device->available(device), 100000);
}

/* ---- the GPU of a process -------------------------------------------------------------------- */

/* A backend without kernels reports that first. */
static void expect_no_gpu(void)
{
    const weft_cuda_gpu *gpu;
    cr_expect_eq(weft_backend_cuda.check(), WEFT_E_UNSUPPORTED);
    cr_expect_eq(weft_error_class(),
                 weft_cuda_images[0].name ? WEFT_MSG_GPU_DRIVER : WEFT_MSG_GPU_KERNELS);
    cr_expect_eq(weft_cuda_gpu_get(&gpu), WEFT_E_UNSUPPORTED);
    cr_expect_eq(weft_error_class(), WEFT_MSG_GPU_DRIVER);
}

Test(cuda_driver, missing_driver_is_an_error)
{
    setenv("WEFT_CUDA_LIBRARY", "/nonexistent/libcuda.so.1", 1);
    expect_no_gpu();
    weft_device_stream *s;
    cr_expect_eq(device->open(device, NULL, &s), WEFT_E_UNSUPPORTED);
    cr_expect_null(device->alloc(device, 1));
}

Test(cuda_driver, no_visible_gpu_is_an_error)
{
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    expect_no_gpu();
}

Test(cuda_driver, local_ranks_use_visible_gpus_in_order)
{
    const weft_cuda_gpu *gpu;
    setenv("WEFT_EMU_DEVICES", "4", 1);
    setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
    cr_assert_eq(weft_cuda_gpu_get(&gpu), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(gpu->ordinal, 1);
    cr_expect_eq(gpu->count, 2);
    cr_expect_eq(gpu->gpu, 1);
}
