/* The primitives of kernels/simt.h that the emulation defines; fibres.c includes no kernel. */
#ifndef WEFT_TESTS_EMU_EMU_H
#define WEFT_TESTS_EMU_EMU_H

#include <stddef.h>
#include <stdint.h>

typedef struct emu_thread {
    uint32_t thread[3]; /* index in the block */
    uint32_t lane;
} emu_thread;
/* The thread that runs, its block, and the sizes of block and grid. */
extern emu_thread *emu_self;
extern uint32_t emu_block[3], emu_block_dim[3], emu_grid[3];

void emu_register(const char *name, void (*run)(const void *), size_t bytes, uint32_t threads);
void *emu_shared(size_t bytes);
void *emu_shared_dynamic(void);
void emu_barrier(void);
uint32_t emu_exchange(uint32_t value, uint32_t from_lane);
void emu_copy_async(void *shared, const void *global, uint32_t bytes);
void emu_copy_commit(void);
void emu_copy_wait(uint32_t groups);
void emu_load_matrix(uint32_t *to, const void *shared_row, int count, int transposed);
void emu_mma_bf16(float *acc, const uint32_t *a, const uint32_t *b);
void emu_mma_tf32(float *acc, const uint32_t *a, const uint32_t *b);
void emu_check_aligned(const void *p, size_t bytes);

#endif
