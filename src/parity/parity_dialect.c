/* weft parity of weights files: quantized blocks, narrow floats, and one set of weights under
 * several key mappings, which must be bitwise identical. */
#include "parity/parity_dialect.h"

#include "base/config.h"
#include "base/convert.h"
#include "base/fs.h"
#include "model/adapter.h"
#include "model/key_mapping.h"
#include "parity/parity.h"
#include "parity/parity_model.h"

#include <stdio.h>
#include <string.h>

/* ---- block formats -------------------------------------------------------------------------- */

static bool same_bits(const float *a, const float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) /* all NaNs are equal */
        if (memcmp(&a[i], &b[i], sizeof *a) && !(a[i] != a[i] && b[i] != b[i]))
            return false;
    return true;
}

static weft_status compare_bits(weft_parity *p, const char *name, const float *actual,
                                const float *expected, int64_t count)
{
    const bool bad = !same_bits(actual, expected, count);
    weft_parity_count(p, name, bad);
    if (bad || p->verbose)
        weft_parity_say(p, "  bits     %-60s %s", name, bad ? "differ  FAIL" : "equal");
    return WEFT_OK;
}

/* Compares raw.TYPE, dequantized, with out.TYPE. */
static weft_status compare_blocks(weft_parity *p, const weft_stored_tensor *raw, const char *type)
{
    const weft_stored_tensor *out;
    char name[80];
    snprintf(name, sizeof name, "out.%s", type);
    WEFT_TRY(weft_parity_need(p, name, &out));
    weft_stored_tensor packed = *raw;
    packed.packing = weft_packing_find(type);
    packed.dtype = !strcmp(type, "BF16") ? WEFT_BF16 : WEFT_F32;
    if (!packed.packing && packed.dtype == WEFT_F32)
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = p->file, .key = raw->name),
                          "weft has no packing of the name %s", type);
    packed.rank = 1;
    packed.count = packed.dim[0] = out->count;
    const int64_t bytes = packed.packing
                              ? out->count / packed.packing->elements * packed.packing->bytes
                              : out->count * 2;
    if (bytes != raw->bytes)
        return weft_error(WEFT_MSG_TENSOR_SHAPE,
                          WEFT_AT(.file = p->file, .key = raw->name, WEFT_NUMBER(raw->bytes)),
                          "the tensor has %" PRId64 " bytes; %" PRId64 " elements need %" PRId64,
                          raw->bytes, out->count, bytes);
    float *actual = weft_alloc(out->count * 4), *expected = weft_alloc(out->count * 4);
    weft_status_code status = WEFT_E_MEMORY;
    if (actual && expected) {
        weft_tensor_to_f32(&packed, actual);
        weft_tensor_to_f32(out, expected);
        status = compare_bits(p, name, actual, expected, out->count);
    }
    weft_free(actual);
    weft_free(expected);
    return status;
}

static uint32_t f16_bits(float x)
{
    return weft_f32_to_f16(x);
}
static uint32_t bf16_bits(float x)
{
    return weft_f32_to_bf16(x);
}
static uint32_t e4m3_bits(float x)
{
    return weft_f32_to_f8e4m3(weft_f8e4m3_clamp(x));
}
static uint32_t e5m2_bits(float x)
{
    return weft_f32_to_f8e5m2(x);
}

static const struct {
    const char *name;
    uint32_t (*bits)(float);
} half_formats[] = {{"out.f16_bits", f16_bits},
                    {"out.bf16_bits", bf16_bits},
                    {"out.e4m3fn_bits", e4m3_bits},
                    {"out.e5m2_bits", e5m2_bits}};

/* Compares the conversion of in.f32 bitwise. NaN inputs are not compared. */
static weft_status compare_half_format(weft_parity *p, int row)
{
    const weft_stored_tensor *in, *out = weft_tensors_find(p->golden, half_formats[row].name);
    if (!out)
        return WEFT_OK;
    WEFT_TRY(weft_parity_need(p, "in.f32", &in));
    if (out->count != in->count)
        return weft_error(WEFT_MSG_TENSOR_SHAPE,
                          WEFT_AT(.file = p->file, .key = out->name, WEFT_NUMBER(out->count)),
                          "the tensor has %" PRId64 " elements, but \"in.f32\" has %" PRId64,
                          out->count, in->count);
    float *from = weft_alloc(in->count * 4), *actual = weft_alloc(in->count * 4),
          *expected = weft_alloc(in->count * 4);
    weft_status_code status = WEFT_E_MEMORY;
    if (from && actual && expected) {
        const int64_t bytes = out->bytes / out->count;
        weft_tensor_to_f32(in, from);
        for (int64_t i = 0; i < in->count; i++) {
            uint32_t bits = 0;
            memcpy(&bits, (const char *)out->data + i * bytes, (size_t)bytes);
            const bool none = from[i] != from[i];
            actual[i] = none ? 0 : (float)half_formats[row].bits(from[i]);
            expected[i] = none ? 0 : (float)bits;
        }
        status = compare_bits(p, half_formats[row].name, actual, expected, in->count);
    }
    weft_free(from);
    weft_free(actual);
    weft_free(expected);
    return status;
}

