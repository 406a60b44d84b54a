/* weft doctor: reports the properties of the machine and the usable libraries. */
#include "cli/options/args.h"
#include "cli/options/parallel_option.h"
#include "cli/options/verb.h"
#include "doctor/collective_report.h"
#include "doctor/doctor_ranks.h"
#include "doctor/gpu_report.h"
#include "doctor/machine_report.h"

/* Rejects options that have no effect: each table is printed alone, and two options belong to one
 * table. */
static weft_status refuse_idle(const weft_args *args)
{
    static const char *const alone[] = {"--collectives", "--ranks", "--measure", "--gpu"};
    static const char *const of[][2] = {
        {"--out", "--collectives"}, {"--parallel", "--ranks"}, {"--kernels", "--gpu"}};
    const char *first = NULL;
    for (int i = 0; i < WEFT_COUNT(alone); i++) {
        if (!weft_args_flag(args, alone[i]))
            continue;
        if (first)
            return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = alone[i]),
                              "this option cannot be combined with %s, because each prints its own "
                              "table; call weft doctor once with each",
                              first);
        first = alone[i];
    }
    for (int i = 0; i < WEFT_COUNT(of); i++)
        if (weft_args_flag(args, of[i][0]) && !weft_args_flag(args, of[i][1]))
            return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = of[i][0]),
                              "this option has an effect only with %s; add that or remove this",
                              of[i][1]);
    return WEFT_OK;
}

static weft_status survey_ranks(const weft_args *args)
{
    weft_parallel parallel;
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the report"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_args_parallel(args, arena, &parallel));
    WEFT_GO(weft_doctor_ranks(&parallel));
out:
    weft_arena_free(arena);
    return status;
}

static weft_status run_doctor(const weft_args *args)
{
    const char *collectives = weft_args_string(args, "--collectives");
    WEFT_TRY(refuse_idle(args));
    if (collectives)
        return weft_doctor_collectives(collectives, weft_args_string(args, "--out"));
    if (weft_args_flag(args, "--ranks"))
        return survey_ranks(args);
    if (weft_args_flag(args, "--gpu"))
        return weft_doctor_gpu(weft_args_flag(args, "--kernels"));
    weft_doctor_machine();
    return weft_args_flag(args, "--measure") ? weft_doctor_measure() : WEFT_OK;
}

static const weft_option options[] = {
    {"--measure", NULL, NULL,
     "also measure matrix products by type, and memory (about five seconds)"},
    {"--gpu", NULL, NULL,
     "compare the kernels of backend cuda with the reference, measure rates, and write "
     "gpu-report.json"},
    {"--kernels", NULL, NULL,
     "with --gpu: also print the implementations of each op, their verdicts and choices"},
    {"--ranks", NULL, NULL, "under mpirun: measure each rank and report slow ranks"},
    {"--parallel", "KEY=VALUE", NULL,
     "with --ranks: show the axes of a mesh on the ranks, e.g. tp=2; keys of the config section "
     "`parallel`",
     .repeated = true},
    {"--collectives", "RANKS[/PER_NODE]", NULL,
     "print the algorithm of each collective by size; under mpirun with RANKS ranks, time all "
     "algorithms"},
    {"--out", "FILE.json", NULL,
     "with --collectives: write the fastest algorithms; runs with WEFT_COLLECTIVES=FILE use them",
     .result = WEFT_RESULT_FILE},
};

const weft_verb weft_verb_doctor = {
    .name = "doctor",
    .summary = "report the hardware and libraries that weft finds and can use",
    .usage = "[--measure]\n--gpu [--kernels]\n--collectives RANKS[/PER_NODE] [--out FILE]\n"
             "--ranks [--parallel KEY=VALUE]...",
    .details = "Prints processor, cores, SIMD levels, units for bf16 and int8, memory, library\n"
               "versions, MPI, BLAS and OpenMP threads, codecs, and whether a GPU driver exists.\n"
               "--measure adds the best rates of matrix products in f32, bf16 and int8, with one\n"
               "thread and with all, and of memory. Progress lines of `weft train` refer to\n"
               "such rates of f32 and bf16.\n"
               "\n"
               "--gpu runs every kernel of a training step of small models on the GPU, in f32\n"
               "TF32 and bf16, and compares the results with the reference. Then it measures\n"
               "products, attention, convolutions and memory as shares of the GPU's peaks, and\n"
               "copies inside the GPU, to pinned memory and to other GPUs. gpu-report.json has\n"
               "the results. Under mpirun, rank 0 does this, and all ranks measure NCCL.\n"
               "--kernels measures the implementations of operations, of weft and of libraries,\n"
               "and prints which one is used.\n"
               "\n"
               "--collectives prints a table instead: for each collective and size the chosen\n"
               "algorithm and its cost. Costs are built in, or under mpirun measured between the\n"
               "ranks. Under mpirun with RANKS ranks each algorithm is timed, and the sizes are\n"
               "found at which the fastest one changes.\n"
               "\n"
               "--ranks, started like a run under mpirun, prints a table of the ranks: host,\n"
               "NUMA node, cores, matrix products and memory while all ranks compute, and links\n"
               "to neighbours on the same and on other machines. Ranks worse than the median are\n"
               "reported: products and memory by 20 %, links by half, latency by a factor of\n"
               "three. For each axis of --parallel the table counts the groups inside a NUMA\n"
               "node, inside a machine and between machines.\n",
    .see = "docs/reference/verbs/doctor.md",
    .examples = "weft doctor\n"
                "mpirun -n 8 weft doctor --gpu\n"
                "mpirun -n 2 weft doctor --collectives 2 --out here.json\n"
                "mpirun -n 8 weft doctor --ranks --parallel tp=4\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .run = run_doctor,
};
