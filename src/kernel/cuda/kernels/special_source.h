/* One kernel of a file with constants for members of its parameter; included by simt.h. The source
 * defines before it includes the file:
 *
 *   WEFT_CHOSEN_NAME        the name of the compiled kernel
 *   WEFT_CHOOSE_<kernel>    `~, WEFT_CHOSEN_KERNEL` for the kernel of the file
 *   WEFT_CONSTANTS          assignments: given.columns = 1536; given.bias.data = NULL;
 *
 * The members then have these values wherever the kernel reads them, as all functions are inlined.
 * The other kernels of the file become functions that are not called. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_SPECIAL_SOURCE_H
#define WEFT_KERNEL_CUDA_KERNELS_SPECIAL_SOURCE_H

/* The second of the arguments after their expansion: WEFT_CHOSEN_KERNEL if WEFT_CHOOSE_<kernel> is
 * defined, else WEFT_OTHER_KERNEL. */
#define WEFT_SECOND_OF(first, second, ...) second
#define WEFT_SECOND(...)                   WEFT_SECOND_OF(__VA_ARGS__)
#define WEFT_KERNEL_BLOCKS(name, type, threads, blocks)                                            \
    WEFT_SECOND(WEFT_CHOOSE_##name, WEFT_OTHER_KERNEL, )(name, type, threads, blocks)

#define WEFT_OTHER_KERNEL(name, type, threads, blocks) DEV void name(const type a)
#define WEFT_CHOSEN_KERNEL(name, type, threads, blocks)                                            \
    DEV void name(const type a);                                                                   \
    WEFT_NAMED_ENTRY(WEFT_CHOSEN_NAME, type, threads, blocks)                                      \
    {                                                                                              \
        type given = a;                                                                            \
        WEFT_CONSTANTS                                                                             \
        name(given);                                                                               \
    }                                                                                              \
    DEV void name(const type a)
/* Expands the name. */
#define WEFT_NAMED_ENTRY(...) WEFT_ENTRY(__VA_ARGS__)

#endif
