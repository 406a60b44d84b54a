/* weft inspect: prints the graph of a model or of a run, its passes and its buffers. */
#include "cli/options/args.h"
#include "cli/options/parallel_option.h"
#include "cli/options/remote_places.h"
#include "cli/replaced_verb.h"
#include "inspect/inspect_model.h"
#include "inspect/inspect_run.h"

#include <string.h>

static const weft_option options[] = {
    {"--batch-size", "N", "1", "samples in a step (of all ranks together)", WEFT_ALSO("--batch")},
    {"--frames", "N", "81", "frames of the video; by default the nearest number that fits"},
    {"--height", "N", "480", "rows of the video"},
    {"--width", "N", "832", "columns of the video"},
    {"--text-tokens", "N", "512", "text tokens; by default the pipeline's", WEFT_ALSO("--text")},
    {"--recompute", "PATTERN", NULL,
     "recompute matching scopes or ops in the backward; '*' matches any text", .repeated = true},
    {"--mesh", "AXES", "", "mesh of the rank, e.g. dp=2,tp=4"},
    {"--graph", NULL, NULL, "print the graph, one node per line"},
    {"--rank", "N", "0", "rank of the mesh; with --set backend=virtual the rank is also set up",
     .group = "graph"},
    {"--on", "CLUSTER", NULL, "print the seconds of a step, from a profile or a cluster",
     WEFT_ALSO("--cluster"), .group = "graph", .copied = true},
    {"--roofline", "CLUSTER", NULL,
     "each launch on a GPU and its minimum time: h100, a100, rtx4090, or a file", .copied = true},
    {"--passes", NULL, NULL, "print the changes of each pass", .group = "graph"},
    {"--tensors", NULL, NULL, "list only the parameters, one per line: \"proj_out.bias f32 64\"",
     .group = "model"},
    {"--latent-size", NULL, NULL, "--frames, --height and --width are sizes of latents",
     WEFT_ALSO("--latents"), .group = "model"},
    {"--training-step", NULL, NULL, "graph of a training step; forward, backward, AdamW and EMA",
     WEFT_ALSO("--train"), .group = "model"},
    {"--comm-overlap", "SPEC", "", "layer slices, as in weft generate", WEFT_ALSO("--slices"),
     .group = "model"},
    {"--backend", "NAME", "cpu", "backend of the kernels; cpu, cuda, auto, ref or virtual",
     .group = "model"},
    {"--top", "N", "8", "number of the largest kinds of nodes and buffers", .group = "model"},
    {"--bf16", NULL, NULL, "compute in mixed precision, as `precision: bf16`", .group = "model"},
    {"--json", NULL, NULL, "print the figures, or with --roofline the launches, as JSON"},
};
static const weft_option_group groups[] = {
    {"graph", "options of weft inspect graph: rank, passes, seconds"},
    {"model", "options of weft inspect model: tensors, sizes, backend, JSON"},
    {0},
};

/* Rejects options that only the other of the two commands uses. */
static weft_status check_options(const weft_args *args, const char *word)
{
    static const struct {
        const char *option, *word;
    } only[] = {
        {"--tensors", "model"},     {"--latent-size", "model"}, {"--training-step", "model"},
        {"--text-tokens", "model"}, {"--top", "model"},         {"--bf16", "model"},
        {"--backend", "model"},     {"--on", "graph"},          {"--passes", "graph"},
        {"--set", "graph"},         {"--rank", "graph"}};
    for (size_t i = 0; i < sizeof only / sizeof *only; i++)
        if (weft_args_flag(args, only[i].option) && strcmp(only[i].word, word))
            return weft_error(
                WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = only[i].option),
                "this is an option of weft inspect %s, not of weft inspect %s; remove it",
                only[i].word, word);
    return WEFT_OK;
}

static weft_status inspect_model(const weft_args *args, const char *path)
{
    int64_t top;
    weft_inspect_model_options o = {.latents = weft_args_flag(args, "--latent-size"),
                                    .train = weft_args_flag(args, "--training-step"),
                                    .tensors = weft_args_flag(args, "--tensors"),
                                    .frames_given = weft_args_flag(args, "--frames"),
                                    .text_given = weft_args_flag(args, "--text-tokens"),
                                    .graph = weft_args_flag(args, "--graph"),
                                    .json = weft_args_flag(args, "--json"),
                                    .bf16 = weft_args_flag(args, "--bf16"),
                                    .backend = weft_args_string(args, "--backend"),
                                    .roofline = weft_args_string(args, "--roofline"),
                                    .overlap = weft_comm_overlap_default};
    if (o.roofline && !weft_args_flag(args, "--backend"))
        o.backend = "cuda";
    o.recompute = weft_args_list(args, "--recompute", &o.recompute_count);
    if (o.recompute_count && !o.train)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--recompute"),
                          "only a training step recomputes; add --training-step, or remove it");
    WEFT_TRY(weft_args_i64(args, "--batch-size", 1, 1 << 20, &o.video.batch));
    WEFT_TRY(weft_args_i64(args, "--frames", 1, 1 << 20, &o.video.frames));
    WEFT_TRY(weft_args_i64(args, "--height", 1, 1 << 20, &o.video.height));
    WEFT_TRY(weft_args_i64(args, "--width", 1, 1 << 20, &o.video.width));
    WEFT_TRY(weft_args_i64(args, "--text-tokens", 1, 1 << 20, &o.video.text));
    WEFT_TRY(weft_args_i64(args, "--top", 0, 64, &top));
    o.top = (int)top;
    WEFT_TRY(weft_mesh_parse(weft_args_string(args, "--mesh"), &o.mesh));
    WEFT_TRY(weft_args_comm_overlap(args, &o.overlap));
    if (!o.graph && !o.roofline && (o.train || !strcmp(o.backend, "virtual")))
        weft_print_replaced(o.train ? "weft inspect model --training-step"
                                    : "weft inspect model --backend virtual",
                            o.train ? "weft estimate --model PATH --training-step"
                                    : "weft estimate --model PATH --execute");
    return weft_inspect_model(&o, path);
}

