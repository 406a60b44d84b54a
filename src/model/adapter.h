/* Adapters: small files that change a model's weights. LoRA in the forms of PEFT and diffusers, of
 * ComfyUI and of kohya's trainers, which may also hold whole differences of weights and biases.
 *
 *              columns                    columns
 *           +-----------+      rows +--+ +---------+ rank
 *      rows |     W     |  +=  s *  |B | |    A    |          s = weight * alpha / rank
 *           +-----------+           +--+ +---------+              (/ sqrt(rank): rslora)
 *
 * A module that the file has fused and the model in parts: A is for each part, B's rows are cut. */
#ifndef WEFT_MODEL_ADAPTER_H
#define WEFT_MODEL_ADAPTER_H

#include "model/family.h"

typedef struct weft_adapter weft_adapter;

/* Reads `path` (a file, or PEFT's folder with adapter_config.json) for params of `g`, a whole graph
 * of a model of the family, whose names begin with `prefix` there; `g` is to stay. In whichever of
 * the family's dialects (model/dialect.h) the names are. Errors, before anything is changed: parts
 * of the file that the model has nothing for (all are counted, the first named), half a pair, other
 * shapes, other kinds of adapters (DoRA, LoHa, LoKr, ...) by name. */
weft_status weft_adapter_open(const weft_family *family, const weft_graph *g, const char *prefix,
                              const char *path, weft_adapter **adapter);
void weft_adapter_close(weft_adapter *adapter); /* accepts NULL */
/* Parameters that it changes. */
int64_t weft_adapter_params(const weft_adapter *adapter);

typedef struct weft_adapter_use {
    const weft_adapter *adapter;
    double weight; /* 1: as it was trained */
} weft_adapter_use;
/* A parameter of the graph, or the box of it that one rank holds: dense at `data`, of a type of
 * floats. */
typedef struct weft_adapter_box {
    const char *param;
    weft_dtype dtype;
    weft_shape whole, shape;
    int64_t start[WEFT_MAX_RANK];
    void *data;
} weft_adapter_box;
/* Adds what the adapters have for it: sums in f64, rounded once (16 bits: by way of f32). *changed
 * (may be NULL): they had something. */
weft_status weft_adapters_merge(const weft_adapter_use *use, int count, const weft_adapter_box *box,
                                bool *changed);

/* ---- writing -------------------------------------------------------------------------------- */

/* Whose names a file has, and where it says alpha:
 *
 *   diffusers  pytorch_lora_weights  transformer.<module>.lora_A.weight, ...    in its header
 *   peft       adapter_model         base_model.model.<module>.lora_A.weight    adapter_config.json
 *   kohya      pytorch_lora_weights  lora_unet_<module>.lora_down.weight, ...   <module>.alpha
 *   comfyui    pytorch_lora_weights  diffusion_model.<module>.lora_A.weight     <module>.alpha
 *
 * In the last two modules have the names of the family's original files, where weft knows those
 * (kohya: with '_' for '.'). What is fused there is written fused: A of the parts one below the
 * other, B with blocks on its diagonal; where all parts have the same A, that one. */
typedef enum weft_adapter_format {
    WEFT_ADAPTER_DIFFUSERS,
    WEFT_ADAPTER_PEFT,
    WEFT_ADAPTER_KOHYA,
    WEFT_ADAPTER_COMFYUI,
} weft_adapter_format;
extern const char *const weft_adapter_formats[]; /* ends with NULL */

typedef struct weft_adapter_pair {
    char module[512]; /* as the model's files name it */
    int64_t rank, rows, columns;
    double alpha;
    float *down, *up; /* (rank, columns), (rows, rank) */
} weft_adapter_pair;
typedef struct weft_adapter_file {
    const weft_family *family;
    const weft_graph *graph; /* whole, untuned */
    const char *scope;       /* that the model's names have in it */
    weft_adapter_format format;
    weft_dtype dtype; /* F32, BF16 or F16 */
    const char *folder;
} weft_adapter_file;
/* What `adapter` has, of names that stand behind `prefix` in its graph (heap, freed by
 * weft_adapter_pairs_free). Whole differences are no pairs: WEFT_E_UNSUPPORTED. */
weft_status weft_adapter_pairs(const weft_adapter *adapter, const char *prefix,
                               weft_adapter_pair **pair, int64_t *count);
void weft_adapter_pairs_free(weft_adapter_pair *pair, int64_t count); /* accepts NULL */
/* <folder>/<stem>.safetensors, atomic. */
weft_status weft_adapter_write(const weft_adapter_file *file, const weft_adapter_pair *pair,
                               int64_t count);

#endif
