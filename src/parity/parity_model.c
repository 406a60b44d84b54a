/* weft parity of models: compares outputs and gradients. */
#include "parity/parity_model.h"

#include "base/config.h"
#include "exec/execute.h"
#include "graph/autodiff.h"
#include "graph/builder_helpers.h"
#include "graph/dump.h"
#include "kernel/ref/table.h"
#include "model/key_mapping.h"
#include "parity/parity_images.h"
#include "parity/parity_masks.h"
#include "parity/parity_size.h"
#include "parity/parity_skips.h"
#include "parity/parity_store.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef weft_parity parity;

void weft_parity_turn(const float *from, const int64_t bctyx[5], bool from_golden, float *to)
{
    const int64_t c_count = bctyx[1], rest = bctyx[2] * bctyx[3] * bctyx[4];
    for (int64_t b = 0; b < bctyx[0]; b++)
        for (int64_t c = 0; c < c_count; c++)
            for (int64_t i = 0; i < rest; i++) {
                const int64_t golden_index = (b * c_count + c) * rest + i,
                              own_index = (b * rest + i) * c_count + c;
                if (from_golden)
                    to[own_index] = from[golden_index];
                else
                    to[golden_index] = from[own_index];
            }
}

/* Converts golden tokens of side x side latents (..., T Y X, C py px) to weft's layout
 * (...,T,Y py,X px,C). */
static void unpack(const float *from, const weft_stored_tensor *t, const weft_model_size *size,
                   int64_t side, float *to)
{
    const int64_t rows = size->height / side, columns = size->width / side,
                  all = t->dim[t->rank - 1], channels = all / (side * side);
    for (int64_t i = 0; i < t->count; i++) {
        const int64_t px = i % side, py = i / side % side, c = i / (side * side) % channels,
                      token = i / all, x = token % columns, y = token / columns % rows,
                      frame = token / (columns * rows);
        to[((frame * size->height + y * side + py) * size->width + x * side + px) * channels + c] =
            from[i];
    }
}

weft_parity_form weft_parity_form_of(const weft_port_row *row)
{
    if (!weft_port_is_video(row->port) || row->form == WEFT_VIDEO_BTYXC)
        return WEFT_PARITY_AS_HERE;
    if (row->form == WEFT_VIDEO_PACKED)
        return WEFT_PARITY_PACKED;
    if (row->form == WEFT_VIDEO_PARTS)
        return WEFT_PARITY_PARTS;
    return row->form == WEFT_VIDEO_BTCYX ? WEFT_PARITY_BTCYX : WEFT_PARITY_BCTYX;
}

/* Converts golden images (B,C,2 Y,2 X) to weft's latents (B,Y,X,C 2 2). */
static void join_parts(const float *from, const weft_stored_tensor *t, float *to)
{
    const int64_t channels = t->dim[1], rows = t->dim[2], columns = t->dim[3];
    for (int64_t i = 0; i < t->count; i++) {
        const int64_t x = i % columns, y = i / columns % rows, c = i / (columns * rows) % channels,
                      b = i / (columns * rows * channels),
                      latent = (b * (rows / 2) + y / 2) * (columns / 2) + x / 2;
        to[((latent * channels + c) * 2 + y % 2) * 2 + x % 2] = from[i];
    }
}

weft_status weft_parity_load(const parity *p, const char *name, weft_parity_form form, float **out)
{
    const weft_stored_tensor *t;
    WEFT_TRY(weft_parity_need(p, name, &t));
    float *raw = weft_alloc(t->count * 4), *actual = weft_alloc(t->count * 4);
    if (!raw || !actual) {
        weft_free(raw);
        weft_free(actual);
        return weft_no_memory("%s: \"%s\"", p->file, name);
    }
    weft_tensor_to_f32(t, raw);
    if (form == WEFT_PARITY_PARTS && t->rank == 4) {
        join_parts(raw, t, actual);
        weft_free(raw);
        raw = actual;
    } else if (form == WEFT_PARITY_PACKED && t->rank >= 3 && weft_parity_token_side(p) > 1 &&
               p->size.width > 0) {
        unpack(raw, t, &p->size, weft_parity_token_side(p), actual);
        weft_free(raw);
        raw = actual;
    } else if (form && form != WEFT_PARITY_PACKED && t->rank >= 4 && t->rank <= 6) {
        const int64_t steps = t->rank == 6 ? t->dim[0] : 1, *d = t->dim + (t->rank == 6),
                      rows = t->dim[t->rank - 2], columns = t->dim[t->rank - 1];
        const bool image = t->rank == 4, frames_first = form == WEFT_PARITY_BTCYX && !image;
        const int64_t dim[5] = {steps * (frames_first ? d[0] * d[1] : d[0]),
                                frames_first ? d[2] : d[1],
                                frames_first || image ? 1 : d[2], /* an image is one frame */
                                rows, columns};
        weft_parity_turn(raw, dim, true, actual);
        weft_free(raw);
        raw = actual;
    } else {
        weft_free(actual);
    }
    *out = raw;
    return WEFT_OK;
}