/* Reads an option that replaces a size of the run; 0: not given. */
static weft_status read_size(const weft_args *args, const char *option, int64_t *out)
{
    *out = 0;
    return weft_args_flag(args, option) ? weft_args_i64(args, option, 1, 1 << 20, out) : WEFT_OK;
}

static weft_status inspect_graph(const weft_args *args, const char *path)
{
    weft_run run;
    int64_t rank = -1;
    weft_inspect_run_options o = {.graph = weft_args_flag(args, "--graph"),
                                  .passes = weft_args_flag(args, "--passes"),
                                  .mesh = weft_args_string(args, "--mesh"),
                                  .cluster = weft_args_string(args, "--on"),
                                  .roofline = weft_args_string(args, "--roofline"),
                                  .json = weft_args_flag(args, "--json")};
    if (o.json && !o.roofline)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--json"),
                          "this is an option of weft inspect model, and of weft inspect graph with "
                          "--roofline; add that, or use weft estimate CONFIG --json");
    o.recompute = weft_args_list(args, "--recompute", &o.recompute_count);
    WEFT_TRY(read_size(args, "--batch-size", &o.size.batch));
    WEFT_TRY(read_size(args, "--frames", &o.size.frames));
    WEFT_TRY(read_size(args, "--height", &o.size.height));
    WEFT_TRY(read_size(args, "--width", &o.size.width));
    if (weft_args_flag(args, "--rank"))
        WEFT_TRY(weft_args_i64(args, "--rank", 0, INT32_MAX, &rank));
    o.rank = (int)rank;
    if (!o.graph && !o.passes && !o.roofline && rank < 0)
        weft_print_replaced("weft inspect graph CONFIG", "weft estimate CONFIG");
    weft_arena *arena = weft_arena_create();
    weft_status_code status;
    WEFT_GO(WEFT_ALLOCATED(arena, "the report"));
    WEFT_GO(weft_args_config(args, arena, path, &run));
    WEFT_GO(weft_inspect_run(&run, path, &o, arena));
out:
    weft_arena_free(arena);
    return status;
}

static weft_status_code inspect(const weft_args *args, const char *path, const char *out)
{
    int count;
    (void)out;
    return strcmp(weft_args_positional(args, &count)[0], "model") ? inspect_graph(args, path)
                                                                  : inspect_model(args, path);
}

static weft_status run_inspect(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    if (strcmp(words[0], "model") && strcmp(words[0], "graph"))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.value = words[0]),
                          "the first word after weft inspect must be graph or model, not '%.80s'",
                          words[0]);
    WEFT_TRY(check_options(args, words[0]));
    return weft_remote_places_run(args, words[1], NULL, true, inspect);
}

const weft_verb weft_verb_inspect = {
    .name = "inspect",
    .summary = "print the graph of a model or a run, its passes, tensors and buffers",
    .usage = "graph CONFIG [options]\nmodel PATH [options]",
    .details = "graph: prints the programs of one rank for each training stage of CONFIG.\n"
               "model: prints the graph of a model folder, config.json or published size.\n"
               "`weft estimate` prints the memory, FLOPs and seconds of a run or a generation.\n"
               "\n"
               "graph: for each program, prints the nodes and the bytes of the arena, weights,\n"
               "workspace and inputs. --graph prints the nodes, with the start and the wait of\n"
               "each collective. --passes prints the changes of each pass. --mesh, --batch-size,\n"
               "--frames, --height, --width and --recompute replace the values of the config.\n"
               "--rank with --set backend=virtual also sets up this rank, without other ranks.\n"
               "--roofline prints every launch of backend cuda instead: FLOPs, bytes, minimum\n"
               "time and occupancy, without a GPU.\n"
               "\n"
               "model: builds the graph of PATH for one video size and places every buffer.\n"
               "PATH is a diffusers folder, the folder of one model, a config.json, a location\n"
               "of one of the three (s3://), or a published size (wan-1.3b). Weights are neither\n"
               "read nor allocated. If PATH is a file of weights, prints the family, the naming,\n"
               "the types and the published size.\n",
    .see = "docs/explanation/graph.md, docs/explanation/runtime.md",
    .examples = "weft inspect graph examples/vae.yaml --passes\n"
                "weft inspect graph run.yaml --rank 777 --set backend=virtual\n"
                "weft inspect model Wan2.1-T2V-1.3B/transformer --height 480 --width 832\n"
                "weft inspect model config.json --graph --frames 5 --height 64 --width 64\n"
                "weft inspect model Wan2.1-T2V-1.3B --training-step --bf16 --roofline h100",
    .config = &weft_run_section,
    .groups = groups,
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 2,
    .max_positional = 2,
    .remote_positional = true,
    .run = run_inspect,
};
