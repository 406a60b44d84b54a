/* The threads of a block are fibres of one thread of the host. A fibre runs until it waits for the
 * other threads of its warp or block. */
#include "fibres.h"

#include "emu.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum {
    MAX_THREADS = 1024,
    WARP = 32,
    STACK = 256 << 10,
    STATIC_MOST = 48 << 10, /* shared memory that a kernel may declare */
    SHARED_MOST = 99 << 10, /* with dynamic shared memory, on sm_89 */
    GUARD = 64,
    MAX_ARRAYS = 16,
    MAX_COPIES = 64,
    POISON = 0xFF, /* NaN in every type of floats */
    PATTERN = 0xA5
};

typedef struct copy {
    void *to;
    const void *from;
    uint32_t bytes, group;
} copy;

/* A thread. It waits until *counter differs from `seen`. */
typedef struct fibre {
    emu_thread self;
    jmp_buf at;
    ucontext_t context;
    void *stack;
    bool started, done;
    const uint64_t *counter;
    uint64_t seen;
    int arrays;
    copy pending[MAX_COPIES];
    uint32_t copies, group;
} fibre;

typedef struct warp {
    uint64_t rounds; /* finished exchanges */
    uint32_t arrived, value[2][WARP];
    const void *row[2][WARP];      /* of ldmatrix, by parity of the round */
    const void *fragment[2][WARP]; /* a and b of mma */
    void *out[WARP];
} warp;

static struct {
    pthread_mutex_t lock;
    emu_kernel *kernels;
    const emu_kernel *kernel;
    const void *args;
    fibre fibre[MAX_THREADS], *current;
    warp warp[MAX_THREADS / WARP];
    jmp_buf scheduler;
    ucontext_t scheduler_context;
    uint32_t threads, arrived;
    uint64_t barriers, random;
    _Alignas(64) char shared[SHARED_MOST + MAX_ARRAYS * 2 * GUARD];
    size_t array_at[MAX_ARRAYS + 1];
    int arrays;
    size_t dynamic;
} emu = {.lock = PTHREAD_MUTEX_INITIALIZER};

emu_thread *emu_self;
uint32_t emu_block[3], emu_block_dim[3], emu_grid[3];

static _Noreturn void stop(const char *format, ...)
{
    va_list list;
    fprintf(stderr, "emulated kernel %s: ", emu.kernel ? emu.kernel->name : "?");
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, " (block %u %u %u)\n", emu_block[0], emu_block[1], emu_block[2]);
    abort();
}

/* ---- kernels --------------------------------------------------------------------------------- */

void emu_register(const char *name, void (*run)(const void *), size_t bytes, uint32_t threads)
{
    emu_kernel *kernel = malloc(sizeof *kernel);
    if (!kernel)
        stop("out of memory");
    *kernel = (emu_kernel){name, run, bytes, threads, emu.kernels};
    emu.kernels = kernel;
}

const emu_kernel *emu_kernel_first(void)
{
    return emu.kernels;
}

const emu_kernel *emu_kernel_find(const char *name)
{
    for (const emu_kernel *k = emu.kernels; k; k = k->next)
        if (strcmp(k->name, name) == 0)
            return k;
    return NULL;
}

/* ---- fibres ---------------------------------------------------------------------------------- */

/* AddressSanitizer follows swapcontext; jumps are several times as fast. */
static void to_scheduler(fibre *f)
{
#ifdef __SANITIZE_ADDRESS__
    swapcontext(&f->context, &emu.scheduler_context);
#else
    if (_setjmp(f->at) == 0)
        _longjmp(emu.scheduler, 1);
#endif
}

static void live(void)
{
    for (;;) {
        fibre *f = emu.current;
        emu.kernel->run(emu.args);
        f->done = true;
        to_scheduler(f);
    }
}

static void start(fibre *f)
{
    f->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (f->stack == MAP_FAILED || getcontext(&f->context) != 0)
        stop("no memory for a fibre");
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = NULL;
    makecontext(&f->context, live, 0);
    f->started = true;
}

static void resume(fibre *f)
{
    const bool fresh = !f->started;
    if (fresh)
        start(f);
    emu.current = f;
    emu_self = &f->self;
#ifdef __SANITIZE_ADDRESS__
    swapcontext(&emu.scheduler_context, &f->context);
#else
    if (_setjmp(emu.scheduler) == 0) {
        if (fresh)
            setcontext(&f->context);
        _longjmp(f->at, 1);
    }
#endif
}

