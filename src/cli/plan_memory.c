/* weft plan memory: plans which activations to keep, recompute and offload. */
#include "cli/plan_memory.h"

#include "cli/options/args.h"
#include "cli/plan.h"
#include "plan/cluster/cluster.h"
#include "plan/pipeline/activation_report.h"
#include "plan/pipeline/bars_svg.h"
#include "plan/plan_checksum.h"
#include "plan/published/block_items.h"

#include <stdio.h>

typedef struct memory_config {
    const char *cluster;
    int64_t layers, hidden, heads, tokens, batch, tp, limit;
    bool offload;
} memory_config;

static const weft_key keys[] = {
    {"cluster", WEFT_KEY_STRING, offsetof(memory_config, cluster), "h100", "",
     "preset, preset:NODES, or a YAML file: rates of its device"},
    {"layers", WEFT_KEY_I64, offsetof(memory_config, layers), "40", "",
     "transformer blocks on the device", .min = 1, .max = 100000},
    {"hidden", WEFT_KEY_I64, offsetof(memory_config, hidden), "3072", "", "width", .min = 1,
     .max = 1000000},
    {"heads", WEFT_KEY_I64, offsetof(memory_config, heads), "24", "", "attention heads", .min = 1,
     .max = 100000},
    {"tokens", WEFT_KEY_I64, offsetof(memory_config, tokens), "115200", "", "sequence length",
     .min = 1, .max = 1000000000},
    {"batch", WEFT_KEY_I64, offsetof(memory_config, batch), "1", "samples",
     "samples per microbatch", .min = 1, .max = 1000000},
    {"tp", WEFT_KEY_I64, offsetof(memory_config, tp), "8", "",
     "tensor and sequence parallel degree", .min = 1, .max = 4096},
    {"limit", WEFT_KEY_I64, offsetof(memory_config, limit), NULL, "bytes",
     "memory for activations per device", .min = 0, .max = 9e18},
    {"offload", WEFT_KEY_BOOL, offsetof(memory_config, offload), "true", "",
     "allow offload of activations to the host"},
};
const weft_section weft_plan_memory_section = {"memory", "activations of a transformer",
                                               sizeof(memory_config), keys, WEFT_COUNT(keys)};

static weft_status load_config(const weft_args *args, weft_arena *arena, const char *path,
                               weft_activation_item **item, int64_t *items, double *window,
                               double *limit)
{
    int count;
    const char *const *set = weft_args_list(args, "--set", &count);
    memory_config c;
    weft_cluster cluster;
    WEFT_TRY(weft_config_load(arena, path, set, count, &weft_plan_memory_section, &c));
    WEFT_TRY(weft_cluster_load(arena, c.cluster, &cluster));
    const weft_device_type *d = &cluster.device;
    const weft_block_shape shape = {.batch = (double)c.batch,
                                    .tokens = (double)c.tokens,
                                    .hidden = (double)c.hidden,
                                    .heads = (double)c.heads,
                                    .tp = (double)c.tp,
                                    .layers = (double)c.layers};
    const weft_block_rates rates = {.gemm = d->flops * d->gemm,
                                    .attention = d->flops * d->attention,
                                    .memory = d->memory_bandwidth * d->memory_fraction,
                                    .link = cluster.link.bandwidth,
                                    .host = c.offload ? cluster.host.bandwidth : 0};
    WEFT_TRY(WEFT_ARENA_NEW(arena, *item, WEFT_BLOCK_PIECES, "the memory plan"));
    weft_block_items(&shape, &rates, *item);
    *items = WEFT_BLOCK_PIECES;
    /* the forward pass hides offloads, the backward pass hides fetches */
    *window = 0;
    for (int64_t i = 0; i < *items; i++)
        *window += 3 * (*item)[i].recompute * (double)(*item)[i].count;
    *limit = (double)c.limit;
    return WEFT_OK;
}

static weft_status load_bare(const weft_args *args, weft_arena *arena, const char *path,
                             weft_activation_item **item, int64_t *items, double *window,
                             double *limit)
{
    int64_t bytes;
    WEFT_TRY(weft_args_i64(args, "--memory-limit", 0, INT64_MAX, &bytes));
    *limit = (double)bytes;
    json_t *json;
    WEFT_TRY(weft_json_load(path, &json));
    const weft_status_code status =
        weft_activation_items_from_json(arena, json, path, item, items, window);
    json_decref(json);
    return status;
}

static weft_status output(const weft_args *args, const weft_activation_item *item, int64_t items,
                          double limit, const weft_activation_choice *greedy,
                          const weft_activation_choice *exact)
{
    weft_buf text = {0}, svg = {0};
    weft_activation_choice_print(item, items, limit, greedy, exact, &text);
    if (weft_args_string(args, "--svg"))
        weft_activation_choice_draw(item, items, exact, &svg);
    json_t *json = weft_activation_choice_json(item, items, limit, greedy, exact);
    if (json && weft_plan_add_checksum(json, WEFT_MEMORY_FORMAT) != WEFT_OK) {
        json_decref(json);
        json = NULL;
    }
    return weft_plan_finish(args, json, &text, &svg);
}

weft_status weft_plan_memory_run(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    const char *bare = weft_args_string(args, "--costs");
    weft_activation_choice greedy = {0}, exact = {0};
    weft_activation_item *item = NULL;
    int64_t items = 0;
    double window = 0, limit = 0;
    weft_status_code status = WEFT_OK;
    weft_arena *arena = weft_arena_create();
    WEFT_GO(WEFT_ALLOCATED(arena, "the memory plan"));
    if (bare ? count > 1 : count < 2)
        WEFT_GO(weft_error(bare ? WEFT_MSG_OPTION_CONFLICT : WEFT_MSG_OPTION_REQUIRED,
                           bare ? WEFT_AT(.key = "--costs") : WEFT_NOWHERE,
                           "give either a config, or --costs FILE.json with --memory-limit BYTES"));
    WEFT_GO(bare ? load_bare(args, arena, bare, &item, &items, &window, &limit)
                 : load_config(args, arena, words[1], &item, &items, &window, &limit));
    WEFT_GO(weft_activations_choose_greedy(item, items, (weft_offload_rates){.window = window},
                                           limit, &greedy));
    WEFT_GO(weft_activations_choose_exact(item, items, (weft_offload_rates){.window = window},
                                          limit, 0, &exact));
    WEFT_GO(output(args, item, items, limit, &greedy, &exact));
out:
    weft_activation_choice_free(&greedy);
    weft_activation_choice_free(&exact);
    weft_arena_free(arena);
    return status;
}
