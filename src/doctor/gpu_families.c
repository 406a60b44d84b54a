#include "doctor/gpu_families.h"

#include "base/memory.h"
#include "base/rng.h"
#include "doctor/gpu_check.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "exec/store/tensor_copy.h"
#include "kernel/cpu/table.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_choice.h"
#include "kernel/cuda/cuda_impl.h"
#include "kernel/cuda/cuda_verdict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    double number[WEFT_FAMILY_NUMBERS];
} stored[] = {
#define FAMILY_NUMBERS(name, loss, norm, next) {name, {loss, norm, next}},
#include "doctor/gpu_family_numbers.def"
#undef FAMILY_NUMBERS
    {NULL, {0}},
};

const double *weft_gpu_family_stored(const char *name)
{
    for (int i = 0; stored[i].name; i++)
        if (!strcmp(stored[i].name, name))
            return stored[i].number;
    return NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

static uint64_t seed_of(const char *name)
{
    uint64_t seed = 5;
    for (const char *c = name; *c; c++)
        seed = weft_seed_mix(seed, (uint64_t)(unsigned char)*c);
    return seed;
}

/* Matrices keep the size of their inputs: their deviation is 1 / sqrt(inputs of a row). Otherwise
 * roundings would grow from layer to layer. Weights of norms ("norm", "LayerNorm") are near 1. */
static weft_status fill_weight(const weft_tensor *weight)
{
    const int64_t count = weft_shape_count(&weight->shape);
    const bool is_matrix = weight->shape.rank >= 2,
               is_norm = strstr(weight->name, "orm") && strstr(weight->name, ".weight");
    const uint64_t seed = seed_of(weight->name);
    const float scale = is_matrix ? 1 / sqrtf((float)(count / weight->shape.dim[0])) : 0.1f;
    float *values = weft_alloc(count * 4 + 1);
    WEFT_TRY(WEFT_ALLOCATED(values, "a model of the check"));
    for (int64_t i = 0; i < count; i++)
        values[i] = scale * weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)i) +
                    (is_norm && !is_matrix ? 1 : 0);
    const weft_status_code status = weft_tensor_put_bytes(weight, 0, count * 4, values);
    weft_free(values);
    return status;
}

/* Fills parameters; states (moments, averages) stay 0. */
static weft_status fill_weights(weft_store *store)
{
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        const weft_tensor *t = weft_store_at(store, i);
        if (strncmp(t->name, "adamw.", 6) && strncmp(t->name, "ema.", 4))
            WEFT_TRY(fill_weight(t));
    }
    return WEFT_OK;
}

/* Inputs of the optimizer (train/graph/optimizer.h) at step `step`. 0: another input. */
static float optimizer_value(const char *name, int step)
{
    if (!strcmp(name, "optimizer.lr"))
        return 1e-2f;
    if (!strcmp(name, "optimizer.step"))
        return (float)step;
    return strstr(name, "_limit") ? 1e30f : 0;
}

/* Integers are masks and indices, of 0 and 1, classes of 0, and tokens of 0 to 6. */
static void fill_input(const char *name, int step, const weft_tensor *to)
{
    const int64_t count = weft_shape_count(&to->shape);
    const uint64_t seed = seed_of(name);
    const float given = optimizer_value(name, step);
    const float offset = !strcmp(name, weft_port_name(WEFT_PORT_FPS)) ? 20 : 0;
    const bool is_class = !strcmp(name, weft_port_name(WEFT_PORT_LABEL)),
               is_token = !strcmp(name, weft_port_name(WEFT_PORT_TOKENS));
    for (int64_t i = 0; i < count; i++) {
        const int whole = is_class ? 0 : is_token ? (int)(i * 3 % 7) : i % 5 < 3;
        if (to->dtype == WEFT_F32)
            ((float *)to->data)[i] =
                given != 0 ? given : offset + weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)i);
        else if (to->dtype == WEFT_I64)
            ((int64_t *)to->data)[i] = whole;
        else
            ((int32_t *)to->data)[i] = whole;
    }
}

static void fill_inputs(const weft_graph *g, int step, weft_program *program)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const char *name = weft_value_get(g, node->out[0])->name;
        if (node->op == WEFT_OP_INPUT)
            fill_input(name, step, weft_program_input(program, name));
    }
}

/* ---- a step ---------------------------------------------------------------------------------- */

static double output_of(weft_program *program, const char *name)
{
    return (double)*(const float *)weft_program_output(program, name)->data;
}

static weft_status run(const weft_graph *g, weft_program *program, weft_store *store,
                       double number[WEFT_FAMILY_NUMBERS])
{
    WEFT_TRY(weft_store_init(store, g, 1));
    WEFT_TRY(fill_weights(store));
    WEFT_TRY(weft_program_bind(program, store, NULL));
    fill_inputs(g, 1, program);
    WEFT_TRY(weft_program_run(program));
    number[WEFT_FAMILY_LOSS] = output_of(program, "loss");
    number[WEFT_FAMILY_NORM] = output_of(program, "grad_norm");
    fill_inputs(g, 2, program);
    WEFT_TRY(weft_program_run(program));
    number[WEFT_FAMILY_NEXT] = output_of(program, "loss");
    return WEFT_OK;
}