/* Compares the value of each of the 256 byte codes. */
static weft_status compare_table(weft_parity *p, const char *name, float (*value)(uint8_t))
{
    const weft_stored_tensor *t = weft_tensors_find(p->golden, name);
    float actual[256], expected[256];
    if (!t || t->count != 256)
        return WEFT_OK;
    weft_tensor_to_f32(t, expected);
    for (int i = 0; i < 256; i++)
        actual[i] = value((uint8_t)i);
    return compare_bits(p, name, actual, expected, 256);
}

static bool is_blocks(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    return name && !strcmp(name, "block formats");
}

static weft_status run_blocks(weft_parity *p)
{
    for (int64_t i = 0; i < weft_tensors_count(p->golden); i++) {
        const weft_stored_tensor *t = weft_tensors_at(p->golden, i);
        if (!strncmp(t->name, "raw.", 4))
            WEFT_TRY(compare_blocks(p, t, t->name + 4));
    }
    for (int i = 0; i < WEFT_COUNT(half_formats); i++)
        WEFT_TRY(compare_half_format(p, i));
    WEFT_TRY(compare_table(p, "table.e4m3fn", weft_f8e4m3_to_f32));
    WEFT_TRY(compare_table(p, "table.e5m2", weft_f8e5m2_to_f32));
    return WEFT_OK;
}

const weft_parity_kind weft_parity_blocks = {
    .name = "block formats", .is = is_blocks, .run = run_blocks};

/* ---- key mappings -------------------------------------------------------------------------- */

static bool is_mapping(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    return name && (!strncmp(name, "dialects of ", 12) || !strncmp(name, "GGUF of ", 8));
}

/* Returns the golden tensor that a parameter of this file must equal. This is "KIND.name" if the
 * reference has the file's rounding, else "param.name". NULL: none. */
static const weft_stored_tensor *truth_of(const weft_parity *p, const char *kind, const char *name)
{
    char full[700];
    snprintf(full, sizeof full, "%s.%s", kind, name);
    const weft_stored_tensor *t = weft_tensors_find(p->golden, full);
    snprintf(full, sizeof full, "param.%s", name);
    return t ? t : weft_tensors_find(p->golden, full);
}

static weft_status compare_param(weft_parity *p, const char *kind, const weft_stored_tensor *actual)
{
    const weft_stored_tensor *truth = truth_of(p, kind, actual->name);
    if (!truth)
        return WEFT_OK; /* sampled reference: the outputs are compared */
    if (truth->count != actual->count)
        return weft_error(
            WEFT_MSG_TENSOR_SHAPE,
            WEFT_AT(.file = actual->file, .key = actual->name, WEFT_NUMBER(actual->count)),
            "the tensor has %" PRId64 " elements; the reference has %" PRId64, actual->count,
            truth->count);
    float *a = weft_alloc(actual->count * 4), *b = weft_alloc(actual->count * 4);
    weft_status_code status = WEFT_E_MEMORY;
    if (a && b) {
        weft_tensor_to_f32(actual, a);
        weft_tensor_to_f32(truth, b);
        for (int64_t i = 0; !strcmp(kind, "f16") && i < actual->count; i++)
            b[i] = weft_f16_to_f32(weft_f32_to_f16(b[i])); /* subnormals lose digits */
        status = compare_bits(p, actual->name, a, b, actual->count);
    }
    weft_free(a);
    weft_free(b);
    return status;
}