/* Fills `input` from "in.<golden>", of any element type. */
static weft_status fill_input(parity *p, const char *input, const char *reference,
                              weft_parity_form form, const weft_port_row *row)
{
    char golden[160];
    const float unit = row && row->unit != 0 ? (float)row->unit : 1,
                origin = row ? (float)row->origin : 0;
    snprintf(golden, sizeof golden, "in.%s", reference);
    weft_tensor *to = weft_program_input(p->program, input);
    const weft_stored_tensor *t;
    WEFT_TRY(weft_parity_need(p, golden, &t));
    const int64_t count = to ? weft_shape_count(&to->shape) : -1;
    const bool masks = to && row && row->port == WEFT_PORT_TEXT_MASK && count != t->count;
    float *values = NULL;
    if (masks)
        WEFT_TRY(weft_parity_load(p, golden, form, &values));
    const bool one = count > 0 && (t->count == 1 || to->shape.dim[0] * t->count == count),
               fits = masks ? weft_parity_text_mask(t, &to->shape, &values) : one;
    if (count != t->count && !fits) {
        weft_free(values);
        return weft_error(WEFT_MSG_TENSOR_SHAPE,
                          WEFT_AT(.file = p->file, .key = golden, WEFT_NUMBER(t->count)),
                          "the tensor has %" PRId64
                          " elements and does not fit the model's input \"%s\" of %" PRId64,
                          t->count, input, count);
    }
    if (!masks)
        WEFT_TRY(weft_parity_load(p, golden, form, &values));
    for (int64_t i = 0; i < count; i++) { /* values of one sample apply to every sample */
        const float value = origin + values[masks ? i : i % t->count] * unit;
        if (to->dtype == WEFT_I32)
            ((int32_t *)to->data)[i] = (int32_t)value;
        else
            ((float *)to->data)[i] = value;
    }
    weft_free(values);
    return WEFT_OK;
}

/* ---- names ---------------------------------------------------------------------------------- */

static bool has_param(void *golden, const char *name)
{
    char full[600];
    snprintf(full, sizeof full, "param.%s", name);
    return weft_tensors_find(golden, full) != NULL;
}

/* Converts a parameter name of the golden file, which may use another key mapping, to weft's
 * name. */
static void own_name(const parity *p, const char *golden_name, char *name, size_t size)
{
    const weft_family *f = p->model.family;
    for (int d = 0; f && d < f->mappings; d++)
        if (has_param(p->golden, f->mapping[d].marker) &&
            weft_key_mapping_rename(&f->mapping[d], golden_name, name, size))
            return;
    snprintf(name, size, "%s", golden_name);
}

static weft_status take_weights(parity *p)
{
    for (int64_t i = 0; i < weft_store_count(p->store); i++) {
        weft_tensor *to = weft_store_at(p->store, i);
        const weft_stored_tensor *t = weft_tensors_find(p->weights, to->name);
        if (!t || t->count != weft_shape_count(&to->shape))
            return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                              WEFT_AT(.file = weft_tensors_path(p->weights), .key = to->name),
                              "the parameter %s",
                              t ? "has another size than in the model" : "is missing");
        weft_tensor_to_f32(t, to->data);
    }
    return WEFT_OK;
}

/* Elements of a file's tensor `name` in the tensor `in`: all elements, or an item of a stack. */
typedef struct span {
    int64_t first, count;
} span;

static bool find_span(const weft_tensor *in, const char *own, const char *name, span *out)
{
    const int64_t all = weft_shape_count(&in->shape);
    char stack[600];
    int64_t item;
    *out = (span){0, all};
    if (!strcmp(own, name))
        return true;
    if (!weft_name_is_stack(own) || in->shape.dim[0] == 0)
        return false;
    *out = (span){0, all / in->shape.dim[0]};
    for (int i = 0; weft_stack_of(name, i, stack, sizeof stack, &item); i++)
        if (!strcmp(stack, own) && item < in->shape.dim[0]) {
            out->first = item * out->count;
            return true;
        }
    return false;
}

