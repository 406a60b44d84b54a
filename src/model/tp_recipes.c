#include "model/tp_recipes.h"

/* clang-format off */
#define TOKENS {WEFT_S, 1}
#define ALL {WEFT_R, 0}
/* Tensor parallel (Shoeybi et al., Megatron-LM): q, k, v and the first feed-forward linear are
 * split by columns, the following linears by rows. The variadic arguments give the layout of the
 * row-split linears' reduced outputs. */
#define COLUMNS(name, axis)                                      \
    {name ".weight",                axis, {WEFT_S, 0}, .optional = true}, \
    {name ".bias",                  axis, {WEFT_S, 0}, .optional = true}
#define ROWS(name, axis, ...)                                 \
    {name ".weight",                axis, {WEFT_S, 1}, .optional = true}, \
    {name ":linear",                axis, __VA_ARGS__, .optional = true}
#define TENSOR_PARALLEL(axis, ...)                            \
    COLUMNS("*attn*.to_q", axis),                                \
    COLUMNS("*attn*.to_k", axis),                                \
    COLUMNS("*attn*.to_v", axis),                                \
    COLUMNS("*attn*.to_gate_logits", axis),                      \
    COLUMNS("*attn*.add_q_proj", axis),                          \
    COLUMNS("*attn*.add_k_proj", axis),                          \
    COLUMNS("*attn*.add_v_proj", axis),                          \
    COLUMNS("*attn*.q_img", axis),                               \
    COLUMNS("*attn*.k_img", axis),                               \
    COLUMNS("*attn*.v_img", axis),                               \
    COLUMNS("*ff*.net.0.proj", axis),                            \
    COLUMNS("*mlp.net.0.proj", axis),                            \
    ROWS("*attn*.to_out.0", axis, __VA_ARGS__),                       \
    ROWS("*attn*.to_add_out", axis, __VA_ARGS__),                     \
    ROWS("*ff*.net.2", axis, __VA_ARGS__),                            \
    ROWS("*mlp.net.2", axis, __VA_ARGS__)
/* Norms of q and k over all heads: with split weights, the norm needs a sum over ranks. */
#define NORMS(axis)                                              \
    {"*attn*.norm_q.weight",        axis, {WEFT_S, 0}},          \
    {"*attn*.norm_k.weight",        axis, {WEFT_S, 0}}
/* Tokens are split from the first norm onward. */
#define SEQUENCE(axis)                                           \
    {"*blocks.*:layer_norm",        axis, TOKENS, .optional = true}, \
    {"*blocks.*norm*:rms_norm",     axis, TOKENS, .optional = true}

static const weft_recipe_row tp_rows[] = {TENSOR_PARALLEL("tp", ALL)},
                             tp_norm_rows[] = {NORMS("tp"), TENSOR_PARALLEL("tp", ALL)};

/* Tensor parallel with sequence parallelism (Korthikanti et al., MLSys'23). */
static const weft_recipe_row sp_rows[] = {TENSOR_PARALLEL("sp", TOKENS), SEQUENCE("sp")},
                             sp_norm_rows[] = {NORMS("sp"), TENSOR_PARALLEL("sp", TOKENS),
                                               SEQUENCE("sp")};

/* Context parallel (Jacobs et al., DeepSpeed-Ulysses): an all-to-all before attention turns the
 * split of tokens into a split of heads, and another one turns it back. */
static const weft_recipe_row cp_rows[] = {
    SEQUENCE("cp"),
    {"*attn*:attention",            "cp", TOKENS},
};

/* Keys and values circulate (Liu et al., Ring Attention). Every rank has the text's keys and
 * values. */
static const weft_recipe_row ring_rows[] = {
    SEQUENCE("ring"),
    {"*attn1*:attention",           "ring", TOKENS, .by = "ring"},
    {"*attn*:attention",            "ring", TOKENS},
};

/* Joint attention of several streams: keys and values of the longest stream circulate, and every
 * rank has those of the other streams (shard.c). The text's own blocks work the same way. */
static const weft_recipe_row joint_ring_rows[] = {
    SEQUENCE("ring"),
    {"*refiner_blocks.*attn*:attention", "ring", TOKENS, .optional = true},
    {"*blocks.*attn*.kept:attention", "ring", TOKENS, .optional = true},
    {"*blocks.*cross_attn:attention", "ring", TOKENS, .optional = true},
    {"*blocks.*attn*:attention",    "ring", TOKENS, .by = "ring"},
};

