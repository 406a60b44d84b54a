#include "parity/parity_compare.h"

#include "base/fs.h"
#include "base/log.h"
#include "parity/parity.h"
#include "parity/parity_dialect.h"
#include "parity/parity_formulas.h"
#include "parity/parity_hints.h"
#include "parity/parity_losses.h"
#include "parity/parity_model.h"
#include "parity/parity_pipeline.h"
#include "parity/parity_sampler.h"
#include "parity/parity_shots.h"
#include "parity/parity_store.h"
#include "parity/parity_tiled.h"
#include "parity/parity_tokenizer.h"
#include "parity/parity_training.h"

#include <stdio.h>
#include <string.h>

/* The first kind that recognizes a file is used. */
static const weft_parity_kind *const kinds[] = {
    &weft_parity_tokenizer, &weft_parity_cleaning, &weft_parity_formulas, &weft_parity_sampler,
    &weft_parity_shots,     &weft_parity_blocks,   &weft_parity_dialect,  &weft_parity_training,
    &weft_parity_lpips,     &weft_parity_patchgan, &weft_parity_vaegan,   &weft_parity_tiled,
    &weft_parity_hints,     &weft_parity_branch,   &weft_parity_pipeline, &weft_parity_model,
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

/* The class of the file, which may be in "config". */
static void name_class(weft_parity *p)
{
    const char *name = json_string_value(json_object_get(p->json, "_class_name"));
    if (!name)
        name =
            json_string_value(json_object_get(json_object_get(p->json, "config"), "_class_name"));
    snprintf(p->record.class_name, sizeof p->record.class_name, "%s", name ? name : "");
}

static weft_status run_kind(weft_parity *p)
{
    int kind = 0;
    WEFT_TRY(load_json(p));
    name_class(p);
    while (kind < WEFT_COUNT(kinds) && !kinds[kind]->is(p->json))
        kind++;
    if (kind == WEFT_COUNT(kinds))
        return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                          WEFT_AT(.file = p->config_file, .key = "_class_name"),
                          "the member is missing or unknown; it names the model or the computation "
                          "of the reference results");
    p->record.kind = kinds[kind]->name;
    if (!kinds[kind]->alone)
        WEFT_TRY(weft_tensors_open(p->file, &p->golden));
    WEFT_TRY(kinds[kind]->run(p));
    if (p->record.failures)
        return weft_error(WEFT_MSG_PARITY_FAILED,
                          WEFT_AT(.file = p->file, WEFT_NUMBER(p->record.failures),
                                  WEFT_DETAILS(WEFT_DETAIL("comparisons", p->record.compared),
                                               WEFT_WORD("first", p->record.first))),
                          "%d of %d comparisons failed", p->record.failures, p->record.compared);
    return p->record.compared ? WEFT_OK
                              : weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = p->config_file),
                                           "the file has nothing to compare");
}

static weft_status check_name(const char *json)
{
    if (strlen(json) > 1000 || strcmp(weft_path_extension(json), "json"))
        return weft_error(WEFT_MSG_FILE_NAME, WEFT_AT(.file = json),
                          "this argument must be a .json file");
    return WEFT_OK;
}

weft_status weft_parity_compare(const weft_parity_request *request, weft_parity_record *record)
{
    char tensors[1100];
    const double started = weft_now();
    *record = (weft_parity_record){0};
    WEFT_TRY(check_name(request->json));
    snprintf(tensors, sizeof tensors, "%.*s.safetensors",
             (int)(strlen(request->json) - strlen(".json")), request->json);
    weft_parity p = {.file = request->tensors ? request->tensors : tensors,
                     .config_file = request->json,
                     .weights_file = request->weights,
                     .backend = request->backend,
                     .verbose = request->verbose,
                     .line = request->line,
                     .generate = request->generate};
    p.record.code = run_kind(&p);
    if (p.model.family)
        p.record.family = weft_model_class(&p.model);
    if (p.model.family && !p.record.class_name[0])
        snprintf(p.record.class_name, sizeof p.record.class_name, "%s", p.record.family);
    p.record.seconds = weft_now() - started;
    weft_program_free(p.program);
    weft_parity_free_stores(&p);
    weft_graph_free(p.graph);
    weft_tensors_close(p.golden);
    json_decref(p.json);
    *record = p.record;
    return record->code;
}
