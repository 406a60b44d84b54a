#ifndef WEFT_EXEC_OFFLOAD_MEMORY_H
#define WEFT_EXEC_OFFLOAD_MEMORY_H

#include "exec/copy_engine.h"
#include "exec/program.h"
#include "kernel/kernel.h"

typedef struct weft_shared_arena weft_shared_arena;

struct instruction;

/* Offload of the last run: bytes copied out and back, seconds of the copies, and the seconds in
 * which this rank's kernels waited for copies. */
typedef struct weft_offload_times {
    int64_t out, back;
    double busy, exposed;
} weft_offload_times;
static inline void weft_offload_times_add(weft_offload_times *to, weft_offload_times more)
{
    to->out += more.out;
    to->back += more.back;
    to->busy += more.busy;
    to->exposed += more.exposed;
}

/* Reserves an offload buffer for programs of `device`. `dir`: folder of the file if the device is
 * the host; NULL: host memory. */
weft_status weft_offload_buffer_reserve(const weft_device *device, const char *dir, int64_t bytes,
                                        weft_offload_buffer *out);
void weft_offload_buffer_release(weft_offload_buffer *buffer); /* Accepts a zeroed buffer. */

/* Reserves the offload buffer and the copy engine for programs that are bound together. */
weft_status weft_shared_arena_reserve(weft_shared_arena *shared, weft_program *const *programs,
                                      int count);
void weft_shared_arena_release(weft_shared_arena *shared);
/* Sets source, target and size of the copy of an offload or a fetch. */
void weft_program_rebind_slots(const weft_program *program, const struct instruction *code);

/* Bytes of the offload buffer for these programs when they are bound together. */
int64_t weft_programs_offloaded_bytes(weft_program *const *programs, int count);
weft_offload_times weft_program_offload_times(const weft_program *program);

#endif
