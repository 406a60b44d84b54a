/* Tests at the start of a server that its worker can use the device. */
#ifndef WEFT_SERVE_DEVICE_CHECK_H
#define WEFT_SERVE_DEVICE_CHECK_H

#include "base/status.h"

/* Opens the device of a backend in a child process, because a GPU reserves memory for each process
 * that uses it. `backend`: a name, or auto, whose worker runs on the CPU if the GPU fails. Call it
 * before the process has threads. */
weft_status weft_serve_check_device(const char *backend);

#endif
