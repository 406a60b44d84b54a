/* bench/kernels [--bf16] [PATTERN]: time, GFLOP/s, GB/s and share of the machine's measured peaks
 * for each kernel on the shapes of real steps. PyTorch runs the same shapes if WEFT_PEER_PYTHON
 * names a Python that has PyTorch. Best of several runs; operands exceed the caches if a real
 * step's do.
 *
 * --bf16: times in f32, in bf16 and of linear layers in int8, measured in turns. Shares are of the
 * fastest products of bf16 and int8. PyTorch's times are in bf16. */
#include "format/tensors/quant_blocks.h"
#include "graph/graph.h"
#include "kernel/cpu/table.h"
#include "kernel/host.h"
#include "kernel/kernel.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct row {
    const char *group, *label;
    double per_step; /* times that a step of the group runs it */
    weft_op op;
    const void *attr;
    weft_shape in[WEFT_MAX_INPUTS];
    weft_dtype dtype[WEFT_MAX_INPUTS];
} row;

#define S(...)                                                                                     \
    {                                                                                              \
        (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8),                                               \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define LINEAR(m, k, n)                                                                            \
    WEFT_OP_LINEAR, &(weft_attr_linear){WEFT_ACT_NONE},                                            \
    {                                                                                              \
        S(m, k), S(n, k), S(n)                                                                     \
    }
#define LINEAR_GELU(m, k, n)                                                                       \
    WEFT_OP_LINEAR, &(weft_attr_linear){WEFT_ACT_GELU_TANH},                                       \
    {                                                                                              \
        S(m, k), S(n, k), S(n)                                                                     \
    }
#define NN(m, k, n)                                                                                \
    WEFT_OP_MATMUL, &(weft_attr_matmul){false, false},                                             \
    {                                                                                              \
        S(m, k), S(k, n)                                                                           \
    }
#define TN(m, k, n)                                                                                \
    WEFT_OP_MATMUL, &(weft_attr_matmul){true, false},                                              \
    {                                                                                              \
        S(k, m), S(k, n)                                                                           \
    }
#define ATTN(b, sq, sk, h, d)                                                                      \
    WEFT_OP_ATTENTION, &(weft_attr_attention){0.125, false},                                       \
    {                                                                                              \
        S(b, sq, h, d), S(b, sk, h, d), S(b, sk, h, d)                                             \
    }
#define ATTN_GRAD(b, sq, sk, h, d)                                                                 \
    WEFT_OP_ATTENTION_GRAD, &(weft_attr_attention){0.125, false},                                  \
    {                                                                                              \
        S(b, sq, h, d), S(b, sk, h, d), S(b, sk, h, d), S(b, sq, h, d), S(b, h, sq),               \
            S(b, sq, h, d)                                                                         \
    }
#define NORM                                                                                       \
    &(weft_attr_norm)                                                                              \
    {                                                                                              \
        1e-6, false                                                                                \
    }
#define X384 S(2, 1536, 384)
#define MOD  S(2, 1, 384)
#define CONV(kind, t, y, x, i, o, kt, k, s)                                                        \
    WEFT_OP_CONV3D##kind, &(weft_attr_conv)                                                        \
    {                                                                                              \
        .stride = {1, s, s}, .before = {(kt)-1, s == 1 ? (k) / 2 : 0, s == 1 ? (k) / 2 : 0},       \
        .after = {0, (k) / 2, (k) / 2}, .kernel = {kt, k, k}, .x_shape = S(1, t, y, x, i)          \
    }
#define CONV_F(t, y, x, i, o, kt, k)                                                               \
    CONV(, t, y, x, i, o, kt, k, 1),                                                               \
    {                                                                                              \
        S(1, t, y, x, i), S(o, i, kt, k, k), S(o)                                                  \
    }
#define CONV_D(t, y, x, i, o, kt, k)                                                               \
    CONV(_DX, t, y, x, i, o, kt, k, 1),                                                            \
    {                                                                                              \
        S(1, t, y, x, o), S(o, i, kt, k, k)                                                        \
    }
#define CONV_W(t, y, x, i, o, kt, k)                                                               \
    CONV(_DW, t, y, x, i, o, kt, k, 1),                                                            \
    {                                                                                              \
        S(1, t, y, x, i), S(1, t, y, x, o)                                                         \
    }

/* `dit`: dim 384, 12 heads of 32, 12 layers, 2 x 1536 video tokens, 64 text tokens, ffn 1536,
 * forward and backward. */
static const row rows[] = {
    {"attention", "attention 1x12x1536x64", 1, ATTN(1, 1536, 1536, 12, 64)},
    {"attention", "attention_grad 1x12x1536x64", 1, ATTN_GRAD(1, 1536, 1536, 12, 64)},
    {"attention128", "attention 1x12x2048x128", 1, ATTN(1, 2048, 2048, 12, 128)},
    {"attention128", "attention_grad 1x12x2048x128", 1, ATTN_GRAD(1, 2048, 2048, 12, 128)},
    {"vae norms", "rms_norm 4x9x64x64x12", 1, WEFT_OP_RMS_NORM, NORM, {S(4, 9, 64, 64, 12), S(12)}},
    {"vae norms",
     "rms_norm_grad 4x9x64x64x12",
     1,
     WEFT_OP_RMS_NORM_GRAD,
     NORM,
     {S(4, 9, 64, 64, 12), S(4, 9, 64, 64, 12), S(12)}},
    {"dit", "linear 3072x384 -> 384", 12 * 6, LINEAR(3072, 384, 384)},
    {"dit", "linear 3072x384 -> 1536", 12, LINEAR(3072, 384, 1536)},
    {"dit", "linear 3072x1536 -> 384", 12, LINEAR(3072, 1536, 384)},
    {"dit", "linear 128x384 -> 384", 12 * 2, LINEAR(128, 384, 384)},
    {"dit", "matmul nn 3072x384 . 384x384", 12 * 6, NN(3072, 384, 384)},
    {"dit", "matmul nn 3072x384 . 384x1536", 12, NN(3072, 384, 1536)},
    {"dit", "matmul nn 3072x1536 . 1536x384", 12, NN(3072, 1536, 384)},
    {"dit", "matmul tn 384x3072 . 3072x384", 12 * 6, TN(384, 3072, 384)},
    {"dit", "matmul tn 1536x3072 . 3072x384", 12, TN(1536, 3072, 384)},
    {"dit", "matmul tn 384x3072 . 3072x1536", 12, TN(384, 3072, 1536)},
    {"dit", "attention 2x12x1536x32", 12, ATTN(2, 1536, 1536, 12, 32)},
    {"dit", "attention_grad 2x12x1536x32", 12, ATTN_GRAD(2, 1536, 1536, 12, 32)},
    {"dit", "attention cross 2x12x1536x32 / 64", 12, ATTN(2, 1536, 64, 12, 32)},
    {"dit", "attention_grad cross 2x12x1536x32 / 64", 12, ATTN_GRAD(2, 1536, 64, 12, 32)},
    {"dit", "layer_norm 3072x384", 12 * 3, WEFT_OP_LAYER_NORM, NORM, {X384}},
    {"dit", "layer_norm_grad 3072x384", 12 * 3, WEFT_OP_LAYER_NORM_GRAD, NORM, {X384, X384}},
    {"dit", "rms_norm 3072x384", 12 * 3, WEFT_OP_RMS_NORM, NORM, {X384, S(384)}},
    {"dit", "rms_norm_grad 3072x384", 12 * 3, WEFT_OP_RMS_NORM_GRAD, NORM, {X384, X384, S(384)}},
    {"dit", "modulate 2x1536x384", 12 * 2, WEFT_OP_MODULATE, NULL, {X384, MOD, MOD}},
    {"dit", "modulate_grad 2x1536x384", 12 * 2, WEFT_OP_MODULATE_GRAD, NULL, {X384, MOD, X384}},
    {"dit", "gated_add 2x1536x384", 12 * 2, WEFT_OP_GATED_ADD, NULL, {X384, X384, MOD}},
    {"dit", "gated_add_grad 2x1536x384", 12 * 2, WEFT_OP_GATED_ADD_GRAD, NULL, {X384, MOD, X384}},
    {"dit",
     "rope 2x1536x12x32",
     12 * 4,
     WEFT_OP_ROPE,
     &(weft_attr_rope){false},
     {S(2, 1536, 12, 32), S(1536, 16), S(1536, 16)}},
    {"dit", "gelu 3072x1536", 12, WEFT_OP_GELU, &(weft_attr_gelu){false}, {S(3072, 1536)}},
    {"dit",
     "gelu_grad 3072x1536",
     12,
     WEFT_OP_GELU_GRAD,
     &(weft_attr_gelu){false},
     {S(3072, 1536), S(3072, 1536)}},
    {"dit", "add 3072x384", 12 * 6, WEFT_OP_ADD, NULL, {X384, X384}},
    {"dit", "sum rows 3072x384", 12 * 7, WEFT_OP_SUM, &(weft_attr_sum){1}, {S(3072, 384)}},
    {"dit", "sum rows 3072x1536", 12, WEFT_OP_SUM, &(weft_attr_sum){1}, {S(3072, 1536)}},
    {"dit",
     "adamw 28M",
     1,
     WEFT_OP_ADAMW,
     &(weft_attr_adamw){0.9, 0.99, 1e-8, 0.01},
     {S(28 << 20), S(28 << 20), S(28 << 20), S(28 << 20), {0}, {0}, {0}}},
    {"dit", "sum_squares 28M", 1, WEFT_OP_SUM_SQUARES, NULL, {S(28 << 20)}},
    {"linear", "linear gelu 3072x384 -> 1536", 1, LINEAR_GELU(3072, 384, 1536)},
    {"linear", "linear bf16 weights 512x5120 -> 5120", 1, LINEAR(512, 5120, 5120),
     .dtype = {[1] = WEFT_BF16}},
    {"linear", "linear 512x5120 -> 5120", 1, LINEAR(512, 5120, 5120)},
    {"products", "linear 3072x1536 -> 1536", 1, LINEAR(3072, 1536, 1536)},
    {"products", "matmul nn 3072x1536 . 1536x1536", 1, NN(3072, 1536, 1536)},
    {"products", "matmul tn 1536x3072 . 3072x1536", 1, TN(1536, 3072, 1536)},
    {"products", "linear 2112x512 -> 512", 1, LINEAR(2112, 512, 512)},
    {"products", "linear 2112x512 -> 2048", 1, LINEAR(2112, 512, 2048)},
    {"products", "linear gelu 2112x512 -> 2048", 1, LINEAR_GELU(2112, 512, 2048)},
    {"products", "linear 2112x2048 -> 512", 1, LINEAR(2112, 2048, 512)},
    {"products", "matmul nn 2112x512 . 512x512", 1, NN(2112, 512, 512)},
    {"products", "matmul tn 512x2112 . 2112x512", 1, TN(512, 2112, 512)},
    {"products", "matmul tn 2048x2112 . 2112x512", 1, TN(2048, 2112, 512)},
    {"products", "linear 2x384 -> 2304", 1, LINEAR(2, 384, 2304)},
    {"products", "linear 1x4096 -> 4096", 1, LINEAR(1, 4096, 4096)},
    {"products", "linear 226x4096 -> 4096", 1, LINEAR(226, 4096, 4096)},
    {"products", "matmul nn 2x2304 . 2304x384", 1, NN(2, 2304, 384)},
    {"products", "matmul tn 2304x2 . 2x384", 1, TN(2304, 2, 384)},
    {"products",
     "matmul 24 x 1536x32 . 32x1536",
     1,
     WEFT_OP_MATMUL,
     &(weft_attr_matmul){false, true},
     {S(24, 1536, 32), S(24, 1536, 32)}},
    {"conv", "conv3d 3->32 17x128x128 k3", 1, CONV_F(17, 128, 128, 3, 32, 3, 3)},
    {"conv", "conv3d 32->32 17x128x128 k3", 1, CONV_F(17, 128, 128, 32, 32, 3, 3)},
    {"conv", "conv3d_dx 32->32 17x128x128 k3", 1, CONV_D(17, 128, 128, 32, 32, 3, 3)},
    {"conv", "conv3d_dw 32->32 17x128x128 k3", 1, CONV_W(17, 128, 128, 32, 32, 3, 3)},
    {"conv", "conv3d 64->64 9x64x64 k3", 1, CONV_F(9, 64, 64, 64, 64, 3, 3)},
    {"conv", "conv3d_dx 64->64 9x64x64 k3", 1, CONV_D(9, 64, 64, 64, 64, 3, 3)},
    {"conv", "conv3d_dw 64->64 9x64x64 k3", 1, CONV_W(9, 64, 64, 64, 64, 3, 3)},
    {"conv", "conv3d 128->128 5x32x32 k3", 1, CONV_F(5, 32, 32, 128, 128, 3, 3)},
    {"conv", "conv3d_dx 128->128 5x32x32 k3", 1, CONV_D(5, 32, 32, 128, 128, 3, 3)},
    {"conv", "conv3d_dw 128->128 5x32x32 k3", 1, CONV_W(5, 32, 32, 128, 128, 3, 3)},
    {"conv", "conv3d 32->3 17x128x128 k3", 1, CONV_F(17, 128, 128, 32, 3, 3, 3)},
    {"conv", "conv3d_dx 32->3 17x128x128 k3", 1, CONV_D(17, 128, 128, 32, 3, 3, 3)},
    {"conv", "conv3d_dw 32->3 17x128x128 k3", 1, CONV_W(17, 128, 128, 32, 3, 3, 3)},
    {"conv", "conv3d 64->32 17x128x128 k1", 1, CONV_F(17, 128, 128, 64, 32, 1, 1)},
    {"conv", "conv3d_dw 64->32 17x128x128 k1", 1, CONV_W(17, 128, 128, 64, 32, 1, 1)},
    {"norm",
     "rms_norm 32ch 17x128x128",
     1,
     WEFT_OP_RMS_NORM,
     &(weft_attr_norm){1e-12, true},
     {S(17 * 128 * 128, 32), S(32)}},
    {"norm", "silu 32ch 17x128x128", 1, WEFT_OP_SILU, NULL, {S(17 * 128 * 128, 32)}},
    {"norm",
     "random_normal 1M",
     1,
     WEFT_OP_RANDOM_NORMAL,
     &(weft_attr_random){
         .purpose = WEFT_RNG_NOISE, .shape = S(1, 1 << 20), .global = S(1, 1 << 20)},
     {S(1)},
     .dtype = {WEFT_I64}},
};

/* Returns processor time with one thread, because other load disturbs it little. */
static double now(void)
{
    struct timespec t;
    clock_gettime(omp_get_max_threads() == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Allocates at the start of a page: the distance of operands within pages changes the time of
 * memory-bound kernels by up to 20 %. */
static void *on_page(int64_t bytes)
{
    enum { PAGE = 4096 };
    void *data = aligned_alloc(PAGE, (size_t)((bytes + PAGE) / PAGE * PAGE));
    if (!data)
        exit((fprintf(stderr, "bench: out of memory\n"), 1));
    return data;
}

/* How a row is measured. `int8` is for linear layers, whose weights have blocks of 128. */
typedef enum number_type { IN_F32, IN_BF16, IN_INT8 } number_type;
enum { BLOCK = 128 };

static float value_of(int64_t i)
{
    return (float)((double)((i * 2654435761u) % 1000) / 500 - 1) + 1e-3f;
}

static void *filled_blocks(const weft_shape *s)
{
    const int64_t blocks = s->dim[0] * s->dim[1];
    unsigned char *data = on_page(blocks * s->dim[2]);
    for (int64_t b = 0; b < blocks; b++) {
        float block[BLOCK];
        for (int64_t i = 0; i < BLOCK; i++)
            block[i] = value_of(b * BLOCK + i);
        weft_int8_pack(block, 1, BLOCK, data + b * s->dim[2]);
    }
    return data;
}

static void *filled(const weft_view *v)
{
    if (weft_int8_elements(v->dtype, &v->shape))
        return filled_blocks(&v->shape);
    int64_t count = 1;
    for (int d = 0; d < v->shape.rank; d++)
        count *= v->shape.dim[d];
    char *data = on_page(count * weft_dtype_bytes(v->dtype));
    memset(data, 0, (size_t)(count * weft_dtype_bytes(v->dtype)));
    for (int64_t i = 0; i < count; i++) {
        const float value = value_of(i);
        if (v->dtype == WEFT_F32)
            ((float *)data)[i] = value;
        else if (v->dtype == WEFT_BF16)
            ((uint16_t *)data)[i] = weft_f32_to_bf16(value);
    }
    return data;
}

/* A kernel with its operands. */
typedef struct subject {
    const row *row;
    const weft_kernel *kernel;
    weft_view in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    weft_kernel_args args;
    double seconds; /* the best run */
    weft_cost cost;
} subject;

static void check(const subject *s, weft_status_code status)
{
    if (status != WEFT_OK)
        exit((fprintf(stderr, "bench: %s: %s\n", s->row->label, weft_error_message()), 1));
}

/* Returns input `i`, without data: in bf16 if the row is measured in bf16 and a step has bf16
 * there. */
static weft_view input_of(const row *r, int i, number_type type)
{
    const bool is_lse = r->op == WEFT_OP_ATTENTION_GRAD && i == 4;
    const bool narrows =
        type == IN_BF16 && r->dtype[i] == WEFT_F32 && !is_lse && !weft_op_takes_f32(r->op, i);
    if (type == IN_INT8 && i == 1)
        return (weft_view){.dtype = WEFT_U8,
                           .shape =
                               WEFT_SHAPE(r->in[1].dim[0], r->in[1].dim[1] / BLOCK, 2 + BLOCK)};
    return (weft_view){.dtype = narrows ? WEFT_BF16 : r->dtype[i], .shape = r->in[i]};
}

/* Sets the operands' types and shapes and the cost. */
static void infer(subject *s, number_type type)
{
    const row *r = s->row;
    const weft_op_info *info = weft_op_get(r->op);
    weft_value value[WEFT_MAX_INPUTS], made[WEFT_MAX_OUTPUTS];
    weft_kernel_args *args = &s->args;
    weft_graph *g = weft_graph_create();
    /* Trailing optional inputs have no shape in the table; the scalars of the optimizer are
     * required. */
    while (args->in_count < info->max_inputs &&
           (args->in_count < info->min_inputs || r->in[args->in_count].rank > 0)) {
        const int i = args->in_count++;
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        s->in[i] = input_of(r, i, type);
        value[i] = weft_input(g, name, s->in[i].dtype, s->in[i].shape);
    }
    weft_emit_all(g, r->op, value, args->in_count, r->attr, made);
    check(s, weft_graph_check(g));
    for (int o = 0; o < WEFT_MAX_OUTPUTS && weft_value_ok(made[o]); o++) {
        const weft_value_info *v = weft_value_get(g, made[o]);
        s->out[args->out_count++] = (weft_view){.dtype = v->dtype, .shape = v->shape};
    }
    s->cost = weft_node_cost(g, weft_graph_node_count(g) - 1);
    weft_graph_free(g);
}

static void open_subject(subject *s, const row *r, number_type type)
{
    *s = (subject){.row = r, .kernel = weft_backend_cpu.kernel[r->op], .seconds = 1e9};
    s->args = (weft_kernel_args){
        .op = r->op, .threads = weft_host_threads(), .in = s->in, .out = s->out, .attr = r->attr};
    infer(s, type);
    const weft_kernel *k = s->kernel;
    const int64_t scratch = k->workspace ? k->workspace(&s->args) : 0;
    if (k->prepare)
        check(s, k->prepare(&s->args, &s->args.cache));
    for (int i = 0; i < s->args.in_count; i++)
        s->in[i].data = filled(&s->in[i]);
    for (int o = 0; o < s->args.out_count; o++)
        s->out[o].data = filled(&s->out[o]);
    s->args.workspace = on_page(scratch);
}

static void run_subject(subject *s)
{
    const double start = now();
    check(s, s->kernel->run(&s->args));
    const double seconds = now() - start;
    s->seconds = seconds < s->seconds ? seconds : s->seconds;
}

static void close_subject(subject *s)
{
    if (s->kernel->release)
        s->kernel->release(s->args.cache);
    for (int i = 0; i < s->args.in_count; i++)
        free(s->in[i].data);
    for (int o = 0; o < s->args.out_count; o++)
        free(s->out[o].data);
    free(s->args.workspace);
}

typedef struct result {
    double seconds;
    weft_cost cost;
} result;

static result measure(const row *r, number_type type)
{
    subject s;
    open_subject(&s, r, type);
    const double stop = now() + 0.4;
    for (int n = 0; n < 3 || (now() < stop && n < 200); n++)
        run_subject(&s);
    close_subject(&s);
    return (result){s.seconds, s.cost};
}

/* FLOP/s of the fastest product of a type, the reference of the shares. int8: of linear layers. */
static double peak_flops(number_type type)
{
    const row shapes[] = {{"", "", 1, LINEAR(1024, 1024, 1024)},
                          {"", "", 1, LINEAR(3072, 1536, 1536)},
                          {"", "", 1, NN(2048, 2048, 2048)},
                          {"", "", 1, NN(3072, 384, 1536)}};
    double best = 0;
    for (size_t i = 0; i < (type == IN_INT8 ? 2 : sizeof shapes / sizeof *shapes); i++) {
        const result r = measure(&shapes[i], type);
        best = (double)r.cost.flops / r.seconds > best ? (double)r.cost.flops / r.seconds : best;
    }
    return best;
}

static double peak_bytes(void)
{
    const row copy = {"", "", 1, WEFT_OP_AFFINE, &(weft_attr_affine){1, 0}, {S(32 << 20)}};
    return 2.0 * 4 * (32 << 20) / measure(&copy, IN_F32).seconds;
}

/* A line "label<TAB>milliseconds" of the peer. */
typedef struct peer {
    char label[256];
    double seconds;
} peer;

static int run_peer(const char *pattern, bool bf16, peer *list, int max)
{
    const char *python = getenv("WEFT_PEER_PYTHON");
    char command[1024], line[256];
    int count = 0;
    if (!python || !*python)
        return 0;
    snprintf(command, sizeof command, "OMP_NUM_THREADS=%d '%s' bench/peer_torch.py %s '%s'",
             omp_get_max_threads(), python, bf16 ? "--bf16" : "", pattern);
    FILE *pipe = popen(command, "r");
    while (pipe && count < max && fgets(line, sizeof line, pipe)) {
        char *tab = strchr(line, '\t');
        if (!tab)
            continue;
        *tab = 0;
        snprintf(list[count].label, sizeof list[count].label, "%s", line);
        list[count++].seconds = atof(tab + 1) * 1e-3;
    }
    if (pipe)
        pclose(pipe);
    return count;
}

/* The last two cells of a row: seconds of the peer (0: none) and their ratio to ours. */
static void print_peer(double theirs, double ours)
{
    if (theirs > 0)
        printf("| %.3f | %.2f |\n", theirs * 1e3, theirs / ours);
    else
        printf("| - | - |\n");
}

/* The row of all kernels of a group, each as often as a step runs it. */
static void print_group(const char *group, double seconds, double flops, double peak, double theirs)
{
    printf("| all of %s | %.1f | %.1f | %.0f | - | - ", group, seconds * 1e3,
           flops / seconds * 1e-9, flops / seconds / peak * 100);
    print_peer(theirs, seconds);
}

static double seconds_of_peer(const char *label, const peer *peers, int count)
{
    double seconds = 0;
    for (int p = 0; p < count; p++)
        if (strcmp(peers[p].label, label) == 0)
            seconds = peers[p].seconds;
    return seconds;
}

static bool is_wanted(const row *r, const char *pattern)
{
    return strstr(r->group, pattern) || strstr(r->label, pattern);
}

/* Returns the share of a peak in percent. */
static double percent_of(const subject *s, double peak)
{
    return (double)s->cost.flops / s->seconds / peak * 100;
}

/* Times in f32, bf16 and int8. Runs alternate, so that other load changes all. */
static void compare_bf16(const char *pattern, const peer *peers, int peer_count)
{
    const double bf16 = peak_flops(IN_BF16), int8 = peak_flops(IN_INT8);
    printf("fastest products: bf16 %.0f GFLOP/s, int8 %.0f GOP/s\n", bf16 * 1e-9, int8 * 1e-9);
    printf(
        "| kernel | f32 ms | int8 ms | f32 / int8 | share of int8 peak %% | bf16 ms | f32 / bf16 | "
        "bf16 GFLOP/s | share of bf16 peak %% | PyTorch bf16 ms | ratio |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        if (!is_wanted(r, pattern) || !(weft_op_get(r->op)->mixed & WEFT_MIXED_COMPUTES) ||
            r->dtype[1] != WEFT_F32)
            continue;
        subject wide, narrow, bytes = {.seconds = 0};
        const bool has_int8 = r->op == WEFT_OP_LINEAR && r->in[1].dim[1] % BLOCK == 0;
        open_subject(&wide, r, IN_F32);
        open_subject(&narrow, r, IN_BF16);
        if (has_int8)
            open_subject(&bytes, r, IN_INT8);
        const double stop = now() + 0.8;
        for (int n = 0; n < 3 || (now() < stop && n < 200); n++) {
            run_subject(&wide);
            run_subject(&narrow);
            if (has_int8)
                run_subject(&bytes);
        }
        printf("| %s | %.3f ", r->label, wide.seconds * 1e3);
        if (has_int8)
            printf("| %.3f | %.2f | %.0f ", bytes.seconds * 1e3, wide.seconds / bytes.seconds,
                   percent_of(&bytes, int8));
        else
            printf("| - | - | - ");
        printf("| %.3f | %.2f | %.1f | %.0f ", narrow.seconds * 1e3, wide.seconds / narrow.seconds,
               (double)narrow.cost.flops / narrow.seconds * 1e-9, percent_of(&narrow, bf16));
        print_peer(seconds_of_peer(r->label, peers, peer_count), narrow.seconds);
        fflush(stdout);
        close_subject(&wide);
        close_subject(&narrow);
        if (has_int8)
            close_subject(&bytes);
    }
}

static void compare_f32(const char *pattern, const peer *peers, int peer_count)
{
    const double flops = peak_flops(IN_F32), bytes = peak_bytes();
    printf("SGEMM %.0f GFLOP/s, copy %.1f GB/s\n", flops * 1e-9, bytes * 1e-9);
    printf(
        "| kernel | ms | GFLOP/s | share of SGEMM peak %% | GB/s | share of copy %% | PyTorch ms | "
        "ratio |\n|---|---|---|---|---|---|---|---|\n");
    double group_seconds = 0, group_flops = 0, peer_seconds = 0;
    int without_peer = 0; /* kernels of the group that the peer has not run */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        if (!is_wanted(r, pattern))
            continue;
        const result res = measure(r, IN_F32);
        const double theirs = seconds_of_peer(r->label, peers, peer_count);
        printf("| %s | %.3f | %.1f | %.0f | %.1f | %.0f ", r->label, res.seconds * 1e3,
               (double)res.cost.flops / res.seconds * 1e-9,
               (double)res.cost.flops / res.seconds / flops * 100,
               (double)res.cost.bytes / res.seconds * 1e-9,
               (double)res.cost.bytes / res.seconds / bytes * 100);
        print_peer(theirs, res.seconds);
        group_seconds += res.seconds * r->per_step;
        group_flops += (double)res.cost.flops * r->per_step;
        peer_seconds += theirs * r->per_step;
        without_peer += theirs > 0 ? 0 : 1;
        if (i + 1 == sizeof rows / sizeof *rows || strcmp(r->group, rows[i + 1].group) != 0) {
            if (strstr(r->group, pattern)) /* all of its kernels were measured */
                print_group(r->group, group_seconds, group_flops, flops,
                            without_peer ? 0 : peer_seconds);
            group_seconds = group_flops = peer_seconds = 0;
            without_peer = 0;
        }
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    const bool bf16 = argc > 1 && strcmp(argv[1], "--bf16") == 0;
    const char *pattern = argc > 1 + bf16 ? argv[1 + bf16] : "";
    static peer peers[128];
    const int count = run_peer(pattern, bf16, peers, 128);
    printf("%d threads%s\n", omp_get_max_threads(),
           count ? "" : "; no peer (set WEFT_PEER_PYTHON to a python with PyTorch)");
    (bf16 ? compare_bf16 : compare_f32)(pattern, peers, count);
    return 0;
}