/* Returns the store's tensor that contains the golden parameter, and its offset. NULL: none. */
static weft_tensor *find_param(const parity *p, const char *golden_name, int64_t *at, span *own)
{
    char name[600];
    own_name(p, golden_name, name, sizeof name);
    for (*at = 0; *at < weft_store_count(p->store); (*at)++) {
        weft_tensor *t = weft_store_at(p->store, *at);
        if (find_span(t, t->name, name, own))
            return t;
    }
    return NULL;
}

const float *weft_parity_param(const parity *p, const char *golden_name, int64_t *count)
{
    int64_t at;
    span own;
    const weft_tensor *t = find_param(p, golden_name, &at, &own);
    *count = t ? own.count : 0;
    return t ? (const float *)t->data + own.first : NULL;
}

/* Returns the length of the name's prefix if the tensor is a model parameter or a LoRA matrix. */
static size_t param_prefix(const char *name)
{
    static const char *const prefixes[] = {"param.", "lora."};
    for (int i = 0; i < WEFT_COUNT(prefixes); i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            return strlen(prefixes[i]);
    return 0;
}

/* Whether a tensor has statistics of latents. They are not parameters. */
static bool is_statistic(const parity *p, const char *golden_name)
{
    char name[600];
    own_name(p, golden_name, name, sizeof name);
    return !strncmp(name, "latents_", 8);
}

/* Copies param.<name> of the golden file into the store. Both sides must have the same
 * parameters. */
static weft_status load_params(parity *p)
{
    const int64_t most = weft_store_count(p->store);
    int64_t *loaded = weft_calloc(most + 1, sizeof *loaded); /* elements */
    weft_buf missing = {0};
    int64_t absent = 0;
    const char *strange = NULL; /* a parameter that the model does not have */
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(loaded, "%s", p->file));
    for (int64_t i = 0; i < weft_tensors_count(p->golden); i++) {
        const weft_stored_tensor *t = weft_tensors_at(p->golden, i);
        const size_t skip = param_prefix(t->name);
        if (!skip || !weft_dtype_is_float(t->dtype)) /* counters */
            continue;
        int64_t at;
        span own;
        weft_tensor *to = find_param(p, t->name + skip, &at, &own);
        if (!to && is_statistic(p, t->name + skip))
            continue;
        if (!to) {
            strange = strange ? strange : t->name + skip;
            continue;
        }
        if (t->count != own.count)
            WEFT_GO(weft_error(WEFT_MSG_TENSOR_SHAPE,
                               WEFT_AT(.file = p->file, .key = t->name, WEFT_NUMBER(t->count)),
                               "the tensor has %" PRId64
                               " elements, but the model's parameter has %" PRId64,
                               t->count, own.count));
        weft_tensor_to_f32(t, (float *)to->data + own.first);
        loaded[at] += own.count;
    }
    for (int64_t i = 0; i < most; i++) {
        const char *name = weft_store_at(p->store, i)->name;
        const int64_t count = weft_shape_count(&weft_store_at(p->store, i)->shape);
        if (loaded[i] != count && strncmp(name, "adamw.", 6))
            weft_buf_printf(&missing, "%s%s", absent++ ? ", " : "", name);
    }
    if (absent)
        WEFT_GO(weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = p->file, WEFT_NUMBER(absent)),
                           "%" PRId64 " parameters of the model are missing: %s", absent,
                           missing.data ? missing.data : "?"));
    if (strange)
        WEFT_GO(weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = p->file, .key = strange),
                           "the model has no such parameter"));
out:
    weft_buf_free(&missing);
    weft_free(loaded);
    return status;
}

/* ---- comparison ---------------------------------------------------------------------------- */

static weft_status compare_output(parity *p, const char *output, const char *reference,
                                  weft_parity_form form, double *worst)
{
    char golden[160];
    snprintf(golden, sizeof golden, "out.%s", reference);
    const weft_stored_tensor *t;
    float *expected = NULL;
    const weft_tensor *actual = weft_program_output(p->program, output);
    WEFT_TRY(weft_parity_need(p, golden, &t));
    if (!actual || weft_shape_count(&actual->shape) != t->count)
        return weft_error(
            WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->file, .key = golden, WEFT_NUMBER(t->count)),
            "the tensor has %" PRId64 " elements and does not fit the model's output \"%s\"",
            t->count, output);
    WEFT_TRY(weft_parity_load(p, golden, form, &expected));
    weft_parity_judge(p, "output", reference, actual->data, expected, t->count,
                      weft_parity_norm(expected, t->count), p->output_tolerance, worst);
    weft_free(expected);
    return WEFT_OK;
}

typedef struct gradient {
    const char *golden; /* "grad.blocks.0...." */
    char output[600];   /* name of weft's output */
    span own;           /* position in that output */
    weft_parity_form form;
    double norm; /* norm of the golden gradient */
    bool zero;
} gradient;

