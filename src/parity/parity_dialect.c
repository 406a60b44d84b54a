/* weft parity of files of weights: packed blocks, narrow floats, and one set of weights in many
 * dialects, which must be the same to the bit. */
#include "base/config.h"
#include "base/convert.h"
#include "base/fs.h"
#include "cli/parity.h"
#include "model/adapter.h"
#include "model/dialect.h"

#include <stdio.h>
#include <string.h>

/* ---- block formats -------------------------------------------------------------------------- */

static bool same_bits(const float *a, const float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) /* any NaN is as good as another */
        if (memcmp(&a[i], &b[i], sizeof *a) && !(a[i] != a[i] && b[i] != b[i]))
            return false;
    return true;
}

static weft_status judge_bits(weft_parity *p, const char *name, const float *ours,
                              const float *theirs, int64_t count)
{
    const bool bad = !same_bits(ours, theirs, count);
    p->compared++;
    p->failures += bad;
    if (bad || p->verbose)
        printf("  bits     %-60s %s\n", name, bad ? "differ  FAIL" : "equal");
    return WEFT_OK;
}

/* raw.TYPE, expanded, against out.TYPE. */
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
        return weft_fail(WEFT_E_UNSUPPORTED, "%s: \"%s\": no such packing", p->file, raw->name);
    packed.rank = 1;
    packed.count = packed.dim[0] = out->count;
    const int64_t bytes = packed.packing
                              ? out->count / packed.packing->elements * packed.packing->bytes
                              : out->count * 2;
    if (bytes != raw->bytes)
        return weft_fail(WEFT_E_SHAPE, "%s: \"%s\" has %lld bytes for %lld elements", p->file,
                         raw->name, (long long)raw->bytes, (long long)out->count);
    float *ours = weft_alloc(out->count * 4), *theirs = weft_alloc(out->count * 4);
    weft_status_code status = WEFT_E_MEMORY;
    if (ours && theirs) {
        weft_tensor_to_f32(&packed, ours);
        weft_tensor_to_f32(out, theirs);
        status = judge_bits(p, name, ours, theirs, out->count);
    }
    weft_free(ours);
    weft_free(theirs);
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
} narrow[] = {{"out.f16_bits", f16_bits},
              {"out.bf16_bits", bf16_bits},
              {"out.e4m3fn_bits", e4m3_bits},
              {"out.e5m2_bits", e5m2_bits}};

/* Bits of in.f32, a NaN's other than its being one left aside. */
static weft_status compare_narrow(weft_parity *p, int row)
{
    const weft_stored_tensor *in, *out = weft_tensors_find(p->golden, narrow[row].name);
    if (!out)
        return WEFT_OK;
    WEFT_TRY(weft_parity_need(p, "in.f32", &in));
    if (out->count != in->count)
        return weft_fail(WEFT_E_SHAPE, "%s: \"%s\" is not as long as in.f32", p->file, out->name);
    float *from = weft_alloc(in->count * 4), *ours = weft_alloc(in->count * 4),
          *theirs = weft_alloc(in->count * 4);
    weft_status_code status = WEFT_E_MEMORY;
    if (from && ours && theirs) {
        const int64_t bytes = out->bytes / out->count;
        weft_tensor_to_f32(in, from);
        for (int64_t i = 0; i < in->count; i++) {
            uint32_t bits = 0;
            memcpy(&bits, (const char *)out->data + i * bytes, (size_t)bytes);
            const bool none = from[i] != from[i];
            ours[i] = none ? 0 : (float)narrow[row].bits(from[i]);
            theirs[i] = none ? 0 : (float)bits;
        }
        status = judge_bits(p, narrow[row].name, ours, theirs, in->count);
    }
    weft_free(from);
    weft_free(ours);
    weft_free(theirs);
    return status;
}

/* The value of every code of a byte. */
static weft_status compare_table(weft_parity *p, const char *name, float (*value)(uint8_t))
{
    const weft_stored_tensor *t = weft_tensors_find(p->golden, name);
    float ours[256], theirs[256];
    if (!t || t->count != 256)
        return WEFT_OK;
    weft_tensor_to_f32(t, theirs);
    for (int i = 0; i < 256; i++)
        ours[i] = value((uint8_t)i);
    return judge_bits(p, name, ours, theirs, 256);
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
    for (int i = 0; i < WEFT_COUNT(narrow); i++)
        WEFT_TRY(compare_narrow(p, i));
    WEFT_TRY(compare_table(p, "table.e4m3fn", weft_f8e4m3_to_f32));
    WEFT_TRY(compare_table(p, "table.e5m2", weft_f8e5m2_to_f32));
    printf("%s: %d sets of numbers, %d differ\n", p->file, p->compared, p->failures);
    return WEFT_OK;
}

