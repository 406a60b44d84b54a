/* A model of an ONNX file with one input [N, 3, H, W], in OpenVINO. The library is loaded when a
 * model is opened; weft does not depend on it. */
#ifndef WEFT_CURATE_OPERATORS_ONNX_MODEL_H
#define WEFT_CURATE_OPERATORS_ONNX_MODEL_H

#include "base/status.h"

#include <stdint.h>

/* Path of OpenVINO's C library: WEFT_OPENVINO (a file, or a folder that contains it), else the
 * linker's path and the Python packages of $VIRTUAL_ENV, the user and the system. Loads nothing.
 * WEFT_E_UNSUPPORTED: not found. The caller owns *path. */
weft_status weft_onnx_library_find(char **path);

typedef struct weft_onnx_model weft_onnx_model;
/* WEFT_E_FORMAT: not a model of this form. */
weft_status weft_onnx_model_open(const char *path, weft_onnx_model **model);
void weft_onnx_model_close(weft_onnx_model *model); /* accepts NULL */
/* Size of the input in pixels; 0: any. */
void weft_onnx_model_size(const weft_onnx_model *model, int64_t *width, int64_t *height);
/* Runs one image [3, height, width]. *output, the first output with *count floats, is valid until
 * the next run. */
weft_status weft_onnx_model_run(weft_onnx_model *model, const float *input, int64_t width,
                                int64_t height, const float **output, int64_t *count);

#endif