static weft_parity_form form_of_gradient(const parity *p, const char *name)
{
    const weft_family *f = p->model.family;
    if (!f)
        return strncmp(name, "grad.in.", 8) ? WEFT_PARITY_AS_HERE : WEFT_PARITY_BCTYX;
    for (int i = 0; i < f->ports; i++)
        if (!f->port[i].output && !strncmp(name, "grad.in.", 8) &&
            !strcmp(name + 8, f->port[i].reference))
            return weft_parity_form_of(&f->port[i]);
    return WEFT_PARITY_AS_HERE;
}

/* Finds weft's gradient of the parameter, or of the stack that contains the parameter. */
static void find_output(weft_program *program, const char *name, gradient *gr)
{
    char full[700], stack[600];
    int64_t item;
    snprintf(gr->output, sizeof gr->output, "grad.%.590s", name);
    const weft_tensor *actual = weft_program_output(program, gr->output);
    gr->own = (span){0, actual ? weft_shape_count(&actual->shape) : 0};
    for (int i = 0; !actual && weft_stack_of(name, i, stack, sizeof stack, &item); i++) {
        snprintf(full, sizeof full, "grad.%s", stack);
        actual = weft_program_output(program, full);
        if (actual && find_span(actual, stack, name, &gr->own))
            snprintf(gr->output, sizeof gr->output, "%.599s", full);
        else
            actual = NULL;
    }
}

static weft_status list_gradients(parity *p, gradient **list, int64_t *count)
{
    int64_t capacity = 0;
    for (int64_t i = 0; i < weft_tensors_count(p->golden); i++) {
        const weft_stored_tensor *t = weft_tensors_at(p->golden, i);
        if (strncmp(t->name, "grad.", 5) != 0)
            continue;
        WEFT_TRY(weft_grow((void **)list, *count, &capacity, sizeof **list));
        gradient *gr = &(*list)[(*count)++];
        *gr = (gradient){.golden = t->name, .form = form_of_gradient(p, t->name)};
        char name[560];
        own_name(p, t->name + 5, name, sizeof name);
        find_output(p->program, name, gr);
        float *values = NULL;
        WEFT_TRY(weft_parity_load(p, t->name, WEFT_PARITY_AS_HERE, &values));
        gr->norm = weft_parity_norm(values, t->count);
        weft_free(values);
    }
    return WEFT_OK;
}

weft_status weft_parity_exact(const parity *p, const weft_graph *g, weft_program **out)
{
    weft_program *ref = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_program_compile(
        g, &(weft_program_options){.backend = &weft_backend_ref, .wide = true}, &ref));
    WEFT_GO(weft_program_bind(ref, p->store, NULL));
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op != WEFT_OP_INPUT)
            continue;
        const char *name = weft_value_get(g, node->out[0])->name;
        const weft_tensor *from = weft_program_input(p->program, name);
        weft_tensor *to = weft_program_input(ref, name);
        for (int64_t i = 0; i < weft_shape_count(&from->shape); i++) {
            if (from->dtype == WEFT_I32)
                ((int32_t *)to->data)[i] = ((const int32_t *)from->data)[i];
            else
                ((double *)to->data)[i] = (double)((const float *)from->data)[i];
        }
    }
    WEFT_GO(weft_program_run(ref));
    *out = ref;
    ref = NULL;
out:
    weft_program_free(ref);
    return status;
}

static double exact_norm(weft_program *exact, const gradient *gr)
{
    const weft_tensor *t = weft_program_output(exact, gr->output);
    double sum = 0;
    const double *own = t ? (const double *)t->data + gr->own.first : NULL;
    for (int64_t i = 0; t && i < gr->own.count; i++)
        sum += own[i] * own[i];
    return t ? sqrt(sum) : INFINITY;
}

double weft_parity_exact_gradient(const parity *p, weft_program *exact, const char *golden_name)
{
    gradient gr = {0};
    char name[560];
    own_name(p, golden_name, name, sizeof name);
    find_output(exact, name, &gr);
    return exact_norm(exact, &gr);
}

const double weft_parity_zero = 1e-11;

/* Computes the gradients that may be zero with the f64 reference. */
static weft_status resolve_zeros(parity *p, gradient *list, int64_t count, double largest)
{
    bool any = false;
    for (int64_t i = 0; i < count; i++)
        any |= list[i].norm < 1e-4 * largest;
    if (!any)
        return WEFT_OK;
    weft_program *exact;
    WEFT_TRY(weft_parity_exact(p, p->graph, &exact));
    for (int64_t i = 0; i < count; i++)
        list[i].zero = list[i].norm < 1e-4 * largest &&
                       exact_norm(exact, &list[i]) < weft_parity_zero * largest;
    weft_program_free(exact);
    return WEFT_OK;
}

