/* weft parity of Skiparse: which token stands where in the subsequences of sparse attention. */
#include "cli/parity_model.h"
#include "cli/verb.h"
#include "nn/nn.h"

#include <stdio.h>

/* The tokens' numbers from 1 on, padded with 0, as the model's own layers lay tokens out: "table"
 * (n, S/n). */
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

/* `theirs` (n, S/n): the token at each place, -1: padding. */
static weft_status compare(weft_parity *p, const weft_stored_tensor *t, const float *theirs,
                           bool grouped)
{
    int64_t tokens = 0;
    for (int64_t i = 0; i < t->count; i++)
        tokens += theirs[i] >= 0;
    const int64_t n = t->dim[0];
    if (n < 1 || tokens < 1 || tokens + weft_nn_skip_padding(tokens, n) != t->count)
        return weft_fail(WEFT_E_SHAPE,
                         "%s: \"%s\": %lld tokens do not make %lld subsequences of %lld", p->file,
                         t->name, (long long)tokens, (long long)n, (long long)t->dim[1]);
    weft_program *program = NULL;
    weft_status_code status = WEFT_OK;
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    if (!g || !store)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory"));
    WEFT_GO(lay(p, tokens, n, grouped, g, &program, store));
    float *ours = weft_program_output(program, "table")->data;
    double worst = 0;
    for (int64_t i = 0; i < t->count; i++)
        ours[i] -= 1;
    weft_parity_judge(p, "table", t->name + 4, ours, theirs, t->count, 1, 0, &worst);
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
            return weft_fail(WEFT_E_SHAPE, "%s: \"%s\" has rank %d, not 2", p->file, t->name,
                             t->rank);
        float *theirs = weft_alloc((t->count + 1) * (int64_t)sizeof *theirs);
        if (!theirs)
            return weft_fail(WEFT_E_MEMORY, "%s: out of memory", p->file);
        weft_tensor_to_f32(t, theirs);
        const weft_status_code status = compare(p, t, theirs, i == 1);
        weft_free(theirs);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}
