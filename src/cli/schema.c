/* weft schema: prints the JSON Schema of a verb's config, or of a request of weft serve. */
#include "base/config_schema.h"
#include "cli/options/args.h"
#include "cli/plan_config.h"
#include "cli/plan_generate.h"
#include "cli/plan_layout.h"
#include "cli/plan_memory.h"
#include "cli/plan_pipeline.h"
#include "serve/request_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma weak weft_request_section /* src/serve is not part of every build */

static const struct {
    const char *name;
    const weft_section *section; /* NULL: of the verb with this name */
} schemas[] = {
    {"train"},
    {"curate"},
    {"shard"},
    {"serve", &weft_request_section},
    {"plan-cascades", &weft_plan_config_section},
    {"plan-generate", &weft_plan_generate_section},
    {"plan-layout", &weft_plan_layout_section},
    {"plan-memory", &weft_plan_memory_section},
    {"plan-pipeline", &weft_plan_pipeline_section},
};

static weft_status unknown(const char *name)
{
    weft_buf names = {0};
    for (int i = 0; i < WEFT_COUNT(schemas); i++)
        weft_buf_printf(&names, "%s%s", i ? ", " : "", schemas[i].name);
    const weft_status_code status =
        weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.value = name),
                   "'%.80s' has no schema; use one of %s", name, names.data ? names.data : "");
    weft_buf_free(&names);
    return status;
}

static weft_status find(const char *name, const weft_section **section)
{
    for (int i = 0; i < WEFT_COUNT(schemas); i++) {
        if (strcmp(schemas[i].name, name) != 0)
            continue;
        const weft_verb *verb = weft_verb_find(name);
        *section = schemas[i].section;
        if (!*section && verb)
            *section = verb->config;
        if (!*section)
            return weft_error(WEFT_MSG_LIBRARY_MISSING, WEFT_NOWHERE,
                              "this build of weft has no server. Install libmicrohttpd-dev and "
                              "libsqlite3-dev, and build weft again.");
        return WEFT_OK;
    }
    return unknown(name);
}

static weft_status run(const weft_args *args)
{
    int count;
    const weft_section *section;
    json_t *schema;
    WEFT_TRY(find(weft_args_positional(args, &count)[0], &section));
    WEFT_TRY(weft_config_schema(section, &schema));
    char *text = json_dumps(schema, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    json_decref(schema);
    WEFT_TRY(WEFT_ALLOCATED(text, "a schema"));
    puts(text);
    free(text);
    return WEFT_OK;
}

const weft_verb weft_verb_schema = {
    .name = "schema",
    .summary = "print the JSON Schema of configs and requests, for editors and checks",
    .usage = "train|curate|shard|serve|plan-layout|...",
    .details = "Prints the schema of a config of train, curate, shard, plan cascades, generate,\n"
               "layout, memory or pipeline, or of a request of serve.\n"
               "The schema comes from the tables that make the parser and the help.\n"
               "\n"
               "An editor with the YAML language server completes and checks a config whose\n"
               "first line is\n"
               "\n"
               "    # yaml-language-server: $schema=schema/train.json\n"
               "\n"
               "The folder examples/schema has the schemas of this version.\n",
    .see = "docs/how-to/train.md",
    .examples = "weft schema train >train.json\n"
                "check-jsonschema --schemafile train.json run.yaml\n",
    .min_positional = 1,
    .max_positional = 1,
    .run = run,
};
