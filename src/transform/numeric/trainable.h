/* What of a model is trained: all of it, parameters by name, or only low-rank matrices beside its
 * linear layers (LoRA; Hu et al., ICLR'22):
 *
 *          x ──────────── linear (weight, bias: frozen) ──────────── + ── y
 *          └── linear (lora_A: rank, in) ─ x scale ─ linear (lora_B: out, rank) ─┘
 *
 * No weight of the model has a gradient, moments or an average then, and none is made: the
 * backward goes through them only where it leads to such matrices. */
#ifndef WEFT_PASS_TUNE_H
#define WEFT_PASS_TUNE_H

#include "base/config.h"
#include "pass/pass.h"

/* Patterns are about modules and parameters as the model's files name them. One with '*' (any text)
 * must fit the whole name; another fits it, or its end behind a dot: "to_q" is that of every
 * attention, "blocks.0" all that is in this block. "all-linear" as a target: every linear layer. */
typedef struct weft_tuning {
    const char *scope;       /* that its names have in the graph, "transformer"; "": none */
    weft_string_list train;  /* parameters, or modules that have them; none: all */
    weft_string_list freeze; /* of those, these are not */
    bool beside; /* others are trained beside the model, of which nothing need be left to train */
    /* low-rank matrices; 0: none. With them nothing else of the model is trained */
    int64_t rank;
    double alpha;             /* scale = alpha / rank */
    weft_string_list targets; /* linear layers */
    bool narrow;              /* with matrices: weights of linear layers are kept in bf16 */
} weft_tuning;
/* It asks for anything. */
bool weft_tuning_given(const weft_tuning *tuning);

/* `g` is whole: before the shard pass. New parameters are <module>.lora_A.weight, uniform within
 * 1/sqrt(in), and <module>.lora_B.weight, zeros. WEFT_E_CONFIG: a pattern that fits nothing (for
 * targets: no linear layer), or nothing left to train. */
weft_status weft_pass_tune(const weft_graph *g, const weft_tuning *tuning, weft_graph **out);

/* `name` of a parameter is such a matrix; the length of its module's name. */
bool weft_tuning_is_lora(const char *name, size_t *module);

#endif
