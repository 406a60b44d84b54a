/* The emulation detects what a GPU would not report. */
#include "emu/fibres.h"

#include <criterion/criterion.h>
#include <signal.h>

static void launch(const char *name, uint32_t blocks, uint32_t threads, uint32_t shared)
{
    static int data[64];
    const struct {
        int *data;
        int count;
    } args = {data, 64};
    const emu_kernel *kernel = emu_kernel_find(name);
    cr_assert_not_null(kernel);
    emu_launch(kernel, (const uint32_t[3]){blocks, 1, 1}, (const uint32_t[3]){threads, 1, 1},
               shared, &args, 3);
}

Test(fibres, runs_all_threads)
{
    static int data[96];
    const struct {
        int *data;
        int count;
    } args = {data, 96};
    for (uint64_t seed = 0; seed < 4; seed++) {
        emu_launch(emu_kernel_find("emu_reverse"), (const uint32_t[3]){1, 1, 1},
                   (const uint32_t[3]){96, 1, 1}, 0, &args, seed);
        for (int i = 0; i < 96; i++)
            cr_assert_eq(data[i], 95 - i);
    }
}

Test(fibres, barrier_that_some_do_not_reach, .signal = SIGABRT)
{
    launch("emu_lost_barrier", 1, 64, 0);
}

Test(fibres, partial_warp_that_exchanges, .signal = SIGABRT)
{
    launch("emu_exchange_all", 1, 40, 0);
}

Test(fibres, write_past_a_shared_array, .signal = SIGABRT)
{
    launch("emu_overrun", 1, 64, 0);
}

Test(fibres, too_many_threads, .signal = SIGABRT)
{
    launch("emu_reverse", 1, 1056, 0);
}

Test(fibres, too_much_shared_memory, .signal = SIGABRT)
{
    launch("emu_reverse", 1, 32, 300 << 10);
}
