/* weft doctor: what of the machine and the libraries is found and usable. */
#include "base/fs.h"
#include "base/log.h"
#include "cli/doctor_ranks.h"
#include "cli/verb.h"
#include "runtime/comm.h"
#include "runtime/measure.h"

#include <cblas.h>
#include <dlfcn.h>
#include <dnnl.h>
#include <hwloc.h>
#include <jansson.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <mpi.h>
#include <omp.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include <yaml.h>

static void print_simd(void)
{
    printf("%-16s ", "SIMD");
#if defined(__x86_64__)
    __builtin_cpu_init();
    printf("SSE2%s%s%s%s\n", __builtin_cpu_supports("avx") ? ", AVX" : "",
           __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? ", AVX2 + FMA" : "",
           __builtin_cpu_supports("avx512f") ? ", AVX-512" : "",
           __builtin_cpu_supports("avx512bf16") ? ", AVX-512 BF16" : "");
#elif defined(__aarch64__)
    printf("NEON\n");
#else
    printf("the compiler's baseline\n");
#endif
}

/* hwloc knows packages, cores behind hyper-threads, and caches. */
static void print_machine(void)
{
    hwloc_topology_t topology;
    char memory[32], available[32];
    const int64_t page = sysconf(_SC_PAGESIZE);
    if (hwloc_topology_init(&topology) == 0) {
        if (hwloc_topology_load(topology) == 0) {
            const hwloc_obj_t l3 = hwloc_get_obj_by_type(topology, HWLOC_OBJ_L3CACHE, 0);
            const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
            const char *model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
            printf("%-16s %s\n", "processor", model ? model : "not known");
            printf("%-16s %d in %d packages, %d hardware threads, %ld of them for this process\n",
                   "cores", hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE),
                   hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE),
                   hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU), (long)omp_get_num_procs());
            if (l3)
                printf("%-16s %s L3\n", "cache",
                       weft_format_bytes((int64_t)l3->attr->cache.size, memory));
        }
        hwloc_topology_destroy(topology);
    }
    print_simd();
    printf("%-16s %s, %s free\n", "memory",
           weft_format_bytes(sysconf(_SC_PHYS_PAGES) * page, memory),
           weft_format_bytes(sysconf(_SC_AVPHYS_PAGES) * page, available));
}

static void print_libraries(void)
{
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(mpi, &length);
    mpi[strcspn(mpi, ",\n")] = 0;
    const dnnl_version_t *dnnl = dnnl_version();
    const unsigned codec = avcodec_version(), format = avformat_version();
    printf("%-16s %s\n", "MPI", mpi);
    printf("%-16s %s, %d threads\n", "BLAS", openblas_get_config(), openblas_get_num_threads());
    printf("%-16s %d.%d.%d\n", "oneDNN", dnnl->major, dnnl->minor, dnnl->patch);
    printf("%-16s up to %d threads%s%s\n", "OpenMP", omp_get_max_threads(),
           getenv("OMP_NUM_THREADS") ? ", OMP_NUM_THREADS=" : "",
           getenv("OMP_NUM_THREADS") ? getenv("OMP_NUM_THREADS") : "");
    printf("%-16s libavcodec %u.%u.%u, libavformat %u.%u.%u\n", "FFmpeg", codec >> 16,
           codec >> 8 & 255, codec & 255, format >> 16, format >> 8 & 255, format & 255);
    printf("%-16s %s, H.264 encoder %s\n", "codecs",
           avcodec_find_decoder(AV_CODEC_ID_H264) ? "H.264 decoder found" : "H.264 decoder MISSING",
           avcodec_find_encoder_by_name("libx264")
               ? "libx264 found"
               : "libx264 MISSING: weft generate cannot write mp4");
    printf("%-16s jansson %s; libyaml %s; libpng %s; xxhash %u\n", "others", JANSSON_VERSION,
           yaml_get_version_string(), png_get_libpng_ver(NULL), XXH_versionNumber());
}

static void print_gpu(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    printf("%-16s CUDA driver %s; weft computes on the processor\n", "GPU",
           driver ? "found" : "not found");
    if (driver)
        dlclose(driver);
}

