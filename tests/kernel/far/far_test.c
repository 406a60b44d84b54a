/* The backend `far`: accesses that it refuses, errors that it reports later, and streams that keep the
 * order of events. */
#include "kernel/far/far.h"

#include "base/memory.h"
#include "kernel/cpu/table.h"
#include "kernel/device.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

enum { COUNT = 1000, BYTES = COUNT * 4 };

static const weft_device *device(void)
{
    return weft_backend_far.device;
}

static weft_device_stream *open_stream(const weft_backend *backend)
{
    weft_device_stream *s;
    cr_assert_eq(device()->open(device(), backend, &s), WEFT_OK, "%s", weft_error_message());
    return s;
}

Test(far, host_read_of_device_memory_is_a_fault, .signal = SIGSEGV)
{
    volatile const float *data = device()->alloc(device(), BYTES);
    cr_assert(data[0] == 0); /* does not return */
}

Test(far, host_write_to_device_memory_is_a_fault, .signal = SIGSEGV)
{
    volatile float *data = device()->alloc(device(), BYTES);
    data[COUNT - 1] = 1;
}

Test(far, host_memory_as_operand_is_refused, .signal = SIGABRT)
{
    weft_device_stream *s = open_stream(&weft_backend_far);
    float host[COUNT];
    device()->fill(s, host, 0, BYTES);
}

Test(far, two_streams_without_an_event_are_refused, .signal = SIGABRT)
{
    weft_device_stream *a = open_stream(NULL), *b = open_stream(NULL);
    float *data = device()->alloc(device(), BYTES);
    device()->fill(a, data, 0, BYTES);
    device()->fill(b, data, 1, BYTES);
    device()->wait(a); /* the host waited after both were added, so the conflict remains */
    device()->wait(b);
}

/* Work after a gate is added before the work that lifts the gate. */
static void pass_gate(bool holds)
{
    weft_device_stream *a = open_stream(NULL), *b = open_stream(NULL);
    char *data = device()->alloc(device(), BYTES), *host = weft_device_alloc_host(device(), BYTES);
    uint32_t *gate = weft_device_alloc_host(device(), sizeof *gate);
    *gate = 0;
    for (uint32_t turn = 1; turn <= 3; turn++) {
        if (holds)
            device()->hold(a, gate, turn);
        device()->host_copy(a, host, data, BYTES);
        device()->fill(b, data, (int)turn, BYTES);
        device()->lift(b, gate, turn);
        cr_assert_eq(device()->wait(a), WEFT_OK);
        /* without the gate the copy may run first: the refusal is the result */
        cr_expect(!holds || (host[0] == (char)turn && host[BYTES - 1] == (char)turn));
    }
    device()->hold(a, gate, 4);
    device()->force(device(), gate, 4);
    cr_assert_eq(device()->wait(a), WEFT_OK);
    device()->close(a);
    device()->close(b);
    device()->free(device(), data);
    weft_device_free_host(device(), gate);
    weft_device_free_host(device(), host);
}

Test(far, gates_order_work_that_is_added_later)
{
    pass_gate(true);
}

Test(far, work_that_needs_a_gate_is_refused_without, .signal = SIGABRT)
{
    pass_gate(false);
}

Test(far, freeing_memory_in_use_is_refused, .signal = SIGABRT)
{
    weft_device_stream *s = open_stream(NULL);
    float *data = device()->alloc(device(), BYTES);
    device()->fill(s, data, 0, BYTES);
    device()->free(device(), data);
}

Test(far, use_after_free_is_refused, .signal = SIGABRT)
{
    weft_device_stream *s = open_stream(NULL);
    float *data = device()->alloc(device(), BYTES);
    device()->free(device(), data);
    device()->fill(s, data, 0, BYTES);
}

