/* weft parity of Skiparse: positions of tokens in the subsequences of sparse attention. */
#include "parity/parity_skips.h"

#include "cli/options/verb.h"
#include "exec/execute.h"
#include "graph/builder_helpers.h"
#include "nn/nn.h"
#include "parity/parity_model.h"

#include <stdio.h>

/* Builds "table" (n, S/n): token numbers from 1, padded with 0, in the order of the model's
 * layers. */
static weft_status lay(const weft_parity *p, int64_t tokens, int64_t n, bool grouped, weft_graph *g,
                       weft_program **program, weft_store *store)
{
    const int64_t more = weft_nn_skip_padding(tokens, n);
    weft_value x = weft_input(g, "tokens", WEFT_F32, WEFT_SHAPE(1, tokens));
    x = more ? weft_pad(g, x, 1, 0, more) : x;
    weft_output(g, "table", weft_nn_skip_split(g, x, n, grouped));
    WEFT_TRY(weft_graph_check(g));
    WEFT_TRY(weft_program_compile(g, &(weft_program_options){.backend = p->backend}, program));
    WEFT_TRY(weft_program_bind(*program, store, NULL));
    float *number = weft_program_input(*program, "tokens")->data;
    for (int64_t i = 0; i < tokens; i++)
        number[i] = (float)(i + 1);
    return weft_program_run(*program);
}

/* Golden tensor `t` (n, S/n): the token at each position; -1: padding. */
static weft_status compare(weft_parity *p, const weft_stored_tensor *t, const float *expected,
                           bool grouped)
{
    int64_t tokens = 0;
    for (int64_t i = 0; i < t->count; i++)
        tokens += expected[i] >= 0;
    const int64_t n = t->dim[0];
    if (n < 1 || tokens < 1 || tokens + weft_nn_skip_padding(tokens, n) != t->count)
        return weft_error(WEFT_MSG_TENSOR_SHAPE,
                          WEFT_AT(.file = p->file, .key = t->name, WEFT_NUMBER(tokens)),
                          "%" PRId64 " tokens do not make %" PRId64 " subsequences of %" PRId64,
                          tokens, n, t->dim[1]);
    weft_program *program = NULL;
    weft_status_code status = WEFT_OK;
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create_for(p->backend);
    WEFT_GO(WEFT_ALLOCATED(g && store, "the comparison"));
    WEFT_GO(lay(p, tokens, n, grouped, g, &program, store));
    float *actual = weft_program_output(program, "table")->data;
    double worst = 0;
    for (int64_t i = 0; i < t->count; i++)
        actual[i] -= 1;
    weft_parity_judge(p, "table", t->name + 4, actual, expected, t->count, 1, 0, &worst);
out:
    weft_program_free(program);
    weft_store_free(store);
    weft_graph_free(g);
    return status;
}

weft_status weft_parity_skips(weft_parity *p)
{
    static const char *const names[] = {"out.skiparse_single", "out.skiparse_group"};
    for (int i = 0; i < WEFT_COUNT(names); i++) {
        const weft_stored_tensor *t = weft_tensors_find(p->golden, names[i]);
        if (!t)
            continue;
        if (t->rank != 2)
            return weft_error(WEFT_MSG_TENSOR_SHAPE,
                              WEFT_AT(.file = p->file, .key = t->name, WEFT_NUMBER(t->rank)),
                              "the tensor has %d dimensions, not 2", t->rank);
        float *expected;
        WEFT_TRY(WEFT_NEW(expected, t->count + 1, "%s", p->file));
        weft_tensor_to_f32(t, expected);
        const weft_status_code status = compare(p, t, expected, i == 1);
        weft_free(expected);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}
