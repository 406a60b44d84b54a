/* Sharding recipes for transformer blocks with the names of diffusers: to_q, to_k, to_v, to_out.0;
 * for a second stream add_q_proj, add_k_proj, add_v_proj, to_add_out; feed-forwards ff.net,
 * ff_context.net, img_mlp.net and txt_mlp.net. The lists are in model/tp_recipes.c. */
#ifndef WEFT_MODEL_TP_RECIPES_H
#define WEFT_MODEL_TP_RECIPES_H

#include "transform/sharding/recipes.h"

/* tp, ring, cp, sp for families with joint attention of video and text tokens */
enum { WEFT_SPLIT_LISTS = 4 };
extern const weft_recipe_list *const weft_split_blocks[WEFT_SPLIT_LISTS];

/* tp, ring, cp, sp for families with self-attention attn1 and cross-attention to the text attn2.
 * `across`: norms of q and k over all heads together. `per_head`: norms per head. */
enum { WEFT_SPLIT_CROSS_LISTS = 4 };
extern const weft_recipe_list *const weft_split_across[WEFT_SPLIT_CROSS_LISTS];
extern const weft_recipe_list *const weft_split_per_head[WEFT_SPLIT_CROSS_LISTS];

/* Recipes for mixtures of experts (nn/experts.h): experts over ranks (ep), or the width of each
 * expert (tp, sp). weft_split_with_experts adds tp, ring, cp, sp of weft_split_across. */
extern const weft_recipe_list weft_split_experts, weft_split_experts_tp, weft_split_experts_sp;
enum { WEFT_SPLIT_EXPERTS_LISTS = 7 };
extern const weft_recipe_list *const weft_split_with_experts[WEFT_SPLIT_EXPERTS_LISTS];

/* Recipes for families with spatial and temporal blocks on (B,G,S,C), where attention stays within
 * each of G groups: tp; cp, which splits groups; heads and ring, which split positions. */
enum { WEFT_SPLIT_LATTE_LISTS = 4, WEFT_SPLIT_STDIT_LISTS = 4 };
extern const weft_recipe_list *const weft_split_latte[WEFT_SPLIT_LATTE_LISTS];
extern const weft_recipe_list *const weft_split_stdit[WEFT_SPLIT_STDIT_LISTS];

#endif