/* "1024/8": so many ranks, on nodes of so many. */
static weft_status read_span(const char *text, weft_span *span)
{
    char end;
    *span = (weft_span){.nodes = 1};
    const int found = sscanf(text, "%d/%d%c", &span->ranks, &span->per_node, &end);
    if ((found != 1 && found != 2) || span->ranks < 2 || span->ranks > 65536 ||
        (found == 2 && (span->per_node < 1 || span->ranks % span->per_node)))
        return weft_fail(WEFT_E_ARG,
                         "--collectives %s: write ranks, or ranks/ranks of a node that divide them",
                         text);
    if (found == 1)
        span->per_node = span->ranks;
    span->nodes = span->ranks / span->per_node;
    return WEFT_OK;
}

/* Of the ranks that are here: by timing. */
static weft_status time_collectives(weft_comm *comm, const weft_link_costs *costs, const char *out,
                                    weft_buf *table)
{
    weft_choices choices = {0};
    weft_status_code status = weft_comm_measure_choices(comm, costs, &choices, table);
    if (status == WEFT_OK && out && weft_comm_rank(comm) == 0)
        status = weft_choices_save(&choices, out);
    weft_choices_free(&choices);
    WEFT_TRY(status);
    if (out)
        weft_buf_printf(table,
                        "jobs of ranks that lie like these take the quickest ones with "
                        "WEFT_COLLECTIVES=%s in their environment, else those by the costs built "
                        "in\n",
                        out);
    else
        weft_buf_printf(table, "jobs take what stands under \"built in\"; --out FILE keeps the "
                               "quickest ones for them\n");
    return WEFT_OK;
}

/* Under mpirun by costs measured there, and those of as many ranks by timing. */
static weft_status print_collectives(const char *text, const char *out)
{
    weft_span span;
    weft_buf table = {0};
    weft_link_costs costs = weft_link_costs_default;
    weft_comm *comm = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(read_span(text, &span));
    WEFT_GO(weft_comm_open_mpi(&comm));
    const int ranks = weft_comm_ranks(comm);
    if (out && ranks != span.ranks)
        WEFT_GO(
            weft_fail(WEFT_E_ARG,
                      "--out keeps what was timed, and %d rank%s here: mpirun -n %d weft doctor "
                      "--collectives %s --out %s",
                      ranks, ranks == 1 ? " is" : "s are", span.ranks, text, out));
    if (out && weft_comm_rank(comm) == 0)
        WEFT_GO(weft_file_try(out));
    if (ranks > 1)
        WEFT_GO(weft_comm_measure(comm, &costs));
    WEFT_GO(weft_algorithm_table(&span, &costs, &table));
    weft_buf_printf(&table, "by the model: costs of messages %s\n\n",
                    ranks > 1 ? "measured between these ranks" : "built in");
    if (ranks == span.ranks)
        WEFT_GO(time_collectives(comm, &costs, out, &table));
    WEFT_GO(weft_buf_check(&table));
    if (weft_comm_rank(comm) == 0)
        fputs(table.data, stdout);
    status = weft_comm_barrier(comm);
out:
    if (status != WEFT_OK)
        weft_comm_give_up(comm);
    weft_comm_free(comm);
    weft_buf_free(&table);
    return status;
}

/* What would do nothing is refused: a table is printed alone, and two options belong to one. */
static weft_status refuse_idle(const weft_args *args)
{
    static const char *const alone[] = {"--collectives", "--ranks", "--measure"};
    static const char *const of[][2] = {{"--out", "--collectives"}, {"--parallel", "--ranks"}};
    const char *first = NULL;
    for (int i = 0; i < WEFT_COUNT(alone); i++) {
        if (!weft_args_flag(args, alone[i]))
            continue;
        if (first)
            return weft_fail(WEFT_E_ARG,
                             "%s does nothing beside %s, which prints a table of its own: leave "
                             "one of them out, or call weft doctor once with each",
                             alone[i], first);
        first = alone[i];
    }
    for (int i = 0; i < WEFT_COUNT(of); i++)
        if (weft_args_flag(args, of[i][0]) && !weft_args_flag(args, of[i][1]))
            return weft_fail(WEFT_E_ARG, "%s goes with %s: give that, too, or leave it out",
                             of[i][0], of[i][1]);
    return WEFT_OK;
}

