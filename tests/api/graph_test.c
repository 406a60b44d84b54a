/* Graphs and programs through the public headers: expected values, gradients, ranks, weights. */
#include <weft/weft.h>

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK(call) cr_assert_eq((call), WEFT_OK, "%s", weft_error_message())

static const weft_init normal = {WEFT_INIT_NORMAL, 0.5};

static weft_program *program_of(const weft_graph *g, weft_store *store, const char *backend)
{
    weft_compile_options options = WEFT_INIT(weft_compile_options);
    weft_program *p = NULL;
    options.backend = backend;
    options.guard = 1;
    OK(weft_program_create(g, &options, &p));
    OK(weft_store_init(store, g, 7));
    OK(weft_program_bind(p, store, NULL));
    return p;
}

Test(api_graph, linear_has_the_expected_values)
{
    weft_graph *g = weft_graph_create();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_DIMS(2, 3));
    const weft_value y = weft_nn_dense(g, "layer", x, 2, true);
    weft_output(g, "y", y);
    weft_value_description of_y = WEFT_INIT(weft_value_description);
    weft_graph_description of_g = WEFT_INIT(weft_graph_description);
    OK(weft_value_describe(g, y, &of_y));
    cr_expect_eq(of_y.shape.rank, 2);
    cr_expect_eq(of_y.shape.dim[1], 2);
    cr_expect_eq(of_y.dtype, WEFT_F32);
    cr_expect_eq(weft_value_describe(g, WEFT_NONE, &of_y), WEFT_E_ARG);
    OK(weft_graph_describe(g, &of_g));
    cr_expect_gt(of_g.nodes, 0);
    cr_expect_eq(of_g.parameters, 8);
    cr_expect_geq(of_g.flops, 2 * 2 * 3 * 2);
    cr_expect_gt(of_g.bytes, 0);
    weft_store *store = weft_store_create();
    weft_program *p = program_of(g, store, NULL);
    cr_expect_gt(weft_program_bytes(p), 0);
    const float in[6] = {-2, -1, 0, 1, 2, 3}, weight[6] = {1, 2, 3, -1, 0.5f, 0},
                bias[2] = {10, 20};
    float out[4];
    OK(weft_tensor_put_f32(weft_store_find(store, "layer.weight"), weight, 6));
    OK(weft_tensor_put_f32(weft_store_find(store, "layer.bias"), bias, 2));
    OK(weft_program_put(p, "x", in, 6));
    OK(weft_program_run(p));
    OK(weft_program_get(p, "y", out, 4));
    const float want[4] = {10 - 4, 20 + 1.5f, 10 + 14, 20 + 0};
    for (int i = 0; i < 4; i++)
        cr_expect_float_eq(out[i], want[i], 1e-5, "%d: %g", i, (double)out[i]);
    cr_expect_eq(weft_program_put(p, "x", in, 5), WEFT_E_SHAPE);
    cr_expect_eq(weft_program_put(p, "z", in, 6), WEFT_E_ARG);
    weft_program_free(p);
    OK(weft_program_create(g, NULL, &p));
    cr_expect_eq(weft_program_put(p, "x", in, 6), WEFT_E_ARG); /* not bound */
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}

static double by_hand(weft_map_kind kind, double x)
{
    switch (kind) {
    case WEFT_MAP_NEG: return -x;
    case WEFT_MAP_EXP: return exp(x);
    case WEFT_MAP_LOG: return log(x);
    case WEFT_MAP_SQRT: return sqrt(x);
    case WEFT_MAP_RSQRT: return 1 / sqrt(x);
    case WEFT_MAP_SQUARE: return x * x;
    case WEFT_MAP_SIN: return sin(x);
    case WEFT_MAP_COS: return cos(x);
    case WEFT_MAP_TANH: return tanh(x);
    case WEFT_MAP_SIGMOID: return 1 / (1 + exp(-x));
    case WEFT_MAP_SILU: return x / (1 + exp(-x));
    case WEFT_MAP_GELU: return x * 0.5 * (1 + erf(x / sqrt(2)));
    case WEFT_MAP_GELU_TANH:
        return x * 0.5 * (1 + tanh(sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x)));
    case WEFT_MAP_SOFTMAX: return 1; /* one element */
    case WEFT_MAP_STOP: return x;
    }
    return NAN;
}