/* Returns the scale of a gradient's error: the gradient's own norm. A gradient of only rounding
 * uses the largest norm. "gradients_mostly_rounding" lists gradients dominated by rounding errors
 * of the largest. With the list, the scale is at least 1e-3 of the largest norm for listed
 * gradients, so that the tolerance is an f32 rounding of the largest. For all others it is at least
 * 1e-5. */
static double scale_of(const parity *p, const gradient *gr, double largest)
{
    const json_t *rounding = json_object_get(p->json, "gradients_mostly_rounding");
    const double least = !rounding                                                 ? 0
                         : json_object_get(rounding, gr->golden + strlen("grad.")) ? 1e-3 * largest
                                                                                   : 1e-5 * largest;
    return gr->zero ? largest : gr->norm > least ? gr->norm : least;
}

static weft_status compare_gradient(parity *p, const gradient *one, double largest, double *worst)
{
    const weft_tensor *actual = weft_program_output(p->program, one->output);
    float *expected = NULL;
    if ((!actual && one->norm == 0) || (p->only && !json_object_get(p->only, one->golden)))
        return WEFT_OK;
    if (!actual) {
        weft_parity_say(p, "  gradient %-60s our graph has none  FAIL", one->golden + 5);
        weft_parity_count(p, one->golden + 5, true);
        return WEFT_OK;
    }
    const weft_stored_tensor *t = weft_tensors_find(p->golden, one->golden);
    if (one->own.count != t->count)
        return weft_error(WEFT_MSG_TENSOR_SHAPE,
                          WEFT_AT(.file = p->file, .key = one->golden, WEFT_NUMBER(t->count)),
                          "the tensor has %" PRId64
                          " elements, but the gradient of weft has %" PRId64,
                          t->count, one->own.count);
    WEFT_TRY(weft_parity_load(p, one->golden, one->form, &expected));
    const float *own = (const float *)actual->data + one->own.first;
    const double scale = scale_of(p, one, largest);
    if (p->missed && !(weft_parity_error(own, expected, t->count, scale) <= p->gradient_tolerance))
        json_object_set_new(p->missed, one->golden, json_true());
    else
        weft_parity_judge(p, "gradient", one->golden + 5, own, expected, t->count, scale,
                          p->gradient_tolerance, worst);
    weft_free(expected);
    return WEFT_OK;
}

static weft_status compare_gradients(parity *p, double *worst)
{
    gradient *list = NULL;
    int64_t count = 0;
    double largest = 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(list_gradients(p, &list, &count));
    for (int64_t i = 0; i < count; i++)
        largest = list[i].norm > largest ? list[i].norm : largest;
    WEFT_GO(resolve_zeros(p, list, count, largest));
    for (int64_t i = 0; i < count; i++)
        WEFT_GO(compare_gradient(p, &list[i], largest, worst));
out:
    weft_free(list);
    return status;
}

/* ---- graphs -------------------------------------------------------------------------------- */

void weft_parity_output_gradients(const parity *p, weft_graph *g, weft_value loss)
{
    const weft_family *f = p->model.family;
    int params;
    const weft_value *param = weft_graph_params(g, &params);
    const int most = params + f->ports;
    weft_value *wrt = weft_arena_calloc(weft_graph_arena(g), most, sizeof *wrt);
    weft_value *grads = weft_arena_calloc(weft_graph_arena(g), most, sizeof *grads);
    const char **name = weft_arena_calloc(weft_graph_arena(g), most, sizeof *name);
    if (!param || !wrt || !grads || !name)
        return;
    int count = 0;
    for (; count < params; count++) {
        wrt[count] = param[count];
        name[count] = weft_value_get(g, param[count])->name;
    }
    for (int i = 0; i < f->ports; i++) {
        char golden[160];
        snprintf(golden, sizeof golden, "grad.in.%s", f->port[i].reference);
        if (f->port[i].output || !weft_tensors_find(p->golden, golden))
            continue;
        wrt[count] = weft_graph_find(g, weft_port_name(f->port[i].port));
        if (!weft_value_ok(wrt[count]))
            continue;
        name[count++] = weft_arena_strdup(weft_graph_arena(g), golden + 5);
    }
    weft_autodiff(g, loss, wrt, count, grads);
    for (int i = 0; i < count; i++) {
        char output[600];
        if (!weft_value_ok(grads[i]) || !name[i])
            continue;
        snprintf(output, sizeof output, "grad.%s", name[i]);
        weft_output(g, output, grads[i]);
    }
}

