/* The transport over MPI: the only file that calls MPI_*.
 *
 * MPI is initialised when a communicator is opened and a launcher is found in the environment, so
 * that a program on its own pays nothing. The progress thread of comm.c is the only caller
 * afterwards; at the end the opening thread calls MPI_Finalize after that thread is gone. */
#include "runtime/comm.h"

#include "base/fs.h"
#include "base/log.h"
#include "runtime/seat.h"

#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NOTE_TAG = 1, NOTES_OUT = 64 };

/* A process that can be looked up by its peers on the same machine. */
typedef struct identity {
    char host[64];
    char boot[40];        /* of the kernel that runs it */
    int64_t space;        /* its namespace of process numbers */
    int64_t pid, started; /* started: in clock ticks since boot, against reuse of the number */
    weft_seat seat;
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
    return weft_fail(WEFT_E_COMM, "MPI: %s: %s", what, text);
}

/* A request lies in the message's handle. */
_Static_assert(sizeof(MPI_Request) <= sizeof(((weft_message *)NULL)->handle), "MPI_Request");

static MPI_Request *request_of(weft_message *m)
{
    return (MPI_Request *)(void *)&m->handle;
}

/* Segments are a few MiB, so a count of bytes fits an int. */
static int bytes_of(const weft_message *m)
{
    return m->hollow ? 0 : (int)m->bytes;
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
                   m->receiving ? "receive, maybe of more than was expected" : "send"));
    if (!flag)
        return WEFT_OK;
    atomic_store(&m->done, true);
    if (m->receiving && MPI_Get_count(&status, MPI_BYTE, &count) == MPI_SUCCESS &&
        count != bytes_of(m))
        return weft_fail(WEFT_E_COMM,
                         "ranks %d and %d disagree about the size of a message: %lld and %d bytes",
                         t->rank, m->peer, (long long)bytes_of(m), count);
    return WEFT_OK;
}

/* What has met its counterpart cannot be taken back and would be waited for for ever when that rank
 * is gone; but bytes arrive inside calls of MPI only, and there are none after this. */
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
        return; /* nobody takes them: one message less does not matter */
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

/* Field 22 of /proc/<pid>/stat, counted after the closing parenthesis of the name; false when there
 * is no such process or it is a zombie. */
static bool process_started(int64_t pid, int64_t *started)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
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
    me->seat = weft_seat_here();
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
    snprintf(who, WEFT_COMM_NOTE, "process %lld on %s", (long long)other->pid, other->host);
    if (!me->boot[0] || strcmp(me->boot, other->boot) != 0 || me->space != other->space)
        return true; /* on another machine: not known */
    return process_started(other->pid, &started) && started == other->started;
}

/* Until notes have left, half a second at most. */
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

/* Tags are below a limit that MPI tells, of the communicator that all others are made from only. */
static int tag_bits(void)
{
    int *most = NULL, flag = 0, bits = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&most, &flag);
    for (int64_t top = flag ? *most : 32767; (int64_t)1 << (bits + 1) <= top + 1;)
        bits++;
    return bits;
}

/* All ranks are at the end, or `seconds` have passed. */
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
    /* With a rank missing MPI_Finalize would wait for it for ever. */
    if (!broken && all_here(t, 60)) {
        MPI_Comm_free(&t->data);
        MPI_Comm_free(&t->notes);
        MPI_Finalize();
    } else if (!broken) {
        weft_warn("the other ranks did not reach the end within a minute; leaving without them");
    }
    weft_free(t->node);
    weft_free(t->peer);
    weft_free(t);
}

/* A launcher says in the environment how many ranks there are. */
static int launched_ranks(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text)
            return atoi(text);
    }
    return getenv("PMIX_RANK") ? 2 : 1; /* PMIx does not say; MPI will */
}

static weft_status open_alone(weft_comm **comm)
{
    return weft_comm_create(&(weft_transport){.rank = 0, .ranks = 1}, comm);
}

/* Who everybody is, and the communicators of ranks that are numbered by where they run
 * (runtime/seat.h). */
static weft_status open_ranks(mpi_transport *t)
{
    weft_status_code status = WEFT_OK;
    int own = 0, number = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
    identity me, *all = weft_alloc(t->ranks * (int64_t)sizeof *all);
    weft_seat *seat = weft_alloc(t->ranks * (int64_t)sizeof *seat);
    int *order = weft_alloc(t->ranks * (int64_t)sizeof *order);
    if (!all || !seat || !order)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "no memory for MPI"));
    who_am_i(&me);
    WEFT_GO(check(MPI_Allgather(&me, sizeof me, MPI_BYTE, all, sizeof me, MPI_BYTE, MPI_COMM_WORLD),
                  "exchange identities"));
    for (int r = 0; r < t->ranks; r++) {
        int first = 0;
        while (!same_machine(&all[first], &all[r]))
            first++;
        seat[r] = all[r].seat;
        seat[r].machine = first;
    }
    WEFT_GO(weft_seats_order(seat, t->ranks, order));
    for (int r = 0; r < t->ranks; r++) {
        t->peer[r] = all[order[r]];
        t->node[r] =
            r > 0 && seat[order[r]].machine == seat[order[r - 1]].machine ? t->node[r - 1] : r;
        number = order[r] == own ? r : number;
    }
    t->rank = number;
    WEFT_GO(check(MPI_Comm_split(MPI_COMM_WORLD, 0, number, &t->data), "number the ranks"));
    MPI_Comm_set_errhandler(t->data, MPI_ERRORS_RETURN);
    WEFT_GO(check(MPI_Comm_dup(t->data, &t->notes), "copy the communicator"));
    MPI_Comm_set_errhandler(t->notes, MPI_ERRORS_RETURN);
out:
    weft_free(all);
    weft_free(seat);
    weft_free(order);
    return status;
}

weft_status weft_comm_open_mpi(weft_comm **comm)
{
    int flag = 0, provided = 0;
    if (launched_ranks() <= 1)
        return open_alone(comm);
    MPI_Finalized(&flag);
    if (flag)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "MPI was closed before; it can be started once per process");
    MPI_Initialized(&flag);
    if (flag)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "MPI is in use already; open the communicator once and share it");
    WEFT_TRY(check(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided), "start"));
    if (provided < MPI_THREAD_SERIALIZED)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "this MPI was built without threads (level %d, needed: serialized)",
                         provided);
    mpi_transport *t = weft_alloc(sizeof *t);
    if (!t)
        return weft_fail(WEFT_E_MEMORY, "no memory for MPI");
    MPI_Comm_size(MPI_COMM_WORLD, &t->ranks);
    for (int i = 0; i < NOTES_OUT; i++)
        t->note_request[i] = MPI_REQUEST_NULL;
    weft_status_code status = WEFT_OK;
    t->peer = weft_alloc(t->ranks * (int64_t)sizeof *t->peer);
    t->node = weft_alloc(t->ranks * (int64_t)sizeof *t->node);
    if (!t->peer || !t->node) {
        status = weft_fail(WEFT_E_MEMORY, "no memory for MPI");
        goto out;
    }
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
    weft_comm *made;
    WEFT_TRY(weft_comm_create(&transport, &made));
    status = weft_comm_choose_by_file(made);
    if (status == WEFT_OK) {
        *comm = made;
        return WEFT_OK;
    }
    weft_comm_give_up(made);
    weft_comm_free(made);
    return status;
out:
    weft_free(t->node);
    weft_free(t->peer);
    weft_free(t);
    return status;
}
