/* Runs one op on a backend as a program would, and compares it with `ref`. */
#ifndef WEFT_TESTS_KERNEL_HARNESS_H
#define WEFT_TESTS_KERNEL_HARNESS_H

#include "graph/graph.h"
#include "kernel/kernel.h"

/* How an input is filled, from a fixed seed. */
typedef enum fill {
    NORMAL,   /* standard normal */
    POSITIVE, /* |normal| + 0.1 */
    IDS,      /* integers in [0, value) */
    KEYS,     /* 64-bit numbers */
    VALUE,    /* `value` */
    LISTED,   /* i32 from `list` */
    BLOCKS,   /* u8: weights of int8, of which some blocks are 0 */
    LSE,      /* the lse of attention run on inputs 0..2 (and segments) by ref */
    OUT,      /* its output */
    HOLES,    /* positive, with NaN at each 5th element, zeros of both signs and equal elements */
} fill;

typedef struct operand {
    int rank; /* -1: absent */
    int64_t dim[WEFT_MAX_RANK];
    fill fill;
    double value; /* NORMAL: factor, 0 means 1 */
    weft_dtype dtype;
    const int32_t *list;
} operand;

typedef struct op_case {
    const char *label;
    weft_op op;
    const void *attr;
    operand in[WEFT_MAX_INPUTS];
    int count; /* of `in`; 0: up to the first with rank 0, dim[0] 0 and fill 0 */
    uint64_t seed;
    double tolerance; /* 0: the op row's */
} op_case;

/* One way to run cases, which the program of a backend lists (harness_cpu.c). use() is called with
 * the setting before runs, and with 0 after the last run. */
typedef struct subject {
    const char *label; /* NULL: end of a list */
    const weft_backend *backend;
    void (*use)(int setting);
    int setting;
} subject;
/* Are compared with ref. Ops that a backend has no kernel for are skipped. */
extern const subject harness_subjects[];
/* Products of a convolution from which cases are skipped, because ref takes seconds. */
extern const int64_t harness_conv_most;
/* Whether attention in bf16 has kernels of its own, so that its cases run in this type, too. */
extern const bool harness_bf16_attention;
/* Must give equal bits, as on other numbers of threads. */
extern const subject harness_orders[];

/* Fails the running test with label, output and error when a subject and ref disagree. Also fails
 * when a guard byte or an input changed, or when a result is not finite. */
void check_case(const op_case *c);
/* Fails the running test when the orders give different bits; also for cases too large for ref. */
void check_threads(const op_case *c);
/* The outputs of one backend as f64 arrays (caller frees with weft_free); returns their number. */
int run_case(const op_case *c, const weft_backend *backend, double **out, int64_t *count);

#endif
