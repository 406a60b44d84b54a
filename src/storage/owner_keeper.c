#include "storage/owner_keeper.h"

#include "base/memory.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct weft_owner_keeper {
    pid_t process, child;
    int socket;
};

/* The work of the child until the next order. */
typedef struct order {
    char folder[1024]; /* "": nothing */
    weft_owner_claim claim;
} order;

/* ---- child --------------------------------------------------------------------------------- */

/* Renews the claim. A failed request is tried again after the next interval. */
static void renew(order *o, weft_storage **storage)
{
    weft_owner_claim now = o->claim;
    bool exists = true;
    if (!*storage && weft_storage_open(o->folder, storage) != WEFT_OK) {
        weft_error_clear();
        return;
    }
    if (weft_owner_claim_find(*storage, &now, &exists) == WEFT_OK && !exists) {
        o->folder[0] = 0; /* another run has removed it */
        return;
    }
    o->claim.count++;
    if (weft_owner_claim_write(*storage, &o->claim) != WEFT_OK)
        weft_error_clear();
}

/* Follows the orders of the parent until its end. */
static void follow(int socket)
{
    order o = {0};
    weft_storage *storage = NULL;
    for (;;) {
        struct pollfd parent = {.fd = socket, .events = POLLIN};
        const int ms = (int)(1000 * o.claim.seconds / 6);
        const int ready = poll(&parent, 1, !o.folder[0] ? -1 : ms > 0 ? ms : 1);
        if (ready < 0 && errno != EINTR)
            return;
        if (ready == 0)
            renew(&o, &storage);
        if (ready <= 0)
            continue;
        if (recv(socket, &o, sizeof o, 0) != (ssize_t)sizeof o)
            return;
        weft_storage_close(storage);
        storage = NULL;
        if (send(socket, "", 1, MSG_NOSIGNAL) != 1)
            return;
    }
}

/* ---- parent -------------------------------------------------------------------------------- */

weft_status weft_owner_keeper_start(weft_owner_keeper **keeper)
{
    int ends[2];
    const pid_t parent = getpid();
    weft_owner_keeper *k;
    WEFT_TRY(WEFT_NEW(k, 1, "the keeper of a claim"));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        weft_free(k);
        return weft_error_errno(WEFT_NOWHERE, "cannot open a socket");
    }
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        close(ends[1]);
        if (getppid() == parent)
            follow(ends[0]);
        _exit(0);
    }
    close(ends[0]);
    *k = (weft_owner_keeper){.process = parent, .child = pid, .socket = ends[1]};
    if (pid > 0) {
        *keeper = k;
        return WEFT_OK;
    }
    const weft_status_code status = weft_error_errno(WEFT_NOWHERE, "cannot start a process");
    close(k->socket);
    weft_free(k);
    return status;
}

/* Sends an order and waits until the child follows it. False: the child has ended. */
static bool give(weft_owner_keeper *k, const order *o)
{
    char done;
    ssize_t got;
    if (send(k->socket, o, sizeof *o, MSG_NOSIGNAL) != (ssize_t)sizeof *o)
        return false;
    do
        got = recv(k->socket, &done, 1, 0);
    while (got < 0 && errno == EINTR);
    return got == 1;
}

weft_status weft_owner_keeper_renew(weft_owner_keeper *k, const char *folder,
                                    const weft_owner_claim *claim)
{
    order o = {.claim = *claim};
    if (snprintf(o.folder, sizeof o.folder, "%s", folder) >= (int)sizeof o.folder)
        return weft_error(WEFT_MSG_FILE_NAME, WEFT_AT(.file = folder), "the path is too long");
    return give(k, &o) ? WEFT_OK
                       : weft_error(WEFT_MSG_FILE_IO, WEFT_AT(.file = folder),
                                    "the process that renews the claim of this run has ended");
}

void weft_owner_keeper_pause(weft_owner_keeper *k)
{
    const order nothing = {.folder = ""};
    (void)give(k, &nothing);
}

void weft_owner_keeper_end(weft_owner_keeper *k)
{
    if (!k)
        return;
    close(k->socket);
    if (k->process == getpid()) {
        kill(k->child, SIGKILL); /* it may wait for the server */
        while (waitpid(k->child, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    weft_free(k);
}
