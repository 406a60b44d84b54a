/* The keys of the section `parallel` as a macro, so that a config may have further ones beside
 * them: of a struct `type` whose member `at` is a weft_parallel. */
#ifndef WEFT_PASS_PARALLEL_KEYS_H
#define WEFT_PASS_PARALLEL_KEYS_H

#include "pass/parallel.h"

/* clang-format off */
#define WEFT_PARALLEL_DEGREE(type, member, name_, other, fallback_, help_) \
    {name_, WEFT_KEY_I64, offsetof(type, member), fallback_, "ranks", help_, \
     .min = 0, .max = 1 << 20, .also = other}
#define WEFT_PARALLEL_KEYS(type, at) \
    WEFT_PARALLEL_DEGREE(type, at.dp, "dp", "data_parallel_replicate_degree", "0", \
     "replicas, each with its share of the samples; 0: as many as the other degrees leave"), \
    WEFT_PARALLEL_DEGREE(type, at.cfg, "cfg", NULL, "1", \
     "of generation: the guidance halves, with the prompt and without, on ranks of their own"), \
    {"text", WEFT_KEY_STRING, offsetof(type, at.text), "shared", "", \
     "of generation: the rank that has the text encoders, whole and alone, and tells the others " \
     "what they say; shared: all have them, split as the transformer where they have such parts"}, \
    WEFT_PARALLEL_DEGREE(type, at.fsdp, "fsdp", "data_parallel_shard_degree", "1", \
     "parameters, gradients and optimizer in parts over ranks that split samples (ZeRO-3)"), \
    {"zero", WEFT_KEY_I64, offsetof(type, at.zero), "0", "", \
     "over the dp ranks: 1 keeps optimizer states in parts, 2 sums of gradients too (level 3 is " \
     "fsdp)", \
     .min = 0, .max = 2}, \
    WEFT_PARALLEL_DEGREE(type, at.tp, "tp", "tensor_parallel_degree", "1", \
     "the width of layers in parts"), \
    {"sequence", WEFT_KEY_BOOL, offsetof(type, at.sequence), "false", "", \
     "the tp ranks also split tokens where layers are whole: norms and residuals"}, \
    WEFT_PARALLEL_DEGREE(type, at.cp, "cp", "context_parallel_degree", "0", \
     "tokens in parts, attention as `context` says; 0: what `context` makes"), \
    {"context", WEFT_KEY_SECTION, offsetof(type, at.context), .section = &weft_context_section}, \
    {"slices", WEFT_KEY_SECTION, offsetof(type, at.slices), .section = &weft_slices_section}, \
    WEFT_PARALLEL_DEGREE(type, at.ep, "ep", "expert_parallel_degree", "1", \
     "experts of a mixture over ranks that split samples, too: tokens go to them and back"), \
    WEFT_PARALLEL_DEGREE(type, at.pp, "pp", "pipeline_parallel_degree", "1", \
     "blocks of the transformer in stages, one rank behind the other"), \
    {"schedule", WEFT_KEY_STRING, offsetof(type, at.schedule), "1f1b", "", \
     "of pp: gpipe, 1f1b, interleaved, wave, zero-bubble, or a file: a plan of " \
     "`weft plan pipeline` (.json), or PyTorch's table of computations (.csv)", \
     .also = "pipeline_parallel_schedule"}, \
    {"virtual_stages", WEFT_KEY_I64, offsetof(type, at.virtual_stages), "0", "", \
     "stages on each of the pp ranks; 0: 2 for interleaved and wave, else 1", .min = 0, \
     .max = 1024}, \
    {"microbatches", WEFT_KEY_I64, offsetof(type, at.microbatches), "0", "", \
     "parts that each batch is cut into, which follow one another; 0: with pp the most up to 4 " \
     "for each of its ranks that divide the batch and leave no replica without samples, else 1", \
     .min = 0, .max = 1 << 20}, \
    {"order", WEFT_KEY_STRING_LIST, offsetof(type, at.order), "[]", "", \
     "axes, slowest first: ranks that differ in the last are neighbours; those left out come in " \
     "the order pp, dp, fsdp, ep, cp, tp"}, \
    {"plan", WEFT_KEY_STRING, offsetof(type, at.plan), "", "", \
     "instead of all of the above: the file that `weft plan layout --for` wrote for this run and " \
     "its number of ranks"}
/* clang-format on */

#endif
