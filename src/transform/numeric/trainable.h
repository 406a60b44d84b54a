/* Trainable parameters of a model: all, some by name, or only low-rank matrices added to its linear
 * layers (LoRA; Hu et al., ICLR'22):
 *
 *          x ──────────── linear (weight, bias: frozen) ──────────── + ── y
 *          └── linear (lora_A: rank, in) ─ x scale ─ linear (lora_B: out, rank) ─┘
 *
 * With LoRA, the model's weights have no gradients, moments or EMA. The backward passes through
 * them only where it leads to a low-rank matrix. */
#ifndef WEFT_TRANSFORM_NUMERIC_TRAINABLE_H
#define WEFT_TRANSFORM_NUMERIC_TRAINABLE_H

#include "base/config.h"
#include "graph/op.h"

/* Patterns match modules and parameters by their names in the model's files. A pattern with '*'
 * (any text) must match the complete name. Other patterns match the complete name or its end after
 * a dot: "to_q" matches that layer of every attention. "blocks.0" matches all parameters of this
 * block. "all-linear" as a target matches every linear layer. */
typedef struct weft_trainable {
    const char *scope;       /* prefix of the names in the graph, "transformer"; "": none */
    weft_string_list train;  /* trainable parameters or modules; empty: all */
    weft_string_list freeze; /* exceptions from `train` */
    bool others_trained;     /* another model trains, so this one may be frozen */
    /* Rank of the low-rank matrices; 0 (default): no LoRA. With LoRA the rest of the model is
     * frozen */
    int64_t rank;
    double alpha;             /* scale = alpha / rank */
    weft_string_list targets; /* linear layers with LoRA */
    bool auto_targets;        /* they are the family's: some may match no layer, not all */
    bool bf16_base;           /* LoRA: weights of linear layers are stored in bf16 */
} weft_trainable;
/* Returns true if `train`, `freeze` or `rank` is set. */
bool weft_trainable_given(const weft_trainable *trainable);

/* Marks frozen parameters and adds LoRA. `g` must be the graph before the shard pass. New
 * parameters are <module>.lora_A.weight, uniform within 1/sqrt(in), and <module>.lora_B.weight,
 * zeros. Returns WEFT_E_CONFIG if a pattern matches nothing (targets: no linear layer; with
 * `auto_targets`, if all match nothing), or if no parameter is trainable. */
weft_status weft_pass_trainable(const weft_graph *g, const weft_trainable *trainable,
                                weft_graph **out);

/* Returns true if `name` is a LoRA parameter. Sets *module to the length of its module's name. */
bool weft_param_is_lora(const char *name, size_t *module);

#endif
