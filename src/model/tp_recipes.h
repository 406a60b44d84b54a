/* How blocks in the names of diffusers' transformers are split over ranks: to_q, to_k, to_v,
 * to_out.0, and where a second stream has its own add_q_proj, add_k_proj, add_v_proj, to_add_out;
 * feed-forwards ff.net and ff_context.net. The lists are in model/split.c. */
#ifndef WEFT_MODEL_SPLIT_H
#define WEFT_MODEL_SPLIT_H

#include "pass/pass.h"

/* tp, ring, cp, sp of families whose tokens of video and text see each other */
enum { WEFT_SPLIT_LISTS = 4 };
extern const weft_recipe_list *const weft_split_blocks[WEFT_SPLIT_LISTS];

/* tp, ring, cp, sp of families whose tokens see each other in self-attention attn1 and the text in
 * attn2, both with norms of q and k over all heads together, or of each head. */
enum { WEFT_SPLIT_CROSS_LISTS = 4 };
extern const weft_recipe_list *const weft_split_across[WEFT_SPLIT_CROSS_LISTS];
extern const weft_recipe_list *const weft_split_per_head[WEFT_SPLIT_CROSS_LISTS];

/* Of mixtures of experts (nn/experts.h): the experts over ranks, or their widths; and that beside
 * tp, ring, cp, sp as across. */
extern const weft_recipe_list weft_split_experts, weft_split_experts_tp, weft_split_experts_sp;
enum { WEFT_SPLIT_EXPERTS_LISTS = 7 };
extern const weft_recipe_list *const weft_split_with_experts[WEFT_SPLIT_EXPERTS_LISTS];

/* Of families whose spatial and temporal blocks work on (B,G,S,C), G groups that do not see each
 * other: tp, cp, which splits the groups, and heads and ring, which split places. */
enum { WEFT_SPLIT_LATTE_LISTS = 4, WEFT_SPLIT_STDIT_LISTS = 4 };
extern const weft_recipe_list *const weft_split_latte[WEFT_SPLIT_LATTE_LISTS];
extern const weft_recipe_list *const weft_split_stdit[WEFT_SPLIT_STDIT_LISTS];

#endif
