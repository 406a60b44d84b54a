/* weft convert: writes weights with the names, types and files that other programs read. */
#include "base/fs.h"
#include "cli/convert_source.h"
#include "cli/options/args.h"
#include "cli/options/lora_option.h"
#include "cli/options/remote_places.h"
#include "convert/convert_adapter.h"
#include "convert/convert_model.h"
#include "convert/convert_target.h"
#include "convert/widen_model.h"
#include "graph/graph.h"
#include "model/adapter_write.h"

#include <stdio.h>
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
        weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = option, .value = text),
                   "'%.80s' is unknown; use one of %s", text, all.data ? all.data : "?");
    weft_buf_free(&all);
    return status;
}

static weft_status convert_weights(const weft_args *args, const weft_model *model,
                                   const weft_graph *g, const char *in, const char *out)
{
    static const char *const forms[] = {"diffusers", "original", "comfyui", NULL},
                             *const types[] = {"f32", "bf16", "f16", "f8", "own", NULL};
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F8E4M3,
                                        WEFT_DTYPE_COUNT};
    weft_adapter *adapter[MOST_ADAPTERS] = {0};
    weft_adapter_use use[MOST_ADAPTERS];
    weft_model_conversion c = {.model = model, .in = in, .adapter = use};
    char folder[1100], stem[300];
    int to, dtype, loras;
    const char *path[MOST_ADAPTERS], *const *lora = weft_args_list(args, "--lora", &loras);
    WEFT_TRY(one_of(args, "--to", forms, &to));
    WEFT_TRY(one_of(args, "--dtype", types, &dtype));
    WEFT_TRY(weft_args_i64(args, "--shard-size", 0, INT64_MAX, &c.shard_bytes));
    c.widens = weft_args_string(args, "--in-channels") != NULL;
    c.to = (weft_convert_to)to;
    c.dtype = dtypes[dtype];
    WEFT_TRY(weft_convert_target(out, &c, folder, stem));
    if (loras && c.widens)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--in-channels"),
                          "the adapter belongs to the model before. Merge it first, then convert "
                          "the result with --in-channels.");
    if (loras > MOST_ADAPTERS)
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--lora", WEFT_NUMBER(loras)),
                          "%d adapters are given; the maximum is %d", loras, MOST_ADAPTERS);
    weft_status_code status = WEFT_OK;
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the conversion"));
    for (int i = 0; i < loras; i++) {
        WEFT_GO(weft_args_weighted_file(lora[i], arena, &path[i], &use[i].weight));
        WEFT_GO(weft_adapter_open(model->family, g, "", path[i], &adapter[i]));
        use[i].adapter = adapter[i];
    }
    c.adapters = loras;
    WEFT_GO(weft_convert_model(&c, g));
    for (int i = 0; i < loras; i++)
        WEFT_GO(weft_convert_warn_settings(path[i], use[i].weight));
out:
    for (int i = 0; i < loras; i++)
        weft_adapter_close(adapter[i]);
    weft_arena_free(arena);
    return status;
}

/* Rejects options that would have no effect. */
static weft_status refuse_options_of_models(const weft_args *args)
{
    int loras;
    weft_args_list(args, "--lora", &loras);
    return loras || weft_args_string(args, "--in-channels") ||
                   strcmp(weft_args_string(args, "--to"), "diffusers") ||
                   strcmp(weft_args_string(args, "--shard-size"), "0")
               ? weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--lora-format"),
                            "this option writes an adapter, and --lora, --to, --shard-size and "
                            "--in-channels are for whole models; use one or the other")
               : WEFT_OK;
}

static weft_status convert_adapter(const weft_args *args, const weft_model *model, const char *in,
                                   const char *out)
{
    static const char *const types[] = {"f32", "bf16", "f16", "own", NULL};
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F32};
    int format, dtype;
    WEFT_TRY(one_of(args, "--lora-format", weft_adapter_formats, &format));
    WEFT_TRY(one_of(args, "--dtype", types, &dtype));
    WEFT_TRY(refuse_options_of_models(args));
    if (!strcmp(weft_path_extension(out), "safetensors"))
        return weft_error(
            WEFT_MSG_FILE_NAME, WEFT_AT(.file = out),
            "--lora-format writes a folder, because its format prescribes the names of the "
            "files; give a name without .safetensors");
    WEFT_TRY(weft_convert_refuse_existing(out, true));
    return weft_convert_adapter(model, in, out, (weft_adapter_format)format, dtypes[dtype]);
}

