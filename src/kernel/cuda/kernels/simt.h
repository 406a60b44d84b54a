/* The header of kernels: the primitives of a thread of a GPU, in C that CUDA C++ accepts as well.
 *
 *   clang, nvcc, NVRTC   the primitives are PTX
 *   gcc -DWEFT_EMU       a thread is a fibre (tests/emu/fibres.c); the primitives are functions
 *
 * WEFT_KERNEL(name, struct, threads) { ... a.member ... } defines a kernel for blocks of at most
 * `threads` threads; its parameter is `a`. WEFT_KERNEL_BLOCKS limits the registers so that `blocks`
 * blocks fit a multiprocessor. WEFT_SHARED(type, name, count), only at the start of a
 * kernel, defines an array in shared memory. All threads of a warp, or of a block, must reach each
 * warp_ and block_ function. Loops over arrays in registers are marked UNROLL: clang keeps the
 * array in local memory otherwise. Pointers are to global memory unless they are named shared.
 *
 * A source that defines WEFT_CHOSEN_NAME and includes the file of a kernel (special_source.h)
 * compiles this kernel alone, with constants for members of its parameter. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_SIMT_H
#define WEFT_KERNEL_CUDA_KERNELS_SIMT_H

#include "kernel/cuda/kernels/list_args.h"

#define UNROLL _Pragma("unroll")
/* Marks a loop whose iterations must not overlap, because each needs many registers. */
#define NO_UNROLL _Pragma("nounroll")

/* 16 bytes, the widest access of a thread. */
typedef struct quad {
    uint32_t x[4];
} quad;

#ifdef WEFT_EMU
/* ---- emulation ------------------------------------------------------------------------------- */

#include <emu.h>

#include <string.h>

#define DEV static inline __attribute__((unused))