/* An all-to-all between a spatial and a temporal block turns the split of frames into a split of
 * positions in a frame, and back. Reference: Zhao et al., dynamic sequence parallelism. */
#define PIECE(name, axis, late) \
    {name, axis, {WEFT_S, 2}, .optional = true, .held = late, .piece = true}
#define GROUPS(temporal, spatial, axis)                                                       \
    {temporal ":layer_norm",        axis, TOKENS, .cut = WEFT_CUT_SPACE},                      \
    {spatial ":layer_norm",         axis, TOKENS, .cut = WEFT_CUT_TIME},                       \
    /* layer slices: first input of a layer, and the value between layers (layer_slices.c) */      \
    {"*enter:slice",               axis, TOKENS, .optional = true},                           \
    {"*enter:pad",                 axis, TOKENS, .optional = true},                           \
    PIECE("*exchange:slice", axis, false),                                                    \
    PIECE("*exchange:pad",   axis, false),                                                    \
    PIECE("*late:slice",     axis, true),                                                     \
    PIECE("*late:pad",       axis, true)
/* Alternative: positions are split in both kinds of blocks. In a spatial layer, attention splits
 * heads instead, or its keys circulate. */
#define POSITIONS {WEFT_S, 2}
#define IN_POSITIONS(temporal, spatial, self, cross, axis, ...)                                  \
    {temporal ":layer_norm",        axis, TOKENS, .cut = WEFT_CUT_SAMPLES},                    \
    {spatial ":layer_norm",         axis, POSITIONS, .cut = WEFT_CUT_SAMPLES},                    \
    {temporal self ":attention",    axis, {WEFT_S, 0}},                                        \
    {spatial self ":attention",     axis, TOKENS __VA_ARGS__},                                 \
    {spatial cross ":attention",    axis, TOKENS, .optional = true},                           \
    {spatial cross ":turned",       axis, ALL, .optional = true}
#define BY_RING , .by = "ring"
static const weft_recipe_row
    stdit_heads_rows[] = {IN_POSITIONS("*temporal_blocks.*", "*spatial_blocks.*", ".attn",
                                    ".cross_attn", "heads")},
    stdit_ring_rows[]  = {IN_POSITIONS("*temporal_blocks.*", "*spatial_blocks.*", ".attn",
                                    ".cross_attn", "ring", BY_RING)},
    latte_heads_rows[] = {IN_POSITIONS("*temporal_transformer_blocks.*", "*transformer_blocks.*",
                                    ".attn1", ".attn2", "heads")},
    latte_ring_rows[]  = {IN_POSITIONS("*temporal_transformer_blocks.*", "*transformer_blocks.*",
                                    ".attn1", ".attn2", "ring", BY_RING)};
static const weft_recipe_row
    stdit_rows[] = {GROUPS("*temporal_blocks.*", "*spatial_blocks.*", "cp")},
    latte_rows[] = {GROUPS("*temporal_transformer_blocks.*", "*transformer_blocks.*", "cp")};

/* Tensor parallel of STDiT3. A fused q, k, v or k, v weight is split by rows that do not match
 * heads. The weight is gathered, and each rank takes its heads of q, k and v
 * (transform/sharding/shard.c). */
#define GATHERED(name) {name ".weight", "tp", {WEFT_S, 0}, .gather = true, .params = true}, \
    {name ".bias", "tp", {WEFT_S, 0}, .gather = true, .params = true, .optional = true},  \
    {name ":columns", "tp", ALL, .optional = true},                                       \
    {name ":slice", "tp", {WEFT_S, 0}, .optional = true}
static const weft_recipe_row stdit_tp_rows[] = {
    GATHERED("*blocks.*.attn.qkv"),
    GATHERED("*blocks.*.cross_attn.kv_linear"),
    COLUMNS("*blocks.*.cross_attn.q_linear", "tp"),
    COLUMNS("*blocks.*.mlp.fc1", "tp"),
    ROWS("*blocks.*attn.proj", "tp", ALL),
    ROWS("*blocks.*.mlp.fc2", "tp", ALL),
    {"*", "tp", ALL, .params = true, .optional = true},
};

/* Unsplit experts on their ranks: samples are split as over dp, and tokens are sent to their
 * experts and back (Lepikhin et al., GShard). */
