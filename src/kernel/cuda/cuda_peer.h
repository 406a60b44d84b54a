/* Copies from the GPU of this process to another one, without a library. Messages between ranks use
 * NCCL (cuda_nccl.h), which makes such copies inside a machine. */
#ifndef WEFT_KERNEL_CUDA_CUDA_PEER_H
#define WEFT_KERNEL_CUDA_CUDA_PEER_H

#include "base/status.h"

typedef struct weft_cuda_peer {
    double rate;    /* bytes per second of the fastest of a few copies */
    bool is_direct; /* over PCIe or NVLink; false: through memory of the host */
} weft_cuda_peer;

/* Measures copies of `bytes` to GPU `ordinal` of the process, of which the call allocates `bytes`.
 * Nothing else should use the two GPUs. */
weft_status weft_cuda_peer_measure(int ordinal, int64_t bytes, weft_cuda_peer *peer);

#endif