weft_status weft_parity_compile(parity *p)
{
    WEFT_TRY(weft_graph_check(p->graph));
    WEFT_TRY(weft_graph_verify(p->graph));
    p->store = weft_store_create();
    WEFT_TRY(WEFT_ALLOCATED(p->store, "the comparison"));
    WEFT_TRY(weft_store_init(p->store, p->graph, 0));
    WEFT_TRY(p->fill ? p->fill(p) : p->weights ? take_weights(p) : load_params(p));
    WEFT_TRY(weft_program_compile(p->graph, &(weft_program_options){.backend = p->backend},
                                  &p->program));
    weft_store *store;
    WEFT_TRY(weft_parity_device_store(p, &store));
    return weft_program_bind(p->program, store, NULL);
}

static weft_status fill_ports(parity *p)
{
    const weft_family *f = p->model.family;
    for (int i = 0; i < f->ports; i++) {
        const char *name = weft_port_name(f->port[i].port);
        weft_tensor *to = f->port[i].output ? NULL : weft_program_input(p->program, name);
        bool filled = false;
        if (to)
            WEFT_TRY(weft_parity_fill_images(p, &f->port[i], to, &filled));
        if (to && !filled)
            WEFT_TRY(fill_input(p, name, f->port[i].reference, weft_parity_form_of(&f->port[i]),
                                &f->port[i]));
    }
    return WEFT_OK;
}

static weft_status compare_ports(parity *p, double *worst)
{
    const weft_family *f = p->model.family;
    for (int i = 0; i < f->ports; i++)
        if (f->port[i].output && !f->port[i].optional)
            WEFT_TRY(compare_output(p, weft_port_name(f->port[i].port), f->port[i].reference,
                                    weft_parity_form_of(&f->port[i]), worst));
    return WEFT_OK;
}

/* Returns the golden name of an output's target. NULL: the output is not compared. The last row is
 * the default of ports without a name. */
static const char *target_of(const weft_family *f, int port)
{
    bool said = false;
    for (int i = 0; i < f->ports; i++)
        said |= f->port[i].target != NULL;
    return said || port != f->ports - 1 ? f->port[port].target : "target";
}

static void target_input(const weft_family *f, int port, char name[64])
{
    snprintf(name, 64, "target.%s", weft_port_name(f->port[port].port));
}

/* Builds the sum of the mean squared errors of the compared outputs. */
static weft_value forward_loss(const parity *p, weft_graph *g)
{
    const weft_family *f = p->model.family;
    weft_value loss = WEFT_NONE;
    for (int i = 0; i < f->ports; i++) {
        const weft_value made = weft_graph_find(g, weft_port_name(f->port[i].port));
        char name[64];
        if (!f->port[i].output || !target_of(f, i) || !weft_value_ok(made))
            continue;
        target_input(f, i, name);
        const weft_value target = weft_input(g, name, WEFT_F32, weft_value_get(g, made)->shape);
        const weft_value error =
            weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, made, target)));
        loss = weft_value_ok(loss) ? weft_add(g, loss, error) : error;
    }
    return loss;
}

/* Runs denoisers and encoders. */
static weft_status run_forward(parity *p, double worst[2])
{
    weft_graph *g = p->graph;
    const weft_family *f = p->model.family;
    WEFT_TRY(weft_parity_find_size(p));
    weft_model_build(g, &p->model, &p->size, false);
    const weft_value loss = forward_loss(p, g);
    if (weft_value_ok(loss)) {
        weft_output(g, "loss", loss);
        weft_parity_output_gradients(p, g, loss);
    }
    WEFT_TRY(weft_parity_compile(p));
    WEFT_TRY(fill_ports(p));
    for (int i = 0; i < f->ports; i++) {
        char name[64];
        target_input(f, i, name);
        if (weft_program_input(p->program, name))
            WEFT_TRY(fill_input(p, name, target_of(f, i), weft_parity_form_of(&f->port[i]), NULL));
    }
    WEFT_TRY(weft_program_run(p->program));
    WEFT_TRY(compare_ports(p, &worst[0]));
    WEFT_TRY(compare_output(p, "loss", "loss", WEFT_PARITY_AS_HERE, &worst[0]));
    return compare_gradients(p, &worst[1]);
}

weft_status weft_parity_build(parity *p)
{
    WEFT_TRY(weft_parity_find_size(p));
    weft_model_build(p->graph, &p->model, &p->size, false);
    return weft_graph_check(p->graph);
}