/* Compares sample61.NAME, under the file's own names: every 61st dequantized element. */
static weft_status compare_samples(weft_parity *p, const weft_tensors *file)
{
    enum { STEP = 61 };
    for (int64_t i = 0; i < weft_tensors_count(file); i++) {
        const weft_stored_tensor *t = weft_tensors_at(file, i), *truth;
        char name[700];
        snprintf(name, sizeof name, "sample61.%s", t->name);
        WEFT_TRY(weft_parity_need(p, name, &truth));
        float *all = weft_alloc(t->count * 4), *expected = weft_alloc(truth->count * 4);
        weft_status_code status = WEFT_E_MEMORY;
        if (all && expected && truth->count == (t->count + STEP - 1) / STEP) {
            weft_tensor_to_f32(t, all);
            weft_tensor_to_f32(truth, expected);
            for (int64_t k = 0; k < truth->count; k++)
                all[k] = all[k * STEP];
            status = compare_bits(p, name, all, expected, truth->count);
        }
        weft_free(all);
        weft_free(expected);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

/* Number of golden tensors whose names begin with `prefix`. */
static int64_t count_of(const weft_parity *p, const char *prefix)
{
    int64_t count = 0;
    for (int64_t i = 0; i < weft_tensors_count(p->golden); i++)
        count += !strncmp(weft_tensors_at(p->golden, i)->name, prefix, strlen(prefix));
    return count;
}

static bool has_inputs(const weft_parity *p)
{
    return count_of(p, "in.") > 0;
}

/* Checks that every parameter of the model is in the file with its shape. Used without outputs. */
static weft_status compare_all(const weft_parity *p, const weft_tensors *file)
{
    for (int32_t n = 0; n < weft_graph_node_count(p->graph); n++) {
        const weft_node *node = weft_graph_node(p->graph, n);
        if (node->op != WEFT_OP_PARAM)
            continue;
        const weft_value_info *v = weft_value_get(p->graph, node->out[0]);
        const weft_stored_tensor *t = weft_tensors_find(file, v->name);
        if (!t || t->rank != v->shape.rank ||
            memcmp(t->dim, v->shape.dim, (size_t)t->rank * sizeof *t->dim) != 0)
            return weft_error(WEFT_MSG_TENSOR_SHAPE,
                              WEFT_AT(.file = weft_tensors_path(file), .key = v->name),
                              "the tensor is missing or has another shape than in the model");
    }
    return weft_tensors_count(file) == count_of(p, "param.")
               ? WEFT_OK
               : weft_error(WEFT_MSG_FORMAT_DAMAGED,
                            WEFT_AT(.file = weft_tensors_path(file),
                                    WEFT_NUMBER(weft_tensors_count(file))),
                            "the file has %" PRId64 " tensors, but the model has %" PRId64,
                            weft_tensors_count(file), count_of(p, "param."));
}

static weft_status compare_opened(weft_parity *p, weft_tensors *file, const char *path,
                                  const char *kind, double *worst)
{
    if (!strcmp(weft_path_extension(path), "gguf"))
        WEFT_TRY(compare_samples(p, file));
    WEFT_TRY(weft_key_mapping_adopt(p->model.family, p->graph, "", file));
    for (int64_t i = 0; i < weft_tensors_count(file); i++)
        WEFT_TRY(compare_param(p, kind, weft_tensors_at(file, i)));
    if (!has_inputs(p))
        return compare_all(p, file);
    if (p->program || strcmp(kind, "param") != 0) /* once: slow */
        return WEFT_OK;
    p->weights = file;
    const weft_status_code status = weft_parity_forward(p, worst);
    p->weights = NULL;
    return status;
}

static weft_status compare_file(weft_parity *p, const char *path, const char *kind)
{
    weft_tensors *file;
    const int before = p->record.failures, compared = p->record.compared;
    WEFT_TRY(weft_tensors_open(path, &file));
    double worst = 0;
    const weft_status_code status = compare_opened(p, file, path, kind, &worst);
    weft_tensors_close(file);
    WEFT_TRY(status);
    weft_parity_say(p, "%s: %d comparisons, %d differ%s", path, p->record.compared - compared,
                    p->record.failures - before, worst > 0 ? "" : ", bitwise");
    if (worst > 0)
        weft_parity_measured(p, "outputs", worst, p->output_tolerance);
    return WEFT_OK;
}

/* Files of one set of weights, and the reference of each. */
static const struct {
    const char *name, *kind;
} files[] = {
    {"model.gguf", "param"},
    {"original.safetensors", "param"},
    {"diffusers", "param"},
    {"diffusers_sharded", "param"},
    {"comfy_bf16.safetensors", "param"},
    {"comfy_internal_f16.safetensors", "f16"},
    {"comfy_f16.safetensors", "f16"},
    {"comfy_fp8_scaled.safetensors", "fp8"},
    {"comfy_fp8_weight_scale.safetensors", "fp8"},
};

/* Adapters, and the prefixes of the merged weights. The first prefix that a parameter has is used;
 * without one the parameter is unchanged. */
static const struct {
    const char *name, *kind[2];
} adapters[] = {
    {"diffusers_plain.safetensors", {"merged_plain"}},
    {"diffusers_metadata.safetensors", {"merged_alpha"}},
    {"peft", {"merged_alpha"}},
    {"kohya.safetensors", {"merged_alpha"}},
    {"comfy_alpha.safetensors", {"merged_alpha"}},
    {"comfy_plain.safetensors", {"merged_plain"}},
    {"comfy_diff.safetensors", {"merged_diff", "merged_plain"}},
};

/* Compares param.NAME merged by weft with the one merged by the reference. */
static weft_status compare_merged(weft_parity *p, const weft_adapter *adapter,
                                  const char *const kind[2], const weft_stored_tensor *param)
{
    const char *name = param->name + strlen("param.");
    const weft_value v = weft_graph_find(p->graph, name);
    const weft_stored_tensor *truth = param;
    for (int i = 1; i >= 0; i--) {
        const weft_stored_tensor *t = kind[i] ? truth_of(p, kind[i], name) : param;
        truth = t == param ? truth : t;
    }
    if (!weft_value_ok(v) || truth->count != param->count)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = param->file, .key = param->name),
                          "the model has no such parameter, or the merged tensor has another size");
    const weft_shape shape = weft_value_get(p->graph, v)->shape;
    float *actual = weft_alloc(param->count * 4), *expected = weft_alloc(param->count * 4);
    bool changed;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(actual && expected, "%s", p->file));
    weft_tensor_to_f32(param, actual);
    weft_tensor_to_f32(truth, expected);
    WEFT_GO(weft_adapters_merge(
        &(weft_adapter_use){adapter, 1}, 1,
        &(weft_adapter_box){
            .param = name, .dtype = WEFT_F32, .whole = shape, .shape = shape, .data = actual},
        &changed));
    if (changed != (truth != param)) {
        weft_parity_say(p, "  adapter  %-60s %s  FAIL", name, changed ? "changed" : "not changed");
        weft_parity_count(p, name, true);
    }
    WEFT_GO(compare_bits(p, truth->name, actual, expected, param->count));
