/* weft convert: weights in the names, types and files that other programs read. */
#include "base/fs.h"
#include "cli/convert_model.h"
#include "cli/inspect_file.h"
#include "cli/lora_option.h"
#include "cli/verb.h"
#include "graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ADAPTERS = 16 };

static weft_status one_of(const weft_args *args, const char *option, const char *const *words,
                          int *index)
{
    const char *text = weft_args_string(args, option);
    weft_buf all = {0};
    for (*index = 0; words[*index]; (*index)++) {
        if (!strcmp(words[*index], text)) {
            weft_buf_free(&all);
            return WEFT_OK;
        }
        weft_buf_printf(&all, "%s%s", *index ? ", " : "", words[*index]);
    }
    const weft_status_code status =
        weft_fail(WEFT_E_ARG, "%s %s: known are %s", option, text, all.data ? all.data : "?");
    weft_buf_free(&all);
    return status;
}

/* From --config, or what stands beside the weights, or the published size whose tensors they
 * are. */
static weft_status find_model(const weft_args *args, const char *in, weft_model *model)
{
    const char *config = weft_args_string(args, "--config"), *size;
    char beside[1100];
    snprintf(beside, sizeof beside, "%.*sconfig.json", (int)(weft_path_base(in) - in), in);
    if (config)
        return weft_model_open(config, model);
    if (weft_path_is_dir(in))
        return weft_model_open(in, model);
    if (!weft_path_exists(in))
        return weft_fail(WEFT_E_NOT_FOUND, "%s: no such file or folder", in);
    if (weft_path_exists(beside) && weft_model_open(beside, model) == WEFT_OK)
        return WEFT_OK; /* others' files have configs of other forms beside them */
    const weft_status_code status = weft_inspect_published(in, &size);
    if (status == WEFT_E_NOT_FOUND)
        return weft_fail(status, "%s; give its config: --config config.json, or the name of a size",
                         weft_error_message());
    WEFT_TRY(status);
    return weft_model_open(size, model);
}

/* What a killed run left there goes. */
static weft_status refuse_existing(const char *out, bool folder)
{
    weft_names names = {0};
    bool there = weft_path_exists(out);
    if (!folder)
        WEFT_TRY(weft_remove_leftovers_of(out));
    if (there && folder && weft_path_is_dir(out)) {
        WEFT_TRY(weft_remove_leftovers(out, false));
        WEFT_TRY(weft_list_dir(out, false, &names));
        there = names.count > 0;
        weft_names_free(&names);
    }
    return there ? weft_fail(WEFT_E_ARG, "%s is there already; give another name, or move it away",
                             out)
                 : WEFT_OK;
}

/* OUT as folder and stem. */
static weft_status split_out(const char *out, weft_conversion *c, char folder[1100], char stem[300])
{
    const bool own = c->to == WEFT_TO_DIFFUSERS;
    char index[1200];
    WEFT_TRY(refuse_existing(out, own));
    snprintf(folder, 1100, "%s", out);
    snprintf(stem, 300, "%s", c->model->family->stem);
    c->folder = folder;
    c->stem = stem;
    if (own)
        return WEFT_OK;
    const char *base = weft_path_base(out);
    const size_t length = strlen(base), end = strlen(".safetensors");
    if (length <= end || strcmp(base + length - end, ".safetensors"))
        return weft_fail(WEFT_E_ARG, "%s: a file is written; its name must end with .safetensors",
                         out);
    snprintf(index, sizeof index, "%s.index.json", out);
    WEFT_TRY(refuse_existing(index, false)); /* in parts */
    snprintf(stem, 300, "%.*s", (int)(length - end), base);
    snprintf(folder, 1100, "%.*s", base > out ? (int)(base - out) - 1 : 1, base > out ? out : ".");
    if (base == out + 1)
        snprintf(folder, 1100, "/");
    return WEFT_OK;
}

