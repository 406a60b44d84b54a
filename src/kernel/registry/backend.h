#ifndef WEFT_KERNEL_REGISTRY_BACKEND_H
#define WEFT_KERNEL_REGISTRY_BACKEND_H

#include "kernel/kernel.h"

/* Returns the backend of this name, or NULL. The name `auto` is `cuda` if this process has a GPU
 * and its kernels, otherwise `cpu`. The first call with `auto` starts the driver of the GPU, and
 * all calls of the process return the same backend. */
const weft_backend *weft_backend_find(const char *name);
bool weft_backend_is_auto(const char *name);
/* Makes `auto` the backend `cpu` from now on: the kernels of the GPU failed, or another rank has no
 * GPU. */
void weft_backend_auto_cpu(void);
/* Returns backend `index`, from 0, in the order of the list, or NULL past the last one. */
const weft_backend *weft_backend_at(int index);
/* Returns all names for messages: "auto, cpu, ref, virtual, far, cuda". */
const char *weft_backend_names(void);
/* Fails if this machine or build cannot run the backend. Call before its device is used. */
weft_status weft_backend_check(const weft_backend *backend);
/* Adds the backend of a plugin, borrowed for the rest of the process. WEFT_E_ARG: the name is in
 * use, or the kernel of a legal op is missing. */
weft_status weft_backend_add(const weft_backend *backend);

#endif