static void wait_for(const uint64_t *counter, uint64_t seen)
{
    fibre *f = emu.current;
    f->counter = counter;
    f->seen = seen;
    to_scheduler(f);
    f->counter = NULL;
}

static bool runnable(const fibre *f)
{
    return !f->done && (!f->counter || *f->counter != f->seen);
}

static uint32_t random_below(uint32_t n)
{
    emu.random = emu.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((emu.random >> 33) % n);
}

/* Runs the threads of a warp until each waits for the block or is done. */
static bool run_warp(uint32_t first, bool shuffle)
{
    bool any = false;
    const uint32_t lanes = emu.threads - first < WARP ? emu.threads - first : WARP;
    for (bool more = true; more; any |= more) {
        const uint32_t start_at = shuffle ? random_below(WARP) : 0,
                       step = shuffle ? 2 * random_below(WARP / 2) + 1 : 1;
        more = false;
        for (uint32_t i = 0; i < WARP; i++) {
            const uint32_t lane = (start_at + i * step) % WARP;
            if (lane >= lanes || !runnable(&emu.fibre[first + lane]))
                continue;
            resume(&emu.fibre[first + lane]);
            more = true;
        }
    }
    return any;
}

/* ---- waiting for one another ----------------------------------------------------------------- */

void emu_barrier(void)
{
    const uint64_t seen = emu.barriers;
    if (++emu.arrived == emu.threads) {
        emu.arrived = 0;
        emu.barriers++;
        return;
    }
    wait_for(&emu.barriers, seen);
}

static warp *own_warp(void)
{
    const size_t index = (size_t)(emu.current - emu.fibre) / WARP;
    if ((index + 1) * WARP > emu.threads)
        stop("a warp with fewer than 32 threads exchanges values");
    return &emu.warp[index];
}

/* Returns true in the last lane that arrives; the others wait for end_round(). */
static bool last_of_round(warp *w)
{
    if (++w->arrived == WARP)
        return true;
    wait_for(&w->rounds, w->rounds);
    return false;
}

static void end_round(warp *w)
{
    w->arrived = 0;
    w->rounds++;
}

uint32_t emu_exchange(uint32_t value, uint32_t from_lane)
{
    warp *w = own_warp();
    /* Lanes of the next round write while others still read this one. */
    uint32_t *slot = w->value[w->rounds % 2];
    slot[emu_self->lane] = value;
    if (last_of_round(w))
        end_round(w);
    return slot[from_lane % WARP];
}

void emu_load_matrix(uint32_t *to, const void *shared_row, int count, int transposed)
{
    warp *w = own_warp();
    const uint32_t lane = emu_self->lane;
    if ((uintptr_t)shared_row % 16)
        stop("ldmatrix of a row that is not aligned to 16 bytes");
    const void **row = w->row[w->rounds % 2]; /* as in emu_exchange */
    row[lane] = shared_row;
    if (last_of_round(w))
        end_round(w);
    for (int i = 0; i < count; i++) {
        uint16_t half[2];
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t r = transposed ? lane % 4 * 2 + k : lane / 4,
                           c = transposed ? lane / 4 : lane % 4 * 2 + k;
            half[k] = ((const uint16_t *)row[8 * i + (int)r])[c];
        }
        to[i] = half[0] | (uint32_t)half[1] << 16;
    }
}