Test(api_graph, functions)
{
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_DIMS(2, 1));
    char name[16];
    for (int kind = 0; kind <= WEFT_MAP_STOP; kind++) {
        snprintf(name, sizeof name, "y%d", kind);
        weft_output(g, name, weft_map(g, (weft_map_kind)kind, x));
    }
    weft_program *p = program_of(g, store, "ref");
    const float in[2] = {0.3f, 1.7f};
    OK(weft_program_put(p, "x", in, 2));
    OK(weft_program_run(p));
    for (int kind = 0; kind <= WEFT_MAP_STOP; kind++) {
        float out[2];
        snprintf(name, sizeof name, "y%d", kind);
        OK(weft_program_get(p, name, out, 2));
        for (int i = 0; i < 2; i++)
            cr_expect_float_eq(out[i], by_hand((weft_map_kind)kind, (double)in[i]), 1e-5,
                               "kind %d of %g: %g", kind, (double)in[i], (double)out[i]);
    }
    weft_program_free(p);
    weft_store_free(store);
    cr_expect_eq(weft_map(g, (weft_map_kind)99, x).id, -1);
    cr_expect_eq(weft_graph_check(g), WEFT_E_ARG);
    weft_graph_free(g);
}

static weft_value norm_of(weft_graph *g, const char *name, weft_value x, weft_norm_kind kind)
{
    weft_norm_options options = WEFT_INIT(weft_norm_options);
    options.kind = kind;
    options.groups = 1;
    return weft_layer_norm(g, name, x, &options);
}

/* x = {1, 3} has the mean 2 and the root mean square sqrt(5). */
Test(api_graph, norms)
{
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_DIMS(1, 1, 1, 1, 2));
    char name[16];
    for (int kind = 0; kind <= WEFT_NORM_FRAME; kind++) {
        snprintf(name, sizeof name, "y%d", kind);
        weft_output(g, name, norm_of(g, name, x, (weft_norm_kind)kind));
    }
    weft_output(g, "y", weft_layer_norm(g, "default", x, NULL));
    weft_program *p = program_of(g, store, NULL);
    const float in[2] = {1, 3};
    float out[2];
    OK(weft_program_put(p, "x", in, 2));
    OK(weft_program_run(p));
    for (int kind = 0; kind <= WEFT_NORM_FRAME; kind++) {
        snprintf(name, sizeof name, "y%d", kind);
        OK(weft_program_get(p, name, out, 2));
        cr_expect_float_eq(out[0], kind == WEFT_NORM_RMS ? 1 / sqrt(5) : -1, 1e-5, "%d: %g", kind,
                           (double)out[0]);
    }
    OK(weft_program_get(p, "y", out, 2));
    cr_expect_float_eq(out[1], 1, 1e-5);
    weft_program_free(p);
    weft_store_free(store);
    cr_expect_eq(norm_of(g, "wrong", x, (weft_norm_kind)77).id, -1);
    cr_expect_eq(weft_graph_check(g), WEFT_E_ARG);
    weft_graph_free(g);
}

/* Queries and keys of zeros: every query has the mean of the values that it attends to. */
Test(api_graph, attention)
{
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_attention_options causal = WEFT_INIT(weft_attention_options), masked = causal;
    const weft_value q = weft_input(g, "q", WEFT_F32, WEFT_DIMS(1, 2, 1, 1)),
                     v = weft_input(g, "v", WEFT_F32, WEFT_DIMS(1, 2, 1, 1));
    causal.causal = 1;
    masked.has_bias = 1;
    masked.bias = weft_input(g, "bias", WEFT_F32, WEFT_DIMS(1, 2));
    weft_output(g, "all", weft_layer_attention(g, q, q, v, NULL));
    weft_output(g, "causal", weft_layer_attention(g, q, q, v, &causal));
    weft_output(g, "masked", weft_layer_attention(g, q, q, v, &masked));
    weft_program *p = program_of(g, store, NULL);
    const float zeros[2] = {0, 0}, values[2] = {1, 3}, bias[2] = {-1e30f, 0};
    float all[2], back[2], second[2];
    OK(weft_program_put(p, "q", zeros, 2));
    OK(weft_program_put(p, "v", values, 2));
    OK(weft_program_put(p, "bias", bias, 2));
    OK(weft_program_run(p));
    OK(weft_program_get(p, "all", all, 2));
    OK(weft_program_get(p, "causal", back, 2));
    OK(weft_program_get(p, "masked", second, 2));
    for (int i = 0; i < 2; i++) {
        cr_expect_float_eq(all[i], 2, 1e-5);
        cr_expect_float_eq(back[i], 1 + i, 1e-5);
        cr_expect_float_eq(second[i], 3, 1e-5);
    }
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}