const weft_parity_kind weft_parity_blocks = {
    .name = "block formats", .is = is_blocks, .run = run_blocks};

/* ---- dialects ------------------------------------------------------------------------------- */

static bool is_dialect(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    return name && (!strncmp(name, "dialects of ", 12) || !strncmp(name, "GGUF of ", 8));
}

/* The golden tensor that a parameter must equal in this file: "KIND.name" where the file's own
 * rounding is told, else "param.name". NULL: none. */
static const weft_stored_tensor *truth_of(const weft_parity *p, const char *kind, const char *name)
{
    char full[700];
    snprintf(full, sizeof full, "%s.%s", kind, name);
    const weft_stored_tensor *t = weft_tensors_find(p->golden, full);
    snprintf(full, sizeof full, "param.%s", name);
    return t ? t : weft_tensors_find(p->golden, full);
}

static weft_status compare_param(weft_parity *p, const char *kind, const weft_stored_tensor *ours)
{
    const weft_stored_tensor *truth = truth_of(p, kind, ours->name);
    if (!truth)
        return WEFT_OK; /* where the truth has samples only, the outputs tell */
    if (truth->count != ours->count)
        return weft_fail(WEFT_E_SHAPE, "%s: \"%s\" has %lld elements, not %lld", ours->file,
                         ours->name, (long long)ours->count, (long long)truth->count);
    float *a = weft_alloc(ours->count * 4), *b = weft_alloc(ours->count * 4);
    weft_status_code status = WEFT_E_MEMORY;
    if (a && b) {
        weft_tensor_to_f32(ours, a);
        weft_tensor_to_f32(truth, b);
        for (int64_t i = 0; !strcmp(kind, "f16") && i < ours->count; i++)
            b[i] = weft_f16_to_f32(weft_f32_to_f16(b[i])); /* small ones lose digits */
        status = judge_bits(p, ours->name, a, b, ours->count);
    }
    weft_free(a);
    weft_free(b);
    return status;
}

/* sample61.NAME under the file's own names: every 61st element of what is expanded. */
static weft_status compare_samples(weft_parity *p, const weft_tensors *file)
{
    enum { STEP = 61 };
    for (int64_t i = 0; i < weft_tensors_count(file); i++) {
        const weft_stored_tensor *t = weft_tensors_at(file, i), *truth;
        char name[700];
        snprintf(name, sizeof name, "sample61.%s", t->name);
        WEFT_TRY(weft_parity_need(p, name, &truth));
        float *all = weft_alloc(t->count * 4), *theirs = weft_alloc(truth->count * 4);
        weft_status_code status = WEFT_E_MEMORY;
        if (all && theirs && truth->count == (t->count + STEP - 1) / STEP) {
            weft_tensor_to_f32(t, all);
            weft_tensor_to_f32(truth, theirs);
            for (int64_t k = 0; k < truth->count; k++)
                all[k] = all[k * STEP];
            status = judge_bits(p, name, all, theirs, truth->count);
        }
        weft_free(all);
        weft_free(theirs);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

static bool has_inputs(const weft_parity *p)
{
    for (int64_t i = 0; i < weft_tensors_count(p->golden); i++)
        if (!strncmp(weft_tensors_at(p->golden, i)->name, "in.", 3))
            return true;
    return false;
}

/* Where no outputs tell it: every parameter of the model is in the file, in its shape. */
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
            return weft_fail(WEFT_E_SHAPE, "%s: \"%s\" is not there in the model's shape",
                             weft_tensors_path(file), v->name);
    }
    return weft_tensors_count(file) == weft_tensors_count(p->golden)
               ? WEFT_OK
               : weft_fail(WEFT_E_FORMAT, "%s: %lld tensors, the model has %lld",
                           weft_tensors_path(file), (long long)weft_tensors_count(file),
                           (long long)weft_tensors_count(p->golden));
}

