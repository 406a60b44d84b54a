/* An emulated NCCL for tests: libnccl.so.2, written from the public documentation of the library.
 * Its operations are work of the emulated driver's streams, which checks their order. Ranks are
 * processes of one machine: each pair has a ring in shared memory for each direction.
 *
 * The process stops if ranks disagree about the size of a message. It also stops if one group has
 * several communicators or streams, or if a message is sent outside a group.
 *
 * WEFT_EMU_NCCL_COUNT names a file that gets a line "SENDS COLLECTIVES" at the end of a
 * communicator. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

typedef int ncclResult_t;
typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;
enum { ncclSuccess = 0, ncclSystemError = 2, ncclInvalidArgument = 4, ncclInvalidUsage = 5 };
enum { MAX_RANKS = 8, RING = 1 << 16, GROUP = 64 };

typedef struct ring {
    _Atomic uint64_t written, read;
    char data[RING];
} ring;

typedef struct shared_memory {
    atomic_int joined, left, aborted;
    atomic_int device[MAX_RANKS];    /* of each rank, plus 1 */
    ring ring[MAX_RANKS][MAX_RANKS]; /* from, to */
} shared_memory;

typedef struct ncclComm {
    shared_memory *shared;
    int ranks, own;
    atomic_bool aborted;
    int64_t sends, collectives;
} * ncclComm_t;

/* Functions of the emulated driver for libraries. */
typedef struct weft_emulated_range {
    const void *data;
    size_t bytes;
    int writes;
    char *inside;
} weft_emulated_range;
static int (*add_work)(void *stream, const char *what, weft_emulated_range *range, int count,
                       void (*run)(void *user), void *user);
static int (*device_of)(void);

