#include "curate/operators/onnx_model.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/memory.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

/* ---- OpenVINO's C interface (2022.3 and later), as its headers are optional ---- */

typedef struct ov_shape {
    int64_t rank, *dims;
} ov_shape;

/* Pointers to the library's objects are void *. Functions return 0 for success. */
typedef struct openvino {
    int (*core_create)(void **core);
    void (*core_free)(void *core);
    int (*core_read_model)(const void *core, const char *path, const char *weights, void **model);
    void (*model_free)(void *model);
    int (*core_compile_model)(const void *core, const void *model, const char *device, size_t count,
                              void **compiled, ...);
    void (*compiled_model_free)(void *compiled);
    int (*compiled_model_inputs_size)(const void *compiled, size_t *count);
    int (*compiled_model_input)(const void *compiled, void **port);
    int (*const_port_get_shape)(const void *port, ov_shape *shape);
    void (*output_const_port_free)(void *port);
    int (*compiled_model_create_infer_request)(const void *compiled, void **request);
    void (*infer_request_free)(void *request);
    int (*infer_request_get_input_tensor_by_index)(const void *request, size_t i, void **tensor);
    int (*infer_request_get_output_tensor_by_index)(const void *request, size_t i, void **tensor);
    int (*infer_request_infer)(void *request);
    int (*shape_create)(int64_t rank, const int64_t *dims, ov_shape *shape);
    int (*shape_free)(ov_shape *shape);
    int (*tensor_set_shape)(void *tensor, ov_shape shape);
    int (*tensor_get_size)(const void *tensor, size_t *count);
    int (*tensor_get_byte_size)(const void *tensor, size_t *bytes);
    int (*tensor_data)(const void *tensor, void **data);
    void (*tensor_free)(void *tensor);
    const char *(*get_last_err_msg)(void); /* NULL: the library has none */
} openvino;

struct weft_onnx_model {
    char *path; /* owned */
    openvino ov;
    void *core, *model, *compiled, *request;
    int64_t height, width; /* of the input; 0: any */
    float *output;         /* owned; of the last run */
    int64_t capacity;
};

/* ---- the library --------------------------------------------------------------------------- */

/* The first file that matches; NULL: none. */
static char *first_match(const char *pattern)
{
    glob_t found = {0};
    char *path = NULL;
    if (glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc > 0)
        path = weft_strdup(found.gl_pathv[0]);
    globfree(&found);
    return path;
}

/* The library in a folder, or the file itself. */
static char *library_at(const char *place)
{
    weft_buf pattern = {0};
    if (!weft_path_is_dir(place))
        return weft_path_exists(place) ? weft_strdup(place) : NULL;
    weft_buf_printf(&pattern, "%s/libopenvino_c.so*", place);
    char *path = pattern.failed ? NULL : first_match(pattern.data);
    weft_buf_free(&pattern);
    return path;
}

static char *search_packages(void)
{
    static const char *const places[] = {
        "%s/lib/python3*/site-packages/openvino/libs/libopenvino_c.so*",
        "%s/.local/lib/python3*/site-packages/openvino/libs/libopenvino_c.so*",
        "%s/usr/local/lib/python3*/dist-packages/openvino/libs/libopenvino_c.so*",
        "%s/usr/lib/*/libopenvino_c.so*",
    };
    const char *const roots[] = {getenv("VIRTUAL_ENV"), getenv("HOME"), "", ""};
    char *path = NULL;
    for (int i = 0; i < WEFT_COUNT(places) && !path; i++) {
        weft_buf pattern = {0};
        if (!roots[i])
            continue;
        const char *rest = places[i] + 2; /* after %s */
        weft_buf_printf(&pattern, "%s%s", roots[i], rest);
        path = pattern.failed ? NULL : first_match(pattern.data);
        weft_buf_free(&pattern);
    }
    return path;
}

weft_status weft_onnx_library_find(char **path)
{
    const char *place = getenv("WEFT_OPENVINO");
    *path = place && *place ? library_at(place) : search_packages();
    if (*path)
        return WEFT_OK;
    return weft_error(WEFT_MSG_LIBRARY_MISSING,
                      WEFT_AT(.key = "WEFT_OPENVINO", .value = place && *place ? place : ""),
                      "libopenvino_c.so was not found%s. Install OpenVINO (`pip install openvino`) "
                      "and set WEFT_OPENVINO to the folder openvino/libs of its package.",
                      place && *place ? " there" : "");
}