weft_status weft_parity_forward(parity *p, double *worst)
{
    WEFT_TRY(weft_parity_compile(p));
    WEFT_TRY(fill_ports(p));
    WEFT_TRY(weft_program_run(p->program));
    return compare_ports(p, worst);
}

/* Builds [reconstruction, kl, total] in the order of golden out.loss. Without a posterior variance
 * the reconstruction is the only loss. */
static weft_value autoencoder_losses(const parity *p, weft_graph *g, weft_value *total)
{
    const weft_value mean = weft_graph_find(g, "mean"), logvar = weft_graph_find(g, "logvar");
    /* The target is a separate value, so that the golden gradient of the video passes only through
     * the model. */
    const weft_value target =
        weft_input(g, "target", WEFT_F32, weft_value_get(g, weft_graph_find(g, "video"))->shape);
    const weft_value error = weft_sub(g, weft_graph_find(g, "reconstruction"), target);
    const weft_value reconstruction = weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, error));
    weft_value parts[3];
    int count = 0;
    *total = reconstruction;
    parts[count++] = weft_reshape(g, reconstruction, WEFT_SHAPE(1));
    if (weft_model_has(&p->model, WEFT_PORT_LOGVAR)) {
        weft_value kl =
            weft_add(g, weft_unary(g, WEFT_OP_SQUARE, mean), weft_unary(g, WEFT_OP_EXP, logvar));
        kl = weft_affine(g, weft_sub(g, kl, logvar), 0.5, -0.5);
        kl = weft_mean_all(g, kl);
        *total = weft_add(g, reconstruction, weft_affine(g, kl, 0.01, 0));
        parts[count++] = weft_reshape(g, kl, WEFT_SHAPE(1));
        parts[count++] = weft_reshape(g, *total, WEFT_SHAPE(1));
    }
    return weft_concat(g, parts, count, 0);
}

static weft_status run_autoencoder(parity *p, double worst[2])
{
    weft_graph *g = p->graph;
    const char *video = "?";
    for (int i = 0; i < p->model.family->ports; i++)
        if (p->model.family->port[i].port == WEFT_PORT_VIDEO)
            video = p->model.family->port[i].reference;
    WEFT_TRY(weft_parity_find_size(p));
    weft_model_build(g, &p->model, &p->size, false);
    if (weft_graph_check(g) == WEFT_OK) {
        weft_value total;
        weft_output(g, "losses", autoencoder_losses(p, g, &total));
        weft_parity_output_gradients(p, g, total);
    }
    WEFT_TRY(weft_parity_compile(p));
    WEFT_TRY(fill_ports(p));
    WEFT_TRY(fill_input(p, "target", video, WEFT_PARITY_BCTYX, NULL));
    WEFT_TRY(weft_program_run(p->program));
    WEFT_TRY(compare_ports(p, &worst[0]));
    WEFT_TRY(compare_output(p, "losses", "loss", WEFT_PARITY_AS_HERE, &worst[0]));
    return compare_gradients(p, &worst[1]);
}

/* ---- graphs without a family --------------------------------------------------------------- */

weft_value weft_parity_input(parity *p, const char *name)
{
    const weft_stored_tensor *t = weft_tensors_find(p->golden, name);
    if (!t)
        return weft_graph_fail(p->graph, WEFT_MSG_TENSOR_MISSING, "%s: tensor \"%s\" is missing",
                               p->file, name);
    const int64_t *d = t->dim;
    weft_shape shape = {.rank = t->rank};
    if (t->rank < 1 || t->rank > 5)
        return weft_graph_fail(p->graph, WEFT_MSG_TENSOR_SHAPE,
                               "%s: \"%s\" has rank %d, not 1 to 5", p->file, name, t->rank);
    memcpy(shape.dim, d, (size_t)t->rank * sizeof *d);
    if (t->rank >= 4)
        shape = t->rank == 4 ? WEFT_SHAPE(d[0], 1, d[2], d[3], d[1])
                             : WEFT_SHAPE(d[0], d[2], d[3], d[4], d[1]);
    return weft_input(p->graph, name, WEFT_F32, shape);
}

static bool is_input(const weft_graph *g, int32_t n)
{
    return weft_graph_node(g, n)->op == WEFT_OP_INPUT;
}