static weft_status run_doctor(const weft_args *args)
{
    const char *collectives = weft_args_string(args, "--collectives");
    WEFT_TRY(refuse_idle(args));
    if (collectives)
        return print_collectives(collectives, weft_args_string(args, "--out"));
    if (weft_args_flag(args, "--ranks"))
        return weft_doctor_ranks(args);
    printf("%-16s %s\n", "weft", WEFT_VERSION);
    print_machine();
    print_libraries();
    print_gpu();
    if (!weft_args_flag(args, "--measure"))
        return WEFT_OK;
    double gflops, bytes;
    const int threads = omp_get_max_threads();
    WEFT_TRY(weft_measure_gemm(&weft_backend_cpu, 1, &gflops));
    printf("%-16s %.1f GFLOP/s, f32 1024x1024x1024, %d threads\n", "GEMM", gflops, threads);
    omp_set_num_threads(1);
    weft_status_code status = weft_measure_gemm(&weft_backend_cpu, 1, &gflops);
    omp_set_num_threads(threads);
    WEFT_TRY(status);
    printf("%-16s %.1f GFLOP/s, one thread\n", "", gflops);
    WEFT_TRY(weft_measure_memory(128 << 20, 1, &bytes));
    printf("%-16s %.1f GB/s, copy, read and written bytes counted, %d threads\n", "memory speed",
           1e-9 * bytes, threads);
    return WEFT_OK;
}

static const weft_option options[] = {
    {.name = "--measure", .help = "also measure matrix products and memory (about four seconds)"},
    {.name = "--ranks",
     .help = "under mpirun: measure each rank, and name those that are worse than the others"},
    {.name = "--parallel",
     .value_name = "KEY=VALUE",
     .help = "with --ranks: keys of a training config's section parallel, whose axes are shown on "
             "the ranks (tp=2)",
     .repeated = true},
    {.name = "--collectives",
     .value_name = "RANKS[/PER_NODE]",
     .help = "print instead which algorithm each collective takes among so many ranks, by size; "
             "under mpirun with as many, each one is timed"},
    {.name = "--out",
     .value_name = "FILE.json",
     .help = "with --collectives: keep which were quickest, for runs with WEFT_COLLECTIVES=FILE"},
};

const weft_verb weft_verb_doctor = {
    .name = "doctor",
    .summary = "say what of this machine and its libraries weft finds and can use",
    .usage = "[--measure] [--collectives RANKS[/PER_NODE] [--out FILE]] [--ranks]",
    .details =
        "Lists processor, cores, SIMD levels, memory, the libraries with their versions, MPI,\n"
        "BLAS and OpenMP threads, codecs, and whether a GPU driver is found.\n"
        "With --measure also the best speed of f32 matrix products, which progress lines\n"
        "of `weft train` are held against, and of memory. With --collectives only a table: for\n"
        "every collective and size the algorithm that is taken and what it costs, by built-in\n"
        "costs of messages, or under mpirun by those measured between its ranks. Of as many ranks\n"
        "as are there every algorithm is also timed, and the sizes at which one overtakes another\n"
        "are found; WEFT_COLLECTIVES=FILE, what --out wrote, has jobs choose by them. With "
        "--ranks,\n"
        "under mpirun as a run would be started: a table of where each rank runs (host, NUMA\n"
        "node, cores), its matrix products and memory while all others compute too, and its links\n"
        "to neighbours on its machine and on others; ranks that are worse than the median are\n"
        "named (products and memory by 20 %, links by half, latency by three times), and each\n"
        "axis of --parallel is shown with what its groups lie inside of.",
    .examples = "weft doctor\nweft doctor --measure\nweft doctor --collectives 64/8\n"
                "mpirun -n 2 weft doctor --collectives 2 --out here.json\n"
                "mpirun -n 8 weft doctor --ranks --parallel tp=4\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .run = run_doctor,
};