static weft_status load(openvino *ov)
{
    char *path;
    WEFT_TRY(weft_onnx_library_find(&path));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct {
        void *to;
        const char *name;
    } functions[] = {
        {&ov->core_create, "ov_core_create"},
        {&ov->core_free, "ov_core_free"},
        {&ov->core_read_model, "ov_core_read_model"},
        {&ov->model_free, "ov_model_free"},
        {&ov->core_compile_model, "ov_core_compile_model"},
        {&ov->compiled_model_free, "ov_compiled_model_free"},
        {&ov->compiled_model_inputs_size, "ov_compiled_model_inputs_size"},
        {&ov->compiled_model_input, "ov_compiled_model_input"},
        {&ov->const_port_get_shape, "ov_const_port_get_shape"},
        {&ov->output_const_port_free, "ov_output_const_port_free"},
        {&ov->compiled_model_create_infer_request, "ov_compiled_model_create_infer_request"},
        {&ov->infer_request_free, "ov_infer_request_free"},
        {&ov->infer_request_get_input_tensor_by_index,
         "ov_infer_request_get_input_tensor_by_index"},
        {&ov->infer_request_get_output_tensor_by_index,
         "ov_infer_request_get_output_tensor_by_index"},
        {&ov->infer_request_infer, "ov_infer_request_infer"},
        {&ov->shape_create, "ov_shape_create"},
        {&ov->shape_free, "ov_shape_free"},
        {&ov->tensor_set_shape, "ov_tensor_set_shape"},
        {&ov->tensor_get_size, "ov_tensor_get_size"},
        {&ov->tensor_get_byte_size, "ov_tensor_get_byte_size"},
        {&ov->tensor_data, "ov_tensor_data"},
        {&ov->tensor_free, "ov_tensor_free"},
    };
    const char *why = library ? NULL : dlerror();
    for (int i = 0; library && !why && i < WEFT_COUNT(functions); i++) {
        void *symbol = dlsym(library, functions[i].name);
        memcpy(functions[i].to, &symbol, sizeof symbol);
        why = symbol ? NULL : functions[i].name;
    }
    if (library) {
        void *symbol = dlsym(library, "ov_get_last_err_msg");
        memcpy(&ov->get_last_err_msg, &symbol, sizeof symbol);
    }
    const weft_status_code status =
        why ? weft_error(WEFT_MSG_LIBRARY_MISSING, WEFT_AT(.file = path),
                         "the library cannot be used: %s. Install OpenVINO 2023 or later.", why)
            : WEFT_OK;
    weft_free(path);
    return status;
}

/* ---- the model ----------------------------------------------------------------------------- */

/* WEFT_OK if `code` is 0, else an error with the library's text. */
static weft_status check(const weft_onnx_model *s, int code, const char *doing)
{
    const char *why = code && s->ov.get_last_err_msg ? s->ov.get_last_err_msg() : NULL;
    return code ? weft_error(WEFT_MSG_ONNX_MODEL, WEFT_AT(.file = s->path, WEFT_NUMBER(code)),
                             "OpenVINO cannot %s (status %d): %.400s", doing, code,
                             why ? why : "no reason was given")
                : WEFT_OK;
}

/* Reads the size of the input: fixed, or any. */
static weft_status read_shape(weft_onnx_model *s)
{
    void *port = NULL;
    size_t inputs = 0;
    ov_shape shape = {0};
    WEFT_TRY(check(s, s->ov.compiled_model_inputs_size(s->compiled, &inputs), "list the inputs"));
    if (inputs != 1)
        return weft_error(WEFT_MSG_ONNX_MODEL, WEFT_AT(.file = s->path, WEFT_NUMBER(inputs)),
                          "the model has %zu inputs; a scorer has one, [N, 3, H, W]", inputs);
    WEFT_TRY(check(s, s->ov.compiled_model_input(s->compiled, &port), "read the input"));
    const bool fixed = s->ov.const_port_get_shape(port, &shape) == 0;
    const bool valid = !fixed || (shape.rank == 4 && shape.dims[0] == 1 && shape.dims[1] == 3 &&
                                  shape.dims[2] > 0 && shape.dims[3] > 0);
    if (fixed && valid) {
        s->height = shape.dims[2];
        s->width = shape.dims[3];
    }
    if (fixed)
        s->ov.shape_free(&shape);
    s->ov.output_const_port_free(port);
    return valid ? WEFT_OK
                 : weft_error(WEFT_MSG_ONNX_MODEL, WEFT_AT(.file = s->path),
                              "the input of the model is not [1, 3, H, W]; export the model with a "
                              "batch of 1 or of any size");
}