/* One stream writes, the other copies what was written, by events; for several delays. */
static void pass_on(uint64_t seed)
{
    weft_backend *backend;
    weft_event written = {0}, read = {0};
    cr_assert_eq(weft_backend_far_create(seed, &backend), WEFT_OK);
    weft_device_stream *a = open_stream(backend), *b = open_stream(backend);
    char *data = device()->alloc(device(), BYTES),
         *host = weft_device_alloc_host(device(), 8 * BYTES);
    for (int i = 0; i < 8; i++) {
        device()->after(a, &read);
        device()->fill(a, data, i, BYTES);
        cr_assert_eq(device()->record(a, &written), WEFT_OK);
        device()->after(b, &written);
        device()->host_copy(b, host + i * BYTES, data, BYTES);
        cr_assert_eq(device()->record(b, &read), WEFT_OK);
    }
    cr_assert_eq(device()->await(b, &read), WEFT_OK);
    for (int i = 0; i < 8; i++)
        cr_expect(host[i * BYTES] == i && host[(i + 1) * BYTES - 1] == i);
    device()->forget(device(), &written);
    device()->forget(device(), &read);
    device()->close(a);
    device()->close(b);
    device()->free(device(), data);
    weft_device_free_host(device(), host);
    weft_backend_far_free(backend);
}

Test(far, events_order_streams)
{
    for (uint64_t seed = 1; seed <= 4; seed++)
        pass_on(seed);
}

/* An id outside the table: an error of the kernel, which wait() returns with the node. */
Test(far, errors_of_kernels_appear_at_the_wait)
{
    weft_device_stream *s = open_stream(&weft_backend_far);
    char *data = device()->alloc(device(), 4 * BYTES);
    int32_t *ids = weft_device_alloc_host(device(), 2 * 4);
    ids[0] = 1;
    ids[1] = 7;
    device()->fill(s, data, 0, 4 * BYTES);
    device()->host_copy(s, data, ids, 2 * 4);
    const weft_view in[] = {{data + BYTES, WEFT_F32, {.rank = 2, .dim = {5, 4}}},
                            {data, WEFT_I32, {.rank = 1, .dim = {2}}}};
    weft_view out = {data + 2 * BYTES, WEFT_F32, {.rank = 2, .dim = {2, 4}}};
    const weft_kernel_args args = {.op = WEFT_OP_EMBED,
                                   .in = in,
                                   .in_count = 2,
                                   .out = &out,
                                   .out_count = 1,
                                   .threads = 1,
                                   .stream = s};
    device()->mark(s, 42, "embed", "text");
    cr_expect_eq(weft_backend_far.kernel[WEFT_OP_EMBED]->run(&args), WEFT_OK);
    cr_expect_eq(device()->wait(s), WEFT_E_ARG);
    cr_expect_str_eq(weft_error_fields()->key, "node 42, embed of text");
    cr_expect_eq(weft_error_fields()->number, 7);
    cr_expect_eq(device()->wait(s), WEFT_OK); /* an error is reported once */
    device()->close(s);
    device()->free(device(), data);
    weft_device_free_host(device(), ids);
}

/* Larger than the ring, odd sizes, and another type on the host. */
Test(far, staging_converts_there_and_back)
{
    enum { MANY = 3000001 };
    weft_staging *staging;
    cr_assert_eq(weft_staging_create(device(), &staging), WEFT_OK);
    uint16_t *data = device()->alloc(device(), MANY * 2);
    float *from = weft_alloc(MANY * 4), *to = weft_alloc(MANY * 4);
    for (int i = 0; i < MANY; i++)
        from[i] = (float)(i % 251);
    cr_assert_eq(weft_staging_write(staging, data, WEFT_BF16, from, WEFT_F32, MANY), WEFT_OK);
    cr_assert_eq(weft_staging_finish(staging), WEFT_OK);
    cr_assert_eq(weft_staging_read(staging, to, WEFT_F32, data, WEFT_BF16, MANY), WEFT_OK);
    cr_expect_eq(memcmp(from, to, MANY * 4), 0);
    cr_assert_eq(weft_staging_zero(staging, data, MANY * 2), WEFT_OK);
    cr_assert_eq(weft_staging_read(staging, to, WEFT_F32, data + 1, WEFT_BF16, MANY - 1), WEFT_OK);
    cr_expect(to[0] == 0 && to[MANY - 2] == 0);
    weft_staging_free(staging);
    device()->free(device(), data);
    weft_free(from);
    weft_free(to);
}

Test(far, memory_that_the_device_lacks_is_refused)
{
    cr_expect_eq(weft_device_check_memory(device(), 1 << 20, "weights"), WEFT_OK);
    cr_expect_eq(weft_device_check_memory(device(), INT64_MAX, "weights"), WEFT_E_MEMORY);
    cr_expect_eq(weft_error_class(), WEFT_MSG_MEMORY_NEEDED);
}