void weft_parity_output_slopes(parity *p, weft_value loss)
{
    weft_graph *g = p->graph;
    int params;
    const weft_value *param = weft_graph_params(g, &params);
    const int32_t nodes = weft_graph_node_count(g);
    weft_value *wrt = weft_arena_calloc(weft_graph_arena(g), nodes, sizeof *wrt);
    weft_value *grads = weft_arena_calloc(weft_graph_arena(g), nodes, sizeof *grads);
    int count = 0;
    if (!param || !wrt || !grads)
        return;
    for (; count < params; count++)
        wrt[count] = param[count];
    for (int32_t n = 0; n < nodes; n++)
        if (is_input(g, n))
            wrt[count++] = weft_graph_node(g, n)->out[0];
    weft_autodiff(g, loss, wrt, count, grads);
    for (int i = 0; i < count; i++) {
        char output[600];
        snprintf(output, sizeof output, "grad.%s", weft_value_get(g, wrt[i])->name);
        if (weft_value_ok(grads[i]))
            weft_output(g, output, grads[i]);
    }
}

weft_status weft_parity_run(parity *p, const char *const *but, double worst[2])
{
    WEFT_TRY(weft_parity_compile(p));
    for (int32_t n = 0; n < weft_graph_node_count(p->graph); n++)
        if (is_input(p->graph, n)) {
            const char *name = weft_value_get(p->graph, weft_graph_node(p->graph, n)->out[0])->name;
            WEFT_TRY(fill_input(p, name, name + strlen("in."), WEFT_PARITY_BCTYX, NULL));
        }
    WEFT_TRY(weft_program_run(p->program));
    for (int64_t i = 0; i < weft_tensors_count(p->golden); i++) {
        const char *name = weft_tensors_at(p->golden, i)->name;
        bool wanted = !p->only && !strncmp(name, "out.", 4);
        for (int k = 0; but && but[k]; k++)
            wanted &= strcmp(name, but[k]) != 0;
        if (wanted)
            WEFT_TRY(compare_output(p, name + 4, name + 4, WEFT_PARITY_BCTYX, &worst[0]));
    }
    return compare_gradients(p, &worst[1]);
}

/* ---- the kinds ----------------------------------------------------------------------------- */

/* Returns the tolerance. A file states a larger one if the reference itself has larger errors
 * (angles rounded to f32). */
static double tolerance_of(const parity *p, const char *of, double least)
{
    const json_t *golden = json_object_get(p->json, "golden");
    const double suggested =
        json_number_value(json_object_get(json_object_get(golden, "suggested_tolerance"), of));
    return suggested > least ? suggested : least;
}

weft_status weft_parity_open_graph(parity *p)
{
    weft_program_free(p->program);
    weft_parity_free_stores(p);
    weft_graph_free(p->graph);
    p->program = NULL;
    p->graph = NULL;
    p->output_tolerance = tolerance_of(p, "out", 1e-5);
    p->gradient_tolerance = tolerance_of(p, "grad", 1e-4);
    p->graph = weft_graph_create();
    return WEFT_ALLOCATED(p->graph, "the comparison");
}

/* Fields of a golden file that describe the recording. The model's config does not have them. */
static const char *const recording_fields[] = {
    "golden",
    "notes",
    "loss",
    "params_without_gradient_in_reference",
    "gradients_mostly_rounding",
    "rule",
    "temporal_rule",
    "tiles",
    "tile_sample_min_num_frames",
    "tile_sample_min_height",
    "tile_sample_min_width",
    "tile_sample_stride_num_frames",
    "tile_sample_stride_height",
    "tile_sample_stride_width",
};

json_t *weft_parity_config(const parity *p)
{
    const json_t *nested = json_object_get(p->json, "config");
    json_t *config = json_copy((json_t *)(nested ? nested : p->json));
    for (int i = 0; config && i < WEFT_COUNT(recording_fields); i++)
        json_object_del(config, recording_fields[i]);
    return config;
}

weft_status weft_parity_open_model(parity *p)
{
    json_t *config = weft_parity_config(p);
    WEFT_TRY(WEFT_ALLOCATED(config, "the comparison"));
    const weft_status_code status = weft_model_read(config, p->config_file, &p->model);
    json_decref(config);
    WEFT_TRY(status);
    return weft_parity_open_graph(p);
}

static bool is_model(const json_t *json)
{
    const json_t *nested = json_object_get(json, "config");
    return json_is_string(json_object_get(nested ? nested : json, "_class_name"));
}

static weft_status compare_model(parity *p)
{
    double worst[2] = {0, 0};
    WEFT_TRY(weft_parity_open_model(p));
    if (weft_family_is_autoencoder(p->model.family))
        WEFT_TRY(run_autoencoder(p, worst));
    else
        WEFT_TRY(run_forward(p, worst));
    WEFT_TRY(weft_parity_skips(p));
    weft_parity_measured_both(p, worst);
    return WEFT_OK;
}

const weft_parity_kind weft_parity_model = {"model", is_model, compare_model};
