#include "cli/worker_commands.h"

#include "base/interrupt.h"

#include <math.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static void take_command(weft_worker_state *w, json_t *command)
{
    const int64_t stops = json_integer_value(json_object_get(command, "stop"));
    pthread_mutex_lock(&w->lock);
    if (stops && stops == w->running) {
        if (json_is_false(json_object_get(command, "save")))
            weft_interrupt_discard(weft_comm_ranks(w->comm) == 1);
        else
            weft_interrupt_request(true);
    } else if (json_object_get(command, "run")) {
        json_decref(w->job);
        w->job = json_incref(command);
        w->running = json_integer_value(json_object_get(command, "run"));
        pthread_cond_signal(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
}

/* Takes the complete lines out of `text`. */
static void take_lines(weft_worker_state *w, weft_buf *text)
{
    int64_t taken = 0;
    for (char *end; (end = memchr(text->data + taken, '\n', (size_t)(text->len - taken)));
         taken = end + 1 - text->data) {
        json_t *command =
            json_loadb(text->data + taken, (size_t)(end - text->data - taken), 0, NULL);
        if (command)
            take_command(w, command);
        json_decref(command);
    }
    text->len -= taken;
    memmove(text->data, text->data + taken, (size_t)text->len);
}

void *weft_worker_listen(void *user)
{
    weft_worker_state *w = user;
    weft_buf text = {0};
    char bytes[4096];
    ssize_t count = 1;
    while (count > 0) {
        struct pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {w->wake[0], POLLIN, 0}};
        const double wait = weft_resident_unload_idle(w->resident);
        (void)poll(fds, 2, wait < 0 ? -1 : (int)fmin(ceil(1000 * wait), 1e9));
        while (read(w->wake[0], bytes, sizeof bytes) > 0)
            continue;
        if (fds[0].revents && (count = read(STDIN_FILENO, bytes, sizeof bytes)) > 0) {
            weft_buf_append(&text, bytes, count);
            take_lines(w, &text);
        }
    }
    pthread_mutex_lock(&w->lock);
    w->ended = true;
    weft_interrupt_request(true); /* the server has ended */
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    weft_buf_free(&text);
    return NULL;
}
