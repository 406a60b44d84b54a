#include "kernel/cuda/cudnn_graph.h"

#include "base/memory.h"

#include <string.h>

enum { CONFIGS = 24, KNOBS = 24, MODES = 2, ORDERS = 2 };

/* ---- descriptors ----------------------------------------------------------------------------- */

void weft_cudnn_close(weft_cudnn_builder *b)
{
    while (b->count > 0)
        b->library->descriptor_destroy(b->list[--b->count]);
}

/* Keeps the error of a failed call. */
static void keep(weft_cudnn_builder *b, int status, const char *what)
{
    if (status != CUDNN_OK && b->status == WEFT_OK)
        b->status = weft_cudnn_error(b->library, status, what);
}

cudnn_descriptor weft_cudnn_new(weft_cudnn_builder *b, int type)
{
    cudnn_descriptor made = NULL;
    if (b->status != WEFT_OK)
        return NULL;
    if (b->count == CUDNN_GRAPH_DESCRIPTORS) {
        b->status = weft_error(WEFT_MSG_KERNEL_UNSUPPORTED, WEFT_AT(WEFT_NUMBER(b->count)),
                               "a plan of cuDNN has at most %d descriptors.", b->count);
        return NULL;
    }
    keep(b, b->library->descriptor_create(type, &made), "a descriptor");
    if (b->status == WEFT_OK)
        b->list[b->count++] = made;
    return made;
}

void weft_cudnn_set(weft_cudnn_builder *b, cudnn_descriptor to, int attribute, int type,
                    int64_t count, const void *values)
{
    if (b->status == WEFT_OK)
        keep(b, b->library->set(to, attribute, type, count, values), "an attribute");
}

void weft_cudnn_set_int(weft_cudnn_builder *b, cudnn_descriptor to, int attribute, int64_t value)
{
    weft_cudnn_set(b, to, attribute, CUDNN_TYPE_INT64, 1, &value);
}

void weft_cudnn_set_enum(weft_cudnn_builder *b, cudnn_descriptor to, int attribute, int type,
                         int value)
{
    weft_cudnn_set(b, to, attribute, type, 1, &value);
}

void weft_cudnn_set_descriptor(weft_cudnn_builder *b, cudnn_descriptor to, int attribute,
                               cudnn_descriptor value)
{
    weft_cudnn_set(b, to, attribute, CUDNN_TYPE_DESCRIPTOR, 1, &value);
}

void weft_cudnn_finish(weft_cudnn_builder *b, cudnn_descriptor d)
{
    if (b->status == WEFT_OK)
        keep(b, b->library->finalize(d), "a graph");
}