static weft_status_code convert(const weft_args *args, const char *in, const char *out)
{
    weft_model model;
    weft_graph *g;
    if (weft_args_string(args, "--lora-format")) {
        if (!weft_args_string(args, "--config"))
            return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--config"),
                              "--lora-format needs the model of the adapter %s: its config.json, "
                              "its folder, or the name of a size",
                              in);
        WEFT_TRY(weft_model_open(weft_args_string(args, "--config"), &model));
        return convert_adapter(args, &model, in, out);
    }
    WEFT_TRY(weft_convert_find_model(weft_args_string(args, "--config"), in, &model));
    if (weft_args_string(args, "--in-channels")) {
        int64_t channels;
        const weft_model before = model;
        WEFT_TRY(weft_args_i64(args, "--in-channels", 1, 1 << 16, &channels));
        WEFT_TRY(weft_widen_model(&before, channels, &model));
    }
    WEFT_TRY(weft_convert_graph(&model, &g));
    const weft_status_code status = convert_weights(args, &model, g, in, out);
    weft_graph_free(g);
    return status;
}

static weft_status run_convert(const weft_args *args)
{
    int count;
    const char *const *place = weft_args_positional(args, &count);
    return weft_remote_places_run(args, place[0], place[1], false, convert);
}

static const weft_option options[] = {
    {"--to", "NAMES", "diffusers",
     "names of the tensors; diffusers: a folder with config.json, original: one file as of the "
     "authors, comfyui: the same with the prefix model.diffusion_model. (autoencoder: vae.)",
     .choices = "diffusers original comfyui"},
    {"--dtype", "TYPE", "own",
     "type of the tensors; own: as stored (f32 for quantized tensors and adapters), f32, bf16, "
     "f16, f8: e4m3 without scales for matrices and kernels, bf16 for the rest"},
    {"--shard-size", "BYTES", "0",
     "maximum size of a file, e.g. 5GB; more files get an index. 0: one file"},
    {"--config", "PATH", NULL,
     "config.json of the model, its folder, or the name of a published size; by default the "
     "config next to the weights, or the size whose tensors match",
     .copied = true},
    {"--in-channels", "N", NULL,
     "add input channels after the noisy latents to a denoiser that begins with a convolution, for "
     "an image (I2V) or a control video; their weights are 0, so predictions do not change"},
    {"--lora", "FILE[:WEIGHT]", NULL, "adapter to merge into the weights; several are added",
     .repeated = true, .copied = true},
    {"--lora-format", "FORMAT", NULL,
     "write the adapter IN to the folder OUT; diffusers, peft, kohya, comfyui or longcat. --config "
     "names the adapter's model",
     WEFT_ALSO("--for"), .choices = "diffusers peft kohya comfyui longcat"},
};

const weft_verb weft_verb_convert = {
    .name = "convert",
    .summary = "write weights with other tensor names, types and files",
    .usage = "IN OUT [--to diffusers|original|comfyui] [--dtype TYPE]\n"
             "IN OUT --lora FILE[:WEIGHT] [--lora FILE[:WEIGHT]]...\n"
             "ADAPTER OUT --lora-format FORMAT --config MODEL",
    .details = "IN is one model: a diffusers folder, or a safetensors, GGUF or torch file. OUT\n"
               "is a new folder (--to diffusers) or a new .safetensors file. Both may be s3://.\n"
               "A missing, extra or misshapen tensor is an error before anything is written.\n"
               "\n"
               "Tensors are converted one at a time in a few MiB of memory. --lora needs the\n"
               "largest tensor in f32. A file gets its name when it is complete. Tensors that\n"
               "the authors' files fuse are fused or split, and exchanged halves are exchanged.\n"
               "A conversion there and back is bitwise identical.\n",
    .see = "docs/reference/models.md, docs/reference/formats.md",
    .examples = "weft convert runs/dit/model/transformer dit.safetensors --to original\n"
                "weft convert wan/transformer wide --in-channels 32\n"
                "weft convert wan.safetensors merged --lora style.safetensors:0.8\n"
                "weft convert adapter for-comfy --lora-format comfyui --config wan-1.3b\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 2,
    .max_positional = 2,
    .remote_positional = true,
    .stops_cleanly = true,
    .run = run_convert,
};