weft_status weft_gpu_family_step(int family, const weft_backend *backend, weft_products products,
                                 double number[WEFT_FAMILY_NUMBERS], char name[64])
{
    const weft_gpu_family *of = &weft_gpu_families[family];
    char class_name[64];
    weft_graph *g = NULL;
    weft_program *program = NULL;
    weft_store *store = NULL;
    weft_status_code status = WEFT_OK;
    sscanf(of->config, "{\"_class_name\":\"%63[^\"]", class_name);
    snprintf(name, 64, "%.48s%s%.14s", class_name, of->variant ? " " : "",
             of->variant ? of->variant : "");
    WEFT_GO(weft_gpu_step_build(of->config, &of->size, products, &g));
    store = weft_store_create_for(backend);
    WEFT_GO(WEFT_ALLOCATED(store, "a model of the check"));
    WEFT_GO(weft_program_compile(g, &(weft_program_options){.backend = backend}, &program));
    WEFT_GO(run(g, program, store, number));
out:
    weft_program_free(program);
    weft_store_free(store);
    weft_graph_free(g);
    return status == WEFT_OK ? WEFT_OK : weft_error_add(status, "in a step of %s", name);
}

/* ---- the comparison -------------------------------------------------------------------------- */

double weft_gpu_family_error(const double *number, const double *right, int *worst)
{
    double most = -1;
    for (int i = 0; i < WEFT_FAMILY_NUMBERS; i++) {
        const double error = fabs(number[i] - right[i]) / fmax(fabs(right[i]), 1e-30),
                     finite = isfinite(error) ? error : 1e30;
        if (finite > most) {
            most = finite;
            *worst = i;
        }
    }
    return most;
}

double weft_gpu_family_tolerance(weft_products products)
{
    return products == WEFT_PRODUCTS_F32 ? 3e-4 : products == WEFT_PRODUCTS_TF32 ? 1e-1 / 8 : 1e-1;
}

/* Divisions by small deviations let roundings grow; bf16 on cpu has a large error there as well.
 * TF32 has three more bits than bf16. */
static weft_status limit_of(int family, weft_products products, const double *right, double *limit)
{
    char name[64];
    double number[WEFT_FAMILY_NUMBERS];
    int worst;
    if (products == WEFT_PRODUCTS_F32)
        return WEFT_OK;
    WEFT_TRY(weft_gpu_family_step(family, &weft_backend_cpu, WEFT_PRODUCTS_BF16, number, name));
    const double error = weft_gpu_family_error(number, right, &worst);
    *limit = fmax(*limit, products == WEFT_PRODUCTS_BF16 ? 2 * error : 2 * error / 8);
    return WEFT_OK;
}

typedef struct family_result {
    const char *name, *precision, *number; /* the number with the largest error */
    double error, limit;
} family_result;

static weft_status report(const family_result *r, json_t *list)
{
    const bool failed = r->error > r->limit;
    printf("%-5s family %s: %s differs by %.1g, tolerance %.1g  %s\n", r->precision, r->name,
           r->number, r->error, r->limit, failed ? "FAILED" : "ok");
    json_t *one =
        json_pack("{s:s, s:s, s:s, s:f, s:f, s:b}", "family", r->name, "precision", r->precision,
                  "number", r->number, "error", r->error, "tolerance", r->limit, "failed", failed);
    return json_array_append_new(list, one) == 0 ? WEFT_OK : weft_no_memory("the report");
}

static weft_status compare(int family, const char *name, weft_products products,
                           const double *number, family_result *r)
{
    static const char *const names[] = {"loss", "gradient norm", "loss after the update"};
    const double *right = weft_gpu_family_stored(name);
    int worst;
    if (!right)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = name), "%s has no stored numbers",
                          name);
    *r = (family_result){.name = name,
                         .precision = weft_cuda_precision_name(products),
                         .error = weft_gpu_family_error(number, right, &worst),
                         .limit = weft_gpu_family_tolerance(products)};
    r->number = names[worst];
    return r->error > r->limit ? limit_of(family, products, right, &r->limit) : WEFT_OK;
}

weft_status weft_gpu_family_check(int family, weft_products products, json_t *list, int *failed)
{
    char name[64];
    double number[WEFT_FAMILY_NUMBERS];
    family_result result = {0};
    /* implementations of libraries were compared by ops; to choose between them for the shapes of
     * all families would take minutes */
    weft_cuda_choice_force(weft_cuda_impl_own());
    const weft_status_code status =
        weft_gpu_family_step(family, &weft_backend_cuda, products, number, name);
    weft_cuda_choice_force(-1);
    WEFT_TRY(status);
    WEFT_TRY(compare(family, name, products, number, &result));
    *failed += result.error > result.limit;
    return report(&result, list);
}

weft_status weft_gpu_families_check(json_t **list, int *failed)
{
    *list = json_array();
    WEFT_TRY(WEFT_ALLOCATED(*list, "the report"));
    for (int p = 0; p < WEFT_PRODUCTS_COUNT; p++)
        for (int i = 0; weft_gpu_families[i].config; i++)
            WEFT_TRY(weft_gpu_family_check(i, (weft_products)p, *list, failed));
    return WEFT_OK;
}
