/* The backend `far`, for tests: the kernels of `cpu` on a device that behaves like a GPU. The host
 * cannot read its memory, streams run while the host and other streams run, and errors of kernels
 * appear later. Results equal the results of `cpu` bit by bit, or the process stops at once:
 *
 *   host reads or writes memory of the device      fault, with the node that was started last
 *   kernel leaves the memory of its operands       fault, with the node that runs
 *   operand is in memory of the host               abort, with the node
 *   two streams use memory without an event        abort, with both nodes
 *   memory is freed while a stream uses it         abort, with the node
 *   memory is read before it is written            NaN */
#ifndef WEFT_KERNEL_FAR_FAR_H
#define WEFT_KERNEL_FAR_FAR_H

#include "kernel/kernel.h"

extern const weft_backend weft_backend_far;
/* Creates a backend whose streams have other delays. Free with weft_backend_far_free. */
weft_status weft_backend_far_create(uint64_t seed, weft_backend **out);
void weft_backend_far_free(weft_backend *backend); /* accepts NULL */

#endif