cudnn_descriptor weft_cudnn_add_tensor(weft_cudnn_builder *b, const weft_cudnn_tensor *t)
{
    const bool yes = true;
    cudnn_descriptor d = weft_cudnn_new(b, CUDNN_TENSOR);
    weft_cudnn_set_int(b, d, CUDNN_TENSOR_ID, t->id);
    weft_cudnn_set_enum(b, d, CUDNN_TENSOR_TYPE, CUDNN_TYPE_DATA_TYPE, t->type);
    weft_cudnn_set_int(b, d, CUDNN_TENSOR_ALIGNMENT, t->alignment ? t->alignment : CUDNN_ALIGNMENT);
    weft_cudnn_set(b, d, CUDNN_TENSOR_DIMS, CUDNN_TYPE_INT64, t->rank, t->dim);
    weft_cudnn_set(b, d, CUDNN_TENSOR_STRIDES, CUDNN_TYPE_INT64, t->rank, t->stride);
    if (t->is_virtual)
        weft_cudnn_set(b, d, CUDNN_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (t->by_value)
        weft_cudnn_set(b, d, CUDNN_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    weft_cudnn_finish(b, d);
    return d;
}

cudnn_descriptor weft_cudnn_add_pointwise(weft_cudnn_builder *b, int mode, cudnn_descriptor x,
                                          cudnn_descriptor second, cudnn_descriptor y)
{
    cudnn_descriptor how = weft_cudnn_new(b, CUDNN_POINTWISE),
                     d = weft_cudnn_new(b, CUDNN_OP_POINTWISE);
    weft_cudnn_set_enum(b, how, CUDNN_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    weft_cudnn_set_enum(b, how, CUDNN_POINTWISE_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_F32);
    weft_cudnn_finish(b, how);
    weft_cudnn_set_descriptor(b, d, CUDNN_OP_POINTWISE_OF, how);
    weft_cudnn_set_descriptor(b, d, CUDNN_OP_POINTWISE_OF + 1, x);
    if (second)
        weft_cudnn_set_descriptor(b, d, CUDNN_OP_POINTWISE_OF + 2, second);
    weft_cudnn_set_descriptor(b, d, CUDNN_OP_POINTWISE_OF + 3, y);
    weft_cudnn_finish(b, d);
    return d;
}

cudnn_descriptor weft_cudnn_add_graph(weft_cudnn_builder *b, const cudnn_descriptor *ops, int count)
{
    cudnn_descriptor d = weft_cudnn_new(b, CUDNN_GRAPH);
    if (b->handle)
        weft_cudnn_set(b, d, CUDNN_GRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->handle);
    weft_cudnn_set(b, d, CUDNN_GRAPH_OPS, CUDNN_TYPE_DESCRIPTOR, count, ops);
    weft_cudnn_finish(b, d);
    return d;
}

/* ---- engines --------------------------------------------------------------------------------- */

/* A search for a plan. `device`: describes the GPU; NULL: the handle does. `variant`: the number of
 * the configuration, of all that may be tried. */
typedef struct search {
    weft_cudnn_builder *b;
    cudnn_descriptor graph, device;
    const weft_cudnn_wish *wish;
    int variant;
    int64_t workspace;
} search;

static cudnn_descriptor add_device(weft_cudnn_builder *b)
{
    cudnn_descriptor d = weft_cudnn_new(b, CUDNN_DEVICE);
    if (b->handle)
        weft_cudnn_set(b, d, CUDNN_DEVICE_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->handle);
    else
        weft_cudnn_set(b, d, CUDNN_DEVICE_JSON, CUDNN_TYPE_CHAR, (int64_t)strlen(b->device_json),
                       b->device_json);
    weft_cudnn_finish(b, d);
    return d;
}

/* The text of cuDNN may have no zero at its end. */
char *weft_cudnn_describe_device(weft_cudnn_builder *b)
{
    int64_t bytes = 0;
    char *text = NULL;
    const cudnn_descriptor d = add_device(b);
    if (b->status == WEFT_OK)
        keep(b, b->library->get(d, CUDNN_DEVICE_JSON, CUDNN_TYPE_CHAR, 0, &bytes, NULL),
             "the description of the GPU");
    if (b->status == WEFT_OK)
        b->status = WEFT_NEW(text, (size_t)bytes + 1, "the description of the GPU");
    if (b->status == WEFT_OK)
        keep(b, b->library->get(d, CUDNN_DEVICE_JSON, CUDNN_TYPE_CHAR, bytes, &bytes, text),
             "the description of the GPU");
    if (b->status != WEFT_OK) {
        weft_free(text);
        return NULL;
    }
    return text;
}

/* Returns the number of configurations, best first; 0: none. Errors mean none, too. */
static int64_t ask(search *s, int mode, cudnn_descriptor config[CONFIGS])
{
    weft_cudnn_builder *b = s->b;
    int64_t count = 0;
    cudnn_descriptor d = weft_cudnn_new(b, CUDNN_HEURISTIC);
    weft_cudnn_set_descriptor(b, d, CUDNN_HEURISTIC_GRAPH, s->graph);
    weft_cudnn_set_enum(b, d, CUDNN_HEURISTIC_MODE, CUDNN_TYPE_HEURISTIC_MODE, mode);
    if (s->device)
        weft_cudnn_set_descriptor(b, d, CUDNN_HEURISTIC_DEVICE, s->device);
    for (int i = 0; i < CONFIGS; i++)
        config[i] = weft_cudnn_new(b, CUDNN_ENGINE_CONFIG);
    if (b->status != WEFT_OK || b->library->finalize(d) != CUDNN_OK ||
        b->library->get(d, CUDNN_HEURISTIC_RESULTS, CUDNN_TYPE_DESCRIPTOR, CONFIGS, &count,
                        config) != CUDNN_OK)
        return 0;
    return count < CONFIGS ? count : CONFIGS;
}

/* Whether the engine of a configuration keeps the wish. Notes 1 to 8: inputs rounded to fewer bits,
 * sums in fewer bits, Fourier and Winograd transforms, and sums without an order. */
static bool is_wanted(search *s, cudnn_descriptor config, int64_t *index)
{
    const weft_cudnn *library = s->b->library;
    int notes[CUDNN_NOTES];
    int64_t count = 0, one = 0;
    cudnn_descriptor engine = weft_cudnn_new(s->b, CUDNN_ENGINE);
    if (s->b->status != WEFT_OK ||
        library->get(config, CUDNN_CONFIG_ENGINE, CUDNN_TYPE_DESCRIPTOR, 1, &one, &engine) ||
        library->get(engine, CUDNN_ENGINE_INDEX, CUDNN_TYPE_INT64, 1, &one, index) ||
        library->get(engine, CUDNN_ENGINE_NOTES, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NOTES, &count,
                     notes))
        return false;
    for (int64_t i = 0; i < count && i < CUDNN_NOTES; i++)
        if ((notes[i] > CUDNN_NOTE_TENSOR_CORE && notes[i] <= 8) ||
            (notes[i] == CUDNN_NOTE_TENSOR_CORE && s->wish->full_f32))
            return false;
    return true;
}

/* Returns a choice with the value of the choice `from`, and the type of its knob in *type. */
static cudnn_descriptor copy_knob(search *s, cudnn_descriptor from, int *type)
{
    const weft_cudnn *library = s->b->library;
    int64_t value = 0, one = 0;
    cudnn_descriptor d = weft_cudnn_new(s->b, CUDNN_KNOB_CHOICE);
    if (s->b->status != WEFT_OK ||
        library->get(from, CUDNN_KNOB_TYPE, CUDNN_TYPE_KNOB, 1, &one, type) ||
        library->get(from, CUDNN_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one, &value))
        return NULL;
    weft_cudnn_set_enum(s->b, d, CUDNN_KNOB_TYPE, CUDNN_TYPE_KNOB, *type);
    weft_cudnn_set_int(s->b, d, CUDNN_KNOB_VALUE, value);
    return d;
}

/* The configuration with another value of the knob of stages; NULL: it has none. */
static cudnn_descriptor with_stages(search *s, cudnn_descriptor config, int64_t index,
                                    int64_t stages)
{
    weft_cudnn_builder *b = s->b;
    cudnn_descriptor from[KNOBS], to[KNOBS + 1];
    int64_t count = 0;
    int knobs = 0;
    for (int i = 0; i < KNOBS; i++)
        from[i] = weft_cudnn_new(b, CUDNN_KNOB_CHOICE);
    if (b->status != WEFT_OK || b->library->get(config, CUDNN_CONFIG_KNOBS, CUDNN_TYPE_DESCRIPTOR,
                                                KNOBS, &count, from) != CUDNN_OK)
        return NULL;
    for (int64_t i = 0; i < count && i < KNOBS; i++) {
        int type = -1;
        cudnn_descriptor knob = copy_knob(s, from[i], &type);
        if (!knob || type == CUDNN_KNOB_STAGES)
            continue;
        weft_cudnn_finish(b, knob);
        to[knobs++] = knob;
    }
    to[knobs] = weft_cudnn_new(b, CUDNN_KNOB_CHOICE);
    weft_cudnn_set_enum(b, to[knobs], CUDNN_KNOB_TYPE, CUDNN_TYPE_KNOB, CUDNN_KNOB_STAGES);
    weft_cudnn_set_int(b, to[knobs], CUDNN_KNOB_VALUE, stages);
    weft_cudnn_finish(b, to[knobs++]);
    cudnn_descriptor engine = weft_cudnn_new(b, CUDNN_ENGINE),
                     made = weft_cudnn_new(b, CUDNN_ENGINE_CONFIG);
    weft_cudnn_set_descriptor(b, engine, CUDNN_ENGINE_GRAPH, s->graph);
    weft_cudnn_set_int(b, engine, CUDNN_ENGINE_INDEX, index);
    if (s->device)
        weft_cudnn_set_descriptor(b, engine, CUDNN_ENGINE_DEVICE, s->device);
    weft_cudnn_finish(b, engine);
    weft_cudnn_set_descriptor(b, made, CUDNN_CONFIG_ENGINE, engine);
    weft_cudnn_set(b, made, CUDNN_CONFIG_KNOBS, CUDNN_TYPE_DESCRIPTOR, knobs, to);
    return b->status == WEFT_OK && b->library->finalize(made) == CUDNN_OK ? made : NULL;
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Returns true if the configuration is not before the wished variant and gives a plan. */
static bool try_config(search *s, cudnn_descriptor config, cudnn_descriptor *plan)
{
    weft_cudnn_builder *b = s->b;
    int64_t bytes = 0, one = 0;
    if (s->variant < s->wish->variant)
        return false;
    cudnn_descriptor d = weft_cudnn_new(b, CUDNN_PLAN);
    if (b->handle)
        weft_cudnn_set(b, d, CUDNN_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->handle);
    else
        weft_cudnn_set_descriptor(b, d, CUDNN_PLAN_DEVICE, s->device);
    weft_cudnn_set_descriptor(b, d, CUDNN_PLAN_CONFIG, config);
    if (b->status != WEFT_OK || b->library->finalize(d) != CUDNN_OK ||
        b->library->get(d, CUDNN_PLAN_WORKSPACE, CUDNN_TYPE_INT64, 1, &one, &bytes) != CUDNN_OK ||
        bytes < s->wish->least || bytes > s->wish->workspace)
        return false;
    s->workspace = bytes;
    *plan = d;
    return true;
}

/* `place` of the configuration in the lists of all modes. */
static bool try_result(search *s, int place, cudnn_descriptor config, cudnn_descriptor *plan)
{
    static const int64_t orders[ORDERS] = {CUDNN_ORDERED_DQ, CUDNN_ORDERED_SCORES};
    int64_t index = 0;
    const int before = s->b->count;
    s->variant = place * ORDERS;
    if (place * ORDERS + ORDERS <= s->wish->variant)
        return false;
    if (is_wanted(s, config, &index)) {
        if (!s->wish->ordered && try_config(s, config, plan))
            return true;
        for (int i = 0; s->wish->ordered && i < ORDERS; i++) {
            s->variant = place * ORDERS + i;
            cudnn_descriptor ordered = with_stages(s, config, index, orders[i]);
            if (ordered && try_config(s, ordered, plan))
                return true;
        }
    }
    while (s->b->count > before) /* of a configuration that is not used */
        s->b->library->descriptor_destroy(s->b->list[--s->b->count]);
    return false;
}

cudnn_descriptor weft_cudnn_add_plan(weft_cudnn_builder *b, cudnn_descriptor graph,
                                     const weft_cudnn_wish *wish, int *variant, int64_t *workspace)
{
    static const int modes[MODES] = {CUDNN_HEURISTIC_A, CUDNN_HEURISTIC_FALLBACK};
    cudnn_descriptor config[CONFIGS], plan = NULL;
    search s = {.b = b, .graph = graph, .device = b->handle ? NULL : add_device(b), .wish = wish};
    for (int mode = 0; mode < MODES && b->status == WEFT_OK; mode++) {
        const int64_t count = ask(&s, modes[mode], config);
        for (int64_t i = 0; i < count && b->status == WEFT_OK; i++)
            if (try_result(&s, mode * CONFIGS + (int)i, config[i], &plan)) {
                *variant = s.variant;
                *workspace = s.workspace;
                return plan;
            }
    }
    if (b->status == WEFT_OK)
        b->status = weft_error(WEFT_MSG_KERNEL_UNSUPPORTED, WEFT_AT(WEFT_NUMBER(wish->variant)),
                               "cuDNN has no plan from variant %d on within %lld bytes of "
                               "workspace and with sums of one order. Another implementation is "
                               "used.",
                               wish->variant, (long long)wish->workspace);
    return NULL;
}
