/* Memory of the process that no object of the run reserves: the program, its libraries, and the
 * memory that libraries use. It is measured once, before the run reserves memory.
 *
 * A library uses memory when it is first called: pages of its code, generated kernels, buffers of
 * threads. The measurement therefore calls everything that the run calls, with small operands. */
#ifndef WEFT_TRAIN_ESTIMATE_PROCESS_MEMORY_H
#define WEFT_TRAIN_ESTIMATE_PROCESS_MEMORY_H

#include "train/config/train_config.h"

/* Bytes by which the resident memory of a process differs between starts: a start maps the pages of
 * libraries that the page cache has, and the system takes some pages back. No object can report
 * them. Measured: 3.1 MiB over 24 processes. tests/train/estimate/memory_limit_test.sh and
 * tests/train/cascade/cascades_test.sh start runs with the limits that errors name. */
enum { WEFT_PROCESS_VARIES = 7 << 19 };

/* Bytes that a process uses after it was measured, and that no object reports: arenas and stacks of
 * threads, fragmentation of the heap, library pages that a start maps later, buffers of MPI. Peaks
 * of 14 runs of 53 to 207 MiB were 2.1 to 3.2 MiB above the memory before this addend. It does not
 * grow with the run. */
enum { WEFT_PROCESS_GROWS = 5 << 19 };

/* Bytes of a limit that are kept free in case a process grows by more than WEFT_PROCESS_GROWS. The
 * growth was 0.4 to 3.5 MiB in runs that reserve 10 MiB to 2.2 GiB. It does not grow with ranks:
 * 0.7 to 1.9 MiB on two, 0.3 to 0.6 MiB on four. It grows with threads: 0.5 MiB with 2, 3.7 MiB
 * with 16. memory_limit_test.sh starts runs with least limits. */
int64_t weft_process_unreported(void);

typedef struct weft_process_memory {
    int64_t resident; /* bytes of the program and its libraries, with WEFT_PROCESS_GROWS */
    int64_t decoders; /* bytes that decoders use in addition while they decode */
} weft_process_memory;
static inline int64_t weft_process_memory_sum(weft_process_memory m)
{
    return m.resident + m.decoders;
}

/* Measures the process. `encoded`: training stages whose latents are cached; a run decodes clips
 * unless all are (NULL: none). `ranks`: of the run. With more than one, the memory of MPI is
 * included, which a process without mpirun has not started. */
weft_status weft_process_memory_measure(const weft_run *run, const bool *encoded, int ranks,
                                        weft_process_memory *memory);

#endif
