#include "model/split.h"

/* clang-format off */
#define TOKENS {WEFT_S, 1}
#define ALL {WEFT_R, 0}
/* Tensor parallel (Shoeybi et al., Megatron-LM): q, k, v and the first linear of the feed-forward
 * by columns, the ones behind them by rows, whose sums lie `behind` them. */
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
    COLUMNS("*attn*.add_q_proj", axis),                          \
    COLUMNS("*attn*.add_k_proj", axis),                          \
    COLUMNS("*attn*.add_v_proj", axis),                          \
    COLUMNS("*ff*.net.0.proj", axis),                            \
    ROWS("*attn*.to_out.0", axis, __VA_ARGS__),                       \
    ROWS("*attn*.to_add_out", axis, __VA_ARGS__),                     \
    ROWS("*ff*.net.2", axis, __VA_ARGS__)
/* Norms of q and k over all heads: with their weights split they become a sum over ranks. */
#define NORMS(axis)                                              \
    {"*attn*.norm_q.weight",        axis, {WEFT_S, 0}},          \
    {"*attn*.norm_k.weight",        axis, {WEFT_S, 0}}
/* Tokens are split from the first norm on. */
#define SEQUENCE(axis)                                           \
    {"*blocks.*:layer_norm",        axis, TOKENS, .optional = true}, \
    {"*blocks.*norm*:rms_norm",     axis, TOKENS, .optional = true}

static const weft_recipe_row tp_rows[] = {TENSOR_PARALLEL("tp", ALL)},
                             tp_norm_rows[] = {NORMS("tp"), TENSOR_PARALLEL("tp", ALL)};

/* Tensor parallel with sequence parallelism between (Korthikanti et al., MLSys'23). */
static const weft_recipe_row sp_rows[] = {TENSOR_PARALLEL("sp", TOKENS), SEQUENCE("sp")},
                             sp_norm_rows[] = {NORMS("sp"), TENSOR_PARALLEL("sp", TOKENS),
                                               SEQUENCE("sp")};

/* Context parallel (Jacobs et al., DeepSpeed-Ulysses): around attention an all-to-all turns the
 * split of tokens into one of heads and back. */
static const weft_recipe_row cp_rows[] = {
    SEQUENCE("cp"),
    {"*attn*:attention",            "cp", TOKENS},
};

/* Keys and values go round (Liu et al., Ring Attention); the text's are on every rank. */
static const weft_recipe_row ring_rows[] = {
    SEQUENCE("ring"),
    {"*attn1*:attention",           "ring", TOKENS, .by = "ring"},
    {"*attn*:attention",            "ring", TOKENS},
};

/* Attention to the tokens of several streams at once: keys and values of the longest stream
 * go round, those of the others are on every rank (pass/shard.c). The text's own blocks are as
 * short. */
static const weft_recipe_row joint_ring_rows[] = {
    SEQUENCE("ring"),
    {"*refiner_blocks.*attn*:attention", "ring", TOKENS, .optional = true},
    {"*blocks.*attn*.kept:attention", "ring", TOKENS, .optional = true},
    {"*blocks.*attn*:attention",    "ring", TOKENS, .by = "ring"},
};

/* Between a spatial and a temporal block an all-to-all turns the split of frames into one of places
 * in a frame, and back (Zhao et al., dynamic sequence parallelism). */
#define PIECE(name, axis, late) \
    {name, axis, {WEFT_S, 2}, .optional = true, .held = late, .piece = true}
#define GROUPS(temporal, spatial, axis)                                                       \
    {temporal ":layer_norm",        axis, TOKENS, .cut = WEFT_CUT_SPACE},                      \
    {spatial ":layer_norm",         axis, TOKENS, .cut = WEFT_CUT_TIME},                       \
    /* of slices: what a layer begins with, and what goes from one to the next (pass/slice.c) */ \
    {"*enter:slice",               axis, TOKENS, .optional = true},                           \
    {"*enter:pad",                 axis, TOKENS, .optional = true},                           \
    PIECE("*exchange:slice", axis, false),                                                    \
    PIECE("*exchange:pad",   axis, false),                                                    \
    PIECE("*late:slice",     axis, true),                                                     \
    PIECE("*late:pad",       axis, true)
/* Or places are split in both: a spatial layer's attention turns them into heads, or its keys go
 * round. */
#define PLACES {WEFT_S, 2}
#define IN_PLACES(temporal, spatial, self, cross, axis, ...)                                  \
    {temporal ":layer_norm",        axis, TOKENS, .cut = WEFT_CUT_SAMPLES},                    \
    {spatial ":layer_norm",         axis, PLACES, .cut = WEFT_CUT_SAMPLES},                    \
    {temporal self ":attention",    axis, {WEFT_S, 0}},                                        \
    {spatial self ":attention",     axis, TOKENS __VA_ARGS__},                                 \
    {spatial cross ":attention",    axis, TOKENS, .optional = true},                           \
    {spatial cross ":turned",       axis, ALL, .optional = true}
#define BY_RING , .by = "ring"
static const weft_recipe_row
    stdit_heads_rows[] = {IN_PLACES("*temporal_blocks.*", "*spatial_blocks.*", ".attn",
                                    ".cross_attn", "heads")},
    stdit_ring_rows[]  = {IN_PLACES("*temporal_blocks.*", "*spatial_blocks.*", ".attn",
                                    ".cross_attn", "ring", BY_RING)},
    latte_heads_rows[] = {IN_PLACES("*temporal_transformer_blocks.*", "*transformer_blocks.*",
                                    ".attn1", ".attn2", "heads")},
    latte_ring_rows[]  = {IN_PLACES("*temporal_transformer_blocks.*", "*transformer_blocks.*",
                                    ".attn1", ".attn2", "ring", BY_RING)};
static const weft_recipe_row
    stdit_rows[] = {GROUPS("*temporal_blocks.*", "*spatial_blocks.*", "cp")},
    latte_rows[] = {GROUPS("*temporal_transformer_blocks.*", "*transformer_blocks.*", "cp")};

/* Tensor parallel of STDiT3. Layers that make q, k and v, or k and v, at once keep their weight in
 * parts of rows, which are not those of heads; it is gathered, and a rank takes its heads of each
 * (pass/shard.c). */
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

/* Experts whole on their ranks: samples are split as over dp, and tokens go to their experts and
 * back (Lepikhin et al., GShard). */
static const weft_recipe_row experts_rows[] = {
    {"batch.*",                     "ep", {WEFT_S, 0}},
    {"*.experts.*.weight",          "ep", {WEFT_S, 0}, .params = true},
    {"*.experts.*.w2:expert_matmul", "ep", {WEFT_S, 1}}, /* back to their samples */
};
/* Or every expert's width in parts, and that of the shared one. */
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
    stdit   = LIST("cp",   "context parallel, frames into places", stdit_rows),
    latte   = LIST("cp",   "context parallel, frames into places", latte_rows),
    stdit_heads = LIST("heads", "context parallel, places into heads",  stdit_heads_rows),
    stdit_ring  = LIST("ring",  "context parallel, keys go round",      stdit_ring_rows),
    latte_heads = LIST("heads", "context parallel, places into heads",  latte_heads_rows),
    latte_ring  = LIST("ring",  "context parallel, keys go round",      latte_ring_rows),
    sp_norm = LIST("sp",   "tensor parallel, tokens in between",  sp_norm_rows);

const weft_recipe_list
    weft_split_experts    = LIST("ep", "experts, tokens go to them and back", experts_rows),
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
