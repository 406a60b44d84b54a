/* Adapters: small files that change a model's weights. LoRA in the formats of PEFT and diffusers,
 * ComfyUI and kohya's trainers. A file may also have full differences of weights and biases.
 *
 *              columns                    columns
 *           +-----------+      rows +--+ +---------+ rank
 *      rows |     W     |  +=  s *  |B | |    A    |          s = weight * alpha / rank
 *           +-----------+           +--+ +---------+              (/ sqrt(rank): rslora)
 *
 * If the file fuses modules that are separate in the model, each module uses the complete A and its
 * own rows of B. LongCat-Video's files have B in blocks for the parts of a fused module: each block
 * has its own rows of A. */
#ifndef WEFT_MODEL_ADAPTER_H
#define WEFT_MODEL_ADAPTER_H

#include "model/adapter_settings.h"
#include "model/family.h"

typedef struct weft_adapter weft_adapter;

/* Reads the adapter at `path`: a file, or a PEFT folder with adapter_config.json. `g` is an
 * unsharded graph of a model of the family, whose parameter names begin with `prefix`. `g` must
 * outlive the adapter. Names may follow any key mapping of the family (key_mapping.h).
 *
 * Errors, before anything changes: tensors without a parameter in the model (all are counted, the
 * first is named), half of a pair, and other shapes. Other kinds of adapters (DoRA, LoHa, LoKr,
 * ...) are named. */
weft_status weft_adapter_open(const weft_family *family, const weft_graph *g, const char *prefix,
                              const char *path, weft_adapter **adapter);
void weft_adapter_close(weft_adapter *adapter); /* accepts NULL */
/* Returns the number of parameters that the adapter changes. */
int64_t weft_adapter_params(const weft_adapter *adapter);

typedef struct weft_adapter_use {
    const weft_adapter *adapter;
    double weight; /* scale; 1: as trained */
} weft_adapter_use;
/* A parameter of the graph, or one rank's box of it. `data` is dense and of a floating-point
 * type. */
typedef struct weft_adapter_box {
    const char *param;
    weft_dtype dtype;
    weft_shape whole, shape;
    int64_t start[WEFT_MAX_RANK];
    void *data;
} weft_adapter_box;
/* Adds the deltas of the adapters to the box. Sums are in f64 and rounded once (16-bit types:
 * through f32). *changed is true if any adapter changes the parameter; NULL: not needed. */
weft_status weft_adapters_merge(const weft_adapter_use *use, int count, const weft_adapter_box *box,
                                bool *changed);

/* ---- writing -------------------------------------------------------------------------------- */

/* Naming of an adapter file, and the location of alpha:
 *
 *   diffusers  pytorch_lora_weights  transformer.<module>.lora_A.weight, ...    file header
 *   peft       adapter_model         base_model.model.<module>.lora_A.weight    adapter_config.json
 *   kohya      pytorch_lora_weights  lora_unet_<module>.lora_down.weight, ...   <module>.alpha
 *   comfyui    pytorch_lora_weights  diffusion_model.<module>.lora_A.weight     <module>.alpha
 *   longcat    pytorch_lora_weights  lora___lorahyphen___<module>.lora_down.weight, with marks for
 *                                    dots; alpha / rank in <module>.alpha_scale
 *
 * kohya and comfyui use the module names of the family's original files, if weft has a mapping for
 * them (kohya: with '_' for '.'). Modules that the original files fuse are written fused: the A of
 * the parts are stacked, and B is block diagonal. If all parts have the same A, it is shared. */
typedef enum weft_adapter_format {
    WEFT_ADAPTER_DIFFUSERS,
    WEFT_ADAPTER_PEFT,
    WEFT_ADAPTER_KOHYA,
    WEFT_ADAPTER_COMFYUI,
    WEFT_ADAPTER_LONGCAT, /* the program of LongCat-Video's authors */
} weft_adapter_format;

typedef struct weft_adapter_pair {
    char module[512]; /* name in the model's files */
    int64_t rank, rows, columns;
    double alpha;
    float *down, *up; /* (rank, columns), (rows, rank) */
} weft_adapter_pair;
typedef struct weft_adapter_file {
    const weft_family *family;
    const weft_graph *graph; /* unsharded, without adapters */
    const char *scope;       /* prefix of the model's names in the graph */
    weft_adapter_format format;
    weft_dtype dtype; /* F32, BF16 or F16 */
    const char *folder;
    weft_adapter_settings settings;
} weft_adapter_file;
/* Returns the pairs of `adapter` for parameters whose names begin with `prefix` in its graph (heap,
 * freed by weft_adapter_pairs_free). Full differences are not pairs: WEFT_E_UNSUPPORTED. */
weft_status weft_adapter_pairs(const weft_adapter *adapter, const char *prefix,
                               weft_adapter_pair **pair, int64_t *count);
void weft_adapter_pairs_free(weft_adapter_pair *pair, int64_t count); /* accepts NULL */

#endif
