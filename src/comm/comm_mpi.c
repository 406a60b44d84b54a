/* The transport over MPI: the only file that calls MPI_*.
 *
 * MPI is initialised when a communicator is opened and the environment has a launcher, so that a
 * single process pays nothing. Afterwards only the progress thread of comm.c calls MPI. At the end,
 * the opening thread calls MPI_Finalize after the progress thread has ended. */
#include "comm/comm_mpi.h"

#include "comm/comm.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/coll_tuner.h"
#include "comm/link_model.h"
#include "comm/rank_map.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NOTE_TAG = 1, NOTES_OUT = 64 };

/* Identity of a process, by which peers on the same machine find it. */
typedef struct identity {
    char host[64];
    char boot[40];        /* boot id of the kernel */
    int64_t space;        /* process id namespace */
    int64_t pid, started; /* started: clock ticks since boot; detects a reused pid */
    weft_rank_location location;
} identity;

typedef struct mpi_transport {
    MPI_Comm data, notes;
    identity *peer; /* by rank */
    int *node;      /* by rank: the first rank of the same machine */
    int rank, ranks;
    MPI_Request note_request[NOTES_OUT];
    char note_text[NOTES_OUT][WEFT_COMM_NOTE];
    int next_note;
} mpi_transport;

static weft_status check(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return WEFT_OK;
    MPI_Error_string(code, text, &length);
    return weft_error(WEFT_MSG_COMM_FAILED, WEFT_NOWHERE, "MPI cannot %s: %s", what, text);
}

/* The MPI_Request is stored in the message's handle. */
_Static_assert(sizeof(MPI_Request) <= sizeof(((weft_message *)NULL)->handle), "MPI_Request");

static MPI_Request *request_of(weft_message *m)
{
    return (MPI_Request *)(void *)&m->handle;
}

/* Segments are a few MiB, so the byte count fits an int. */
static int bytes_of(const weft_message *m)
{
    return m->meta ? 0 : (int)m->bytes;
}

static weft_status mpi_post(void *self, weft_message *m)
{
    mpi_transport *t = self;
    if (m->receiving)
        return check(
            MPI_Irecv(m->data, bytes_of(m), MPI_BYTE, m->peer, (int)m->tag, t->data, request_of(m)),
            "receive");
    return check(
        MPI_Isend(m->data, bytes_of(m), MPI_BYTE, m->peer, (int)m->tag, t->data, request_of(m)),
        "send");
}

static weft_status mpi_test(void *self, weft_message *m)
{
    const mpi_transport *t = self;
    MPI_Status status;
    int flag = 0, count = 0;
    WEFT_TRY(check(MPI_Test(request_of(m), &flag, &status),
                   m->receiving ? "receive a message (it may be longer than expected)" : "send"));
    if (!flag)
        return WEFT_OK;
    atomic_store(&m->done, true);
    if (m->receiving && MPI_Get_count(&status, MPI_BYTE, &count) == MPI_SUCCESS &&
        count != bytes_of(m))
        return weft_error(WEFT_MSG_RANKS_DISAGREE, WEFT_AT(WEFT_RANK(m->peer)),
                          "ranks %d and %d disagree about the size of a message: %d and %d bytes",
                          t->rank, m->peer, bytes_of(m), count);
    return WEFT_OK;
}

/* A matched message cannot be cancelled, and a wait would block if the peer has exited. Marking the
 * message as done is safe: bytes arrive only inside MPI calls, and none follow. */
static void mpi_cancel(void *self, weft_message *m)
{
    static const MPI_Request never;
    int done = 0;
    (void)self;
    if (!memcmp(request_of(m), &never, sizeof never) || *request_of(m) == MPI_REQUEST_NULL) {
        atomic_store(&m->done, true); /* it was not posted, or has failed */
        return;
    }
    MPI_Cancel(request_of(m));
    MPI_Test(request_of(m), &done, MPI_STATUS_IGNORE);
    atomic_store(&m->done, true);
}

static void mpi_note(void *self, int peer, const char text[WEFT_COMM_NOTE])
{
    mpi_transport *t = self;
    const int slot = t->next_note++ % NOTES_OUT;
    int done = 1;
    if (t->note_request[slot] != MPI_REQUEST_NULL)
        MPI_Test(&t->note_request[slot], &done, MPI_STATUS_IGNORE);
    if (!done)
        return; /* earlier notes were not received: dropping one does not matter */
    memcpy(t->note_text[slot], text, WEFT_COMM_NOTE);
    MPI_Isend(t->note_text[slot], WEFT_COMM_NOTE, MPI_CHAR, peer, NOTE_TAG, t->notes,
              &t->note_request[slot]);
}

static void mpi_poll(void *self, int *peer, char text[WEFT_COMM_NOTE])
{
    mpi_transport *t = self;
    MPI_Status status;
    int flag = 0;
    *peer = -1;
    if (MPI_Iprobe(MPI_ANY_SOURCE, NOTE_TAG, t->notes, &flag, &status) != MPI_SUCCESS || !flag)
        return;
    if (MPI_Recv(text, WEFT_COMM_NOTE, MPI_CHAR, status.MPI_SOURCE, NOTE_TAG, t->notes,
                 MPI_STATUS_IGNORE) == MPI_SUCCESS)
        *peer = status.MPI_SOURCE;
}

