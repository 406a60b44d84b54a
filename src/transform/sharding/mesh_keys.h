/* Keys of the section `parallel` as a macro, for configs that have other keys, too. `at` is a
 * weft_parallel member of the struct `type`. */
#ifndef WEFT_TRANSFORM_SHARDING_MESH_KEYS_H
#define WEFT_TRANSFORM_SHARDING_MESH_KEYS_H

#include "transform/sharding/mesh_config.h"

/* clang-format off */
#define WEFT_PARALLEL_DEGREE(type, member, name_, other, fallback_, help_) \
    {name_, WEFT_KEY_I64, offsetof(type, member), fallback_, "ranks", help_, \
     .min = 0, .max = 1 << 20, .also = other}
#define WEFT_PARALLEL_KEYS(type, at) \
    WEFT_PARALLEL_DEGREE(type, at.dp, "dp", "data_parallel_replicate_degree", "0", \
     "data parallel degree; 0: the ranks that the other degrees leave"), \
    WEFT_PARALLEL_DEGREE(type, at.cfg, "cfg", NULL, "1", \
     "CFG parallel degree, for generation; 2: conditional and unconditional branch on " \
     "different ranks"), \
    {"text_encoder_rank", WEFT_KEY_STRING, offsetof(type, at.text), "shared", "", \
     "rank with the text encoders, for generation; this rank sends the embeddings. shared: " \
     "all ranks have the encoders, sharded like the transformer where possible", \
     .earlier = "text"}, \
    WEFT_PARALLEL_DEGREE(type, at.fsdp, "fsdp", "data_parallel_shard_degree", "1", \
     "FSDP degree; parameters, gradients and optimizer states are sharded over ranks that " \
     "split samples (ZeRO-3)"), \
    {"zero", WEFT_KEY_I64, offsetof(type, at.zero), "0", "", \
     "sharding over dp; 1: optimizer states, 2: also reduced gradients. Level 3 is fsdp", \
     .min = 0, .max = 2}, \
    WEFT_PARALLEL_DEGREE(type, at.tp, "tp", "tensor_parallel_degree", "1", \
     "tensor parallel degree; splits the width of layers"), \
    {"sequence_parallel", WEFT_KEY_BOOL, offsetof(type, at.sequence), "false", "", \
     "split tokens over tp in norms and residuals, where layers are not split", \
     .earlier = "sequence"}, \
    WEFT_PARALLEL_DEGREE(type, at.cp, "cp", "context_parallel_degree", "0", \
     "context parallel degree; splits tokens, with attention by `context`. 0: the product " \
     "of context.ulysses and context.ring"), \
    {"context", WEFT_KEY_SECTION, offsetof(type, at.context), .section = &weft_cp_section}, \
    {"comm_overlap", WEFT_KEY_SECTION, offsetof(type, at.overlap), \
     .section = &weft_comm_overlap_section, .earlier = "slices"}, \
    WEFT_PARALLEL_DEGREE(type, at.ep, "ep", "expert_parallel_degree", "1", \
     "expert parallel degree; experts are on different ranks, which also split samples. " \
     "Tokens are dispatched and combined"), \
    WEFT_PARALLEL_DEGREE(type, at.pp, "pp", "pipeline_parallel_degree", "1", \
     "pipeline parallel degree; the transformer's blocks are split into pipeline stages"), \
    {"schedule", WEFT_KEY_STRING, offsetof(type, at.schedule), "1f1b", "", \
     "pipeline schedule; gpipe, 1f1b, interleaved, wave, zero-bubble, a plan of `weft plan " \
     "pipeline` (.json), or a PyTorch schedule (.csv)", \
     .also = "pipeline_parallel_schedule"}, \
    {"virtual_stages", WEFT_KEY_I64, offsetof(type, at.virtual_stages), "0", "", \
     "pipeline stages per rank; 0: 2 for interleaved and wave, otherwise 1", .min = 0, \
     .max = 1024}, \
    {"microbatches", WEFT_KEY_I64, offsetof(type, at.microbatches), "0", "", \
     "microbatches of a batch; 0: with pp the largest number up to 4 per pipeline rank " \
     "that divides the batch and gives each replica samples, otherwise 1", \
     .min = 0, .max = 1 << 20}, \
    {"axis_order", WEFT_KEY_STRING_LIST, offsetof(type, at.order), "[]", "", \
     "axes of the mesh, slowest first; ranks that differ in the last axis are neighbours. " \
     "Omitted axes follow in the order pp, dp, fsdp, ep, cp, tp", \
     .earlier = "order"}, \
    {"layout_file", WEFT_KEY_STRING, offsetof(type, at.plan), "", "", \
     "layout of `weft plan layout --run-config` for this run and number of ranks, in place " \
     "of the keys above", \
     .earlier = "plan"}
/* clang-format on */

#endif
