/* Programs on the reference backend: values, updates in place and by copy, the contents of the
 * store, guard bytes. */

#include "base/dtype.h"
#include "base/interrupt.h"
#include "base/status.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "graph/op.h"
#include "kernel/ref/table.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const weft_init normal = {WEFT_INIT_NORMAL, 0.5};

static weft_program *program_of(const weft_graph *g, weft_store *store,
                                weft_program_options options)
{
    weft_program *p = NULL;
    options.backend = options.backend ? options.backend : &weft_backend_ref;
    cr_assert_eq(weft_program_compile(g, &options, &p), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK, "%s", weft_error_message());
    return p;
}

static void run(weft_program *p)
{
    cr_assert_eq(weft_program_run(p), WEFT_OK, "%s", weft_error_message());
}

static float *data(weft_program *p, const char *name)
{
    weft_tensor *t = weft_program_input(p, name);
    cr_assert(t, "no input %s", name);
    return t->data;
}

static const float *result(weft_program *p, const char *name)
{
    const weft_tensor *t = weft_program_output(p, name);
    cr_assert(t, "no output %s", name);
    return t->data;
}

Test(program, linear_in_f32_ports)
{
    weft_graph *g = weft_graph_create();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3));
    const weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(2, 3), normal);
    weft_output(g, "y", weft_matmul(g, x, w, false, true));
    weft_store *store = weft_store_create();
    cr_assert_eq(weft_store_init(store, g, 7), WEFT_OK);
    weft_program *p = program_of(g, store, (weft_program_options){.guard = true});
    float *in = data(p, "x");
    for (int i = 0; i < 6; i++)
        in[i] = (float)(i - 2);
    run(p);
    const float *weight = weft_store_find(store, "w")->data;
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 2; c++) {
            double want = 0;
            for (int k = 0; k < 3; k++)
                want += (double)in[r * 3 + k] * (double)weight[c * 3 + k];
            cr_expect_float_eq(result(p, "y")[r * 2 + c], want, 1e-6);
        }
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}

/* a' = a + x in place; b' = 2 a (the old one), which must be made before or kept. */
Test(program, updates_see_old_values)
{
    weft_graph *g = weft_graph_create();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(4));
    const weft_value a =
        weft_state(g, "a", WEFT_F32, WEFT_SHAPE(4), (weft_init){WEFT_INIT_FILL, 1});
    const weft_value b =
        weft_state(g, "b", WEFT_F32, WEFT_SHAPE(4), (weft_init){WEFT_INIT_ZERO, 0});
    const weft_value a2 = weft_add(g, a, x);
    const weft_value b2 = weft_affine(g, a, 2, 0);
    weft_update(g, a, a2);
    weft_update(g, b, b2);
    weft_output(g, "old", weft_affine(g, b, 1, 0));
    weft_store *store = weft_store_create();
    cr_assert_eq(weft_store_init(store, g, 7), WEFT_OK);
    weft_program *p = program_of(g, store, (weft_program_options){.guard = true});
    for (int i = 0; i < 4; i++)
        data(p, "x")[i] = (float)i;
    for (int step = 1; step <= 3; step++) {
        run(p);
        for (int i = 0; i < 4; i++) {
            cr_expect_eq(((float *)weft_store_find(store, "a")->data)[i], (float)(1 + step * i));
            cr_expect_eq(((float *)weft_store_find(store, "b")->data)[i],
                         (float)(2 * (1 + (step - 1) * i)));
            cr_expect_eq(result(p, "old")[i], step == 1 ? 0 : (float)(2 * (1 + (step - 2) * i)));
        }
    }
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}

/* ref keeps more digits than the store returns, until a caller writes to the store. */
Test(program, f64_survives_in_ref)
{
    weft_graph *g = weft_graph_create();
    const weft_value a =
        weft_state(g, "a", WEFT_F32, WEFT_SHAPE(1), (weft_init){WEFT_INIT_FILL, 1});
    weft_update(g, a, weft_affine(g, a, 1, 1e-9));
    weft_store *store = weft_store_create();
    cr_assert_eq(weft_store_init(store, g, 7), WEFT_OK);
    weft_program *p = program_of(g, store, (weft_program_options){0});
    float *stored = weft_store_find(store, "a")->data;
    for (int i = 0; i < 1000; i++)
        run(p);
    cr_expect_float_eq(stored[0], 1 + 1e-6, 1.3e-7);
    cr_expect_neq(stored[0], 1);
    stored[0] = 5;
    run(p);
    cr_expect_eq(stored[0], 5);
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}

