/* weft topology: prints and draws a cluster. */
#include "base/config_text.h"
#include "cli/options/args.h"
#include "cli/options/verb.h"
#include "cli/text_output.h"
#include "plan/cluster/cluster.h"
#include "plan/cluster/cluster_draw.h"
#include "plan/cluster/cluster_print.h"

#include <stdio.h>

static const weft_option options[] = {
    {"--svg", "FILE.svg", NULL, "write a drawing of the cluster", .result = WEFT_RESULT_FILE},
    {"--yaml", NULL, NULL, "print the cluster as a YAML file, as a start for another one"},
    {"--presets", NULL, NULL, "list the presets"},
};

static weft_status run_topology(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    if (weft_args_flag(args, "--presets")) {
        const weft_cluster_preset *presets = weft_cluster_presets(&count);
        for (int i = 0; i < count; i++)
            printf("%-12s %s\n", presets[i].name, presets[i].help);
        return WEFT_OK;
    }
    weft_arena *arena = weft_arena_create();
    weft_cluster cluster;
    const char *svg = weft_args_string(args, "--svg");
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(arena, "the topology"));
    WEFT_GO(weft_cluster_load(arena, count ? words[0] : "local", &cluster));
    if (weft_args_flag(args, "--yaml")) {
        weft_buf text = {0};
        weft_config_dump(&weft_cluster_section, &cluster, &text);
        WEFT_GO(weft_text_output(&text));
    } else {
        weft_cluster_print(&cluster);
    }
    if (svg)
        WEFT_GO(weft_cluster_draw(&cluster, svg));
out:
    weft_arena_free(arena);
    return status;
}

const weft_verb weft_verb_topology = {
    .name = "topology",
    .summary = "print and draw a cluster: devices, NICs, switches and routes",
    .usage = "[SPEC] [options]",
    .details = "SPEC is a preset (h100, h200, a100, rtx4090, v100, ascend910a, local), a preset\n"
               "with a number of nodes (h100:4), or a YAML file. The default is this machine as\n"
               "hwloc reports it.\n"
               "\n"
               "A file has `nodes`, `devices`, a `device` with its rates, `link`, `host`,\n"
               "`nics`, which are attached to `switches`, and the switches with their uplinks.\n"
               "--yaml prints a preset in this format. A missing switch, uplinks in a cycle, and\n"
               "nodes without a route are errors.\n",
    .see = "docs/explanation/planning.md, docs/reference/verbs/topology.md",
    .examples = "weft topology h100:2 --svg h100.svg\nweft topology h100 --yaml > mine.yaml\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .max_positional = 1,
    .copies_positional = true,
    .run = run_topology,
};