Test(api_graph, first_error_stays)
{
    weft_error_info info = WEFT_INIT(weft_error_info);
    weft_graph *g = weft_graph_create();
    weft_graph_push(g, "blocks.%d", 3);
    const weft_value a = weft_input(g, "a", WEFT_F32, WEFT_DIMS(2, 3));
    cr_expect_eq(weft_matmul(g, a, a, false, false).id, -1);
    weft_graph_pop(g);
    cr_expect_eq(weft_add(g, a, a).id, -1);
    cr_expect_eq(weft_graph_check(g), WEFT_E_SHAPE);
    cr_expect_eq(weft_error_get(&info), WEFT_OK);
    cr_expect_str_eq(info.key, "blocks.3");
    weft_program *p = NULL;
    cr_expect_eq(weft_program_create(g, NULL, &p), WEFT_E_SHAPE);
    weft_graph_free(g);
}

/* d/dw mean((w x)^2) = 2 w x^2 / n */
Test(api_graph, gradients)
{
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_DIMS(4));
    const weft_value w = weft_param(g, "w", WEFT_F32, WEFT_DIMS(4), normal);
    const weft_value loss = weft_mean_all(g, weft_map(g, WEFT_MAP_SQUARE, weft_mul(g, w, x)));
    weft_value grad;
    int count;
    const weft_value *params = weft_graph_params(g, &count);
    cr_assert_eq(count, 1);
    cr_expect_eq(params[0].id, w.id);
    weft_autodiff(g, loss, params, count, &grad);
    weft_output(g, "grad", grad);
    weft_program *p = program_of(g, store, NULL);
    const float in[4] = {1, -2, 3, 0};
    float weight[4], out[4];
    OK(weft_tensor_get_f32(weft_store_find(store, "w"), weight, 4));
    OK(weft_program_put(p, "x", in, 4));
    OK(weft_program_run(p));
    OK(weft_program_get(p, "grad", out, 4));
    for (int i = 0; i < 4; i++)
        cr_expect_float_eq(out[i], 2 * weight[i] * in[i] * in[i] / 4, 1e-5);
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}

/* ---- training on ranks ----------------------------------------------------------------------- */

enum { BATCH = 4, WIDTH = 8, STEPS = 3 };

typedef struct worker {
    weft_comm *comm; /* NULL: one rank */
    const char *mesh;
    int rank, ranks;
    float loss[STEPS];
    weft_status_code status;
    char message[256];
} worker;

