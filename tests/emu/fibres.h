/* Runs kernels of src/kernel/cuda/kernels on the host: every thread of a block is a fibre. */
#ifndef WEFT_TESTS_EMU_FIBRES_H
#define WEFT_TESTS_EMU_FIBRES_H

#include <stddef.h>
#include <stdint.h>

typedef struct emu_kernel emu_kernel;
struct emu_kernel {
    const char *name;
    void (*run)(const void *args); /* the code of one thread */
    size_t args_bytes;             /* size of the kernel's parameter */
    uint32_t threads;              /* most threads of a block */
    emu_kernel *next;              /* registered before */
};

/* Returns NULL if no kernel has this name. Kernels register themselves (WEFT_KERNEL). */
const emu_kernel *emu_kernel_find(const char *name);
/* The first of all registered kernels; the others follow by `next`. */
const emu_kernel *emu_kernel_first(void);

/* Runs all blocks. The order of blocks and threads follows from the seed; 0: ascending. Shared
 * memory of a block is NaN at first. A launch over the limits of the hardware ends the process
 * with a message that names the kernel, and so does a barrier that some threads do not reach. */
void emu_launch(const emu_kernel *kernel, const uint32_t grid[3], const uint32_t block[3],
                uint32_t shared, const void *args, uint64_t seed);

#endif