weft_status weft_onnx_model_open(const char *path, weft_onnx_model **model)
{
    weft_onnx_model *s;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(s, 1, "a model"));
    WEFT_GO(WEFT_ALLOCATED((s->path = weft_strdup(path)), "a model"));
    WEFT_GO(load(&s->ov));
    WEFT_GO(check(s, s->ov.core_create(&s->core), "start"));
    WEFT_GO(check(s, s->ov.core_read_model(s->core, path, NULL, &s->model), "read the file"));
    /* processors with bf16 would round otherwise */
    WEFT_GO(check(s,
                  s->ov.core_compile_model(s->core, s->model, "CPU", 4, &s->compiled,
                                           "INFERENCE_PRECISION_HINT", "f32",
                                           "INFERENCE_NUM_THREADS", "1"),
                  "compile the model"));
    WEFT_GO(check(s, s->ov.compiled_model_create_infer_request(s->compiled, &s->request),
                  "prepare the model"));
    WEFT_GO(read_shape(s));
    *model = s;
    return WEFT_OK;
out:
    weft_onnx_model_close(s);
    return status;
}

void weft_onnx_model_close(weft_onnx_model *s)
{
    if (!s)
        return;
    if (s->request)
        s->ov.infer_request_free(s->request);
    if (s->compiled)
        s->ov.compiled_model_free(s->compiled);
    if (s->model)
        s->ov.model_free(s->model);
    if (s->core)
        s->ov.core_free(s->core);
    weft_free(s->output);
    weft_free(s->path);
    weft_free(s);
}

void weft_onnx_model_size(const weft_onnx_model *s, int64_t *width, int64_t *height)
{
    *width = s->width;
    *height = s->height;
}

/* ---- a run --------------------------------------------------------------------------------- */

static weft_status fill_input(weft_onnx_model *s, void *tensor, const float *input, int64_t w,
                              int64_t h)
{
    const int64_t dims[] = {1, 3, h, w};
    ov_shape shape = {0};
    size_t count = 0, bytes = 0;
    void *data = NULL;
    WEFT_TRY(check(s, s->ov.shape_create(4, dims, &shape), "make a shape"));
    const int code = s->width ? 0 : s->ov.tensor_set_shape(tensor, shape);
    s->ov.shape_free(&shape);
    WEFT_TRY(check(s, code, "set the size of the input"));
    WEFT_TRY(check(s, s->ov.tensor_get_size(tensor, &count), "read the input"));
    WEFT_TRY(check(s, s->ov.tensor_get_byte_size(tensor, &bytes), "read the input"));
    WEFT_TRY(check(s, s->ov.tensor_data(tensor, &data), "read the input"));
    if (count != (size_t)(3 * w * h) || bytes != count * sizeof(float))
        return weft_error(WEFT_MSG_ONNX_MODEL, WEFT_AT(.file = s->path),
                          "the input of the model is not of 32-bit floats");
    memcpy(data, input, bytes);
    return WEFT_OK;
}

static weft_status read_output(weft_onnx_model *s, void *tensor, int64_t *count)
{
    size_t elements = 0, bytes = 0;
    void *data = NULL;
    WEFT_TRY(check(s, s->ov.tensor_get_size(tensor, &elements), "read the output"));
    WEFT_TRY(check(s, s->ov.tensor_get_byte_size(tensor, &bytes), "read the output"));
    WEFT_TRY(check(s, s->ov.tensor_data(tensor, &data), "read the output"));
    if (elements == 0 || bytes != elements * sizeof(float))
        return weft_error(WEFT_MSG_ONNX_MODEL, WEFT_AT(.file = s->path, WEFT_NUMBER(elements)),
                          "the first output has %zu elements of %zu bytes, and 4 bytes are needed",
                          elements, elements ? bytes / elements : 0);
    if (s->capacity < (int64_t)elements) {
        weft_free(s->output);
        WEFT_TRY(WEFT_NEW(s->output, (int64_t)elements, "the output of a model"));
        s->capacity = (int64_t)elements;
    }
    memcpy(s->output, data, bytes);
    *count = (int64_t)elements;
    return WEFT_OK;
}

weft_status weft_onnx_model_run(weft_onnx_model *s, const float *input, int64_t w, int64_t h,
                                const float **output, int64_t *count)
{
    void *in = NULL, *out = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(check(s, s->ov.infer_request_get_input_tensor_by_index(s->request, 0, &in),
                  "read the input"));
    WEFT_GO(fill_input(s, in, input, w, h));
    WEFT_GO(check(s, s->ov.infer_request_infer(s->request), "run the model"));
    WEFT_GO(check(s, s->ov.infer_request_get_output_tensor_by_index(s->request, 0, &out),
                  "read the output"));
    WEFT_GO(read_output(s, out, count));
    *output = s->output;
out:
    if (in)
        s->ov.tensor_free(in);
    if (out)
        s->ov.tensor_free(out);
    return status;
}