static const weft_recipe_row experts_rows[] = {
    {"batch.*",                     "ep", {WEFT_S, 0}},
    {"*.experts.*.weight",          "ep", {WEFT_S, 0}, .params = true},
    {"*.experts.*.w2:expert_matmul", "ep", {WEFT_S, 1}}, /* back to the samples */
};
/* Alternative: the width of every expert, and of the shared one, is split. */
#define WIDTHS(axis)                                                          \
    {"*.experts.*.w1.weight",        axis, {WEFT_S, 1}, .optional = true},    \
    {"*.experts.*.w3.weight",        axis, {WEFT_S, 1}, .optional = true},    \
    {"*.experts.*.w2.weight",        axis, {WEFT_S, 2}, .optional = true},    \
    {"*.shared_experts.w1.weight",   axis, {WEFT_S, 0}, .optional = true},    \
    {"*.shared_experts.w3.weight",   axis, {WEFT_S, 0}, .optional = true},    \
    {"*.shared_experts.w2.weight",   axis, {WEFT_S, 1}, .optional = true},    \
    {"*.ff.w1.weight",               axis, {WEFT_S, 0}, .optional = true},    \
    {"*.ff.w3.weight",               axis, {WEFT_S, 0}, .optional = true},    \
    {"*.ff.w2.weight",               axis, {WEFT_S, 1}, .optional = true}
static const weft_recipe_row experts_tp_rows[] = {WIDTHS("tp")}, experts_sp_rows[] = {WIDTHS("sp")};

#define LIST(axis, what, rows) {axis, what, rows, sizeof rows / sizeof *rows}
static const weft_recipe_list
    tp      = LIST("tp",   "tensor parallel",                     tp_rows),
    tp_norm = LIST("tp",   "tensor parallel",                     tp_norm_rows),
    ring    = LIST("ring", "context parallel, keys go round",     ring_rows),
    cp      = LIST("cp",   "context parallel, tokens into heads", cp_rows),
    sp      = LIST("sp",   "tensor parallel, tokens in between",  sp_rows),
    joint_ring = LIST("ring", "context parallel, keys go round",  joint_ring_rows),
    stdit_tp   = LIST("tp",   "tensor parallel",                  stdit_tp_rows),
    stdit   = LIST("cp",   "context parallel, frames into positions", stdit_rows),
    latte   = LIST("cp",   "context parallel, frames into positions", latte_rows),
    stdit_heads = LIST("heads", "context parallel, positions into heads",  stdit_heads_rows),
    stdit_ring  = LIST("ring",  "context parallel, keys go round",      stdit_ring_rows),
    latte_heads = LIST("heads", "context parallel, positions into heads",  latte_heads_rows),
    latte_ring  = LIST("ring",  "context parallel, keys go round",      latte_ring_rows),
    sp_norm = LIST("sp",   "tensor parallel, tokens in between",  sp_norm_rows);

const weft_recipe_list
    weft_split_experts    = LIST("ep", "expert parallel, tokens are sent",    experts_rows),
    weft_split_experts_tp = LIST("tp", "tensor parallel",                     experts_tp_rows),
    weft_split_experts_sp = LIST("sp", "tensor parallel, tokens in between",  experts_sp_rows);

const weft_recipe_list *const weft_split_blocks[WEFT_SPLIT_LISTS] = {&tp, &joint_ring, &cp, &sp};
const weft_recipe_list *const weft_split_across[WEFT_SPLIT_CROSS_LISTS] = {&tp_norm, &ring, &cp,
                                                                           &sp_norm};
const weft_recipe_list *const weft_split_with_experts[WEFT_SPLIT_EXPERTS_LISTS] = {
    &tp_norm, &weft_split_experts_tp, &ring, &cp, &sp_norm, &weft_split_experts_sp,
    &weft_split_experts};
const weft_recipe_list *const weft_split_per_head[WEFT_SPLIT_CROSS_LISTS] = {&tp, &ring, &cp, &sp};
const weft_recipe_list *const weft_split_latte[WEFT_SPLIT_LATTE_LISTS] = {&tp, &latte, &latte_heads,
                                                                          &latte_ring};
const weft_recipe_list *const weft_split_stdit[WEFT_SPLIT_STDIT_LISTS] = {&stdit_tp, &stdit,
                                                                          &stdit_heads,
                                                                          &stdit_ring};
/* clang-format on */