static weft_status_code train(worker *w, weft_graph *whole, weft_graph **local, weft_graph **g,
                              weft_store *store, weft_program **p)
{
    weft_pass_options passes = WEFT_INIT(weft_pass_options);
    weft_group *group = NULL;
    weft_status_code status;
    float batch[BATCH * WIDTH];
    const float limits[2] = {1e30f, 1e-2f};
    const weft_value x = weft_input(whole, "batch.x", WEFT_F32, WEFT_DIMS(BATCH, WIDTH));
    const weft_value inner = weft_nn_dense(whole, "in", x, 16, true);
    const weft_value y =
        weft_nn_dense(whole, "out", weft_map(whole, WEFT_MAP_SILU, inner), WIDTH, true);
    weft_output(whole, "objective",
                weft_mean_all(whole, weft_map(whole, WEFT_MAP_SQUARE, weft_sub(whole, y, x))));
    passes.mesh = w->mesh;
    passes.rank = w->rank;
    if ((status = weft_graph_shard(whole, &passes, local)) != WEFT_OK)
        return status;
    weft_value_description batch_x = WEFT_INIT(weft_value_description);
    status = weft_value_describe(*local, weft_graph_find(*local, "batch.x"), &batch_x);
    if (status != WEFT_OK)
        return status;
    if (batch_x.shape.dim[0] != BATCH / w->ranks)
        return weft_error_set("internal-error", "the batch is not split by samples");
    weft_graph_adamw(*local, weft_graph_find(*local, "objective"), NULL);
    if ((status = weft_graph_optimize(*local, &passes, g)) != WEFT_OK ||
        (status = weft_program_create(*g, NULL, p)) != WEFT_OK ||
        (status = weft_store_init(store, *g, 3)) != WEFT_OK ||
        (w->comm && (status = weft_comm_world(w->comm, &group)) != WEFT_OK) ||
        (status = weft_program_bind(*p, store, group)) != WEFT_OK)
        return status;
    const int share = BATCH / w->ranks;
    for (int i = 0; i < BATCH * WIDTH; i++)
        batch[i] = (float)sin(i);
    for (int step = 0; step < STEPS; step++) {
        const float number = (float)(step + 1);
        if ((status = weft_program_put(*p, "batch.x", batch + w->rank * share * WIDTH,
                                       share * WIDTH)) != WEFT_OK ||
            (status = weft_program_put(*p, "optimizer.lr", &limits[1], 1)) != WEFT_OK ||
            (status = weft_program_put(*p, "optimizer.step", &number, 1)) != WEFT_OK ||
            (status = weft_program_put(*p, "optimizer.loss_limit", limits, 1)) != WEFT_OK ||
            (status = weft_program_put(*p, "optimizer.norm_limit", limits, 1)) != WEFT_OK ||
            (status = weft_program_run(*p)) != WEFT_OK ||
            (status = weft_program_get(*p, "loss", &w->loss[step], 1)) != WEFT_OK)
            return status;
    }
    return WEFT_OK;
}

static void *work(void *user)
{
    worker *w = user;
    weft_graph *whole = weft_graph_create(), *local = NULL, *g = NULL;
    weft_store *store = weft_store_create();
    weft_program *p = NULL;
    weft_threads_set(1);
    w->status = train(w, whole, &local, &g, store, &p);
    snprintf(w->message, sizeof w->message, "%s", weft_error_message());
    if (w->status != WEFT_OK && w->comm)
        weft_comm_abort(w->comm);
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
    weft_graph_free(local);
    weft_graph_free(whole);
    return NULL;
}

Test(api_graph, two_ranks_train_like_one)
{
    worker one = {.ranks = 1}, two[2];
    weft_comm *comm[2];
    pthread_t thread[2];
    work(&one);
    cr_assert_eq(one.status, WEFT_OK, "%s", one.message);
    cr_expect_lt(one.loss[STEPS - 1], one.loss[0]);
    OK(weft_comm_open_threads(2, comm));
    for (int r = 0; r < 2; r++) {
        cr_expect_eq(weft_comm_rank(comm[r]), r);
        cr_expect_eq(weft_comm_ranks(comm[r]), 2);
        two[r] = (worker){.comm = comm[r], .mesh = "dp=2", .rank = r, .ranks = 2};
        cr_assert_eq(pthread_create(&thread[r], NULL, work, &two[r]), 0);
    }
    for (int r = 0; r < 2; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < 2; r++) {
        weft_comm_free(comm[r]);
        cr_assert_eq(two[r].status, WEFT_OK, "%s", two[r].message);
        for (int i = 0; i < STEPS; i++)
            cr_expect_float_eq(two[r].loss[i], one.loss[i], 1e-5);
    }
}

Test(api_graph, options_of_passes)
{
    const char *const wrong[] = {"no_such_pass=off"};
    weft_pass_options passes = WEFT_INIT(weft_pass_options);
    weft_graph *g = weft_graph_create(), *out = NULL;
    weft_graph_description of_g = WEFT_INIT(weft_graph_description), of_out = of_g;
    weft_output(g, "y", weft_mean_all(g, weft_input(g, "x", WEFT_F32, WEFT_DIMS(2))));
    passes.rank = 1;
    cr_expect_eq(weft_graph_shard(g, &passes, &out), WEFT_E_ARG);
    passes.rank = 0;
    passes.mesh = "warp=2";
    cr_expect_neq(weft_graph_shard(g, &passes, &out), WEFT_OK);
    passes.mesh = NULL;
    passes.setting = wrong;
    passes.setting_count = 1;
    cr_expect_neq(weft_graph_optimize(g, &passes, &out), WEFT_OK);
    cr_expect_eq(out, NULL);
    /* a copy, with the same text */
    char *before, *after;
    OK(weft_graph_shard(g, NULL, &out));
    OK(weft_graph_text(g, &before));
    OK(weft_graph_text(out, &after));
    cr_expect_neq(out, g);
    cr_expect_str_eq(after, before);
    OK(weft_graph_describe(g, &of_g));
    OK(weft_graph_describe(out, &of_out));
    cr_expect_eq(of_out.hash, of_g.hash);
    weft_free(before);
    weft_free(after);
    weft_graph_free(out);
    weft_graph_free(g);
}