out:
    weft_free(actual);
    weft_free(expected);
    return status;
}

static weft_status compare_adapter(weft_parity *p, const char *path, const char *const kind[2])
{
    weft_adapter *adapter;
    const int before = p->record.failures, compared = p->record.compared;
    WEFT_TRY(weft_adapter_open(p->model.family, p->graph, "", path, &adapter));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < weft_tensors_count(p->golden); i++) {
        const weft_stored_tensor *t = weft_tensors_at(p->golden, i);
        if (!strncmp(t->name, "param.", strlen("param.")))
            WEFT_GO(compare_merged(p, adapter, kind, t));
    }
    weft_parity_say(p, "%s: %" PRId64 " parameters changed, %d comparisons, %d differ, bitwise",
                    path, weft_adapter_params(adapter), p->record.compared - compared,
                    p->record.failures - before);
out:
    weft_adapter_close(adapter);
    return status;
}

static weft_status run_mapping(weft_parity *p)
{
    const char *base = weft_path_base(p->config_file);
    char folder[1200], path[1400];
    snprintf(folder, sizeof folder, "%.*sdialects/%.*s", (int)(base - p->config_file),
             p->config_file, (int)(strlen(base) - strlen(".json")), base);
    snprintf(path, sizeof path, "%s/truth.safetensors", folder);
    WEFT_TRY(weft_parity_open_model(p));
    /* The parameters are compared bitwise, so outputs only check that each parameter is in its
     * position. The reference computes angles up to 6000 in f32, 2e-5 off an f64 run. */
    p->output_tolerance = 1e-4;
    WEFT_TRY(weft_tensors_open(path, &p->golden));
    if (has_inputs(p)) {
        WEFT_TRY(weft_parity_build(p));
    } else {
        const weft_model_size smallest = weft_model_smallest(&p->model);
        weft_model_build(p->graph, &p->model, &smallest, false);
        WEFT_TRY(weft_graph_check(p->graph));
    }
    for (int i = 0; i < WEFT_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        if (weft_path_exists(path))
            WEFT_TRY(compare_file(p, path, files[i].kind));
    }
    for (int i = 0; i < WEFT_COUNT(adapters); i++) {
        snprintf(path, sizeof path, "%s/lora/%s", folder, adapters[i].name);
        if (weft_path_exists(path))
            WEFT_TRY(compare_adapter(p, path, adapters[i].kind));
    }
    return p->record.compared
               ? WEFT_OK
               : weft_error(WEFT_MSG_FILE_NOT_FOUND, WEFT_AT(.file = folder),
                            "the folder has none of the files that weft parity compares");
}

const weft_parity_kind weft_parity_dialect = {
    .name = "dialects", .is = is_mapping, .run = run_mapping, .alone = true};
