/* The first rank that fails binds a socket named after the job, prints its message, and serves the
 * other ranks. Each of these sends its message's hash and receives whether that message was
 * printed. The name is in the abstract namespace, so nothing remains on disk. If any step fails,
 * the rank prints its message. */
#include "cli/options/print_once.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"

#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_RANKS = 1024 };

/* Returns the ranks of the job on this machine. 1: a single rank, or no launcher that reports the
 * number. */
static int local_ranks(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                        "SLURM_NTASKS_PER_NODE"};
    for (int i = 0; i < 3; i++) {
        const char *text = getenv(names[i]);
        const int ranks = text ? atoi(text) : 0;
        if (ranks > 0)
            return ranks < MOST_RANKS ? ranks : MOST_RANKS;
    }
    return 1;
}

static socklen_t name_of_job(struct sockaddr_un *address)
{
    const char *job = getenv("PMIX_NAMESPACE");
    if (!job)
        job = getenv("OMPI_MCA_ess_base_jobid");
    if (!job)
        job = getenv("SLURM_JOB_ID");
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int length =
        snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "weft-error-%ld-%ld-%.40s",
                 (long)getuid(), job ? 0 : (long)getppid(), job ? job : "");
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* Answers the other ranks until all have asked or `seconds` have passed. */
static void reply(int listening, uint64_t own, int others, double seconds)
{
    uint64_t printed[MOST_RANKS] = {own};
    int count = 1;
    const double end = weft_now() + seconds;
    while (others > 0) {
        const double left = end - weft_now();
        struct pollfd wait = {listening, POLLIN, 0};
        if (left <= 0 || poll(&wait, 1, (int)(1000 * left) + 1) <= 0)
            return;
        const int peer = accept(listening, NULL, NULL);
        const struct timeval limit = {.tv_sec = 1};
        uint64_t hash;
        if (peer < 0)
            return;
        setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        if (recv(peer, &hash, sizeof hash, MSG_WAITALL) == (ssize_t)sizeof hash) {
            char known = 0;
            for (int i = 0; i < count && !known; i++)
                known = printed[i] == hash;
            if (!known && count < MOST_RANKS)
                printed[count++] = hash;
            (void)send(peer, &known, 1, MSG_NOSIGNAL);
        }
        close(peer);
        others--;
    }
}

static bool ask(int peer, uint64_t hash)
{
    char known = 0;
    const struct timeval limit = {.tv_sec = 5};
    setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return send(peer, &hash, sizeof hash, MSG_NOSIGNAL) == (ssize_t)sizeof hash &&
           recv(peer, &known, 1, 0) == 1 && known;
}

/* Returns true if the answering rank has already printed the message. That rank may have bound its
 * name and not listen yet. */
static bool was_printed(const struct sockaddr_un *address, socklen_t length, uint64_t hash)
{
    for (int i = 0; i < 100; i++) {
        const int peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (peer < 0)
            return false;
        const bool connected = connect(peer, (const struct sockaddr *)address, length) == 0;
        const bool known = connected && ask(peer, hash);
        close(peer);
        if (connected)
            return known;
        usleep(1000);
    }
    return false;
}

void weft_print_own(const char *verb)
{
    const char *message = weft_error_message(), *id = weft_message_id(weft_error_class());
    weft_buf line = {0};
    if (weft_message_as_json()) {
        char *json =
            weft_message_json("error", verb, weft_error_class(), weft_error_fields(), message);
        weft_buf_printf(&line, "%s", json ? json : message);
        weft_free(json);
    } else
        weft_buf_printf(&line, "weft%s%s: %s%s%s%s", verb ? " " : "", verb ? verb : "",
                        *id ? "error[" : "", id, *id ? "]: " : "", message);
    weft_log_last(line.failed ? message : line.data);
    weft_buf_free(&line);
}

void weft_print_once(const char *verb, bool shared)
{
    const char *message = weft_error_message();
    const int ranks = local_ranks();
    const uint64_t hash = XXH3_64bits(message, strlen(message));
    struct sockaddr_un address;
    const socklen_t length = name_of_job(&address);
    const int listening = ranks > 1 ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    const bool first = listening >= 0 &&
                       bind(listening, (const struct sockaddr *)&address, length) == 0 &&
                       listen(listening, MOST_RANKS) == 0;
    if (first || ranks == 1 || !was_printed(&address, length, hash))
        weft_print_own(verb);
    if (first)
        reply(listening, hash, ranks - 1, shared ? 20 : 2);
    if (listening >= 0)
        close(listening);
}
