/* weft parity: compares results of weft with results of a reference implementation. */
#include "parity/parity_compare.h"

#include "base/log.h"
#include "cli/generate_run.h"
#include "cli/options/args.h"
#include "cli/options/verb.h"
#include "cli/parity_output.h"
#include "cli/plan_output.h"
#include "cli/text_output.h"
#include "comm/comm_fake.h"
#include "kernel/registry/backend.h"

#include <stdio.h>

static const char default_folder[] = "tests/golden";

static void print_line(const char *text)
{
    puts(text);
}

/* Runs `weft generate` on one rank. Its messages are dropped, except the error. */
static weft_status generate(int argc, const char *const *argv)
{
    const weft_log_receiver silent = {.has_message = true, .has_progress = true},
                            standard = {.message = NULL};
    const weft_verb *verb = weft_verb_find("generate");
    weft_args *args = NULL;
    weft_comm *comm = NULL;
    weft_status_code status = WEFT_OK;
    weft_log_set_receiver(&silent);
    WEFT_GO(weft_args_parse(verb, argc, (char *const *)(uintptr_t)argv, &args));
    WEFT_GO(weft_comm_open_threads(1, &comm));
    WEFT_GO(weft_generate_run(args, NULL, comm, false));
out:
    weft_log_set_receiver(&standard);
    weft_comm_free(comm);
    weft_args_free(args);
    return status;
}

static weft_status print_json(json_t *json)
{
    const weft_status_code status = weft_plan_print_json(json);
    json_decref(json);
    return status;
}

static weft_status compare_one(const weft_args *args, weft_parity_request *request)
{
    int count;
    weft_buf text = {0};
    weft_parity_record record;
    const char *const *files = weft_args_positional(args, &count);
    const bool as_json = weft_args_flag(args, "--json");
    if (count < 1 || count > 2)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "%d files; give [FILE.safetensors] FILE.json, or folders with --all",
                          count);
    request->json = files[count - 1];
    request->tensors = count > 1 ? files[0] : NULL;
    request->line = as_json ? NULL : print_line;
    const weft_status_code code = weft_parity_compare(request, &record);
    if (!as_json && record.compared) {
        weft_parity_print_record(request->json, &record, &text);
        WEFT_TRY(weft_text_output(&text));
    }
    if (as_json)
        WEFT_TRY(print_json(weft_parity_record_json(
            request->json, &record, code == WEFT_OK ? WEFT_PARITY_PASSED : WEFT_PARITY_FAILED,
            code == WEFT_OK ? NULL : weft_error_message())));
    return code;
}

static weft_status print_all(const weft_args *args, const weft_parity_table *table)
{
    weft_buf text = {0};
    if (weft_args_flag(args, "--json"))
        return print_json(weft_parity_table_json(table));
    weft_parity_print_table(table, &text);
    return weft_text_output(&text);
}

static weft_status compare_all(const weft_args *args, weft_parity_request *request)
{
    int count;
    weft_parity_table table = {0};
    const char *fallback[] = {default_folder};
    const char *const *folders = weft_args_positional(args, &count);
    weft_status_code status = WEFT_OK;
    request->line =
        weft_args_flag(args, "--verbose") && !weft_args_flag(args, "--json") ? print_line : NULL;
    WEFT_GO(weft_parity_run_all(count ? folders : fallback, count ? count : 1, request, &table));
    WEFT_GO(print_all(args, &table));
    const int64_t failed = table.count[WEFT_PARITY_FAILED];
    if (failed)
        WEFT_GO(
            weft_error(WEFT_MSG_PARITY_FAILED,
                       WEFT_AT(WEFT_NUMBER(failed), WEFT_DETAILS(WEFT_DETAIL("files", table.rows))),
                       "%" PRId64 " of %" PRId64 " files failed", failed, table.rows));
out:
    weft_parity_table_free(&table);
    return status;
}

static weft_status run_parity(const weft_args *args)
{
    weft_parity_request request = {.weights = weft_args_string(args, "--weights"),
                                   .verbose = weft_args_flag(args, "--verbose"),
                                   .generate = generate,
                                   .backend =
                                       weft_backend_find(weft_args_string(args, "--backend"))};
    if (!request.backend)
        return weft_error(WEFT_MSG_OPTION_INVALID,
                          WEFT_AT(.key = "--backend", .value = weft_args_string(args, "--backend")),
                          "unknown backend '%.80s'; use one of %s",
                          weft_args_string(args, "--backend"), weft_backend_names());
    WEFT_TRY(weft_backend_check(request.backend));
    return weft_args_flag(args, "--all") ? compare_all(args, &request)
                                         : compare_one(args, &request);
}

static const weft_option options[] = {
    {"--all", NULL, NULL, "compare all golden files of the folders (default tests/golden)"},
    {"--backend", "NAME", "cpu", "kernels to run; cpu, cuda, or ref (f64, slow)"},
    {"--weights", "FILE", NULL,
     "weights of a shot detector that the file lacks; .pth or safetensors of TransNetV2",
     .copied = true},
    {"--verbose", NULL, NULL, "print every comparison, not only failures"},
    {"--json", NULL, NULL, "print the results as one JSON object"},
};

const weft_verb weft_verb_parity = {
    .name = "parity",
    .summary = "compare results of weft with a reference implementation",
    .usage = "[FILE.safetensors] FILE.json [--backend NAME] [--verbose]\n"
             "--all [FOLDER...] [--backend NAME] [--json]",
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
        "--all compares every NAME.json of the folders, one at a time, and prints two\n"
        "tables: files, with largest errors, limits and seconds, and families, with the\n"
        "largest error as a share of its limit. For training runs the first error is of\n"
        "the losses, the second of gradient norms and final weights. A file that is\n"
        "damaged, or whose class is unknown, fails with its reason, and the other files\n"
        "are still compared. A file that needs an option which was not given (--weights)\n"
        "is skipped. Exit status 1: a file failed.\n"
        "\n"
        "--all also compares the pipelines of FOLDER/pipelines: each folder has a model as\n"
        "diffusers publishes it, and for each asked*.json the latents of diffusers'\n"
        "pipeline from the same noise. `weft generate` must make these latents. FOLDER may\n"
        "also be the folder of the pipelines itself, or one pipeline.\n"
        "`weft parity FOLDER/asked.json` compares one case.\n"
        "\n"
        "Other keys of the JSON file select other comparisons:\n"
        "  losses       the tensors are a training run (data, noise, t or sigma,\n"
        "               conditioning; final.*): losses, gradient norms and final\n"
        "               weights agree within 1e-4\n"
        "  class of a scheduler   noise levels, model calls and steps (limit 1e-5)\n"
        "  class formulas         each tensor, by the formula of its name (limit 1e-5)\n"
        "  tile_sample_min_height an autoencoder with tiles in space and time\n"
        "  tiles        an autoencoder that always tiles, without gradients\n"
        "  options      a pipeline: options of weft generate, noise, expected results\n"
        "  files        a tokenizer: the ids of all texts are equal\n"
        "\n"
        "Values of quantized block formats are equal, and so are all parameters of a key\n"
        "mapping (files in the folder dialects). For the shot detector TransNetV2\n"
        "probabilities agree within 1e-4 and the shots are equal.\n",
    .see = "docs/reference/verbs/parity.md, docs/reference/formats.md, docs/how-to/test.md",
    .examples = "weft parity tests/golden/FILE.json\n"
                "weft parity --all\n"
                "weft parity --all FOLDER1 FOLDER2 --json >results.json\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .max_positional = -1,
    .copies_positional = true,
    .run = run_parity,
};