static void stop(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void stop(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("emulated NCCL: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static bool find_driver(void)
{
    void *driver = dlopen(getenv("WEFT_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    if (driver) {
        *(void **)&add_work = dlsym(driver, "weft_emulated_work");
        *(void **)&device_of = dlsym(driver, "weft_emulated_device");
    }
    return add_work && device_of;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* ---- communicators --------------------------------------------------------------------------- */

API ncclResult_t ncclGetVersion(int *version)
{
    *version = 22800;
    return ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclInvalidUsage ? "invalid usage" : result ? "an error" : "no error";
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static atomic_int made;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/weft-nccl-%d-%d-%ld", (int)getpid(),
             atomic_fetch_add(&made, 1), (long)time(NULL));
    return ncclSuccess;
}

/* The last that joins removes the name, so nothing remains of jobs that are killed later. */
static bool join(shared_memory *m, int ranks, const char *name)
{
    const time_t begin = time(NULL);
    if (atomic_fetch_add(&m->joined, 1) == ranks - 1)
        shm_unlink(name);
    while (atomic_load(&m->joined) < ranks && time(NULL) - begin < 60)
        nap();
    return atomic_load(&m->joined) == ranks;
}

API ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int own)
{
    if (!find_driver() || ranks > MAX_RANKS || own < 0 || own >= ranks)
        return ncclInvalidArgument;
    const int file = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (file < 0 || !comm || ftruncate(file, sizeof(shared_memory)) != 0)
        return ncclSystemError;
    shared_memory *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (m == MAP_FAILED)
        return ncclSystemError;
    atomic_store(&m->device[own], device_of() + 1);
    if (!join(m, ranks, id.internal))
        return ncclSystemError;
    for (int i = 0; i < ranks; i++)
        for (int j = 0; j < i; j++)
            if (atomic_load(&m->device[i]) == atomic_load(&m->device[j]))
                return ncclInvalidUsage; /* as the library: one rank per GPU */
    comm->shared = m;
    comm->ranks = ranks;
    comm->own = own;
    *out = comm;
    return ncclSuccess;
}

static void count_to_file(const struct ncclComm *comm)
{
    const char *name = getenv("WEFT_EMU_NCCL_COUNT");
    char line[64];
    const int length = snprintf(line, sizeof line, "%lld %lld\n", (long long)comm->sends,
                                (long long)comm->collectives);
    const int file = name ? open(name, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
    if (file >= 0 && write(file, line, (size_t)length) != length)
        stop("cannot write %s", name);
    if (file >= 0)
        close(file);
}

API ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    count_to_file(comm);
    munmap(comm->shared, sizeof *comm->shared);
    free(comm);
    return ncclSuccess;
}

/* The work of the communicator ends without its data. It is not freed: the work may still run. */
API ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    atomic_store(&comm->aborted, true);
    return ncclSuccess;
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    (void)comm;
    *error = ncclSuccess;
    return ncclSuccess;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A message: 8 bytes with its size, then its bytes. */
typedef struct message {
    int peer;
    bool receiving;
    char *data;
    uint64_t bytes, moved; /* moved: with the 8 bytes */
    uint64_t size;         /* as it travels */
} message;

typedef struct group_work {
    ncclComm_t comm;
    int count;
    message message[GROUP];
    weft_emulated_range range[GROUP]; /* of the messages */
} group_work;

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The bytes at position `moved`: of the size or of the data. */
static char *place(message *m, uint64_t *left)
{
    *left = m->moved < 8 ? 8 - m->moved : m->bytes + 8 - m->moved;
    return m->moved < 8 ? (char *)&m->size + m->moved : m->data + (m->moved - 8);
}

/* Moves what the ring allows; false: nothing. */
static bool move(ncclComm_t comm, message *m)
{
    ring *r = m->receiving ? &comm->shared->ring[m->peer][comm->own]
                           : &comm->shared->ring[comm->own][m->peer];
    const uint64_t written = atomic_load(&r->written), read = atomic_load(&r->read);
    uint64_t left;
    char *at = place(m, &left);
    const uint64_t position = (m->receiving ? read : written) % RING,
                   ready = m->receiving ? written - read : RING - (written - read),
                   n = smaller(smaller(left, ready), RING - position);
    if (!n)
        return false;
    memcpy(m->receiving ? at : r->data + position, m->receiving ? r->data + position : at, n);
    atomic_fetch_add(m->receiving ? &r->read : &r->written, n);
    m->moved += n;
    if (m->receiving && m->moved == 8 && m->size != m->bytes)
        stop("rank %d sends %llu bytes to rank %d, which expects %llu", m->peer,
             (unsigned long long)m->size, comm->own, (unsigned long long)m->bytes);
    return true;
}

/* Moves all messages at the same time. Messages of one peer and direction keep their order. */
static void run_messages(group_work *w)
{
    for (bool all = false; !all && !atomic_load(&w->comm->aborted);) {
        bool moved = false;
        all = true;
        for (int i = 0; i < w->count; i++) {
            bool first = true;
            for (int j = 0; j < i; j++)
                first = first && (w->message[j].moved == w->message[j].bytes + 8 ||
                                  w->message[j].peer != w->message[i].peer ||
                                  w->message[j].receiving != w->message[i].receiving);
            while (first && w->message[i].moved < w->message[i].bytes + 8 &&
                   move(w->comm, &w->message[i]))
                moved = true;
            all = all && w->message[i].moved == w->message[i].bytes + 8;
        }
        if (!moved && !all)
            nap();
    }
}

static void run_group(void *user)
{
    group_work *w = user;
    for (int i = 0; i < w->count; i++)
        w->message[i].data = w->range[i].inside;
    run_messages(w);
    free(w);
}

static _Thread_local struct {
    int depth, count;
    void *stream;
    ncclComm_t comm;
    message message[GROUP];
    weft_emulated_range range[GROUP];
} group;

static size_t bytes_of(int type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type >= 0 && type < 10 ? bytes[type] : 0;
}

static ncclResult_t add_message(const message *m, ncclComm_t comm, void *stream)
{
    if (!group.depth)
        stop("rank %d sends or receives outside a group, which may wait for ever", comm->own);
    if (m->peer < 0 || m->peer >= comm->ranks || !m->bytes)
        return ncclInvalidArgument;
    if (group.count == GROUP || (group.count && (group.stream != stream || group.comm != comm)))
        stop("a group has several streams, or more than %d messages", GROUP);
    group.stream = stream;
    group.comm = comm;
    group.range[group.count] = (weft_emulated_range){m->data, m->bytes, m->receiving, NULL};
    group.message[group.count] = *m;
    group.message[group.count++].size = m->bytes;
    comm->sends += !m->receiving;
    return ncclSuccess;
}

API ncclResult_t ncclSend(const void *data, size_t count, int type, int peer, ncclComm_t comm,
                          void *stream)
{
    const message m = {
        .peer = peer, .data = (char *)(uintptr_t)data, .bytes = count * bytes_of(type)};
    return add_message(&m, comm, stream);
}

API ncclResult_t ncclRecv(void *data, size_t count, int type, int peer, ncclComm_t comm,
                          void *stream)
{
    const message m = {
        .peer = peer, .receiving = true, .data = data, .bytes = count * bytes_of(type)};
    return add_message(&m, comm, stream);
}

API ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

API ncclResult_t ncclGroupEnd(void)
{
    if (--group.depth || !group.count)
        return ncclSuccess;
    group_work *w = calloc(1, sizeof *w);
    if (!w)
        return ncclSystemError;
    w->comm = group.comm;
    w->count = group.count;
    memcpy(w->message, group.message, sizeof w->message);
    memcpy(w->range, group.range, sizeof w->range);
    group.count = 0;
    const int result =
        add_work(group.stream, "messages between GPUs", w->range, w->count, run_group, w);
    return result ? ncclSystemError : ncclSuccess;
}

/* ---- collectives ----------------------------------------------------------------------------- */

enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER };

typedef struct collective {
    ncclComm_t comm;
    int kind, type;
    size_t count;                 /* elements of this rank's part, or of an all_reduce all */
    weft_emulated_range range[2]; /* in, out */
} collective;

static double value_at(const char *data, int type, size_t i)
{
    if (type == 2)
        return ((const int32_t *)(const void *)data)[i];
    if (type == 8)
        return ((const double *)(const void *)data)[i];
    if (type == 9) {
        const uint32_t bits = (uint32_t)((const uint16_t *)(const void *)data)[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        return (double)value;
    }
    return (double)((const float *)(const void *)data)[i];
}

static void set_value(char *data, int type, size_t i, double value)
{
    if (type == 2) {
        ((int32_t *)(void *)data)[i] = (int32_t)value;
    } else if (type == 8) {
        ((double *)(void *)data)[i] = value;
    } else if (type == 9) {
        const float narrow = (float)value;
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        ((uint16_t *)(void *)data)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    } else {
        ((float *)(void *)data)[i] = (float)value;
    }
}

/* Brings the inputs of all ranks to `all` in sequence. */
static void gather(const collective *c, size_t bytes, char *all)
{
    group_work w = {.comm = c->comm};
    for (int r = 0; r < c->comm->ranks; r++) {
        char *own = c->range[0].inside;
        if (r == c->comm->own) {
            memcpy(all + (size_t)r * bytes, own, bytes);
            continue;
        }
        w.message[w.count++] = (message){.peer = r, .data = own, .bytes = bytes, .size = bytes};
        w.message[w.count++] = (message){
            .peer = r, .receiving = true, .data = all + (size_t)r * bytes, .bytes = bytes};
    }
    run_messages(&w);
}

/* Sums go from the last rank to the first, which is another order than weft's tree. */
static void run_collective(void *user)
{
    collective *c = user;
    const size_t bytes = c->range[0].bytes, ranks = (size_t)c->comm->ranks,
                 first = c->kind == REDUCE_SCATTER ? c->count * (size_t)c->comm->own : 0;
    char *all = malloc(ranks * bytes);
    if (!all)
        stop("out of memory");
    gather(c, bytes, all);
    if (c->kind == ALL_GATHER)
        memcpy(c->range[1].inside, all, ranks * bytes);
    for (size_t i = 0; c->kind != ALL_GATHER && i < c->count; i++) {
        double sum = 0;
        for (size_t r = ranks; r-- > 0;)
            sum += value_at(all + r * bytes, c->type, first + i);
        set_value(c->range[1].inside, c->type, i, sum);
    }
    free(all);
    free(c);
}

static ncclResult_t add_collective(collective c, const void *in, void *out, void *stream)
{
    const size_t ranks = (size_t)c.comm->ranks, part = c.count * bytes_of(c.type);
    collective *own = malloc(sizeof *own);
    if (!own || !part || c.type == 6 || c.type == 4 || c.type < 2)
        return ncclInvalidArgument;
    c.comm->collectives++;
    *own = c;
    own->range[0] = (weft_emulated_range){in, c.kind == REDUCE_SCATTER ? part * ranks : part, 0, 0};
    own->range[1] = (weft_emulated_range){out, c.kind == ALL_GATHER ? part * ranks : part, 1, 0};
    return add_work(stream, "a collective of GPUs", own->range, 2, run_collective, own)
               ? ncclSystemError
               : ncclSuccess;
}

API ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, int type, int op,
                               ncclComm_t comm, void *stream)
{
    const collective c = {.comm = comm, .kind = ALL_REDUCE, .type = type, .count = count};
    return op ? ncclInvalidArgument : add_collective(c, in, out, stream);
}

API ncclResult_t ncclAllGather(const void *in, void *out, size_t count, int type, ncclComm_t comm,
                               void *stream)
{
    const collective c = {.comm = comm, .kind = ALL_GATHER, .type = type, .count = count};
    return add_collective(c, in, out, stream);
}

API ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, int type, int op,
                                   ncclComm_t comm, void *stream)
{
    const collective c = {.comm = comm, .kind = REDUCE_SCATTER, .type = type, .count = count};
    return op ? ncclInvalidArgument : add_collective(c, in, out, stream);
}