static weft_status convert_weights(const weft_args *args, const weft_model *model,
                                   const weft_graph *g, const char *in, const char *out)
{
    static const char *const forms[] = {"diffusers", "original", "comfyui", NULL},
                             *const types[] = {"f32", "bf16", "f16", "f8", "own", NULL};
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F8E4M3,
                                        WEFT_DTYPE_COUNT};
    weft_conversion c = {.model = model, .in = in};
    weft_adapter *adapter[MOST_ADAPTERS] = {0};
    weft_adapter_use use[MOST_ADAPTERS];
    char folder[1100], stem[300];
    int to, dtype, loras;
    const char *const *lora = weft_args_list(args, "--lora", &loras);
    WEFT_TRY(one_of(args, "--to", forms, &to));
    WEFT_TRY(one_of(args, "--dtype", types, &dtype));
    WEFT_TRY(weft_args_i64(args, "--shard-size", 0, INT64_MAX, &c.shard_bytes));
    c.to = (weft_convert_to)to;
    c.dtype = dtypes[dtype];
    WEFT_TRY(split_out(out, &c, folder, stem));
    if (loras > MOST_ADAPTERS)
        return weft_fail(WEFT_E_ARG, "--lora: at most %d", MOST_ADAPTERS);
    weft_status_code status = WEFT_OK;
    weft_arena *arena = weft_arena_create();
    if (!arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    for (int i = 0; i < loras; i++) {
        const char *path;
        WEFT_GO(weft_args_weighted_file(lora[i], arena, &path, &use[i].weight));
        WEFT_GO(weft_adapter_open(model->family, g, "", path, &adapter[i]));
        use[i].adapter = adapter[i];
    }
    c.adapter = use;
    c.adapters = loras;
    status = weft_convert_model(&c, g);
out:
    for (int i = 0; i < loras; i++)
        weft_adapter_close(adapter[i]);
    weft_arena_free(arena);
    return status;
}

/* A graph with the model's names in its scope, as adapters' files are written. */
static weft_status scoped_graph(const weft_model *model, weft_graph **graph)
{
    const weft_model_size smallest = weft_model_smallest(model);
    *graph = weft_graph_create();
    if (!*graph)
        return weft_fail(WEFT_E_MEMORY, "no memory for a graph");
    weft_model_build(*graph, model, &smallest, true);
    return weft_graph_check(*graph);
}

/* What is asked for would silently not be done. */
static weft_status refuse_options_of_models(const weft_args *args)
{
    int loras;
    weft_args_list(args, "--lora", &loras);
    return loras || strcmp(weft_args_string(args, "--to"), "diffusers") ||
                   strcmp(weft_args_string(args, "--shard-size"), "0")
               ? weft_fail(WEFT_E_ARG, "--for writes an adapter; --lora, --to and --shard-size are "
                                       "of whole models: leave them out")
               : WEFT_OK;
}

static weft_status convert_adapter(const weft_args *args, const weft_model *model, const char *in,
                                   const char *out)
{
    static const char *const types[] = {"f32", "bf16", "f16", "own", NULL};
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F32};
    char prefix[100];
    int format, dtype;
    weft_graph *g = NULL;
    weft_adapter *adapter = NULL;
    weft_adapter_pair *pair = NULL;
    int64_t pairs = 0;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(one_of(args, "--for", weft_adapter_formats, &format));
    WEFT_TRY(one_of(args, "--dtype", types, &dtype));
    WEFT_TRY(refuse_options_of_models(args));
    if (!strcmp(weft_path_extension(out), "safetensors"))
        return weft_fail(WEFT_E_ARG,
                         "%s: --for writes a folder, with the names of files that its reader looks "
                         "for; give it one",
                         out);
    WEFT_TRY(refuse_existing(out, true));
    snprintf(prefix, sizeof prefix, "%s.", model->family->scope);
    WEFT_GO(scoped_graph(model, &g));
    WEFT_GO(weft_adapter_open(model->family, g, prefix, in, &adapter));
    WEFT_GO(weft_adapter_pairs(adapter, prefix, &pair, &pairs));
    const weft_adapter_file file = {.family = model->family,
                                    .graph = g,
                                    .scope = model->family->scope,
                                    .format = (weft_adapter_format)format,
                                    .dtype = dtypes[dtype],
                                    .folder = out};
    status = weft_adapter_write(&file, pair, pairs);
