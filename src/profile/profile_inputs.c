#include "profile/profile_inputs.h"

#include "base/log.h"
#include "graph/graph.h"

#include <math.h>
#include <string.h>

static float scalar_of(const char *name)
{
    static const struct {
        const char *name;
        float value;
    } known[] = {{"optimizer.lr", 1e-4f},
                 {"optimizer.step", 1},
                 {"optimizer.loss_limit", INFINITY},
                 {"optimizer.norm_limit", INFINITY},
                 {"optimizer.weight", 1}};
    for (int i = 0; i < WEFT_COUNT(known); i++)
        if (!strcmp(name, known[i].name))
            return known[i].value;
    return 0;
}

/* Returns whether an input of a batch has a name of the list, also with a number after it:
 * "batch.tokens_2". */
static bool is_one_of(const char *name, const char *const *list)
{
    if (strncmp(name, "batch.", 6) != 0)
        return false;
    for (; *list; list++) {
        const size_t n = strlen(*list);
        if (!strncmp(name + 6, *list, n) && (!name[6 + n] || name[6 + n] == '_'))
            return true;
    }
    return false;
}

/* Inputs that differ between the prompts of a batch. */
static bool is_text(const char *name)
{
    static const char *const list[] = {"text", "text2", "audio_text", "pooled", "tokens",
                                       "seen", "real",  "uncut",      NULL};
    return is_one_of(name, list);
}

/* Returns the rows of the table that an input of ids selects from; 0: the input has no ids. */
static int64_t table_rows(const weft_graph *g, weft_value ids)
{
    int64_t rows = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op != WEFT_OP_EMBED || node->in[1].id != ids.id)
            continue;
        const int64_t of = weft_value_get(g, node->in[0])->shape.dim[0];
        rows = rows == 0 || of < rows ? of : rows;
    }
    return rows;
}

/* An input that is filled: `rows` texts, each of `length` rows of `width` elements. */
typedef struct text_rows {
    int64_t length, width, real; /* real: rows that are not padding */
} text_rows;

static text_rows text_rows_of(const weft_tensor *x, const char *name, int64_t tokens)
{
    static const char *const vectors[] = {"pooled", NULL};
    const int rank = x->shape.rank;
    const bool ids = x->dtype == WEFT_I32;
    if (rank < (ids ? 1 : 2) || is_one_of(name, vectors))
        return (text_rows){1, 1, 1};
    text_rows t = {.length = x->shape.dim[rank - (ids ? 1 : 2)],
                   .width = ids ? 1 : x->shape.dim[rank - 1]};
    t.real = tokens && tokens < t.length ? tokens : t.length;
    return t;
}

static float value_at(int64_t i)
{
    return (float)(i % 97) * 0.01f - 0.4f;
}

/* Rows of a text after the prompt are zeros, and ids of padding are 0. Masks have ones before. */
static void fill_text(const weft_graph *g, weft_value value, weft_tensor *x, int64_t tokens)
{
    const text_rows t = text_rows_of(x, weft_value_get(g, value)->name, tokens);
    const int64_t count = weft_shape_count(&x->shape),
                  rows = x->dtype == WEFT_I32 ? table_rows(g, value) : 0;
    for (int64_t i = 0; i < count; i++) {
        const bool real = i / t.width % t.length < t.real;
        if (x->dtype == WEFT_F32)
            ((float *)x->data)[i] = real ? value_at(i) : 0;
        else
            ((int32_t *)x->data)[i] = !real ? 0 : rows ? (int32_t)(i % rows) : 1;
    }
}

/* Samples of one prompt are equal. */
static void fill_samples(const char *name, weft_tensor *x, int64_t prompts)
{
    const int64_t count = weft_shape_count(&x->shape), batch = x->shape.rank ? x->shape.dim[0] : 1,
                  each = batch ? count / batch : 0, repeat = prompts ? prompts * each : count;
    for (int64_t i = 0; i < count; i++)
        ((float *)x->data)[i] = value_at(i % repeat);
    if (count == 1)
        *(float *)x->data = scalar_of(name);
}

void weft_profile_fill(const weft_graph *graph, weft_program *program,
                       const weft_profile_prompts *prompts)
{
    for (int32_t n = 0; n < weft_graph_node_count(graph); n++) {
        const weft_node *node = weft_graph_node(graph, n);
        if (node->op != WEFT_OP_INPUT)
            continue;
        const char *name = weft_value_get(graph, node->out[0])->name;
        weft_tensor *x = weft_program_input(program, name);
        if (!x || (x->dtype != WEFT_F32 && x->dtype != WEFT_I32))
            continue;
        if (is_text(name))
            fill_text(graph, node->out[0], x, prompts->tokens);
        else if (x->dtype == WEFT_F32)
            fill_samples(name, x, prompts->prompts);
    }
}