/* ---- models and weights ---------------------------------------------------------------------- */

static const char denoiser[] =
    "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":2,\"attention_head_dim\":"
    "12,"
    "\"in_channels\":4,\"out_channels\":4,\"text_dim\":8,\"freq_dim\":16,\"ffn_dim\":32,"
    "\"num_layers\":1}";

Test(api_graph, models_and_weights)
{
    char folder[] = "/tmp/weft-api-XXXXXX", path[200];
    weft_model_extent extent = WEFT_INIT(weft_model_extent);
    weft_weights_options bf16 = WEFT_INIT(weft_weights_options);
    weft_model *model = NULL, *none = NULL;
    weft_graph *g = weft_graph_create();
    weft_store *a = weft_store_create(), *b = weft_store_create();
    cr_assert(mkdtemp(folder));
    cr_expect_neq(weft_model_parse("{\"_class_name\":\"NoModel\"}", &none), WEFT_OK);
    cr_expect_eq(none, NULL);
    OK(weft_model_parse(denoiser, &model));
    extent.frames = 3;
    extent.height = 2;
    extent.width = 4;
    extent.text = 6;
    OK(weft_model_add(g, model, &extent));
    weft_value_description prediction = WEFT_INIT(weft_value_description);
    OK(weft_value_describe(g, weft_graph_find(g, "prediction"), &prediction));
    cr_expect_eq(prediction.shape.rank, 5);
    cr_expect_eq(prediction.shape.dim[1], 3);
    cr_expect_eq(prediction.shape.dim[4], 4);
    OK(weft_store_init(a, g, 1));
    OK(weft_store_init(b, g, 2));
    bf16.dtype = WEFT_BF16;
    OK(weft_store_save(a, NULL, g, folder, &bf16));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    OK(weft_store_load(b, g, path, NULL));
    cr_assert_eq(weft_store_count(a), weft_store_count(b));
    for (int64_t i = 0; i < weft_store_count(a); i++) {
        weft_tensor *from = weft_store_at(a, i);
        weft_tensor_description t = WEFT_INIT(weft_tensor_description);
        OK(weft_tensor_describe(from, &t));
        const float *x = weft_tensor_data(from);
        const float *y = weft_tensor_data(weft_store_find(b, t.name));
        int64_t n = 1;
        cr_expect_eq(t.dtype, WEFT_F32);
        for (int d = 0; d < t.shape.rank; d++) {
            cr_expect_eq(t.shape.dim[d], t.whole.dim[d]);
            n *= t.shape.dim[d];
        }
        for (int64_t k = 0; k < n; k++)
            cr_assert_leq(fabsf(x[k] - y[k]), fabsf(x[k]) / 128, "%s", t.name);
    }
    cr_expect_eq(weft_store_load(b, g, "/nowhere", NULL), WEFT_E_NOT_FOUND);
    unlink(path);
    rmdir(folder);
    weft_store_free(a);
    weft_store_free(b);
    weft_graph_free(g);
    weft_model_free(model);
}

Test(api_graph, timeline)
{
    char path[] = "/tmp/weft-api-timeline-XXXXXX";
    close(mkstemp(path));
    weft_compile_options options = WEFT_INIT(weft_compile_options);
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_program *p;
    weft_output(g, "y", weft_mean_all(g, weft_input(g, "x", WEFT_F32, WEFT_DIMS(16))));
    options.profile = 1;
    OK(weft_program_create(g, &options, &p));
    OK(weft_program_bind(p, store, NULL));
    cr_expect_eq(weft_program_write_timeline(p, path), WEFT_E_ARG); /* no run */
    OK(weft_program_run(p));
    OK(weft_program_write_timeline(p, path));
    FILE *file = fopen(path, "r");
    char text[8192];
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    cr_expect(strstr(text, "traceEvents") && strstr(text, "sum"), "%s", text);
    unlink(path);
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}