static float half_of(uint32_t pair, uint32_t k)
{
    const uint32_t bits = k ? pair & 0xffff0000u : pair << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* Fragments as the PTX manual has them ("Matrix Fragments for mma.m16n8k16"). */
static void multiply_fragments(const warp *w)
{
    float a[16][16], b[8][16];
    for (uint32_t lane = 0; lane < WARP; lane++) {
        const uint32_t g = lane / 4, t = lane % 4, *ra = w->fragment[0][lane],
                       *rb = w->fragment[1][lane];
        for (uint32_t k = 0; k < 2; k++) {
            for (uint32_t i = 0; i < 4; i++)
                a[g + i % 2 * 8][t * 2 + k + i / 2 * 8] = half_of(ra[i], k);
            for (uint32_t i = 0; i < 2; i++)
                b[g][t * 2 + k + i * 8] = half_of(rb[i], k);
        }
    }
    for (uint32_t lane = 0; lane < WARP; lane++) {
        float *acc = w->out[lane];
        for (uint32_t i = 0; i < 4; i++) {
            const float *row = a[lane / 4 + i / 2 * 8], *column = b[lane % 4 * 2 + i % 2];
            float sum = 0;
            for (int k = 0; k < 16; k++)
                sum += row[k] * column[k];
            acc[i] += sum;
        }
    }
}

/* Tensor cores ignore the low 13 bits of an f32. */
static float tf32_of(uint32_t bits)
{
    float x;
    bits &= ~0x1fffu;
    memcpy(&x, &bits, 4);
    return x;
}

/* As above ("Matrix Fragments for mma.m16n8k8"). */
static void multiply_tf32(const warp *w)
{
    float a[16][8], b[8][8];
    for (uint32_t lane = 0; lane < WARP; lane++) {
        const uint32_t g = lane / 4, t = lane % 4, *ra = w->fragment[0][lane],
                       *rb = w->fragment[1][lane];
        for (uint32_t i = 0; i < 4; i++)
            a[g + i % 2 * 8][t + i / 2 * 4] = tf32_of(ra[i]);
        for (uint32_t i = 0; i < 2; i++)
            b[g][t + i * 4] = tf32_of(rb[i]);
    }
    for (uint32_t lane = 0; lane < WARP; lane++) {
        float *acc = w->out[lane];
        for (uint32_t i = 0; i < 4; i++) {
            const float *row = a[lane / 4 + i / 2 * 8], *column = b[lane % 4 * 2 + i % 2];
            float sum = 0;
            for (int k = 0; k < 8; k++)
                sum += row[k] * column[k];
            acc[i] += sum;
        }
    }
}

static void multiply(float *acc, const uint32_t *a, const uint32_t *b,
                     void (*fragments)(const warp *w))
{
    warp *w = own_warp();
    w->fragment[0][emu_self->lane] = a;
    w->fragment[1][emu_self->lane] = b;
    w->out[emu_self->lane] = acc;
    if (last_of_round(w)) {
        fragments(w);
        end_round(w);
    }
}

void emu_mma_bf16(float *acc, const uint32_t *a, const uint32_t *b)
{
    multiply(acc, a, b, multiply_fragments);
}

void emu_mma_tf32(float *acc, const uint32_t *a, const uint32_t *b)
{
    multiply(acc, a, b, multiply_tf32);
}

/* ---- memory ---------------------------------------------------------------------------------- */

void *emu_shared(size_t bytes)
{
    fibre *f = emu.current;
    const int index = f->arrays++;
    if (index == emu.arrays) { /* the block's first thread here */
        if (index == MAX_ARRAYS)
            stop("more than %d shared arrays", MAX_ARRAYS);
        const size_t at = emu.array_at[index], used = (bytes + 15) / 16 * 16;
        if (at - emu.array_at[0] - (size_t)index * GUARD + used > STATIC_MOST ||
            at + used + GUARD > sizeof emu.shared)
            stop("too much shared memory");
        memset(emu.shared + at, POISON, bytes);
        memset(emu.shared + at + bytes, PATTERN, used - bytes + GUARD);
        emu.array_at[index + 1] = at + used + GUARD;
        emu.arrays++;
    }
    return emu.shared + emu.array_at[index];
}

void *emu_shared_dynamic(void)
{
    return emu.shared;
}

static void check_guards(void)
{
    for (size_t i = emu.dynamic; i < emu.array_at[0]; i++)
        if ((unsigned char)emu.shared[i] != PATTERN)
            stop("write past the end of dynamic shared memory");
    for (int i = 0; i < emu.arrays; i++)
        for (int k = 1; k <= GUARD; k++)
            if ((unsigned char)emu.shared[emu.array_at[i + 1] - (size_t)k] != PATTERN)
                stop("write past the end of shared array %d", i);
}

void emu_check_aligned(const void *p, size_t bytes)
{
    if ((uintptr_t)p % bytes)
        stop("access of %zu bytes to an address that is not aligned", bytes);
}

/* The bytes arrive when the thread waits for them, so that code without the wait reads old values. */
void emu_copy_async(void *shared, const void *global, uint32_t bytes)
{
    fibre *f = emu.current;
    emu_check_aligned(shared, 16);
    emu_check_aligned(bytes ? global : shared, 16);
    if (f->copies == MAX_COPIES)
        stop("more than %d asynchronous copies of a thread", MAX_COPIES);
    f->pending[f->copies++] = (copy){shared, global, bytes, f->group};
}

void emu_copy_commit(void)
{
    emu.current->group++;
}

void emu_copy_wait(uint32_t groups)
{
    fibre *f = emu.current;
    uint32_t left = 0;
    for (uint32_t i = 0; i < f->copies; i++) {
        const copy *c = &f->pending[i];
        if (c->group + groups >= f->group) {
            f->pending[left++] = *c;
            continue;
        }
        if (c->bytes)
            memcpy(c->to, c->from, c->bytes);
        memset((char *)c->to + c->bytes, 0, 16 - c->bytes);
    }
    f->copies = left;
}

/* ---- launches -------------------------------------------------------------------------------- */

static void check_limits(const uint32_t grid[3], const uint32_t block[3], uint32_t shared)
{
    const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (threads == 0 || threads > MAX_THREADS || threads > emu.kernel->threads || block[2] > 64)
        stop("launch with %llu threads a block", (unsigned long long)threads);
    if (grid[0] == 0 || grid[0] > INT32_MAX || grid[1] == 0 || grid[1] > 65535 || grid[2] == 0 ||
        grid[2] > 65535)
        stop("launch with %u x %u x %u blocks", grid[0], grid[1], grid[2]);
    if (shared > SHARED_MOST)
        stop("launch with %u bytes of shared memory", shared);
}

static void begin_thread(uint32_t t)
{
    fibre *f = &emu.fibre[t];
    const uint32_t x = emu_block_dim[0], y = emu_block_dim[1];
    f->self = (emu_thread){{t % x, t / x % y, t / x / y}, t % WARP};
    f->done = false;
    f->counter = NULL;
    f->arrays = 0;
    f->copies = f->group = 0;
}

static void run_block(uint32_t index, bool shuffle)
{
    emu_block[0] = index % emu_grid[0];
    emu_block[1] = index / emu_grid[0] % emu_grid[1];
    emu_block[2] = index / emu_grid[0] / emu_grid[1];
    emu.arrived = 0;
    emu.arrays = 0;
    emu.array_at[0] = (emu.dynamic + 2 * GUARD - 1) / GUARD * GUARD;
    memset(emu.shared, POISON, emu.dynamic);
    memset(emu.shared + emu.dynamic, PATTERN, emu.array_at[0] - emu.dynamic);
    const uint32_t warps = (emu.threads + WARP - 1) / WARP;
    for (uint32_t w = 0; w < warps; w++)
        emu.warp[w].arrived = 0;
    for (uint32_t t = 0; t < emu.threads; t++)
        begin_thread(t);
    for (bool more = true; more;) {
        const uint32_t from = shuffle ? random_below(warps) : 0;
        const bool back = shuffle && random_below(2);
        more = false;
        for (uint32_t i = 0; i < warps; i++)
            more |= run_warp((from + (back ? warps - i : i)) % warps * WARP, shuffle);
    }
    for (uint32_t t = 0; t < emu.threads; t++)
        if (!emu.fibre[t].done)
            stop("thread %u waits for threads that do not arrive", t);
    check_guards();
}

void emu_launch(const emu_kernel *kernel, const uint32_t grid[3], const uint32_t block[3],
                uint32_t shared, const void *args, uint64_t seed)
{
    pthread_mutex_lock(&emu.lock);
    emu.kernel = kernel;
    check_limits(grid, block, shared);
    emu.args = args;
    emu.threads = block[0] * block[1] * block[2];
    emu.dynamic = shared;
    emu.random = seed;
    memcpy(emu_grid, grid, sizeof emu_grid);
    memcpy(emu_block_dim, block, sizeof emu_block_dim);
    const uint32_t blocks = grid[0] * grid[1] * grid[2];
    const uint32_t first = seed ? random_below(blocks) : 0;
    for (uint32_t i = 0; i < blocks; i++)
        run_block((seed % 2 ? first + blocks - i : first + i) % blocks, seed != 0);
    pthread_mutex_unlock(&emu.lock);
}