Test(program, initial_values_do_not_depend_on_sharding)
{
    weft_graph *whole = weft_graph_create(), *half = weft_graph_create();
    weft_param(whole, "w", WEFT_F32, WEFT_SHAPE(5, 6), normal);
    const weft_value w = weft_param(half, "w", WEFT_F32, WEFT_SHAPE(5, 4), normal);
    weft_attr_source *attr =
        (weft_attr_source *)(uintptr_t)weft_graph_node(half, weft_value_get(half, w)->node)->attr;
    attr->global = WEFT_SHAPE(5, 6);
    attr->start[1] = 2;
    weft_store *a = weft_store_create(), *b = weft_store_create();
    cr_assert_eq(weft_store_init(a, whole, 3), WEFT_OK);
    cr_assert_eq(weft_store_init(b, half, 3), WEFT_OK);
    const float *x = weft_store_find(a, "w")->data, *y = weft_store_find(b, "w")->data;
    for (int r = 0; r < 5; r++)
        for (int c = 0; c < 4; c++)
            cr_expect_eq(x[r * 6 + c + 2], y[r * 4 + c]);
    cr_expect_neq(x[0], x[1]);
    weft_store_free(a);
    weft_store_free(b);
    weft_graph_free(whole);
    weft_graph_free(half);
}

Test(program, missing_and_wrong_tensors_are_named)
{
    weft_graph *g = weft_graph_create();
    weft_output(g, "y", weft_affine(g, weft_param(g, "w", WEFT_F32, WEFT_SHAPE(3), normal), 1, 0));
    weft_store *store = weft_store_create();
    weft_program *p;
    weft_tensor *t;
    cr_assert_eq(weft_program_compile(g, &(weft_program_options){.backend = &weft_backend_ref}, &p),
                 WEFT_OK);
    cr_expect_eq(weft_program_bind(p, store, NULL), WEFT_E_NOT_FOUND);
    cr_expect_str_eq(weft_error_fields()->key, "w");
    cr_assert_eq(weft_store_add(store, "w", WEFT_F32, WEFT_SHAPE(4), &t), WEFT_OK);
    cr_expect_eq(weft_program_bind(p, store, NULL), WEFT_E_SHAPE);
    cr_expect_eq(weft_program_run(p), WEFT_E_ARG);
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}

/* Stops the program at the second kernel. */
static void stop_second(void *user, const weft_graph *g, const weft_node *node,
                        const weft_kernel_args *args)
{
    (void)g;
    (void)node;
    (void)args;
    if (++*(int *)user == 2)
        weft_interrupt_discard(true);
}

/* Work that is discarded ends between two kernels. The program runs again after that. */
Test(program, discarded_work_ends_at_once)
{
    int kernels = 0;
    weft_graph *g = weft_graph_create();
    weft_value v = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(4));
    for (int i = 0; i < 5; i++)
        v = weft_affine(g, v, 2, 1);
    weft_output(g, "y", v);
    weft_store *store = weft_store_create();
    weft_program *p = program_of(
        g, store, (weft_program_options){.observe = stop_second, .observe_user = &kernels});
    data(p, "x")[1] = 3;
    cr_assert_eq(weft_program_run(p), WEFT_E_CANCELLED);
    cr_assert_eq(kernels, 2);
    weft_interrupt_request(false);
    run(p);
    cr_assert_eq(result(p, "y")[1], 3 * 32 + 31);
    cr_assert_eq(kernels, 7);
    weft_interrupt_request(true); /* saves, so the program ends first */
    run(p);
    weft_interrupt_discard(false); /* other ranks wait for what follows the program */
    run(p);
    weft_interrupt_request(false);
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
}
