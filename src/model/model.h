/* Model families by their public config: which one a config.json describes, and its graph. */
#ifndef WEFT_MODEL_MODEL_H
#define WEFT_MODEL_MODEL_H

#include "model/bytes_encoder.h"
#include "model/wan_dit.h"
#include "model/wan_vae.h"

typedef enum weft_family {
    WEFT_FAMILY_WAN_DIT,
    WEFT_FAMILY_WAN_VAE,
    WEFT_FAMILY_BYTES
} weft_family;

typedef struct weft_model {
    weft_family family;
    union {
        weft_wan_dit_config dit;
        weft_wan_vae_config vae;
        weft_bytes_config bytes;
    };
} weft_model;

/* By "_class_name"; where that is absent, by the fields that only one family has. */
weft_status weft_model_read(const json_t *json, const char *where, weft_model *model);
/* `path` is a config.json or the folder that holds one. */
weft_status weft_model_open(const char *path, weft_model *model);
json_t *weft_model_write(const weft_model *model);     /* new reference */
const char *weft_model_class(const weft_model *model); /* "WanTransformer3DModel", ... */

/* The whole forward graph for one shape, with inputs and outputs named as below. The size is that
 * of the video in latents (DiT) or pixels (VAE); `text` is the number of text tokens. DiT:
 * "latents" (B,T,Y,X,C), "timestep" (B), "text" (B,L,D) -> "prediction" VAE:   "video" (B,T,Y,X,3),
 * "noise" (B,T',Y',X',Z) -> "mean", "logvar", "reconstruction" (clamped) bytes: "tokens" i32 (B,L)
 * -> "text"                                                             */
typedef struct weft_model_size {
    int64_t batch, frames, height, width, text;
} weft_model_size;
void weft_model_build(weft_graph *g, const weft_model *model, const weft_model_size *size);

#endif
