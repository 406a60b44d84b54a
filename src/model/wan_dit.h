/* Wan text-to-video diffusion transformer (Wan 2.1; diffusers' WanTransformer3DModel). Parameters
 * have the names of the public diffusers checkpoints. */
#ifndef WEFT_MODEL_WAN_DIT_H
#define WEFT_MODEL_WAN_DIT_H

#include "base/json.h"
#include "graph/graph.h"

typedef struct weft_wan_dit_config {
    int64_t patch[3]; /* T, Y, X */
    int64_t heads, head_dim;
    int64_t in_channels, out_channels;
    int64_t text_dim, freq_dim, ffn_dim, layers;
    bool cross_attn_norm;
    double eps;
    int64_t rope_max_seq_len;
} weft_wan_dit_config;

/* From the public config.json fields; what is absent takes the public default. Image-conditioned
 * variants (image_dim, added_kv_proj_dim) are WEFT_E_UNSUPPORTED. `where` names the file in
 * messages. */
weft_status weft_wan_dit_config_read(const json_t *json, const char *where,
                                     weft_wan_dit_config *config);
json_t *weft_wan_dit_config_write(
    const weft_wan_dit_config *config); /* new reference; NULL: out of memory */

/* latents (B,T,Y,X,in), timestep f32 (B) in [0, 1000], text (B,L,text_dim) -> prediction
 * (B,T,Y,X,out). T, Y, X must be multiples of the patch. */
weft_value weft_wan_dit(weft_graph *g, const weft_wan_dit_config *config, weft_value latents_btyxc,
                        weft_value timestep_b, weft_value text_blc);
/* Video tokens of one sample of latent size T,Y,X. */
int64_t weft_wan_dit_tokens(const weft_wan_dit_config *config, int64_t t, int64_t y, int64_t x);

#endif
