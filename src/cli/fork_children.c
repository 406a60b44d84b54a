/* weft child-starter: the process of `weft serve` that forks the server's children. */
#include "cli/options/args.h"
#include "cli/run_verb.h"
#include "serve/child_starter.h"

#include "base/config.h"
#include "base/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_ARGUMENTS = 256, FIRST_FREE = 16 };

/* An order that was received. The texts are of the message. */
typedef struct order {
    weft_child_order head;
    char *folder, *argv[MOST_ARGUMENTS];
    int descriptors[WEFT_CHILD_DESCRIPTORS], descriptor_count;
} order;

static bool tell(weft_child_answer answer)
{
    return send(STDIN_FILENO, &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer;
}

/* ---- the child ------------------------------------------------------------------------------ */

/* `ps` and `top` show the verb that runs, in the place of the name of this one. */
static void rename_process(const char *verb)
{
    char *name = program_invocation_name + strlen(program_invocation_name) + 1;
    if (strcmp(name, WEFT_CHILD_STARTER) == 0)
        strncpy(name, verb, sizeof WEFT_CHILD_STARTER - 1);
}

/* Sets the standard streams and the lock, whose numbers no received descriptor has. */
static bool set_descriptors(const order *o)
{
    for (int i = 0; i < o->descriptor_count; i++)
        if (dup2(o->descriptors[i], i) != i)
            return false;
    for (int i = 0; i < o->descriptor_count; i++)
        close(o->descriptors[i]);
    return true;
}

/* Runs in the child: its parent ends, and the server adopts it. */
static _Noreturn void become(order *o, pid_t parent, pid_t server)
{
    while (getppid() == parent)
        usleep(50);
    weft_interrupt_detach_child(server);
    if (o->head.last_signal)
        prctl(PR_SET_PDEATHSIG, o->head.last_signal);
    if (!tell(getpid())) /* the server has started another child instead */
        _exit(127);
    if (o->head.niceness)
        (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + o->head.niceness);
    const weft_verb *verb = weft_verb_find(o->argv[1]);
    if (chdir(o->folder) != 0 || !set_descriptors(o) || !verb)
        _exit(127);
    rename_process(verb->name);
    exit(weft_run_verb(verb, o->head.count - 2, o->argv + 2));
}

/* ---- the starter ---------------------------------------------------------------------------- */

/* Forks a process that forks the child, and ends. Returns whether both forks succeeded. */
static bool fork_child(order *o, pid_t server)
{
    int status = 1;
    const pid_t middle = fork();
    if (middle == 0) {
        const pid_t parent = getpid(), child = fork();
        if (child == 0)
            become(o, parent, server);
        _exit(child < 0);
    }
    while (middle > 0 && waitpid(middle, &status, 0) < 0 && errno == EINTR)
        continue;
    return middle > 0 && status == 0;
}

/* Moves a received descriptor to a number that no child uses. */
static int move_up(int fd)
{
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FREE);
    close(fd);
    return moved;
}

static void take_descriptors(struct msghdr *m, order *o)
{
    const struct cmsghdr *head = CMSG_FIRSTHDR(m);
    o->descriptor_count = 0;
    if (!head || head->cmsg_type != SCM_RIGHTS)
        return;
    const size_t bytes = head->cmsg_len - CMSG_LEN(0);
    memcpy(o->descriptors, CMSG_DATA(head), bytes);
    o->descriptor_count = (int)(bytes / sizeof *o->descriptors);
    for (int i = 0; i < o->descriptor_count; i++)
        o->descriptors[i] = move_up(o->descriptors[i]);
}

/* Reads the texts that follow the head. Returns false for another message. */
static bool take_texts(char *message, int64_t bytes, order *o)
{
    char *at = message + sizeof o->head, *end = message + bytes;
    if (bytes < (int64_t)sizeof o->head || end[-1])
        return false;
    memcpy(&o->head, message, sizeof o->head);
    for (int i = 0; i < o->head.count && i < MOST_ARGUMENTS - 1 && at < end; i++) {
        *(i ? &o->argv[i] : &o->folder) = at;
        at += strlen(at) + 1;
    }
    o->argv[0] = program_invocation_name;
    return at == end && o->head.count >= 2 && o->descriptor_count == o->head.descriptors;
}

/* Forks children until the server ends. */
static void serve(pid_t server)
{
    static char message[WEFT_CHILD_ORDER_BYTES];
    static order o;
    for (;;) {
        union {
            struct cmsghdr header;
            char bytes[CMSG_SPACE(sizeof o.descriptors)];
        } control;
        struct iovec text = {message, sizeof message};
        struct msghdr m = {.msg_iov = &text,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof control};
        const ssize_t bytes = recvmsg(STDIN_FILENO, &m, MSG_CMSG_CLOEXEC);
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes <= 0)
            return;
        memset(&o, 0, sizeof o);
        take_descriptors(&m, &o);
        if (!take_texts(message, bytes, &o) || !fork_child(&o, server))
            (void)tell(-1);
        for (int i = 0; i < o.descriptor_count; i++)
            close(o.descriptors[i]);
    }
}

static weft_status run_starter(const weft_args *args)
{
    int type = 0;
    socklen_t bytes = sizeof type;
    (void)args;
    if (getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 ||
        type != SOCK_SEQPACKET || !tell(0))
        return weft_error(WEFT_MSG_WORKER_FAILED, WEFT_NOWHERE,
                          "the orders of `weft serve`, which starts this verb, are missing");
    serve(getppid());
    return WEFT_OK;
}

const weft_verb weft_verb_child_starter = {
    .name = WEFT_CHILD_STARTER,
    .summary = "fork the children of `weft serve`, which starts this verb",
    .usage = "",
    .details = "Reads orders from a socket, which is its standard input.\n",
    .hidden = true,
    .run = run_starter,
};
