/* weft parity: compares results of weft with results of a reference implementation. */
#include "parity/parity.h"

#include "base/fs.h"
#include "cli/options/args.h"
#include "cli/options/verb.h"
#include "kernel/registry/backend.h"
#include "parity/parity_dialect.h"
#include "parity/parity_formulas.h"
#include "parity/parity_losses.h"
#include "parity/parity_model.h"
#include "parity/parity_sampler.h"
#include "parity/parity_shots.h"
#include "parity/parity_store.h"
#include "parity/parity_tiled.h"
#include "parity/parity_tokenizer.h"
#include "parity/parity_training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the verb ------------------------------------------------------------------------------ */

/* The first kind that recognizes a file is used. */
static const weft_parity_kind *const kinds[] = {
    &weft_parity_tokenizer, &weft_parity_cleaning, &weft_parity_formulas, &weft_parity_sampler,
    &weft_parity_shots,     &weft_parity_blocks,   &weft_parity_dialect,  &weft_parity_training,
    &weft_parity_lpips,     &weft_parity_patchgan, &weft_parity_vaegan,   &weft_parity_tiled,
    &weft_parity_model,
};

static weft_status load_json(weft_parity *p) /* texts of tokenizers may contain NUL */
{
    json_error_t error;
    char *text;
    int64_t bytes;
    WEFT_TRY(weft_file_read(p->config_file, 1 << 30, &text, &bytes));
    p->json = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    weft_free(text);
    return p->json ? WEFT_OK
                   : weft_error(WEFT_MSG_JSON_SYNTAX,
                                WEFT_AT(.file = p->config_file, .line = error.line),
                                "not valid JSON at column %d: %s", error.column, error.text);
}

static weft_status run_all(weft_parity *p)
{
    WEFT_TRY(load_json(p));
    int kind = 0;
    while (kind < WEFT_COUNT(kinds) && !kinds[kind]->is(p->json))
        kind++;
    if (kind == WEFT_COUNT(kinds))
        return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                          WEFT_AT(.file = p->config_file, .key = "_class_name"),
                          "the member is missing or unknown; it names the model or the computation "
                          "of the reference results");
    if (!kinds[kind]->alone)
        WEFT_TRY(weft_tensors_open(p->file, &p->golden));
    WEFT_TRY(kinds[kind]->run(p));
    if (p->failures)
        return weft_error(WEFT_MSG_PARITY_FAILED,
                          WEFT_AT(.file = p->file, WEFT_NUMBER(p->failures),
                                  WEFT_DETAILS(WEFT_DETAIL("comparisons", p->compared),
                                               WEFT_WORD("first", p->first))),
                          "%d of %d comparisons failed", p->failures, p->compared);
    return WEFT_OK;
}

static weft_status run_parity(const weft_args *args)
{
    int count;
    char golden_path[1024];
    const char *const *files = weft_args_positional(args, &count);
    const char *json = files[count - 1];
    if (strlen(json) > 1000 || strcmp(weft_path_extension(json), "json"))
        return weft_error(WEFT_MSG_FILE_NAME, WEFT_AT(.file = json),
                          "this argument must be a .json file");
    snprintf(golden_path, sizeof golden_path, "%.*s.safetensors",
             (int)(strlen(json) - strlen(".json")), json);
    weft_parity p = {.file = count > 1 ? files[0] : golden_path,
                     .config_file = json,
                     .weights_file = weft_args_string(args, "--weights"),
                     .verbose = weft_args_flag(args, "--verbose"),
                     .backend = weft_backend_find(weft_args_string(args, "--backend"))};
    if (!p.backend)
        return weft_error(WEFT_MSG_OPTION_INVALID,
                          WEFT_AT(.key = "--backend", .value = weft_args_string(args, "--backend")),
                          "unknown backend '%.80s'; use one of %s",
                          weft_args_string(args, "--backend"), weft_backend_names());
    WEFT_TRY(weft_backend_check(p.backend));
    const weft_status_code status = run_all(&p);
    weft_program_free(p.program);
    weft_parity_free_stores(&p);
    weft_graph_free(p.graph);
    weft_tensors_close(p.golden);
    json_decref(p.json);
    return status;
}

static const weft_option options[] = {
    {"--backend", "NAME", "cpu", "kernels to run; cpu, cuda, or ref (f64, slow)"},
    {"--weights", "FILE", NULL,
     "weights of a shot detector that the file lacks; .pth or safetensors of TransNetV2",
     .copied = true},
    {"--verbose", NULL, NULL, "print every comparison, not only failures"},
};

const weft_verb weft_verb_parity = {
    .name = "parity",
    .summary = "compare results of weft with a reference implementation",
    .usage = "[FILE.safetensors] FILE.json [--backend NAME] [--verbose]",
    .details =
        "Builds the model of the JSON file, runs it forward and backward, and prints the\n"
        "largest relative error ||a-b||/||b|| of outputs (limit 1e-5) and gradients\n"
        "(1e-4). Exit status 1: an error is above its limit, or a file is damaged.\n"
        "\n"
        "The JSON file has the model's config with the public names of config.json. The\n"
        "safetensors file has weights (param.*), inputs (in.*), outputs (out.*) and\n"
        "gradients (grad.*). By default it has the same name as the JSON file. A larger\n"
        "\"suggested_tolerance\" in the JSON file replaces a limit. A gradient that is zero\n"
        "in exact arithmetic, by the f64 backend, is compared with the largest gradient\n"
        "norm.\n"
        "\n"
        "Other keys of the JSON file select other comparisons:\n"
        "  losses       the tensors are a training run (data, noise, t or sigma,\n"
        "               conditioning; final.*): losses, gradient norms and final\n"
        "               weights agree within 1e-4\n"
        "  class of a scheduler   noise levels, model calls and steps (limit 1e-5)\n"
        "  class formulas         each tensor, by the formula of its name (limit 1e-5)\n"
        "  tile_sample_min_height an autoencoder with tiles in space and time\n"
        "  files        a tokenizer: the ids of all texts are equal\n"
        "\n"
        "Values of quantized block formats are equal, and so are all parameters of a key\n"
        "mapping (files in the folder dialects). For the shot detector TransNetV2\n"
        "probabilities agree within 1e-4 and the shots are equal.\n",
    .see = "docs/reference/verbs/parity.md, docs/how-to/test.md",
    .examples = "weft parity tests/golden/FILE.json\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 1,
    .max_positional = 2,
    .copies_positional = true,
    .run = run_parity,
};