#define WEFT_ENTRY(name, type, threads, blocks)                                                    \
    static void name##_thread(const type a);                                                       \
    static void name##_run(const void *args)                                                       \
    {                                                                                              \
        name##_thread(*(const type *)args);                                                        \
    }                                                                                              \
    __attribute__((constructor)) static void name##_register(void)                                 \
    {                                                                                              \
        emu_register(#name, name##_run, sizeof(type), threads);                                    \
    }                                                                                              \
    static void name##_thread(const type a)

#define WEFT_SHARED(type, name, count) type *const name = (type *)emu_shared(sizeof(type) * (count))

/* The bytes that the launch asks for. */
#define WEFT_SHARED_DYNAMIC(type, name) type *const name = (type *)emu_shared_dynamic()

#define THREAD(d)  (emu_self->thread[d])
#define BLOCK(d)   (emu_block[d])
#define THREADS(d) (emu_block_dim[d])
#define BLOCKS(d)  (emu_grid[d])
#define LANE       (emu_self->lane)

DEV void block_barrier(void)
{
    emu_barrier();
}

DEV uint32_t warp_read_bits(uint32_t value, uint32_t from_lane)
{
    return emu_exchange(value, from_lane);
}

DEV quad load_quad(const void *p)
{
    quad v;
    emu_check_aligned(p, 16);
    memcpy(&v, p, 16);
    return v;
}

DEV void store_quad(void *p, quad v)
{
    emu_check_aligned(p, 16);
    memcpy(p, &v, 16);
}

DEV uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

DEV float bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

DEV uint64_t double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

DEV double bits_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

DEV float f_sqrt(float x)
{
    return __builtin_sqrtf(x);
}

DEV double d_sqrt(double x)
{
    return __builtin_sqrt(x);
}

/* 1 / x to one unit in the last place; the division that rounds is a call */
DEV float f_reciprocal(float x)
{
    return 1.0f / x;
}

DEV float f_max(float x, float y)
{
    return x > y || y != y ? x : y;
}

/* Rounded, and never part of a fused multiply-add. */
DEV float f_multiply(float x, float y)
{
    return x * y;
}

DEV float f_add(float x, float y)
{
    return x + y;
}

/* x y + z, rounded once on a GPU. */
DEV float f_fma(float x, float y, float z)
{
    return x * y + z;
}

DEV uint32_t multiply_high(uint32_t x, uint32_t y)
{
    return (uint32_t)((uint64_t)x * y >> 32);
}

/* Copies 16 bytes to shared memory in the background, or `bytes` < 16 and zeros. */
DEV void copy_async(void *shared, const void *global, uint32_t bytes)
{
    emu_copy_async(shared, global, bytes);
}

DEV void copy_commit(void)
{
    emu_copy_commit();
}

#define COPY_WAIT(groups) emu_copy_wait(groups)

DEV void load_matrix4(uint32_t to[4], const void *shared_row)
{
    emu_load_matrix(to, shared_row, 4, 0);
}

DEV void load_matrix4_transposed(uint32_t to[4], const void *shared_row)
{
    emu_load_matrix(to, shared_row, 4, 1);
}

/* An address in shared memory. */
typedef uintptr_t shared_at;

DEV shared_at shared_address(const void *shared)
{
    return (shared_at)shared;
}

DEV void copy_async_at(shared_at to, const void *global, uint32_t bytes)
{
    emu_copy_async((void *)to, global, bytes);
}

DEV void load_matrix4_at(uint32_t to[4], shared_at row)
{
    emu_load_matrix(to, (const void *)row, 4, 0);
}

DEV void load_matrix4_transposed_at(uint32_t to[4], shared_at row)
{
    emu_load_matrix(to, (const void *)row, 4, 1);
}

DEV uint32_t load_shared(shared_at at)
{
    return *(const uint32_t *)at;
}

DEV void mma_bf16(float acc[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    const uint32_t b[2] = {b0, b1};
    emu_mma_bf16(acc, a, b);
}

DEV void mma_tf32(float acc[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    const uint32_t b[2] = {b0, b1};
    emu_mma_tf32(acc, a, b);
}

DEV uint32_t tf32_of(uint32_t bits)
{
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
}

/* 2^x to two units in the last place */
DEV float f_exp2(float x)
{
    return __builtin_exp2f(x);
}

DEV int warp_any(int is)
{
    uint32_t any = is != 0;
    for (uint32_t step = 16; step > 0; step >>= 1)
        any |= emu_exchange(any, LANE ^ step);
    return (int)any;
}

/* Bit l: whether `is` holds in thread l of the warp. */
DEV uint32_t warp_ballot(int is)
{
    uint32_t bits = is ? 1u << LANE : 0u;
    for (uint32_t step = 16; step > 0; step >>= 1)
        bits |= emu_exchange(bits, LANE ^ step);
    return bits;
}

/* Two elements of bf16, `lo` in the low bits. */
DEV uint32_t pack_bf16(float lo, float hi)
{
    uint32_t half[2];
    for (int i = 0; i < 2; i++) {
        const uint32_t bits = float_bits(i ? hi : lo);
        half[i] = (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu
                                                     : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    }
    return half[0] | half[1] << 16;
}

#else
/* ---- PTX ------------------------------------------------------------------------------------- */

#ifdef WEFT_BARE /* clang without the headers of CUDA */
#define __device__             __attribute__((device))
#define __global__             __attribute__((global))
#define __shared__             __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __forceinline__        inline __attribute__((always_inline))
#endif
#ifndef NULL
#define NULL 0
#endif
#define DEV static __device__ __forceinline__

#define WEFT_ENTRY(name, type, threads, blocks)                                                    \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const type a)
#define WEFT_SHARED(type, name, count) __shared__ __attribute__((aligned(16))) type name[count]

#define WEFT_SHARED_DYNAMIC(type, name) extern __shared__ __attribute__((aligned(128))) type name[]

#define SPECIAL(name, source)                                                                      \
    DEV uint32_t name(void)                                                                        \
    {                                                                                              \
        uint32_t value;                                                                            \
        asm("mov.u32 %0, " source ";" : "=r"(value));                                              \
        return value;                                                                              \
    }
SPECIAL(thread_0, "%%tid.x")
SPECIAL(thread_1, "%%tid.y")
SPECIAL(block_0, "%%ctaid.x")
SPECIAL(block_1, "%%ctaid.y")
SPECIAL(block_2, "%%ctaid.z")
SPECIAL(threads_0, "%%ntid.x")
SPECIAL(blocks_0, "%%nctaid.x")
SPECIAL(blocks_1, "%%nctaid.y")
SPECIAL(lane_id, "%%laneid")

#define THREAD(d)  thread_##d()
#define BLOCK(d)   block_##d()
#define THREADS(d) threads_##d()
#define BLOCKS(d)  blocks_##d()
#define LANE       lane_id()

DEV void block_barrier(void)
{
    __syncthreads();
}

DEV uint32_t warp_read_bits(uint32_t value, uint32_t from_lane)
{
    uint32_t result;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;"
                 : "=r"(result)
                 : "r"(value), "r"(from_lane));
    return result;
}

DEV quad load_quad(const void *p)
{
    quad v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x[0]), "=r"(v.x[1]), "=r"(v.x[2]), "=r"(v.x[3])
                 : "l"(p)
                 : "memory");
    return v;
}

DEV void store_quad(void *p, quad v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(p), "r"(v.x[0]), "r"(v.x[1]), "r"(v.x[2]), "r"(v.x[3])
                 : "memory");
}

