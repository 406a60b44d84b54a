#include "kernel/cuda/kernel_facts.h"

#include "kernel/cuda/cuda_module.h"

#include <stdio.h>
#include <string.h>

extern const char weft_gpu_budgets[]; /* tools/gpu_budgets.txt, embedded by the build */

int weft_cuda_kernel_occupancy(const char *kernel, weft_gpu_arch arch)
{
    const size_t length = strlen(kernel);
    for (const char *line = weft_gpu_budgets; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        int occupancy[WEFT_SM_NONE];
        /* kernel, threads, shared memory, three registers, three occupancies */
        if (strncmp(line, kernel, length) || line[length] != ' ')
            continue;
        const int found = sscanf(line + length, " %*d %*d %*d %*d %*d %d %d %d", &occupancy[0],
                                 &occupancy[1], &occupancy[2]);
        return found == WEFT_SM_NONE && arch < WEFT_SM_NONE ? occupancy[arch] : -1;
    }
    return -1;
}

bool weft_cuda_kernel_uses_mma(const char *kernel)
{
    char entry[128];
    snprintf(entry, sizeof entry, ".entry %s(", kernel);
    for (const weft_cuda_image *image = weft_cuda_images; image->name; image++) {
        const char *begin = strstr((const char *)image->text, entry);
        if (!begin)
            continue;
        const char *mma = strstr(begin, "mma.sync"), *end = strstr(begin + 1, ".entry ");
        return mma && (!end || mma < end);
    }
    return false;
}
