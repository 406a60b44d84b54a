#include "plan/cluster/gpu_peaks.h"

#include <stddef.h>
#include <string.h>

/* The first row of a type is the model that the preset of this type describes. */
static const weft_gpu_peaks list[] = {
    {"H100", "H100 80GB HBM3", 66.9e12, 989e12, 3.35e12},
    {"H100 PCIe", "H100 PCIe", 51.2e12, 756e12, 2.04e12},
    {"H200", " H200", 66.9e12, 989e12, 4.8e12}, /* not GH200 */
    {"A100", "A100-SXM4-40GB", 19.5e12, 312e12, 1.555e12},
    {"A100 PCIe", "A100-PCIE-40GB", 19.5e12, 312e12, 1.555e12},
    {"A100 80GB", "A100-SXM4-80GB", 19.5e12, 312e12, 2.039e12},
    {"A100 80GB PCIe", "A100 80GB PCIe", 19.5e12, 312e12, 1.935e12},
    {"RTX4090", "RTX 4090", 82.6e12, 165.2e12, 1.008e12},
    {"V100", NULL, 15.7e12, 125e12, 0.9e12},
};
enum { COUNT = sizeof list / sizeof list[0] };

const weft_gpu_peaks *weft_gpu_peaks_of_type(const char *type)
{
    for (int i = 0; i < COUNT; i++)
        if (!strcmp(list[i].type, type))
            return &list[i];
    return NULL;
}

const weft_gpu_peaks *weft_gpu_peaks_of_name(const char *name)
{
    for (int i = 0; i < COUNT; i++)
        if (list[i].name && strstr(name, list[i].name))
            return &list[i];
    return NULL;
}