/* Reads field 22 of /proc/<pid>/stat, counted after the closing parenthesis of the name. Returns
 * false if the process does not exist or is a zombie. */
static bool process_started(int64_t pid, int64_t *started)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    const size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X')
        return false;
    at += 2;
    for (int field = 3; field < 22 && at; field++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    *started = at ? strtoll(at, NULL, 10) : 0;
    return true;
}

static void who_am_i(identity *me)
{
    struct stat info;
    *me = (identity){.pid = getpid()};
    gethostname(me->host, sizeof me->host - 1);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file) {
        if (!fgets(me->boot, sizeof me->boot, file))
            me->boot[0] = 0;
        fclose(file);
    }
    if (stat("/proc/self/ns/pid", &info) == 0)
        me->space = (int64_t)info.st_ino;
    process_started(me->pid, &me->started);
    me->location = weft_rank_location_here();
}

static bool same_machine(const identity *a, const identity *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->boot, b->boot) == 0;
}

static bool mpi_alive(void *self, int peer, char who[WEFT_COMM_NOTE])
{
    mpi_transport *t = self;
    const identity *me = &t->peer[t->rank], *other = &t->peer[peer];
    int64_t started = 0;
    snprintf(who, WEFT_COMM_NOTE, "process %" PRId64 " on %s", other->pid, other->host);
    if (!me->boot[0] || strcmp(me->boot, other->boot) != 0 || me->space != other->space)
        return true; /* on another machine: unknown */
    return process_started(other->pid, &started) && started == other->started;
}

/* Waits until notes are sent, at most half a second. */
static void mpi_flush(void *self)
{
    mpi_transport *t = self;
    for (const double until = weft_now() + 0.5; weft_now() < until;) {
        int all = 1;
        MPI_Testall(NOTES_OUT, t->note_request, &all, MPI_STATUSES_IGNORE);
        if (all)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* Returns the bits of a tag. MPI reports its largest tag on MPI_COMM_WORLD only. */
static int tag_bits(void)
{
    int *most = NULL, flag = 0, bits = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&most, &flag);
    for (int64_t top = flag ? *most : 32767; (int64_t)1 << (bits + 1) <= top + 1;)
        bits++;
    return bits;
}

/* Returns true if all ranks reach the end within `seconds`. */
static bool all_here(const mpi_transport *t, double seconds)
{
    MPI_Request request;
    int done = 0;
    if (MPI_Ibarrier(t->notes, &request) != MPI_SUCCESS)
        return false;
    for (const double until = weft_now() + seconds; !done && weft_now() < until;) {
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return false;
        if (!done)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return done != 0;
}

static void mpi_free(void *self, bool broken)
{
    mpi_transport *t = self;
    /* MPI_Finalize would wait forever for a missing rank. */
    if (!broken && all_here(t, 60)) {
        MPI_Comm_free(&t->data);
        MPI_Comm_free(&t->notes);
        MPI_Finalize();
    } else if (!broken) {
        weft_warning(WEFT_MSG_STRAGGLER, WEFT_AT(WEFT_RANK(t->rank)),
                     "the other ranks did not end within a minute; rank %d ends without them",
                     t->rank);
    }
    weft_free(t->node);
    weft_free(t->peer);
    weft_free(t);
}

/* Returns the number of ranks from the launcher's environment variables. */
static int launched_ranks(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text)
            return atoi(text);
    }
    return getenv("PMIX_RANK") ? 2 : 1; /* PMIx has no such variable; MPI returns the number */
}

static weft_status open_alone(weft_comm **comm)
{
    return weft_comm_create(&(weft_transport){.rank = 0, .ranks = 1}, comm);
}

/* Gathers the identities of all ranks, and creates the communicators with ranks ordered by location
 * (comm/rank_map.h). */
static weft_status open_ranks(mpi_transport *t)
{
    weft_status_code status = WEFT_OK;
    int own = 0, number = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
    identity me, *all = weft_calloc(t->ranks, sizeof *all);
    weft_rank_location *location = weft_calloc(t->ranks, sizeof *location);
    int *order = weft_calloc(t->ranks, sizeof *order);
    WEFT_GO(WEFT_ALLOCATED(all && location && order, "MPI"));
    who_am_i(&me);
    WEFT_GO(check(MPI_Allgather(&me, sizeof me, MPI_BYTE, all, sizeof me, MPI_BYTE, MPI_COMM_WORLD),
                  "exchange identities"));
    for (int r = 0; r < t->ranks; r++) {
        int first = 0;
        while (!same_machine(&all[first], &all[r]))
            first++;
        location[r] = all[r].location;
        location[r].machine = first;
    }
    WEFT_GO(weft_rank_order(location, t->ranks, order));
    for (int r = 0; r < t->ranks; r++) {
        t->peer[r] = all[order[r]];
        t->node[r] = r > 0 && location[order[r]].machine == location[order[r - 1]].machine
                         ? t->node[r - 1]
                         : r;
        number = order[r] == own ? r : number;
    }
    t->rank = number;
    WEFT_GO(check(MPI_Comm_split(MPI_COMM_WORLD, 0, number, &t->data), "number the ranks"));
    MPI_Comm_set_errhandler(t->data, MPI_ERRORS_RETURN);
    WEFT_GO(check(MPI_Comm_dup(t->data, &t->notes), "copy the communicator"));
    MPI_Comm_set_errhandler(t->notes, MPI_ERRORS_RETURN);
out:
    weft_free(all);
    weft_free(location);
    weft_free(order);
    return status;
}

