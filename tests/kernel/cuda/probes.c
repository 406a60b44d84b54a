/* Small kernels with errors, for fibres_test.c. */
#define WEFT_EMU
#include "kernel/cuda/kernels/simt.h"

typedef struct probe_args {
    int *data;
    int count;
} probe_args;

/* Each thread writes its index through shared memory to the opposite place. */
WEFT_KERNEL(emu_reverse, probe_args, 1024)
{
    WEFT_SHARED(int, place, 128);
    const int t = (int)THREAD(0);
    place[t] = t;
    block_barrier();
    a.data[t] = place[a.count - 1 - t];
}

WEFT_KERNEL(emu_lost_barrier, probe_args, 64)
{
    if (THREAD(0) != 5 || !a.data)
        block_barrier();
}

WEFT_KERNEL(emu_exchange_all, probe_args, 64)
{
    a.data[THREAD(0)] = (int)warp_read_bits(THREAD(0), 0);
}

WEFT_KERNEL(emu_overrun, probe_args, 64)
{
    WEFT_SHARED(int, place, 8);
    if (THREAD(0) == 9)
        place[THREAD(0)] = a.count;
}
