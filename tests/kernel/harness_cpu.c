/* Cases run on `cpu`: with every set of instructions, and on several numbers of threads. */
#include "harness.h"

#include "kernel/cpu/isa.h"
#include "kernel/cpu/table.h"
#include "kernel/host.h"

/* An extension that the processor lacks runs as its widest one. */
static void use_isa(int isa)
{
    static const char *const name[] = {NULL, "base", "avx2", "avx512", "avx512_bf16"};
    cpu_isa_use(name[isa]);
}

static void use_threads(int threads)
{
    static int before;
    const int last = weft_host_set_threads(threads ? threads : before);
    before = before ? before : last;
}

const subject harness_subjects[] = {
    {"base", &weft_backend_cpu, use_isa, 1},
    {"avx2", &weft_backend_cpu, use_isa, 2},
    {"avx512", &weft_backend_cpu, use_isa, 3},
    {"avx512_bf16", &weft_backend_cpu, use_isa, 4},
    {0},
};
const subject harness_orders[] = {
    {"1 thread", &weft_backend_cpu, use_threads, 1},
    {"2 threads", &weft_backend_cpu, use_threads, 2},
    {"3 threads", &weft_backend_cpu, use_threads, 3},
    {"5 threads", &weft_backend_cpu, use_threads, 5},
    {0},
};

const int64_t harness_conv_most = INT64_MAX;
const bool harness_bf16_attention = true;
