#include "serve/device_check.h"

#include "kernel/registry/backend.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct failure {
    weft_message_class kind;
    char text[600];
} failure;

/* Writes the error to `out`, if the device cannot be opened. */
static void open_device(const weft_backend *backend, int out)
{
    weft_device_stream *stream = NULL;
    failure f = {0};
    if (backend->device->open(backend->device, backend, &stream) == WEFT_OK)
        return;
    f.kind = weft_error_class();
    snprintf(f.text, sizeof f.text, "%s", weft_error_text());
    while (write(out, &f, sizeof f) < 0 && errno == EINTR)
        ;
}

weft_status weft_serve_check_device(const char *backend)
{
    const weft_backend *row =
        backend && strcmp(backend, "auto") ? weft_backend_find(backend) : NULL;
    failure f = {0};
    int ends[2], state = 0;
    if (!row || !row->device->total)
        return WEFT_OK;
    if (pipe(ends))
        return weft_error_errno(WEFT_NOWHERE, "a pipe to a child process");
    const pid_t child = fork();
    if (child == 0) {
        open_device(row, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    ssize_t got;
    while ((got = read(ends[0], &f, sizeof f)) < 0 && errno == EINTR)
        ;
    close(ends[0]);
    while (child > 0 && waitpid(child, &state, 0) < 0 && errno == EINTR)
        ;
    if (got == (ssize_t)sizeof f)
        return weft_error(f.kind, WEFT_AT(.key = "--backend", .value = backend), "%s", f.text);
    return child > 0 && WIFEXITED(state)
               ? WEFT_OK
               : weft_error(WEFT_MSG_GPU_DRIVER, WEFT_AT(.key = "--backend", .value = backend),
                            "a process that opened the device has crashed; run weft doctor --gpu");
}
