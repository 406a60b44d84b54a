/* Peak rates of GPU models, from their data sheets. */
#ifndef WEFT_PLAN_CLUSTER_GPU_PEAKS_H
#define WEFT_PLAN_CLUSTER_GPU_PEAKS_H

typedef struct weft_gpu_peaks {
    const char *type;  /* as in descriptions of clusters: "H100" */
    const char *name;  /* contained in the driver's name of the GPU; NULL: backend `cuda` needs a
                          newer GPU */
    double f32_flops;  /* FLOP/s without tensor cores */
    double bf16_flops; /* of tensor cores, with sums in f32 and without sparsity; TF32 has half */
    double bandwidth;  /* bytes per second of the memory */
} weft_gpu_peaks;

/* Returns the peaks of a cluster's type of device. NULL: not in the list. */
const weft_gpu_peaks *weft_gpu_peaks_of_type(const char *type);
/* Returns the peaks of the GPU with the driver's name. NULL: not in the list. */
const weft_gpu_peaks *weft_gpu_peaks_of_name(const char *name);

#endif
