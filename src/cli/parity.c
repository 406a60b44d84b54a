/* weft parity: what we compute against the numbers of the reference implementation. */
#include "cli/parity.h"

#include "base/fs.h"
#include "cli/verb.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

weft_status weft_parity_need(const weft_parity *p, const char *name, const weft_stored_tensor **t)
{
    *t = weft_tensors_find(p->golden, name);
    return *t ? WEFT_OK : weft_fail(WEFT_E_FORMAT, "%s: tensor \"%s\" is missing", p->file, name);
}

double weft_parity_norm(const float *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

double weft_parity_error(const float *ours, const float *theirs, int64_t count, double scale)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(ours[i]) || !isfinite(theirs[i]))
            return NAN;
        const double d = (double)ours[i] - (double)theirs[i];
        sum += d * d;
    }
    return scale > 0 ? sqrt(sum) / scale : sqrt(sum);
}

void weft_parity_judge(weft_parity *p, const char *what, const char *name, const float *ours,
                       const float *theirs, int64_t count, double scale, double tolerance,
                       double *worst)
{
    const double error = weft_parity_error(ours, theirs, count, scale);
    const bool bad = !(error <= tolerance);
    p->compared++;
    p->failures += bad;
    if (!(error <= *worst))
        *worst = error;
    if (bad || p->verbose)
        printf("  %-8s %-60s %.2e%s\n", what, name, error, bad ? "  FAIL" : "");
}

/* ---- the verb ------------------------------------------------------------------------------ */

/* The first kind that knows a file takes it. */
static const weft_parity_kind *const kinds[] = {
    &weft_parity_tokenizer, &weft_parity_cleaning, &weft_parity_formulas, &weft_parity_sampler,
    &weft_parity_shots,     &weft_parity_blocks,   &weft_parity_dialect,  &weft_parity_training,
    &weft_parity_lpips,     &weft_parity_patchgan, &weft_parity_vaegan,   &weft_parity_tiled,
    &weft_parity_model,
};

static weft_status load_json(weft_parity *p) /* texts of tokenizers may hold NUL */
{
    json_error_t error;
    char *text;
    int64_t bytes;
    WEFT_TRY(weft_file_read(p->config_file, 1 << 30, &text, &bytes));
    p->json = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    weft_free(text);
    return p->json ? WEFT_OK
                   : weft_fail(WEFT_E_FORMAT, "%s:%d:%d: not valid JSON: %s", p->config_file,
                               error.line, error.column, error.text);
}

static weft_status run_all(weft_parity *p)
{
    WEFT_TRY(load_json(p));
    int kind = 0;
    while (kind < WEFT_COUNT(kinds) && !kinds[kind]->is(p->json))
        kind++;
    if (kind == WEFT_COUNT(kinds))
        return weft_fail(WEFT_E_FORMAT, "%s: no \"_class_name\" that says what the numbers are of",
                         p->config_file);
    if (!kinds[kind]->alone)
        WEFT_TRY(weft_tensors_open(p->file, &p->golden));
    WEFT_TRY(kinds[kind]->run(p));
    if (p->failures)
        return weft_fail(WEFT_E_NUMERIC, "%s: %d of %d comparisons failed", p->file, p->failures,
                         p->compared);
    return WEFT_OK;
}

static weft_status run_parity(const weft_args *args)
{
    int count;
    char beside[1024];
    const char *const *files = weft_args_positional(args, &count);
    const char *json = files[count - 1];
    if (strlen(json) > 1000 || strcmp(weft_path_extension(json), "json"))
        return weft_fail(WEFT_E_ARG, "%s: not a .json file", json);
    snprintf(beside, sizeof beside, "%.*s.safetensors", (int)(strlen(json) - strlen(".json")),
             json);
    weft_parity p = {.file = count > 1 ? files[0] : beside,
                     .config_file = json,
                     .weights_file = weft_args_string(args, "--weights"),
                     .verbose = weft_args_flag(args, "--verbose"),
                     .backend = weft_backend_find(weft_args_string(args, "--backend"))};
    if (!p.backend)
        return weft_fail(WEFT_E_ARG, "--backend %s: known are cpu and ref",
                         weft_args_string(args, "--backend"));
    const weft_status_code status = run_all(&p);
    weft_program_free(p.program);
    weft_store_free(p.store);
    weft_graph_free(p.graph);
    weft_tensors_close(p.golden);
    json_decref(p.json);
    return status;
}

static const weft_option options[] = {
    {.name = "--backend",
     .value_name = "NAME",
     .fallback = "cpu",
     .help = "kernels to run: cpu, or ref (f64, slow)"},
    {.name = "--weights",
     .value_name = "FILE",
     .help =
         "of a shot detector whose weights are not in the file: TransNetV2's .pth or safetensors"},
    {.name = "--verbose", .help = "print every comparison, not only those that fail"},
};

const weft_verb weft_verb_parity = {
    .name = "parity",
    .summary = "compare numbers of ours with those of the reference implementation",
    .usage = "[FILE.safetensors] FILE.json [--backend NAME] [--verbose]",
    .details =
        "The JSON file holds the model's config in the public config.json fields; the safetensors\n"
        "file (left out: the one of the same name beside it) its weights (param.*), inputs\n"
        "(in.*), outputs (out.*) and gradients (grad.*). weft builds the model, runs it forward\n"
        "and backward and prints the worst relative error ||a-b||/||b|| of outputs (limit 1e-5)\n"
        "and gradients (limit 1e-4), or the file's own \"suggested_tolerance\" where that is\n"
        "larger. A gradient that is zero in exact arithmetic (settled by the f64 backend) is held\n"
        "against the largest gradient norm instead. With \"losses\" in the JSON file the tensors\n"
        "are those of a training (data, noise, t or sigma, what the model is told; final.*):\n"
        "every loss, gradient norm and final weight must agree within 1e-4 relative. With the\n"
        "class of a scheduler in the JSON file every noise level, model call and step of its\n"
        "walks is held against the file's; with the class \"formulas\" every tensor is computed\n"
        "by the formula of its name (limit 1e-5 both).\n"
        "\n"
        "With \"tile_sample_min_height\" in the JSON file an autoencoder encodes and decodes in\n"
        "such tiles of the picture and of time.\n"
        "\n"
        "Of block formats every number must be the same, of dialects (files in the folder of that\n"
        "name) every parameter. Of a tokenizer (\"files\" beside the JSON file) the ids of every\n"
        "text must be the same. Of the shot detector TransNetV2 probabilities must agree within\n"
        "1e-4 and the shots be the same.\n"
        "\n"
        "Exit code 0: all within the limits; 1: at least one is not, or a file is bad.",
    .examples = "weft parity tests/golden/FILE.json\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 1,
    .max_positional = 2,
    .run = run_parity,
};