static weft_status compare_file(weft_parity *p, const char *path, const char *kind)
{
    weft_tensors *file;
    const int before = p->failures, compared = p->compared;
    WEFT_TRY(weft_tensors_open(path, &file));
    weft_status_code status = WEFT_OK;
    if (!strcmp(weft_path_extension(path), "gguf"))
        status = compare_samples(p, file);
    if (status == WEFT_OK)
        status = weft_dialect_adopt(p->model.family, p->graph, "", file);
    for (int64_t i = 0; i < weft_tensors_count(file) && status == WEFT_OK; i++)
        status = compare_param(p, kind, weft_tensors_at(file, i));
    double worst = 0;
    if (status == WEFT_OK && !has_inputs(p))
        status = compare_all(p, file);
    else if (status == WEFT_OK && !p->program && strcmp(kind, "param") == 0) { /* once: slow */
        p->weights = file;
        status = weft_parity_forward(p, &worst);
        p->weights = NULL;
    }
    weft_tensors_close(file);
    if (status == WEFT_OK)
        printf("%s: %d comparisons, %d differ%s\n", path, p->compared - compared,
               p->failures - before, worst > 0 ? "" : ", to the bit");
    return status;
}

/* Files of one set of weights, and the truth that each is held against. */
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

/* Adapters, and what the weights are when they are merged: the first of these that a parameter has,
 * else it is unchanged. */
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

/* Of param.NAME, merged here against merged by the reference. */
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
        return weft_fail(WEFT_E_SHAPE, "%s: \"%s\" is not of the model, or not as large merged",
                         param->file, param->name);
    const weft_shape shape = weft_value_get(p->graph, v)->shape;
    float *ours = weft_alloc(param->count * 4), *theirs = weft_alloc(param->count * 4);
    weft_status_code status = WEFT_E_MEMORY;
    if (ours && theirs) {
        bool changed;
        weft_tensor_to_f32(param, ours);
        weft_tensor_to_f32(truth, theirs);
        status = weft_adapters_merge(
            &(weft_adapter_use){adapter, 1}, 1,
            &(weft_adapter_box){
                .param = name, .dtype = WEFT_F32, .whole = shape, .shape = shape, .data = ours},
            &changed);
        if (status == WEFT_OK && changed != (truth != param)) {
            printf("  adapter  %-60s %s  FAIL\n", name, changed ? "changed" : "not changed");
            p->failures++;
        }
    }
    if (status == WEFT_OK)
        status = judge_bits(p, truth->name, ours, theirs, param->count);
    weft_free(ours);
    weft_free(theirs);
    return status;
}

static weft_status compare_adapter(weft_parity *p, const char *path, const char *const kind[2])
{
    weft_adapter *adapter;
    const int before = p->failures, compared = p->compared;
    WEFT_TRY(weft_adapter_open(p->model.family, p->graph, "", path, &adapter));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < weft_tensors_count(p->golden) && status == WEFT_OK; i++) {
        const weft_stored_tensor *t = weft_tensors_at(p->golden, i);
        if (!strncmp(t->name, "param.", strlen("param.")))
            status = compare_merged(p, adapter, kind, t);
    }
    if (status == WEFT_OK)
        printf("%s: %lld parameters changed, %d comparisons, %d differ, to the bit\n", path,
               (long long)weft_adapter_params(adapter), p->compared - compared,
               p->failures - before);
    weft_adapter_close(adapter);
    return status;
}

static weft_status run_dialect(weft_parity *p)
{
    const char *base = weft_path_base(p->config_file);
    char folder[1200], path[1400];
    snprintf(folder, sizeof folder, "%.*sdialects/%.*s", (int)(base - p->config_file),
             p->config_file, (int)(strlen(base) - strlen(".json")), base);
    snprintf(path, sizeof path, "%s/truth.safetensors", folder);
    WEFT_TRY(weft_parity_open_model(p));
    /* the parameters are compared to the bit; outputs tell only that they are in their places: the
     * reference computes angles of up to 6000 in f32, 2e-5 off an f64 run */
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
    return p->compared ? WEFT_OK
                       : weft_fail(WEFT_E_NOT_FOUND, "%s: none of its files is there", folder);
}

const weft_parity_kind weft_parity_dialect = {
    .name = "dialects", .is = is_dialect, .run = run_dialect, .alone = true};