DEV uint32_t float_bits(float x)
{
    uint32_t bits;
    asm("mov.b32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

DEV float bits_float(uint32_t bits)
{
    float x;
    asm("mov.b32 %0, %1;" : "=f"(x) : "r"(bits));
    return x;
}

DEV uint64_t double_bits(double x)
{
    uint64_t bits;
    asm("mov.b64 %0, %1;" : "=l"(bits) : "d"(x));
    return bits;
}

DEV double bits_double(uint64_t bits)
{
    double x;
    asm("mov.b64 %0, %1;" : "=d"(x) : "l"(bits));
    return x;
}

DEV float f_sqrt(float x)
{
    float y;
    asm("sqrt.rn.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEV double d_sqrt(double x)
{
    double y;
    asm("sqrt.rn.f64 %0, %1;" : "=d"(y) : "d"(x));
    return y;
}

DEV float f_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEV float f_max(float x, float y)
{
    float z;
    asm("max.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

/* Rounded, and never part of a fused multiply-add. */
DEV float f_multiply(float x, float y)
{
    float z;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

DEV float f_add(float x, float y)
{
    float z;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

/* x y + z, rounded once on a GPU. */
DEV float f_fma(float x, float y, float z)
{
#ifdef WEFT_BARE /* an asm would need registers for constants */
    return __builtin_fmaf(x, y, z);
#else
    return __fmaf_rn(x, y, z);
#endif
}

DEV uint32_t multiply_high(uint32_t x, uint32_t y)
{
    uint32_t z;
    asm("mul.hi.u32 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}

/* An address in shared memory. */
typedef uint32_t shared_at;

DEV shared_at shared_address(const void *shared)
{
    uint64_t address;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(shared));
    return (shared_at)address;
}

/* Copies 16 bytes to shared memory in the background, or `bytes` < 16 and zeros. */
DEV void copy_async_at(shared_at to, const void *global, uint32_t bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(global), "r"(bytes)
                 : "memory");
}

DEV void copy_async(void *shared, const void *global, uint32_t bytes)
{
    copy_async_at(shared_address(shared), global, bytes);
}

DEV void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most `groups` (a constant) of the thread's committed groups are under way. */
#define COPY_WAIT(groups) asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory")

/* Loads four matrices of 8 x 8 elements of 2 bytes. Thread 8 i + r of the warp gives the address of
 * row r of matrix i. Thread l gets elements 2 (l % 4) and the next of row l / 4 of each matrix. */
DEV void load_matrix4_at(uint32_t to[4], shared_at row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

DEV void load_matrix4(uint32_t to[4], const void *shared_row)
{
    load_matrix4_at(to, shared_address(shared_row));
}

/* Loads the transposed matrices. */
DEV void load_matrix4_transposed_at(uint32_t to[4], shared_at row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

DEV void load_matrix4_transposed(uint32_t to[4], const void *shared_row)
{
    load_matrix4_transposed_at(to, shared_address(shared_row));
}

DEV uint32_t load_shared(shared_at at)
{
    uint32_t bits;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(bits) : "r"(at) : "memory");
    return bits;
}

/* acc (16 x 8, f32) += a (16 x 16) b (16 x 8), both bf16, spread over the warp. Thread l has
 * g = l / 4 and t = l % 4, and two elements of neighbouring k in a register:
 *
 *   a   [0] row g, k 2t   [1] row g + 8, k 2t   [2] row g, k 2t + 8   [3] row g + 8, k 2t + 8
 *   b   [0] column g, k 2t   [1] column g, k 2t + 8
 *   acc [0], [1] row g, columns 2t, 2t + 1   [2], [3] the same of row g + 8 */
DEV void mma_bf16(float acc[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* acc (16 x 8, f32) += a (16 x 8) b (8 x 8), both TF32, spread over the warp. With g and t as in
 * mma_bf16:
 *
 *   a   [0] row g, k t   [1] row g + 8, k t   [2] row g, k t + 4   [3] row g + 8, k t + 4
 *   b   [0] column g, k t   [1] column g, k t + 4 */
DEV void mma_tf32(float acc[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The bits of an f32 as TF32: 10 bits, to the nearest number, ties away from zero. */
DEV uint32_t tf32_of(uint32_t bits)
{
    uint32_t tf32;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(tf32) : "f"(bits_float(bits)));
    return tf32;
}

/* 2^x to two units in the last place */
DEV float f_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEV int warp_any(int is)
{
    int any;
    asm volatile("{ .reg .pred p, q; setp.ne.s32 p, %1, 0; vote.sync.any.pred q, p, 0xffffffff; "
                 "selp.s32 %0, 1, 0, q; }"
                 : "=r"(any)
                 : "r"(is));
    return any;
}

/* Bit l: whether `is` holds in thread l of the warp. */
DEV uint32_t warp_ballot(int is)
{
    uint32_t bits;
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
                 : "=r"(bits)
                 : "r"(is));
    return bits;
}

/* Two elements of bf16, `lo` in the low bits. */
DEV uint32_t pack_bf16(float lo, float hi)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}

#endif

/* ---- kernels --------------------------------------------------------------------------------- */

#ifdef WEFT_CHOSEN_NAME
#include "kernel/cuda/kernels/special_source.h"
#else
#define WEFT_KERNEL_BLOCKS(name, type, threads, blocks) WEFT_ENTRY(name, type, threads, blocks)
#endif
#define WEFT_KERNEL(name, type, threads) WEFT_KERNEL_BLOCKS(name, type, threads, 1)

/* ---- warps and blocks, from the primitives --------------------------------------------------- */

DEV float warp_read(float value, uint32_t from_lane)
{
    return bits_float(warp_read_bits(float_bits(value), from_lane));
}

DEV double warp_read_double(double value, uint32_t from_lane)
{
    const uint64_t bits = double_bits(value);
    const uint32_t low = warp_read_bits((uint32_t)bits, from_lane),
                   high = warp_read_bits((uint32_t)(bits >> 32), from_lane);
    return bits_double((uint64_t)high << 32 | low);
}

/* Every thread gets the sum over the warp, added along one tree. */
DEV float warp_sum(float x)
{
    for (uint32_t step = 16; step > 0; step >>= 1)
        x += warp_read(x, LANE ^ step);
    return x;
}

DEV double warp_sum_double(double x)
{
    for (uint32_t step = 16; step > 0; step >>= 1)
        x += warp_read_double(x, LANE ^ step);
    return x;
}

DEV uint32_t count_bits(uint32_t x)
{
    uint32_t n = 0;
    for (; x; x &= x - 1)
        n++;
    return n;
}

/* The place of the lowest bit of x, which is not 0. */
DEV uint32_t lowest_bit(uint32_t x)
{
    uint32_t at = 0;
    for (uint32_t half = 16; half > 0; half >>= 1)
        if (!(x << (32 - half))) {
            x >>= half;
            at += half;
        }
    return at;
}

DEV float warp_max(float x)
{
    for (uint32_t step = 16; step > 0; step >>= 1)
        x = f_max(x, warp_read(x, LANE ^ step));
    return x;
}

/* Every thread gets the sum over a block of whole warps along x. `shared` has 32 elements and may
 * be used again at once. */
DEV float block_sum(float x, float *shared)
{
    x = warp_sum(x);
    if (LANE == 0)
        shared[THREAD(0) / 32] = x;
    block_barrier();
    x = warp_sum(LANE < THREADS(0) / 32 ? shared[LANE] : 0.0f);
    block_barrier();
    return x;
}

DEV double block_sum_double(double x, double *shared)
{
    x = warp_sum_double(x);
    if (LANE == 0)
        shared[THREAD(0) / 32] = x;
    block_barrier();
    x = warp_sum_double(LANE < THREADS(0) / 32 ? shared[LANE] : 0.0);
    block_barrier();
    return x;
}

DEV float block_max(float x, float *shared)
{
    x = warp_max(x);
    if (LANE == 0)
        shared[THREAD(0) / 32] = x;
    block_barrier();
    x = warp_max(shared[LANE < THREADS(0) / 32 ? LANE : 0]);
    block_barrier();
    return x;
}

/* ---- lists of launches ----------------------------------------------------------------------- */

/* The place of a block in its launch. */
typedef struct block_at {
    int64_t x, y;
} block_at;

/* The row of a list that has the block, by halving. */
DEV int32_t list_row(const int32_t *first, int32_t count, int32_t block)
{
    int32_t low = 0, high = count; /* the row is in [low, high) */
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        if (first[middle] <= block)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Like WEFT_KERNEL, with the block in `block`, and also defines NAME_list, which computes the
 * launches of a table (list_args.h). The registers of NAME_list are limited so that four blocks fit
 * a multiprocessor: the parameters of a row of the table need many. */
#define WEFT_KERNEL_LISTED(name, type, threads) WEFT_KERNEL_LISTED_BLOCKS(name, type, threads, 4)
#define WEFT_KERNEL_LISTED_BLOCKS(name, type, threads, blocks)                                     \
    DEV void name##_block(const type a, block_at block);                                           \
    WEFT_KERNEL(name, type, threads)                                                               \
    {                                                                                              \
        const block_at at = {BLOCK(0), BLOCK(1)};                                                  \
        name##_block(a, at);                                                                       \
    }                                                                                              \
    WEFT_KERNEL_BLOCKS(name##_list, type##_list, threads, blocks)                                  \
    {                                                                                              \
        const int32_t row = list_row(a.first, a.count, (int32_t)BLOCK(0));                         \
        const uint32_t own = BLOCK(0) - (uint32_t)a.first[row],                                    \
                       columns = (uint32_t)a.columns[row];                                         \
        const block_at at = {own % columns, own / columns};                                        \
        name##_block(a.row[row], at);                                                              \
    }                                                                                              \
    DEV void name##_block(const type a, block_at block)

/* ---- integers -------------------------------------------------------------------------------- */

/* n / d.by for n < 2^31, by a multiplication: a division takes about twenty instructions. */
DEV uint32_t divide(uint32_t n, fast_divisor d)
{
    return d.multiply ? multiply_high(n, d.multiply) >> d.shift : n >> d.shift;
}

#include "kernel/cuda/kernels/simt_math.h"

#include "kernel/cuda/kernels/simt_tensor.h"

#endif
