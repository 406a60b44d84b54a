/* Hardware and libraries of this machine as text. */
#include "doctor/machine_report.h"

#include "base/log.h"
#include "comm/measure.h"
#include "doctor/int8_product.h"
#include "exec/measure_products.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/table.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cuda_module.h"

#include <cblas.h>
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
#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

/* Prints whether the processor has units for products of bf16 and int8, and whether kernels use
 * the units of bf16. */
static void print_units(void)
{
    bool bf16 = false, vnni = false, amx_bf16 = false, amx_int8 = false;
#if defined(__x86_64__)
    unsigned a, b, c, d;
    bf16 = __builtin_cpu_supports("avx512bf16");
    vnni = __builtin_cpu_supports("avx512vnni");
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        amx_bf16 = d >> 22 & 1;
        amx_int8 = d >> 25 & 1;
    }
#endif
    printf("%-16s AVX512-BF16 %s, AVX512-VNNI %s, AMX-BF16 %s, AMX-INT8 %s (no kernel was measured "
           "on AMX)%s\n",
           "units", bf16 ? "yes" : "no", vnni ? "yes" : "no", amx_bf16 ? "yes" : "no",
           amx_int8 ? "yes" : "no",
           bf16 && !cpu_isa_get()->bf16_units ? "; WEFT_CPU_ISA disables the units of bf16" : "");
}

/* hwloc reports packages, cores without hyper-threads, and caches. */
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
    print_units();
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
    printf("%-16s %s, encoders: %s, %s\n", "codecs",
           avcodec_find_decoder(AV_CODEC_ID_H264) ? "H.264 decoder found" : "H.264 decoder MISSING",
           avcodec_find_encoder_by_name("libx264")
               ? "libx264 found"
               : "libx264 MISSING: weft generate cannot write mp4",
           avcodec_find_encoder_by_name("libvpx-vp9")
               ? "libvpx-vp9 found"
               : "libvpx-vp9 MISSING: weft generate cannot write webm");
    printf("%-16s jansson %s; libyaml %s; libpng %s; xxhash %u\n", "others", JANSSON_VERSION,
           yaml_get_version_string(), png_get_libpng_ver(NULL), XXH_versionNumber());
}

static void print_gpu(void)
{
    const weft_cuda_gpu *gpu;
    char text[32];
    if (weft_cuda_gpu_get(&gpu) != WEFT_OK || weft_cuda_module_check() != WEFT_OK) {
        printf("%-16s %s\n", "GPU", weft_error_text());
        return;
    }
    printf("%-16s %s, compute capability %d.%d, %s; CUDA %d.%d; GPU %d of %d; backend cuda\n",
           "GPU", gpu->name, gpu->major, gpu->minor, weft_format_bytes(gpu->memory, text),
           gpu->version / 1000, gpu->version % 1000 / 10, gpu->ordinal, gpu->count);
}

void weft_doctor_machine(void)
{
    printf("%-16s %s\n", "weft", WEFT_VERSION);
    print_machine();
    print_libraries();
    print_gpu();
}

/* Measures one type with the threads of the process. `type`: F32, BF16, or U8 for int8. */
static weft_status measure_type(weft_dtype type, double *rate)
{
    return type == WEFT_U8 ? weft_doctor_int8_product(0.6, rate)
                           : weft_measure_gemm(&weft_backend_cpu, type, 0.6, rate);
}

static weft_status measure_products(void)
{
    static const struct {
        weft_dtype type;
        const char *name, *unit;
    } row[] = {
        {WEFT_F32, "f32", "GFLOP/s"}, {WEFT_BF16, "bf16", "GFLOP/s"}, {WEFT_U8, "int8", "GOP/s"}};
    const int threads = omp_get_max_threads();
    for (int i = 0; i < WEFT_COUNT(row); i++) {
        double all, one;
        WEFT_TRY(measure_type(row[i].type, &all));
        omp_set_num_threads(1);
        const weft_status_code status = measure_type(row[i].type, &one);
        omp_set_num_threads(threads);
        WEFT_TRY(status);
        printf("%-16s %-4s %8.1f %s with one thread, %8.1f with %d, 1024x1024x1024%s\n",
               i ? "" : "products", row[i].name, one, row[i].unit, all, threads,
               row[i].type == WEFT_U8 ? ", by oneDNN" : "");
    }
    return WEFT_OK;
}

weft_status weft_doctor_measure(void)
{
    double bytes;
    WEFT_TRY(measure_products());
    WEFT_TRY(weft_measure_memory(128 << 20, 1, &bytes));
    printf("%-16s %.1f GB/s, copy, read and written bytes counted, %d threads\n", "memory speed",
           1e-9 * bytes, omp_get_max_threads());
    return WEFT_OK;
}