/* Initializes MPI, once per process. */
static weft_status start_mpi(void)
{
    int flag = 0, provided = 0;
    MPI_Finalized(&flag);
    if (flag)
        return weft_error(WEFT_MSG_COMM_UNSUPPORTED, WEFT_NOWHERE,
                          "MPI was closed; it can be started once per process");
    MPI_Initialized(&flag);
    if (flag)
        return weft_error(WEFT_MSG_COMM_UNSUPPORTED, WEFT_NOWHERE,
                          "MPI is in use already; open the communicator once and share it");
    WEFT_TRY(check(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided), "start"));
    if (provided < MPI_THREAD_SERIALIZED)
        return weft_error(WEFT_MSG_COMM_UNSUPPORTED, WEFT_AT(WEFT_NUMBER(provided)),
                          "this MPI was built without threads (level %d; at least "
                          "MPI_THREAD_SERIALIZED, %d, is needed)",
                          provided, MPI_THREAD_SERIALIZED);
    return WEFT_OK;
}

static weft_status open_tuned(const weft_transport *transport, weft_comm **comm)
{
    weft_comm *made;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_comm_create(transport, &made));
    WEFT_GO(weft_comm_set_tuning_file(made));
    *comm = made;
    return WEFT_OK;
out:
    weft_comm_abort(made);
    weft_comm_free(made);
    return status;
}

weft_status weft_comm_open_mpi(weft_comm **comm)
{
    if (launched_ranks() <= 1)
        return open_alone(comm);
    WEFT_TRY(start_mpi());
    mpi_transport *t;
    WEFT_TRY(WEFT_NEW(t, 1, "MPI"));
    MPI_Comm_size(MPI_COMM_WORLD, &t->ranks);
    for (int i = 0; i < NOTES_OUT; i++)
        t->note_request[i] = MPI_REQUEST_NULL;
    weft_status_code status = WEFT_OK;
    t->peer = weft_calloc(t->ranks, sizeof *t->peer);
    t->node = weft_calloc(t->ranks, sizeof *t->node);
    WEFT_GO(WEFT_ALLOCATED(t->peer && t->node, "MPI"));
    WEFT_GO(open_ranks(t));
    weft_transport transport = {.rank = t->rank,
                                .ranks = t->ranks,
                                .tag_bits = tag_bits(),
                                .node = t->node,
                                .self = t,
                                .post = mpi_post,
                                .test = mpi_test,
                                .cancel = mpi_cancel,
                                .note = mpi_note,
                                .poll = mpi_poll,
                                .flush = mpi_flush,
                                .alive = mpi_alive,
                                .free = mpi_free};
    const char *link = getenv("WEFT_LINK");
    if (link) {
        weft_link_model model;
        WEFT_GO(weft_link_model_parse(link, &model));
        WEFT_GO(weft_transport_link(&transport, 1, &model));
    }
    return open_tuned(&transport, comm);
out:
    weft_free(t->node);
    weft_free(t->peer);
    weft_free(t);
    return status;
}

/* ---- memory of MPI -------------------------------------------------------------------------- */

/* Starts MPI in a child process. An MPI that cannot start ends its process. */
static bool mpi_can_start(void)
{
    enum { MOST_SECONDS = 30 };
    int state = 0;
    const pid_t child = fork();
    if (child == 0) {
        const int none = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (none < 0 || dup2(none, STDOUT_FILENO) < 0 || dup2(none, STDERR_FILENO) < 0)
            _exit(1);
        alarm(MOST_SECONDS);
        if (start_mpi() != WEFT_OK)
            _exit(1);
        MPI_Finalize();
        _exit(0);
    }
    while (child > 0 && waitpid(child, &state, 0) < 0)
        if (errno != EINTR)
            return false;
    return child > 0 && WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

static int64_t mpi_bytes; /* written once */

static void measure_mpi(void)
{
    if (!mpi_can_start())
        return;
    if (start_mpi() != WEFT_OK) {
        weft_error_clear();
        return;
    }
    weft_memory_trim();
    mpi_bytes = weft_memory_resident();
    MPI_Finalize();
    weft_memory_trim();
    mpi_bytes -= weft_memory_resident();
}

int64_t weft_comm_mpi_bytes(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (launched_ranks() > 1)
        return 0;
    pthread_once(&once, measure_mpi);
    return mpi_bytes;
}