out:
    weft_adapter_pairs_free(pair, pairs);
    weft_adapter_close(adapter);
    weft_graph_free(g);
    return status;
}

static weft_status run_convert(const weft_args *args)
{
    int count;
    const char *const *given = weft_args_positional(args, &count);
    weft_model model;
    weft_graph *g;
    if (weft_args_string(args, "--for")) {
        if (!weft_args_string(args, "--config"))
            return weft_fail(WEFT_E_ARG,
                             "--for: whose adapter is %s? Give the model: --config "
                             "config.json, its folder, or the name of a size",
                             given[0]);
        WEFT_TRY(weft_model_open(weft_args_string(args, "--config"), &model));
        return convert_adapter(args, &model, given[0], given[1]);
    }
    WEFT_TRY(find_model(args, given[0], &model));
    WEFT_TRY(weft_convert_graph(&model, &g));
    const weft_status_code status = convert_weights(args, &model, g, given[0], given[1]);
    weft_graph_free(g);
    return status;
}

static const weft_option options[] = {
    {.name = "--to",
     .value_name = "NAMES",
     .fallback = "diffusers",
     .help = "diffusers: a folder with config.json; original: one file in the names of the "
             "model's authors; comfyui: the same behind model.diffusion_model. (an autoencoder's: "
             "vae.)"},
    {.name = "--dtype",
     .value_name = "TYPE",
     .fallback = "own",
     .help =
         "own: each tensor's, f32 where it was packed and of adapters; f32, bf16, f16; f8: e4m3 "
         "without factors for matrices and kernels, bf16 for the rest"},
    {.name = "--shard-size",
     .value_name = "BYTES",
     .fallback = "0",
     .help = "files of at most so much (5GB) with an index; 0: one file"},
    {.name = "--config",
     .value_name = "PATH",
     .help = "the model's config.json, its folder, or the name of a published size; without it "
             "what stands beside the weights, or the size whose tensors they are"},
    {.name = "--lora",
     .value_name = "FILE[:WEIGHT]",
     .help = "merge this adapter into the weights, at a weight; several are added",
     .repeated = true},
    {.name = "--for",
     .value_name = "READER",
     .help = "IN is an adapter: write it for diffusers, peft, kohya or comfyui into the folder "
             "OUT; --config says whose it is"},
};

const weft_verb weft_verb_convert = {
    .name = "convert",
    .summary = "write weights in the names, types and files that other programs read",
    .usage = "IN OUT [--to diffusers|original|comfyui] [--dtype TYPE] [--lora FILE[:WEIGHT]]... | "
             "ADAPTER OUT --for READER --config MODEL",
    .details =
        "IN is one model: a diffusers folder, or a file in any names and packing that weft reads\n"
        "(safetensors, GGUF, torch's). OUT is a folder (--to diffusers) or a .safetensors file,\n"
        "and must not be there yet. Tensors go one by one through a few MiB of memory (with\n"
        "--lora: as much as the largest takes in f32); files have their names when they are\n"
        "whole. What is fused in the authors' files is fused and cut, halves are exchanged; there\n"
        "and back is the same to the bit.\n"
        "\n"
        "A tensor that is missing, too much, or of another shape than the config says, is an\n"
        "error before anything is written.\n",
    .examples =
        "weft convert runs/dit/model/transformer dit.safetensors --to original --dtype bf16\n"
        "weft convert wan.safetensors merged --lora style.safetensors:0.8\n"
        "weft convert runs/lora/adapter for-comfy --for comfyui --config wan-1.3b\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 2,
    .max_positional = 2,
    .stops_cleanly = true,
    .run = run_convert,
};
