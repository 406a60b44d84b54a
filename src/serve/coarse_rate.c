#include "serve/coarse_rate.h"

#include "base/config.h"
#include "base/log.h"
#include "serve/child_process.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Seconds after which a process that reads only the head of a file hangs. */
enum { MOST_SECONDS = 20 };

/* Reads the streams of the child until it ends. It is killed if it hangs. */
static void read_all(weft_child *child)
{
    const double begun = weft_now();
    while (weft_child_read(child)) {
        struct pollfd streams[] = {{.fd = child->output, .events = POLLIN},
                                   {.fd = child->error, .events = POLLIN}};
        (void)poll(streams, 2, 100);
        if (weft_now() - begun > MOST_SECONDS)
            kill(child->pid, SIGKILL);
    }
}

weft_status weft_coarse_rate(const char *program, const char *folder, int fd, double *fps)
{
    char path[1024], verb[] = "stills", option[] = "--rate", input[] = "/proc/self/fd/0",
                     *argv[] = {path, verb, option, input, NULL};
    const weft_child_start_options options = {
        .argv = argv, .folder = folder, .lock = -1, .input = fd, .with_output = true};
    weft_child child = {0};
    snprintf(path, sizeof path, "%s", program);
    WEFT_TRY(weft_child_start(&options, &child));
    read_all(&child);
    char *text = child.output_text.data;
    if (text)
        text[strcspn(text, "\n")] = '\0';
    const bool done = weft_child_wait(&child) == 0 && text && weft_parse_f64(text, fps);
    weft_child_close(&child);
    return done ? WEFT_OK
                : weft_error(WEFT_MSG_VIDEO_INPUT, WEFT_NOWHERE, "the video cannot be decoded");
}
